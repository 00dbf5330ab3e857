"""Who may ask a page on this machine: the check stands before every method that a page has or will have."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import ThreadingHTTPServer

import pytest

from prismfl.errors import UserError
from prismfl.transport.local import TOKEN, LocalHandler, is_own_host, listen, same_token

SECRET = "a-token"


class Careless(LocalHandler):
    """A page that checks nothing by itself."""

    def do_GET(self) -> None:
        self.send(HTTPStatus.OK, b"yes" if self.has_token(SECRET) else b"no")

    do_PUT = do_DELETE = do_GET


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = listen(0, Careless)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server: ThreadingHTTPServer, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    own = {"Host": f"127.0.0.1:{server.server_port}", **{key.replace("_", "-"): v for key, v in headers.items()}}
    connection.request(method, "/", headers=own)
    answer = connection.getresponse()
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert answer.getheader("Cache-Control") == "no-store"
    found = answer.status, answer.read()
    connection.close()
    return found


def test_whose_name_counts() -> None:
    assert is_own_host("127.0.0.1:80", 80)
    assert is_own_host("localhost:80", 80)
    for other in (None, "", "evil.example:80", "127.0.0.1", "127.0.0.1:81", "127.0.0.1.evil.example:80"):
        assert not is_own_host(other, 80)


def test_no_page_can_forget_to_ask_for_the_name(server: ThreadingHTTPServer) -> None:
    """The bug: a check in each method, and one method without it."""
    port = server.server_port
    for method in ("GET", "PUT", "DELETE"):
        assert ask(server, method)[0] == 200
        assert ask(server, method, Host=f"localhost:{port}")[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
            assert ask(server, method, Host=host) == (421, b"")


def test_a_token_counts_from_our_own_page_alone(server: ThreadingHTTPServer) -> None:
    assert same_token(SECRET, SECRET)
    assert not same_token("", SECRET)
    assert not same_token("\udc80", SECRET), "what no token could be is no error"
    port, right = server.server_port, {TOKEN.replace("-", "_"): SECRET}
    assert ask(server) == (200, b"no")
    assert ask(server, **right) == (200, b"yes")
    assert ask(server, Origin=f"http://localhost:{port}", **right) == (200, b"yes")
    for origin in ("null", "http://evil.example", f"http://127.0.0.1:{port + 1}", f"https://127.0.0.1:{port}"):
        assert ask(server, Origin=origin, **right) == (200, b"no")


def test_a_taken_port_is_one_line(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(UserError, match="choose another with --port"):
        listen(server.server_port, Careless)
