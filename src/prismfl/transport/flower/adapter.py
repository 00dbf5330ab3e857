"""Flower as a transport: with `guard.py`, which starts its processes, the only file that imports flwr (1.41).

A `GridPost` carries requests and answers over Flower's Grid, `client_app` puts a site behind a ClientApp. Both only
move bytes: what a message means is decided in `remote.py` on the server and by the site's own office.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from httpx import HTTPStatusError, TransportError

from prismfl.errors import UserError, WireError
from prismfl.files.bounded import DEPTH, load_json
from prismfl.transport.faults import CODE_LENGTH
from prismfl.transport.parts import Coming, Whole
from prismfl.transport.post import Answer, Request

__all__ = ["ClientApp", "Context", "Grid", "GridPost", "ServerApp", "client_app", "read_answer", "server_app"]
RECORD, BODY = "prismfl", "body"
STYPE = "prismfl.bytes"
MESSAGE_TYPE = "train.prismfl"
APP_ERRORS = (1, 2)  # the ClientApp could not be loaded, or raised; the others say that nothing came
TTL_MARGIN = 60.0
MOST_WORDS = 4_000_000
CALL_SECONDS = 10.0
SERVER_ERRORS = 500

T = TypeVar("T")


def pack(words: Mapping[str, str], body: bytes) -> RecordDict:
    """Words and bytes as a Flower record; the bytes travel in chunks and are never deserialised by Flower."""
    array = Array("uint8", (len(body),), STYPE, body)
    return RecordDict({RECORD: ConfigRecord(dict(words)), BODY: ArrayRecord({BODY: array})})


def unpack(content: RecordDict) -> tuple[dict[str, str], bytes] | None:
    """The inverse of `pack`, or None for anything else."""
    records = dict(content.items())
    words, arrays = records.get(RECORD), records.get(BODY)
    if set(records) != {RECORD, BODY} or not isinstance(words, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        return None
    array = arrays.get(BODY)
    if set(arrays) != {BODY} or array is None or array.stype != STYPE or not isinstance(array.data, bytes):
        return None
    if not all(isinstance(value, str) for value in words.values()):
        return None
    return {key: str(value) for key, value in words.items()}, array.data


def request_record(request: Request) -> RecordDict:
    """A request as the content of a Flower message."""
    words = {
        "kind": request.kind,
        "job": json.dumps(request.job, sort_keys=True),
        "round": str(request.round),
        "seconds": repr(request.seconds),
        "turn": request.turn,
        "told": request.told,
        "most": str(request.most),
    }
    return pack(words, request.state)


def read_request(message: Message) -> Request:
    """The request in a message, its words bounded and its kind a known one."""
    found = unpack(message.content)
    if found is None:
        raise UserError("Expected a request of a prismfl server.")
    words, body = found
    if any(len(text) > MOST_WORDS for text in words.values()):
        raise UserError(f"Expected words of at most {MOST_WORDS} letters in a request.")
    kind: Any = words["kind"]
    if kind not in ("hello", "round", "finish", "part"):
        raise UserError("Expected a request of a known kind.")
    job, turn, told = load_json(words["job"], depth=DEPTH), words["turn"], words["told"]
    most = int(words.get("most", "0"))  # a server of before asks for no parts
    return Request(kind, job, int(words["round"]), float(words["seconds"]), body, turn, told, most)


def read_answer(message: Message) -> Answer:
    """An answer, whatever the other side made of it. The text of an error is never looked at."""
    if not message.has_content():
        return Answer("code", code="internal")
    found = unpack(message.content)
    if found is None:
        return Answer("code", code="malformed")
    words, body = found
    return Answer(words.get("kind", "code"), words.get("code", "")[:CODE_LENGTH], words.get("site", "")[:80], body)


class BoundedCalls:
    """Calls to Flower's Grid that may not come back.

    It repeats requests for ever, and waits two hours for the rest of a reply whose sender died while sending; but a
    round ends at its deadline. A call that takes longer than `seconds` gives None and goes on in its thread; a later
    one of the same name gets its result, or None until there is one. What the SuperLink could not answer is None too.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._unfinished: dict[Hashable, Future[Any]] = {}

    def __call__(self, name: Hashable, call: Callable[[], Iterable[T]]) -> list[T] | None:
        earlier: Future[list[T]] | None = self._unfinished.get(name)
        future = _in_thread(lambda: list(call())) if earlier is None else earlier
        try:
            found = future.result(self.seconds if earlier is None else 0.0)
        except TimeoutError:
            if not future.done():
                self._unfinished[name] = future
                return None
            self.forget(name)
            raise
        except HTTPStatusError as error:
            self.forget(name)
            if error.response.status_code < SERVER_ERRORS:
                raise
            return None  # a SuperLink on a busy machine could not answer; it is asked again
        except TransportError:
            self.forget(name)
            return None  # nor could be reached
        self.forget(name)
        return found

    def forget(self, name: Hashable) -> None:
        """Give up the unfinished call of this name, if there is one."""
        self._unfinished.pop(name, None)


def _in_thread(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # whatever it was, it is raised where the answer is awaited
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class GridPost:
    """The transport of `conductor.Conductor` over a Flower Grid. `names` maps an enrolled public key to its site; as a
    function it is asked again and again, so that a site that is revoked is nobody at once. `seen` hears who is there.
    A long answer comes in parts, put together in the folder `spool`; the conductor sees it whole.
    """

    def __init__(
        self,
        grid: Grid,
        names: Mapping[bytes, str] | Callable[[], Mapping[bytes, str]],
        *,
        refresh: float = 2.0,
        patience: float = CALL_SECONDS,
        seen: Callable[[Iterable[str]], None] = lambda names: None,
        spool: Path | None = None,
    ) -> None:
        self.grid, self.refresh, self.seen, self.spool = grid, refresh, seen, spool
        self._coming: dict[int, Coming] = {}
        self._known = names if callable(names) else lambda: names
        self._secured = bool(self._known())
        self._calls = BoundedCalls(patience)
        self._tickets: dict[str, tuple[int, Request, float]] = {}
        self._places: dict[int, str | None] = {}
        self._keys: dict[int, bytes] = {}
        self._seen = float("-inf")

    def places(self) -> Mapping[int, str | None]:
        """Every node and its site's name, asked anew after `refresh` seconds; with enrolled keys, no other node."""
        if time.monotonic() - self._seen >= self.refresh:
            nodes = self._calls("nodes", self.grid.get_nodes)
            if nodes is None:
                return self._places
            names = self._known()
            self._keys |= {node.node_id: node.public_key for node in nodes}
            known = {node.node_id: names.get(node.public_key) for node in nodes}
            # With enrolled keys, a node without one is nobody.
            self._places = {place: name for place, name in known.items() if name is not None or not self._secured}
            self._seen = time.monotonic()
            self.seen(name for name in self._places.values() if name is not None)
        return self._places

    def send(self, place: int, request: Request) -> bool:
        """Whether the Grid took the request for delivery."""
        if request.kind == "round" and self._moving(place, request):
            return True  # half of it is here already
        if request.kind in ("round", "finish"):
            self._give_up(place)
        ttl = request.seconds + TTL_MARGIN
        message = Message(request_record(request), place, MESSAGE_TYPE, ttl=ttl, group_id=str(request.round + 1))
        name = (place, request.kind, request.round, request.turn)
        ids = self._calls(name, partial(self.grid.push_messages, [message]))
        if not ids or not ids[0]:
            return False
        self._tickets[ids[0]] = (place, request, time.monotonic() + ttl)
        return True

    def collect(self) -> Iterator[tuple[int, Request, Answer]]:
        """Replies that have arrived, each with its place and request; a request that has expired is lost. What a
        site that was revoked meanwhile has sent, or would send, is not read."""
        yield from self._revoked()
        for name, (_, _, expires) in list(self._tickets.items()):
            # One by one: a reply that never becomes whole must not keep others waiting.
            replies = self._calls(name, partial(self.grid.pull_messages, [name])) or []
            if not replies and time.monotonic() > expires:
                place, request, _ = self._tickets.pop(name)
                self._calls.forget(name)
                yield from self._whole(place, request, Answer("lost"))  # it may be asked again
            for reply in replies:
                ticket = self._tickets.pop(reply.metadata.reply_to_message_id, None)
                if ticket is None:
                    continue  # answered before: a duplicate counts for nothing
                place, request, _ = ticket
                if reply.has_error() and reply.error.code not in APP_ERRORS:
                    answer = Answer("lost")
                elif reply.metadata.src_node_id != place:
                    answer = Answer("code", code="forged-sender")
                else:
                    answer = read_answer(reply)
                yield from self._whole(place, request, answer)
        for place in list(self._coming):
            self._ask_parts(place)

    def _whole(self, place: int, request: Request, answer: Answer) -> Iterator[tuple[int, Request, Answer]]:
        """An answer that is whole, or nothing yet: an announcement begins one, a part adds to it."""
        coming = self._coming.get(place)
        if request.kind == "part":
            digest, index = request.told.split()
            if coming is None or coming.whole.digest != digest:
                return  # of a round that is over
            done = coming.take(int(index), answer)
            if done is not None:
                self._give_up(place)
                yield place, coming.request, done
        elif answer.kind == "parts" and request.kind == "round":
            try:
                whole = Whole.read(answer.body, most=request.most)
            except WireError as error:
                yield place, request, Answer("code", error.code)
                return
            self._give_up(place)
            self._coming[place] = Coming(request, answer.site, whole, self.spool)
        else:
            yield place, request, answer

    def _ask_parts(self, place: int) -> None:
        coming = self._coming[place]
        while (request := coming.next()) is not None and self.send(place, request):
            coming.sent()

    def _moving(self, place: int, request: Request) -> bool:
        """Whether this answer is on its way, and more of it has come since it was last asked for; the rest is asked
        for anew."""
        coming = self._coming.get(place)
        if coming is None or (coming.request.round, coming.request.turn) != (request.round, request.turn):
            return False
        return coming.again()

    def _give_up(self, place: int) -> None:
        coming = self._coming.pop(place, None)
        if coming is not None:
            coming.close()

    def _revoked(self) -> Iterator[tuple[int, Request, Answer]]:
        names = self._known() if self._secured else {}
        for name, (place, request, _) in list(self._tickets.items()):
            if self._secured and place in self._keys and self._keys[place] not in names:
                del self._tickets[name]
                self._calls.forget(name)
                if request.kind != "part":
                    yield place, request, Answer("code", code="revoked")
                elif place in self._coming:
                    asked = self._coming[place].request
                    self._give_up(place)
                    yield place, asked, Answer("code", code="revoked")


def client_app(answer: Callable[[Request, Context], Answer]) -> ClientApp:
    """A ClientApp that hands every request to `answer` and lets only codes out when something goes wrong."""
    app = ClientApp()

    @app.train("prismfl")
    def handle(message: Message, context: Context) -> Message:
        try:
            given = answer(read_request(message), context)
        except Exception:  # the border of the site: Flower would send the exception's text to the server
            given = Answer("code", code="refused")
        words = {"kind": given.kind, "code": given.code, "site": given.site}
        return Message(pack(words, given.body), reply_to=message)

    return app


def server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    """A Flower ServerApp that runs `main`."""
    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        main(grid, context)

    return app
