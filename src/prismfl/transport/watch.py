"""What a monitor asks on this machine: `/metrics` in Prometheus' text format, `/health` and `/ready`. Loopback only.

No page of a browser can read it (see `local`). What the numbers are is for the site and the server; neither may give
one that depends on a record beyond what has left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Literal

from prismfl.errors import PrismError
from prismfl.transport.local import LocalHandler, listen

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """One name with what it means, and its numbers by their labels."""

    name: str
    words: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True)
class Watched:
    """What is watched: its numbers; whether it is alive; whether it can do its work. No answer has a reason in it."""

    metrics: Callable[[], Sequence[Metric]]
    healthy: Callable[[], bool]
    ready: Callable[[], bool]


def one(name: str, words: str, value: float, kind: Literal["gauge", "counter"] = "gauge") -> Metric:
    """A metric of one number."""
    return Metric(name, words, [({}, value)], kind)


def text_of(metrics: Sequence[Metric]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.words}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            inner = ",".join(f'{key}="{_label(word)}"' for key, word in labels.items())
            lines.append(f"{metric.name}{'{' + inner + '}' if inner else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _label(word: str) -> str:
    return word.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if value != int(value) else str(int(value))


def watch_server(port: int, watched: Watched) -> ThreadingHTTPServer:
    """A server on loopback that answers a monitor; `serve_forever` and `shutdown` are its own."""

    class Handler(LocalHandler):
        """GET of three paths, and nothing else."""

        def do_GET(self) -> None:
            try:
                if self.path == "/metrics":
                    return self._say(HTTPStatus.OK, text_of(watched.metrics()))
                if self.path in ("/health", "/ready"):
                    fine = watched.healthy() if self.path == "/health" else watched.healthy() and watched.ready()
                    status = HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE
                    return self._say(status, "ok\n" if fine else "no\n")
            except (PrismError, OSError, ValueError, LookupError):
                return self._say(HTTPStatus.SERVICE_UNAVAILABLE, "no\n")  # why is in the log and in `doctor`
            return self._say(HTTPStatus.NOT_FOUND, "")

        def _say(self, status: HTTPStatus, text: str) -> None:
            self.send(status, text.encode(), TEXT)

    return listen(port, Handler)
