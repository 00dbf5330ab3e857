"""The page for a monitor: Prometheus' format, loopback, and nobody else's browser."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from prismfl.errors import UserError
from prismfl.transport.watch import Metric, Watched, one, text_of, watch_server

METRICS = [
    one("prismfl_up", "Up.", True),
    Metric("prismfl_words_total", "Words.", [({"word": 'a"b\\c\nd'}, 2.0)], "counter"),
    one("prismfl_epsilon", "Left.", float("inf")),
    one("prismfl_half", "Half.", 0.5),
]


def broken() -> bool:
    raise UserError("record 17: Jane Doe")


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = watch_server(0, Watched(lambda: METRICS, lambda: True, broken))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def get(server: ThreadingHTTPServer, path: str, *, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    answer = connection.getresponse()
    assert answer.getheader("Access-Control-Allow-Origin") is None
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_text_is_prometheus_own() -> None:
    assert text_of(METRICS) == (
        "# HELP prismfl_up Up.\n# TYPE prismfl_up gauge\nprismfl_up 1\n"
        "# HELP prismfl_words_total Words.\n# TYPE prismfl_words_total counter\n"
        'prismfl_words_total{word="a\\"b\\\\c\\nd"} 2\n'
        "# HELP prismfl_epsilon Left.\n# TYPE prismfl_epsilon gauge\nprismfl_epsilon +Inf\n"
        "# HELP prismfl_half Half.\n# TYPE prismfl_half gauge\nprismfl_half 0.5\n"
    )


def test_three_paths_answer_and_no_answer_has_a_reason(server: ThreadingHTTPServer) -> None:
    assert get(server, "/metrics") == (200, text_of(METRICS))
    assert get(server, "/health") == (200, "ok\n")
    assert get(server, "/ready") == (503, "no\n"), "an error's words may quote a record"
    for path in ("/", "/metrics/..", "/etc/passwd", "/metrics?x=1"):
        assert get(server, path) == (404, "")
    assert get(server, "/metrics", method="POST")[0] == 501


def test_a_name_that_was_made_to_point_here_gets_nothing(server: ThreadingHTTPServer) -> None:
    """DNS rebinding: a page of evil.example reads what its own name serves."""
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", f"localhost.:{server.server_port}"):
        assert get(server, "/metrics", host=host) == (421, "")
    assert get(server, "/health", host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_on_loopback_alone_and_a_taken_port_is_one_line(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(UserError, match="choose another with --port"):
        watch_server(server.server_port, Watched(lambda: [], lambda: True, lambda: True))
