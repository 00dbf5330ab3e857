#!/bin/sh
# The walkthrough's first half, for a trial in one place: a federation of three sites, their keys, who is enrolled.
# Usage: found.sh ROOT HOST:PORT. On real machines each party runs its own lines (docs: Operate a federation).
# Below ROOT only the four parties' folders are written to: each may be a volume. What was founded once stays.
set -eu
root=$1 address=$2
umask 077
[ ! -e "$root/server/founded" ] || exit 0
paper=$(mktemp -d)
trap 'rm -rf "$paper"' EXIT
prismfl federation new "$paper/fed" --server "$address" --site north --site south --site west \
    --method dp-fedavg --data digits --epsilon 4 --cap 8 --no-approval
printf '%s\n' 'model = "logreg"' '[settings]' 'rounds = 3' 'steps = 10' 'batch = 64' >> "$paper/fed/server/run.toml"
mkdir -p "$root/server"
rm -rf "${root:?}/server/server"
cp -R "$paper/fed/server" "$root/server/server"
prismfl federation keys "$root/server/server"
for site in north south west; do
    mkdir -p "$root/$site"
    rm -rf "${root:?}/$site/site"
    cp -R "$paper/fed/$site" "$root/$site/site"
    prismfl federation keys "$root/$site/site" --ca "$root/server/server/keys/ca.pem"
    prismfl server enroll "$root/server/server" "$site" "$root/$site/site/keys/node.pub"
done
: > "$root/server/founded"
