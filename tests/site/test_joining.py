"""What is wrong with a server's certificate is said by name, before anything is sent."""

from __future__ import annotations

import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.server.config import ServerConfig, init_server
from prismfl.server.running import start
from prismfl.site import certificates
from prismfl.site.certificates import make_authority, renew_server
from prismfl.site.joining import PATIENCE_SECONDS, Outage, check_trust, follow_log, preflight, supernode_command
from prismfl.transport.flower.children import guarded
from tests.site.folders import run_config


class Quiet(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


class Silent(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that was refused is what is tested."""


@contextmanager
def served(keys: Path) -> Iterator[str]:
    """A server with these certificates, on loopback."""
    server = Silent(("127.0.0.1", 0), Quiet)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def long_ago(monkeypatch: pytest.MonkeyPatch, days: int) -> Iterator[None]:
    """Certificates that are made here were made so many days ago."""
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "now", lambda: datetime.now(UTC) - timedelta(days=days))
        yield


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_authority(tmp_path / "keys", ["127.0.0.1"])
    return tmp_path / "keys"


def refused(keys: Path, ca: Path) -> str:
    with served(keys) as address, pytest.raises(UserError) as error:
        preflight(address, ca, lambda line: None, attempts=1)
    assert "nothing was sent" in str(error.value)
    return str(error.value)


def test_a_good_certificate_and_a_renewed_one_are_taken_with_the_same_trust(keys: Path, tmp_path: Path) -> None:
    shutil.copy(keys / "ca.pem", tmp_path / "trusted.pem")
    for _ in range(2):
        with served(keys) as address:
            preflight(address, tmp_path / "trusted.pem", lambda line: None, attempts=1)
        renew_server(keys)


def test_expired_wrong_and_swapped_certificates_are_told_apart(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(tmp_path / "other", ["127.0.0.1"])
    assert "another server, or keys/ca.pem is of another one" in refused(keys, tmp_path / "other" / "ca.pem")
    renew_server(keys, ["fed.example.org"])
    assert "is for other names than '127.0.0.1'" in refused(keys, keys / "ca.pem")
    with long_ago(monkeypatch, 365 * 4):
        make_authority(tmp_path / "old", ["127.0.0.1"])
    monkeypatch.setattr(certificates, "YEARS", 1)
    with long_ago(monkeypatch, 400):
        renew_server(tmp_path / "old")
    assert "has expired" in refused(tmp_path / "old", tmp_path / "old" / "ca.pem")
    with long_ago(monkeypatch, -30):
        renew_server(keys, ["127.0.0.1"])
    assert "is this machine's clock right?" in refused(keys, keys / "ca.pem")


def test_a_site_checks_what_it_trusts_before_it_calls(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    check_trust(keys / "ca.pem", lines.append)
    assert lines == []
    with pytest.raises(UserError, match="a server's own certificate"):
        check_trust(keys / "server.pem", lines.append)
    with long_ago(monkeypatch, 365 * 5 - 10):
        make_authority(tmp_path / "soon", ["127.0.0.1"])
    check_trust(tmp_path / "soon" / "ca.pem", lines.append)
    assert "ca.pem ends in 9 days" in lines[0]
    with long_ago(monkeypatch, 365 * 5 + 10):
        make_authority(tmp_path / "gone", ["127.0.0.1"])
    with pytest.raises(UserError, match="has expired on"):
        check_trust(tmp_path / "gone" / "ca.pem", lines.append)


def test_a_server_does_not_start_with_certificates_that_no_site_would_trust(tmp_path: Path) -> None:
    init_server(tmp_path / "server", ServerConfig(), ["127.0.0.1"])
    make_authority(tmp_path / "other", ["127.0.0.1"])
    shutil.copy(tmp_path / "other" / "server.pem", tmp_path / "server" / "keys" / "server.pem")
    with pytest.raises(UserError, match="was not issued by ca"):
        start(tmp_path / "server", run_config(), say=lambda line: None)


def test_a_server_that_is_gone_and_back_is_told_once_each(tmp_path: Path) -> None:
    """Out of Flower's own words, which its version still says."""
    retry = pytest.importorskip("flwr.supercore.retry.http_retry")
    source = Path(str(retry.__file__)).read_text()
    assert Outage.GONE in source
    assert Outage.BACK in source
    log, lines = tmp_path / "supernode.log", list[str]()
    log.write_text(f"WARNING: {Outage.GONE} 1.00 seconds\n")  # of an earlier connection
    look = follow_log(log, Outage("hub:9092", lines.append))
    look()
    assert lines == []
    with log.open("a") as file:
        for words in ("INFO: Received", Outage.GONE, Outage.GONE, "ERROR: something", Outage.BACK, Outage.BACK):
            file.write(f"{words} 2.00 seconds\n")
            file.flush()
            look()
    assert lines == [
        "the server at hub:9092 does not answer; trying again by itself",
        "the server at hub:9092 answers again",
    ]


def test_a_supernode_does_not_try_one_call_for_ever(tmp_path: Path) -> None:
    """The bug: a SuperNode that hangs in a call, or has given up, is alive, so nobody starts it anew."""
    pytest.importorskip("flwr")
    command = supernode_command(tmp_path, "hub:9092", insecure=True)
    assert command[:3] == guarded("supernode"), "Flower's own would not end"
    assert command[command.index("--max-wait-time") + 1] == f"{PATIENCE_SECONDS:g}"
