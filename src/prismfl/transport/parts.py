"""Long answers in parts: a site keeps its whole answer in a spool and hands it out part by part, the server puts the
parts together on its disk. The whole is believed when it has the announced length and digest, and not before.

Flower takes a message of any length, but all of it at once: in the memory of five processes, and in a database that
other sites are waiting for. Two parts of a site are on their way at a time.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prismfl.errors import UserError, WireError
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.transport.post import Answer, Request

PART = 16 * 2**20
WINDOW = 2
TRIES = 5
KEPT = 2
"""Whole answers that a site keeps: the one that is on its way, and the one before."""
ANNOUNCED, ASKED = re.compile(rb"([0-9]{1,15}) ([0-9a-f]{64})"), re.compile(r"([0-9a-f]{64}) ([0-9]{1,9})")
NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Whole:
    """What a site announces: the length of its answer and its SHA-256."""

    size: int
    digest: str

    @classmethod
    def read(cls, raw: bytes, *, most: int) -> Whole:
        """An announcement of at most so many bytes; anything else is a `WireError`."""
        found = ANNOUNCED.fullmatch(raw)
        if found is None or not PART < int(found[1]) <= most:
            raise WireError("Message does not announce parts of an answer that could be.")
        return cls(int(found[1]), found[2].decode())

    @property
    def count(self) -> int:
        """How many parts it has."""
        return -(-self.size // PART)

    def length(self, index: int) -> int:
        """How long a part is: all but the last are equal."""
        return min(PART, self.size - index * PART)


class Spool:
    """A site's long answers to one server, in a folder of the site's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def answer(self, request: Request, make: Callable[[], Answer]) -> Answer:
        """A part of what lies here, or what the site makes of a request, cut where it is long."""
        if request.kind == "part":
            return self.part(request)
        made = make()
        if request.kind == "finish":
            self.forget()
        return self.cut(made) if request.most else made

    def cut(self, answer: Answer) -> Answer:
        """The answer as it is, or where it is long, its announcement; the server asks for the parts.

        Where there is no room for the spool the answer goes whole: it is charged already, and would be lost.
        """
        if len(answer.body) <= PART:
            return answer
        digest = hashlib.sha256(answer.body).hexdigest()
        try:
            make_folder(self.folder, closed=True)
            write_atomically(self.folder / digest, answer.body)
        except OSError:
            return answer
        self.forget(keep=KEPT)
        return replace(answer, kind="parts", body=f"{len(answer.body)} {digest}".encode())

    def forget(self, *, keep: int = 0) -> None:
        """Give back the disk, but for the newest. Another process may be writing here: its file is let be."""
        found: list[tuple[int, Path]] = []
        for path in self.folder.glob("*"):
            with suppress(FileNotFoundError):
                if NAME.fullmatch(path.name):
                    found.append((path.stat().st_mtime_ns, path))
        for _, old in sorted(found)[: max(0, len(found) - keep)]:
            old.unlink(missing_ok=True)

    def part(self, request: Request) -> Answer:
        """One part of what was announced to this server; of nothing else."""
        found = ASKED.fullmatch(request.told)
        try:
            if found is None:
                raise FileNotFoundError
            with (self.folder / found[1]).open("rb") as file:
                file.seek(int(found[2]) * PART)
                raw = file.read(PART)
        except FileNotFoundError:
            raw = b""
        if not raw:
            raise UserError("Expected a part of an answer that was announced.")
        return Answer("part", body=raw)


class Coming:
    """An answer on its way to the server, put together in a file that has no name and goes with its process."""

    def __init__(self, request: Request, site: str, whole: Whole, folder: Path | None) -> None:
        self.request, self.site, self.whole = request, site, whole
        self.wanted, self.tries, self.moved = deque(range(whole.count)), 0, False
        self.flying: set[int] = set()
        if folder is not None:
            make_folder(folder)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def next(self) -> Request | None:
        """The request for the next part, if one more may be under way."""
        if not self.wanted or len(self.flying) >= WINDOW:
            return None
        index, asked = self.wanted[0], self.request
        told = f"{self.whole.digest} {index}"
        return Request("part", {}, asked.round, asked.seconds, turn=str(index), told=told)

    def sent(self) -> None:
        """The request that `next` gave is under way."""
        self.flying.add(self.wanted.popleft())

    def again(self) -> bool:
        """Ask anew for what is under way, where any has come since this was last said: a site that was restarted has
        lost the requests. Both answers may come, and one counts."""
        self.wanted.extendleft(sorted(self.flying, reverse=True))
        self.flying.clear()
        moved, self.moved = self.moved, False
        return moved

    def take(self, index: int, answer: Answer) -> Answer | None:
        """One part, or what came instead; gives the whole answer once it is there, or why there will be none."""
        if index in self.wanted:
            self.wanted.remove(index)  # asked for twice, and this is what came of the first time
        elif index not in self.flying:
            return None
        self.flying.discard(index)
        if answer.kind == "lost":
            self.wanted.appendleft(index)
            self.tries += 1
            return None if self.tries < TRIES else answer
        if answer.kind != "part":
            return Answer("code", answer.code or "malformed", self.site)
        if len(answer.body) != self.whole.length(index):
            return Answer("code", "malformed", self.site)
        self.moved = True
        self._file.seek(index * PART)
        self._file.write(answer.body)
        return None if self.wanted or self.flying else self._whole()

    def _whole(self) -> Answer:
        self._file.seek(0)
        body = self._file.read()
        if hashlib.sha256(body).hexdigest() != self.whole.digest:
            return Answer("code", "malformed", self.site)
        return Answer("release", site=self.site, body=body)

    def close(self) -> None:
        """Give back the disk."""
        self._file.close()
