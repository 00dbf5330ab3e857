#!/bin/sh
# The walkthrough's first half, for a trial in one place: a federation of three sites, their keys, who is enrolled.
# Usage: found.sh ROOT HOST:PORT. On real machines each party runs its own lines (docs: Operate a federation).
set -eu
root=$1 address=$2
umask 077
work=$root/.paper
rm -rf "$work"
prismfl federation new "$work" --server "$address" --site north --site south --site west \
    --method dp-fedavg --data digits --epsilon 4 --cap 8 --no-approval
for party in server north south west; do
    mkdir -p "$root/$party"
    rm -rf "${root:?}/$party/$( [ "$party" = server ] && echo server || echo site )"
done
mv "$work/server" "$root/server/server"
for site in north south west; do mv "$work/$site" "$root/$site/site"; done
rm -rf "$work"
printf '%s\n' 'model = "logreg"' '[settings]' 'rounds = 3' 'steps = 10' 'batch = 64' >> "$root/server/server/run.toml"
prismfl federation keys "$root/server/server"
for site in north south west; do
    prismfl federation keys "$root/$site/site" --ca "$root/server/server/keys/ca.pem"
    prismfl server enroll "$root/server/server" "$site" "$root/$site/site/keys/node.pub"
done
