"""Certificates: made, renewed under the same authority, and what is wrong with them said by name."""

from __future__ import annotations

import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.site import certificates
from prismfl.site.certificates import (
    look,
    look_at_server,
    look_at_trust,
    make_authority,
    read_certificates,
    renew_server,
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_authority(tmp_path / "keys", ["127.0.0.1", "fed.example.org"])
    return tmp_path / "keys"


def faults(keys: Path) -> str:
    return "; ".join(fault for state in look_at_server(keys) for fault in state.faults)


def loads(keys: Path) -> None:
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(keys / "server.pem", keys / "server.key")


def test_a_renewed_certificate_is_of_the_same_authority_and_names(keys: Path) -> None:
    before, authority = (keys / "server.pem").read_bytes(), (keys / "ca.pem").read_bytes()
    state = renew_server(keys)
    assert (state.names, state.faults) == (("127.0.0.1", "fed.example.org"), ())
    assert (keys / "server.pem").read_bytes() != before
    assert (keys / "ca.pem").read_bytes() == authority, "a site has nothing to do"
    assert (keys / "server.key").stat().st_mode & 0o077 == 0
    assert faults(keys) == ""
    loads(keys)
    assert renew_server(keys, ["new.example.org"]).names == ("new.example.org",)
    assert sorted(path.name for path in keys.iterdir()) == ["ca.key", "ca.pem", "server.key", "server.pem"]


def test_a_certificate_ends_no_later_than_its_authority(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "now", lambda: datetime.now(UTC) + timedelta(days=365 * 4))
    renew_server(keys)
    server, authority = (read_certificates(keys / f"{name}.pem")[0] for name in ("server", "ca"))
    assert server.not_valid_after_utc == authority.not_valid_after_utc
    monkeypatch.setattr(certificates, "now", lambda: datetime.now(UTC) + timedelta(days=365 * 6))
    with pytest.raises(UserError, match="ended on"):
        renew_server(keys)
    assert "has expired on" in look(keys / "ca.pem").faults[0]
    monkeypatch.setattr(certificates, "now", lambda: datetime.now(UTC) - timedelta(days=9))
    assert "is this clock right?" in look(keys / "ca.pem").faults[0]


def test_what_was_swapped_is_named(keys: Path, tmp_path: Path) -> None:
    make_authority(tmp_path / "other", ["127.0.0.1"])
    other = tmp_path / "other"
    for name, words in (
        ("server.pem", "was not issued by ca.pem"),
        ("server.key", "server.key is not the key of server.pem"),
        ("ca.pem", "was not issued by ca.pem"),
    ):
        shutil.copytree(keys, tmp_path / name)
        shutil.copy(other / name, tmp_path / name / name)
        assert words in faults(tmp_path / name)
    shutil.copy(keys / "server.pem", keys / "ca.pem")
    assert "swapped with server.pem" in faults(keys)
    assert "a server's own certificate" in look_at_trust(keys / "ca.pem").faults[0]
    with pytest.raises(UserError, match="restore the two together"):
        renew_server(keys)


def test_what_is_no_certificate_or_key_is_one_line(keys: Path) -> None:
    (keys / "server.key").write_text("x")
    assert "is not a private key" in faults(keys)
    (keys / "server.pem").write_text("x")
    assert "is not a certificate" in faults(keys)
    (keys / "server.pem").unlink()
    assert "Cannot read" in faults(keys)
    with pytest.raises(UserError, match="names that sites use"):
        renew_server(keys)
