"""Signed bundles: peers come to the same state as a server would; a bundle that is not right counts for nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismfl.errors import PrismError, UserError, WireError
from prismfl.methods import METHODS
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.site.bundle import MAGIC, Peer, open_bundle, seal_bundle
from prismfl.site.keys import make_site_keys, peer_keys, signing_key
from prismfl.transport import in_process as local
from tests.hostile.test_sites_remote import forge, picky
from tests.site.folders import NAMES, introduced, make_site, run_config, table_sites


def make_peers(root: Path, **changes: object) -> list[Peer]:
    for name in NAMES:
        make_site(root, name, **changes)
        make_site_keys(root / name / "keys")
    for name in NAMES:
        (root / name / "peers").mkdir()
        for other in NAMES:
            if other != name:
                shutil.copyfile(root / other / "keys" / "sign.pub", root / name / "peers" / f"{other}.pub")
    return [Peer.open(root / name, run_config()) for name in NAMES]


def test_peers_come_to_the_state_of_the_local_engine(tmp_path: Path) -> None:
    peers = make_peers(tmp_path / "sites")
    for _ in range(2):
        for peer in peers:
            peer.export(tmp_path / "shared")
        done = [peer.absorb(tmp_path / "shared") for peer in peers]
        assert len({d.digest for d in done}) == 1
    assert done[0].finished
    assert done[0].sites == tuple(sorted(NAMES))
    job, description = peers[0].job, peers[0].description
    hosts = [make_site(tmp_path / "local", name)._host(job, description) for name in NAMES]
    outcome = local.run(job, hosts, directory=RunDirectory.create(tmp_path / "there", {}, {}))
    assert state_digest(outcome.state) == done[0].digest
    with pytest.raises(UserError, match="over after 2 rounds"):
        peers[0].export(tmp_path / "shared")


def test_peers_look_through_the_same_encoder(tmp_path: Path) -> None:
    make_peers(tmp_path / "sites", methods=["prism-head", "dp-fedavg"], releases=["statistics", "weights"])
    asked = run_config(method="prism-head", public_count=40, encoder="scattering")
    asked = asked.model_copy(update={"settings": {**METHODS["prism-head"].tiny, "sigma": 2.0, "layers": ["order0"]}})
    peers = [Peer.open(tmp_path / "sites" / name, asked) for name in NAMES]
    for peer in peers:
        peer.export(tmp_path / "shared")
    done = [peer.absorb(tmp_path / "shared") for peer in peers]
    assert len({d.digest for d in done}) == 1
    assert done[0].finished
    encoder = peers[0].job.task.encoder
    assert encoder is not None
    assert encoder.digest == peers[0].description["encoder"]


def test_peers_end_with_the_same_table(tmp_path: Path) -> None:
    offices, config = table_sites(tmp_path / "sites")
    peers = [Peer.open(office.folder, config) for office in introduced(offices)]
    for peer in peers:
        peer.export(tmp_path / "shared")
    for peer in peers:
        assert peer.absorb(tmp_path / "shared").finished
    made = [(peer.directory.path / "gen" / "synthetic.csv").read_bytes() for peer in peers]
    assert len(set(made)) == 1
    assert made[0].startswith(b"patient,height,seen,ill\n1,")


def test_an_export_again_is_the_same_bytes_and_free(tmp_path: Path) -> None:
    peer, *_ = make_peers(tmp_path / "sites", noise="operating-system")
    first = peer.export(tmp_path / "shared").read_bytes()
    assert peer.export(tmp_path / "shared").read_bytes() == first
    host = peer.office._host(peer.job, peer.description)
    assert len(host.ledger.charges(run=peer.job.run)) == 1


def test_a_missing_bundle_is_waited_for_or_left_out_by_name(tmp_path: Path) -> None:
    peers = make_peers(tmp_path / "sites")
    for peer in peers[:2]:
        peer.export(tmp_path / "shared")
    with pytest.raises(UserError, match="No bundle of 'west' for round 1"):
        peers[0].absorb(tmp_path / "shared")
    done = [peer.absorb(tmp_path / "shared", without=["west"]) for peer in peers]
    assert len({d.digest for d in done}) == 1


def test_forged_replayed_and_damaged_bundles_count_for_nothing(tmp_path: Path) -> None:
    peers = make_peers(tmp_path / "sites")
    shared = tmp_path / "shared"
    paths = [peer.export(shared) for peer in peers]
    good = paths[0].read_bytes()
    header, release = open_bundle(good, {"north": signing_key(tmp_path / "sites/north/keys/sign.key").public_key()})
    forger = signing_key(tmp_path / "sites/south/keys/sign.key")
    own = signing_key(tmp_path / "sites/north/keys/sign.key")
    keys = peer_keys(tmp_path / "sites/west")
    before = peers[2].state()
    bad = {
        "another's signature": seal_bundle(forger, header, release),
        "flipped": good[:-100] + bytes([good[-100] ^ 1]) + good[-99:],
        "truncated": good[:-1],
        "another round": seal_bundle(own, {**header, "round": 1}, release),
        "another run": seal_bundle(own, {**header, "run": "x"}, release),
        "another's release": seal_bundle(own, header, open_bundle(paths[1].read_bytes(), keys)[1]),
        "unknown site": seal_bundle(own, {**header, "site": "east"}, release),
        "no bundle": b"\x80\x04pickle",
        "lying length": MAGIC + b"\xff\xff\xff\x7f" + good[len(MAGIC) + 4 :],
    }
    for what, raw in bad.items():
        paths[0].write_bytes(raw)
        with pytest.raises(WireError):
            peers[2].absorb(shared)
        assert state_digest(peers[2].state()) == state_digest(before), what
    paths[0].write_bytes(good)
    assert peers[2].absorb(shared).round == 0


def test_a_bundle_that_is_no_file_is_refused_not_waited_for(tmp_path: Path) -> None:
    """The shared place needs no trust: a pipe in it would hang the reader, a device would never end."""
    peers = make_peers(tmp_path / "sites")
    path = peers[0].export(tmp_path / "shared")
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="regular file"):
        peers[2].absorb(tmp_path / "shared")
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # so that the old reader would have found a (silent) writer, and waited
    try:
        with pytest.raises(UserError, match="regular file"):
            peers[2].absorb(tmp_path / "shared")
    finally:
        os.close(writer)
    assert peers[2].state().round == 0


def test_the_site_decides_here_too(tmp_path: Path) -> None:
    peer, *_ = make_peers(tmp_path / "sites", cap=0.01)
    with pytest.raises(PrismError, match="refused"):
        peer.export(tmp_path / "shared")
    assert not list((tmp_path / "shared").glob("*"))


def test_a_spoilt_release_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer signs a release with which the step fails: all others leave it out and come to one state."""
    monkeypatch.setitem(METHODS, "dp-fedavg", replace(METHODS["dp-fedavg"], server=picky, possible=None))
    peers = make_peers(tmp_path / "sites")
    shared = tmp_path / "shared"
    for peer in peers:
        peer.export(shared)
    path = next(shared.glob("*south*"))
    own = signing_key(tmp_path / "sites/south/keys/sign.key")
    header, release = open_bundle(path.read_bytes(), {"south": own.public_key()})
    path.write_bytes(seal_bundle(own, header, forge(release, lambda t: torch.full_like(t, 7.0))))
    done = [peer.absorb(shared) for peer in peers]
    assert {tuple(d.sites) for d in done} == {("north", "west")}
    assert {tuple(d.dropped) for d in done} == {("south",)}
    assert len({d.digest for d in done}) == 1
