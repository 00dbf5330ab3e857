"""The release desk as a page: what waits for a person on this machine, and the decision.

Who may drive it: whoever has the token that was printed on the operator's terminal. It travels in a header that no
other page can set (see `transport.local`), never in an address that is sent, a cookie (which other ports of this
machine would get) or a log. The page fetches nothing from elsewhere, and every word on it that a server may have chosen
is set as text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prismfl.errors import PrismError, UserError
from prismfl.files.bounded import load_json, read_regular, read_text
from prismfl.report.page import template
from prismfl.site.approvals import Approvals
from prismfl.transport.local import HOST, LocalHandler, listen

MOST_BODY, MOST_PICTURE = 10_000, 16 * 2**20
ROWS = "first rows of "


def serve(folder: Path, *, port: int, say: Callable[[str], None]) -> None:
    """Serve the desk of a site until Ctrl-C; the address with the token is said once."""
    token = secrets.token_urlsafe(32)
    server = desk_server(folder, token, port=port)
    say(f"http://{HOST}:{server.server_port}/#{token}")
    say("give this address to nobody; stop with Ctrl-C")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()


def held_facts(folder: Path) -> list[dict[str, Any]]:
    """Every held release with all there is to know before one decides."""
    approvals = Approvals(folder)
    found = []
    for held in approvals.all():
        text = read_text(approvals.folder / held.id / "preview.txt")
        head = text[text.index(ROWS) :] if ROWS in text else ""
        known = {"plan": "", "left": "", "bytes": 0, "asked": [], "items": [], "nearest": []}
        found.append({**known, **approvals.facts(held.id), "head": head, "files": []})
    return found


def desk_server(folder: Path, token: str, *, port: int = 0) -> ThreadingHTTPServer:
    """The desk's server on loopback."""
    approvals = Approvals(folder)

    class Handler(LocalHandler):
        """The page, which holds nothing; and what it asks for, with the token."""

        def do_GET(self) -> None:
            if self.path == "/":
                return self._page()
            return self._guarded(self._read)

        def do_POST(self) -> None:
            return self._guarded(self._decide)

        def _guarded(self, answer: Callable[[], None]) -> None:
            if not self.has_token(token):
                return self.send(HTTPStatus.UNAUTHORIZED)
            try:
                return answer()
            except PrismError as error:
                return self._json(HTTPStatus.BAD_REQUEST, {"error": str(error)})

        def _read(self) -> None:
            parts = self.path.split("/")[1:]
            if parts == ["api", "held"]:
                return self._json(HTTPStatus.OK, held_facts(folder))
            if len(parts) == 4 and parts[:2] == ["api", "held"] and parts[3] in approvals.pictures(parts[2]):
                raw = read_regular(approvals.folder / parts[2] / parts[3], limit=MOST_PICTURE)
                return self.send(HTTPStatus.OK, raw, "image/png")
            return self.send(HTTPStatus.NOT_FOUND)

        def _decide(self) -> None:
            parts, size = self.path.split("/")[1:], self.headers.get("content-length", "")
            if self.headers.get_content_type() != "application/json" or not size.isdigit() or int(size) > MOST_BODY:
                return self.send(HTTPStatus.BAD_REQUEST)
            if len(parts) != 3 or parts[:2] != ["api", "held"]:
                return self.send(HTTPStatus.NOT_FOUND)
            try:
                told = load_json(self.rfile.read(int(size)), depth=1)
                decision, by, reason = (told[key] for key in ("decision", "by", "reason"))
            except (ValueError, KeyError, TypeError):
                raise UserError("Expected a decision, a name and a reason.") from None
            if decision not in ("approved", "denied") or not isinstance(by, str) or not isinstance(reason, str):
                raise UserError("Expected a decision, a name and a reason.")
            held = approvals.decide(parts[2], decision, by=by, reason=reason)
            return self._json(HTTPStatus.OK, {"decision": held.decision})

        def _page(self) -> None:
            nonce = secrets.token_urlsafe(16)
            policy = (
                f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src blob:; "
                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            )
            raw = template("desk.html").replace("/*nonce*/", nonce).encode()
            self.send(HTTPStatus.OK, raw, "text/html; charset=utf-8", {"Content-Security-Policy": policy})

        def _json(self, status: HTTPStatus, value: object) -> None:
            self.send(status, json.dumps(value, allow_nan=False).encode(), "application/json")

    return listen(port, Handler)
