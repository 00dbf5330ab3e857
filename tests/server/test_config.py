"""Who is enrolled: a revoked key is nobody's for good, a new key takes a name over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.server.config import ServerConfig, by_key, enroll, enrolled, init_server, replace, revoke
from prismfl.server.starting import forget_revoked
from prismfl.site.keys import make_site_keys, next_node_key, node_identity, switch_node_key


@pytest.fixture
def server(tmp_path: Path) -> Path:
    init_server(tmp_path / "server", ServerConfig(), ["127.0.0.1"])
    for name in ("north", "south"):
        make_site_keys(tmp_path / name)
        enroll(tmp_path / "server", name, tmp_path / name / "node.pub")
    return tmp_path / "server"


def test_a_revoked_key_is_never_admitted_again(server: Path, tmp_path: Path) -> None:
    revoke(server, "north", "laptop stolen")
    assert list(enrolled(server)) == ["south"]
    for name in ("north", "other"):
        with pytest.raises(UserError, match=r"was revoked on .* \(laptop stolen\)"):
            enroll(server, name, tmp_path / "north" / "node.pub")
    with pytest.raises(UserError, match="No site 'north' is enrolled; enrolled: south"):
        revoke(server, "north", "again")
    with pytest.raises(UserError, match="site name"):
        revoke(server, "../north", "")


def test_a_key_that_is_half_there_is_nobodys_and_stops_no_run(server: Path) -> None:
    (server / "sites" / "north.pub").write_text("ecdsa-sha2-")
    assert list(by_key(server).values()) == ["south"]


def test_a_site_rotates_its_key(server: Path, tmp_path: Path) -> None:
    keys = tmp_path / "north"
    old = node_identity(keys / "node.pub")
    with pytest.raises(UserError, match="make a new key first"):
        switch_node_key(keys)
    public = next_node_key(keys)
    with pytest.raises(UserError, match="never overwritten"):
        next_node_key(keys)
    with pytest.raises(UserError, match="--replace"):
        enroll(server, "north", public)
    with pytest.raises(UserError, match="as site 'south'"):
        replace(server, "north", tmp_path / "south" / "node.pub")
    with pytest.raises(UserError, match="enroll it without --replace"):
        replace(server, "west", public)
    replace(server, "north", public)
    assert old not in by_key(server)
    switch_node_key(keys)
    assert by_key(server)[node_identity(keys / "node.pub")] == "north"
    assert (keys / "node.key").stat().st_mode & 0o077 == 0
    assert not list(keys.glob("node-next*"))


def test_flowers_list_of_keys_is_made_anew_after_a_revocation(server: Path) -> None:
    """A key that Flower has registered stays in its database: without this it could still connect."""
    home = server / "flower"
    home.mkdir()
    for name in ("state.db", "state.db-wal"):
        (home / name).touch()
    (home / "registered.json").write_text(json.dumps({n: k.decode() for n, k in enrolled(server).items()}))
    forget_revoked(server)
    assert (home / "state.db").exists()
    revoke(server, "north", "x")
    forget_revoked(server)
    assert list(home.iterdir()) == []
