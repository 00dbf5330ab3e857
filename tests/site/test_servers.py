"""Several servers for one site: own allow-lists, one ledger, one cap, and no way to each other's releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.site import joining
from prismfl.site.certificates import make_authority
from prismfl.site.config import SiteConfig
from prismfl.site.office import Office
from prismfl.site.servers import NO_CONFIG, AllowedServer, add_server, load_server, narrowed, servers_of
from tests.hostile.test_server import REFUSED, ask, description
from tests.site.folders import make_site, site_config


def made(tmp_path: Path) -> Path:
    """A site with two servers."""
    tmp_path.mkdir(exist_ok=True)
    made = make_site(tmp_path, "north", cap=2.0, methods=["dp-fedavg", "fedavg"]).folder
    make_authority(tmp_path / "ca", ["127.0.0.1"])
    add_server(made, "one", AllowedServer(address="127.0.0.1:1"), tmp_path / "ca" / "ca.pem")
    add_server(made, "two", AllowedServer(address="127.0.0.1:2", methods=["fedavg"]), tmp_path / "ca" / "ca.pem")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_each_server_has_its_own_lists(folder: Path) -> None:
    assert servers_of(folder) == ["one", "two"]
    told = description()
    assert ask(Office.open(folder, "two"), told).code == "method-not-allowed"
    assert ask(Office.open(folder, "one"), told).kind == "release"


def test_a_server_does_not_get_what_was_released_to_another(folder: Path) -> None:
    """The bug: a run known by its name and config alone. Whoever sees them asks for the same bytes."""
    told = description()
    first = ask(Office.open(folder, "one"), told)
    assert first.kind == "release"
    add = AllowedServer(address="127.0.0.1:3")
    add_server(folder, "three", add, folder / "servers" / "one" / "ca.pem")
    for kind in ("hello", "round"):
        assert ask(Office.open(folder, "three"), told, kind=kind) == REFUSED
    assert ask(Office.open(folder, "one"), told).body == first.body


def test_one_cap_over_all_servers(folder: Path) -> None:
    add_server(folder, "three", AllowedServer(address="127.0.0.1:3"), folder / "servers" / "one" / "ca.pem")
    answers = []
    for i, name in enumerate(("one", "three", "one", "three", "one", "three", "one", "three")):
        told = {**description(), "run": f"run-{i}"}
        answers.append(ask(Office.open(folder, name), told).kind)
    assert answers[0] == "release"
    assert answers[-1] == "code", "the cap holds for both together"
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        (status,) = ledger.status()
        assert status.used is not None
        assert status.used <= 1


def test_no_server_may_do_more_than_the_site() -> None:
    config = site_config("north", methods=["dp-fedavg"], configs=["a", "b"])

    def seen(site: SiteConfig = config, **lists: list[str]) -> SiteConfig:
        return narrowed(site, AllowedServer(address="x:1", **lists))

    assert seen(methods=["fedavg", "dp-fedavg"]).methods == ["dp-fedavg"]
    assert seen(releases=["gradient"]).releases == []
    assert seen(configs=["b", "c"]).configs == ["b"]
    assert seen(configs=["c"]).configs == [NO_CONFIG], "an empty list would allow any"
    assert seen(configs=[]).configs == [NO_CONFIG]
    assert seen(site_config("north"), configs=["c"]).configs == ["c"]
    assert seen() == config


def test_mistakes_are_one_line(folder: Path, tmp_path: Path) -> None:
    ca = folder / "servers" / "one" / "ca.pem"
    with pytest.raises(UserError, match="known already"):
        add_server(folder, "one", AllowedServer(address="127.0.0.1:1"), ca)
    with pytest.raises(UserError, match=r"known here .one, two."):
        load_server(folder, "four")
    with pytest.raises(UserError, match="site name"):
        load_server(folder, "../one")
    with pytest.raises(UserError, match="HOST:PORT"):
        add_server(folder, "four", AllowedServer(address="nowhere"), ca)
    assert joining.trust_of(folder, "one") == ca
    assert "--root-certificates" in joining.supernode_command(folder, "x:1", insecure=False, server="two")
