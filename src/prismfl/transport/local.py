"""A page on this machine: who may ask, checked in one place, before anything else of a request is looked at.

It listens on loopback, and an answer goes only to who calls the machine by its own name: a name that was made to point
here is another `Host` and gets nothing. No answer allows another origin. Where a token is asked for, it travels in a
header that no other page can set.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prismfl.errors import UserError

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
TOKEN = "X-Prismfl-Token"


def is_own_host(given: str | None, port: int) -> bool:
    """Whether a request names this machine as itself: not a name that somebody made to point here."""
    return given in tuple(f"{name}:{port}" for name in NAMES)


def same_token(given: str, token: str) -> bool:
    """Whether somebody has the token; how long it takes does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


class LocalHandler(BaseHTTPRequestHandler):
    """The requests of one machine to itself. What a page adds is reached only by who may ask."""

    server: ThreadingHTTPServer
    server_version, sys_version = "prismfl", ""

    def parse_request(self) -> bool:
        """Read a request; one that calls this machine by another name is answered here, and goes no further."""
        if not super().parse_request():
            return False
        if not is_own_host(self.headers.get("host"), self.server.server_port):
            self.send(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        return True

    def has_token(self, token: str) -> bool:
        """Whether a request carries the token and comes from no page but our own."""
        origin, port = self.headers.get("origin"), self.server.server_port
        own = origin is None or origin in tuple(f"http://{name}:{port}" for name in NAMES)
        return own and same_token(self.headers.get(TOKEN, ""), token)

    def send(
        self,
        status: HTTPStatus,
        raw: bytes = b"",
        kind: str = "text/plain",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with these bytes; nothing of it is kept, framed or read by another page."""
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(len(raw)), "Content-Security-Policy": "default-src 'none'"}
        told |= {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        told |= {"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"}
        for name, value in {**told, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """No line: a request may hold what should not be kept, and a monitor asks every few seconds."""


def listen(port: int, handler: type[LocalHandler]) -> ThreadingHTTPServer:
    """A server on loopback; `serve_forever` and `shutdown` are its own."""
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise UserError(f"Cannot listen on {HOST}:{port}: {error.strerror}; choose another with --port.") from None
    server.daemon_threads = True
    return server
