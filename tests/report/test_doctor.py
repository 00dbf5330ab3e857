"""`prismfl doctor`: each thing that would fail later is named, with what to do, and no record decides a word of it."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy.ledger import chain
from prismfl.privacy.ledger.book import Ledger
from prismfl.report import doctor
from prismfl.report.doctor import Finding, examine
from prismfl.server.config import ServerConfig, init_server
from prismfl.site import certificates
from prismfl.site.config import load_site
from prismfl.site.making import declared_site, make_site
from prismfl.transport.flower.children import free_port
from tests.cli.command import invoke
from tests.site import folders

GIGA = 2**30


def bad(found: list[Finding], verdict: str = "bad") -> dict[str, Finding]:
    return {one.what: one for one in found if one.verdict == verdict}


@pytest.fixture
def server(tmp_path: Path) -> Path:
    init_server(tmp_path / "server", ServerConfig(port=free_port(), quorum=1), ["127.0.0.1"])
    return tmp_path / "server"


@pytest.fixture
def site(tmp_path: Path, server: Path) -> Path:
    folder = folders.make_site(tmp_path, "north").folder
    folder.chmod(0o700)
    (folder / "keys").mkdir(mode=0o700)
    shutil.copy(server / "keys" / "ca.pem", folder / "keys" / "ca.pem")
    return folder


def test_a_sound_site_and_a_sound_server_have_nothing_bad(site: Path, server: Path) -> None:
    assert bad(examine(site)) == {}
    assert bad(examine(server)) == {}
    assert {"python", "packages", "flower", "disk", "ledger", "data", "memory", "certificate"} <= {
        one.what for one in examine(site)
    }


Break = Callable[[Path, Path, pytest.MonkeyPatch], None]


def _expired(site: Path, server: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(certificates, "now", lambda: datetime.now(UTC) + timedelta(days=365 * 6))


def _lost_anchor(site: Path, server: Path, patch: pytest.MonkeyPatch) -> None:
    with Ledger.open(site / "ledger.sqlite") as ledger:
        ledger.dataset("a", records=[b"1"])
    (site / "ledger.sqlite.anchor").unlink()


def _late_clock(site: Path, server: Path, patch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=2)

    with patch.context() as inner:
        inner.setattr(chain, "datetime", Ahead)
        Ledger.open(site / "ledger.sqlite").shut()


def _full(site: Path, server: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(GIGA, GIGA, 0))


@pytest.mark.parametrize(
    ("break_it", "what", "words"),
    [
        (lambda s, v, m: (s / "site.toml").write_text("name = 3"), "site.toml", "name"),
        (lambda s, v, m: s.chmod(0o755), "folder", "others can look into"),
        (lambda s, v, m: (s / "keys" / "ca.pem").unlink(), "certificate", "no "),
        (lambda s, v, m: shutil.copy(v / "keys/server.pem", s / "keys/ca.pem"), "certificate", "is no authority"),
        (lambda s, v, m: (s / "keys/ca.pem").write_text("x"), "certificate", "is not a certificate"),
        (_expired, "certificate", "has expired on"),
        (_lost_anchor, "ledger", "anchor"),
        (_late_clock, "clock", "behind the ledger's last entry"),
        (_full, "disk", "0.0 GiB free"),
    ],
)
def test_what_is_wrong_with_a_site_is_named(
    site: Path, server: Path, monkeypatch: pytest.MonkeyPatch, break_it: Break, what: str, words: str
) -> None:
    break_it(site, server, monkeypatch)
    finding = bad(examine(site))[what]
    assert words in finding.words
    assert finding.mend


def test_what_is_wrong_with_a_server_is_named(server: Path, tmp_path: Path) -> None:
    port = int((server / "server.toml").read_text().partition("port = ")[2].split()[0])
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert "cannot listen" in bad(examine(server))["port"].words
    (server / "keys" / "ca.key").chmod(0o644)
    assert "others can read keys/ca.key" in bad(examine(server))["keys"].words
    init_server(tmp_path / "other", ServerConfig(), ["127.0.0.1"])
    shutil.copy(tmp_path / "other" / "keys" / "server.pem", server / "keys" / "server.pem")
    words = [one.words for one in examine(server) if one.verdict == "bad"]
    assert any("was not issued by ca.pem" in line for line in words)
    assert any("server.key is not the key of server.pem" in line for line in words)
    assert "sites" in bad(examine(server), "look")
    with pytest.raises(UserError, match="neither a site"):
        examine(tmp_path)


def test_a_certificate_that_ends_soon_is_told_30_days_ahead(
    site: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days, told in ((29, True), (32, False)):
        later = datetime.now(UTC) + timedelta(days=365 * 5 - days)
        monkeypatch.setattr(certificates, "now", lambda moment=later: moment)
        assert ("certificate" in bad(examine(server), "look")) == told
        assert bad(examine(server)) == {}


def test_the_server_that_a_site_cannot_reach_is_one_line(site: Path) -> None:
    found = bad(examine(site, address=f"127.0.0.1:{free_port()}"))
    assert "Cannot reach the server" in found["server"].words


def test_limits_that_end_a_run_later_are_told(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    limits = {resource.RLIMIT_NOFILE: (256, 256), resource.RLIMIT_FSIZE: (1000, 1000)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits[what])
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    assert {"open files", "file size", "memory"} <= set(bad(examine(site), "look"))
    monkeypatch.setattr(doctor, "version", lambda name: "1.99.0")
    assert "guards Flower 1.41" in bad(examine(site))["flower"].mend


def test_one_record_more_does_not_show(tmp_path: Path) -> None:
    """The bug: a check that counts. A record that is bad, or one more, changes no word."""
    seen: list[str] = []
    for rows in (["1,a", "2,b"], ["1,a", "2,b", "3,a"], ["1,a", "NaN,zzz", "2,b"]):
        place = tmp_path / str(len(seen))
        place.mkdir()
        (place / "t.csv").write_text("\n".join(["x,y", *rows]) + "\n")
        (place / "s.toml").write_text(
            'label = "y"\nclasses = ["a", "b"]\n[[columns]]\nname = "x"\ntype = "numeric"\nmin = 0.0\nmax = 9.0\n'
        )
        config = declared_site(
            name="north", data=str(place / "t.csv"), methods=["dp-fedavg"], cap="1", schema=str(place / "s.toml"),
            classes=None, bounds=None, part=None, honest=None, ledger=str(place / "ledger"),
        )  # fmt: skip
        make_site(place / "site", config, ca=None, say=lambda line: None)
        assert load_site(place / "site") == config
        found = examine(place / "site")
        text = "\n".join(f"{f.what} {f.verdict} {f.words} {f.mend}" for f in found if f.what != "disk")
        seen.append(text.replace(str(place), "PLACE"))
    assert seen[0] == seen[1] == seen[2]


def test_the_command_ends_with_1_where_something_is_bad(site: Path, tmp_path: Path) -> None:
    assert invoke("doctor", site, cwd=tmp_path).returncode == 0
    (site / "keys" / "ca.pem").unlink()
    done = invoke("doctor", site, "--format", "json", cwd=tmp_path)
    assert done.returncode == 1
    assert "copy the server's ca.pem there" in done.stdout
