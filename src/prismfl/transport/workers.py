"""The sites of one machine on all its cores: processes that answer for one site at a time.

They are forked from the run once everything is read, so that they share its records without a copy. No open ledger
crosses a fork: each process opens the file by itself, and the ledger, which charges before anything is computed, knows
what a process that died had begun. Such a site is asked once more in a new process; then it is named and left out.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

from prismfl import errors, runtime
from prismfl.core.job import Job
from prismfl.core.payloads import decode, encode
from prismfl.core.rounds import Host, most_bytes
from prismfl.errors import PrismError, UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.stages import Progress, listening
from prismfl.transport.in_process import InProcess
from prismfl.transport.post import Answer, Request

TRIES = 2
DIED = "worker-died"
EVERY = 0.2  # seconds between two words of a process about how far it is
A_WORKER = 400 * 2**20  # bytes that a process needs beside what it shares, and for each number of a release
TIMES_RELEASE = 16


class WorkerError(PrismError):
    """A site's part failed in its process, with an error that is none of ours."""

    code = "worker-failed"


@dataclass
class Worker:
    """A process, its line, what it is at, and the state that it was sent last."""

    process: ForkProcess
    line: Connection
    task: tuple[int, Request, int] | None = None
    state: bytes | None = field(default=None, repr=False)


def fitting(wanted: int, job: Job) -> int:
    """How many processes a run takes: as many as wanted (0: one a physical core), and no more than have work.

    More than there is memory for are refused, with the number that fits; where the number is ours, it is lowered.
    """
    if sys.platform != "linux" or job.task.device != "cpu":
        if wanted > 1:
            where = f"{sys.platform}, device {job.task.device}"
            raise UserError(f"Expected workers = 1 here ({where}), got {wanted}: Linux forks them, for the CPU.")
        return 1
    need = A_WORKER + TIMES_RELEASE * most_bytes(job, job.task.sites[0], 0)
    fit = max(1, runtime.memory_left() // need)
    if wanted > fit:
        raise UserError(
            f"{wanted} workers need about {wanted * need / 2**30:.1f} GB beside what they share, and "
            f"{runtime.memory_left() / 2**30:.1f} GB are free; {fit} would fit: --workers {fit}."
        )
    return max(1, min(wanted or runtime.physical_cores(), fit, job.task.asked))


def transport(count: int, *more: Ledger) -> Callable[[Job, Sequence[Host], Progress], InProcess]:
    """Sites in this process, or in `count` of their own. `more` are ledgers beside the sites' that may be open."""
    return InProcess if count == 1 else partial(Workers, count=count, more=more)


class Workers(InProcess):
    """The same transport over several processes. Answers come in any order; what they hold does not depend on it."""

    def __init__(
        self, job: Job, hosts: Sequence[Host], progress: Progress, *, count: int, more: Sequence[Ledger] = ()
    ) -> None:
        super().__init__(job, hosts, progress)
        self._count, self._ledgers = count, [*{id(host.ledger): host.ledger for host in hosts}.values(), *more]
        self._workers: list[Worker] = []

    def __exit__(self, *_: object) -> None:
        """Ends all processes. Each ledger is whole whenever its process ends."""
        for worker in self._workers:
            worker.line.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(5.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def collect(self) -> Iterator[tuple[int, Request, Answer]]:
        """Hand the queued requests to whoever is free, and give each answer as it comes."""
        asked: deque[tuple[int, Request, int]] = deque()
        while self._asked:
            place, request = self._asked.popleft()
            if request.kind == "hello":
                yield place, request, self._answer(self.hosts[place], request)
            else:
                asked.append((place, request, 1))
        while asked or any(worker.task for worker in self._workers):
            self._hand_out(asked)
            busy = {worker.line: worker for worker in self._workers if worker.task}
            for line in wait(list(busy)):
                worker = busy[line]  # type: ignore[index]
                try:
                    told, body = _received(worker.line)
                except (EOFError, OSError):
                    yield from self._buried(worker, asked)
                    continue
                if told["kind"] == "progress":
                    self.progress(told["what"] + self._beside(worker), told["done"], told["total"])
                    continue
                assert worker.task is not None
                place, request, _ = worker.task
                worker.task = None
                yield place, request, self._understood(self.hosts[place], told, body)

    def _hand_out(self, asked: deque[tuple[int, Request, int]]) -> None:
        while asked:
            free = next((worker for worker in self._workers if worker.task is None), None)
            if free is None:
                if len(self._workers) >= self._count:
                    return
                free = self._forked()
            place, request, tries = asked.popleft()
            free.task = place, request, tries
            if tries == 1:
                self._tell(place, request, self._beside(free))
            known = free.state is request.state
            free.state = request.state
            words = {**vars(request), "job": {}, "state": known, "place": place}
            with suppress(OSError):  # one that has died tells by its silence
                _send(free.line, words, b"" if known else request.state)

    def _beside(self, worker: Worker) -> str:
        """Who else is at work."""
        others = [self.hosts[other.task[0]].name for other in self._workers if other.task and other is not worker]
        return f" (and {', '.join(others[:3])}{' ...' if len(others) > 3 else ''})" if others else ""

    def _understood(self, host: Host, told: dict[str, Any], body: bytes) -> Answer:
        if told["kind"] == "raised":
            known = getattr(errors, told["type"], None)
            if isinstance(known, type) and issubclass(known, PrismError) and known is not errors.CellError:
                raise known(told["text"])
            raise WorkerError(f"{host.name} failed with {told['type']}: {told['text']}\n{told['trace']}")
        if told["kind"] == "done":
            self.own[host.name] = decode(body, limit=len(body))[0]
            return Answer("done", site=host.name)
        return Answer(told["kind"], site=host.name, body=body)

    def _buried(self, worker: Worker, asked: deque[tuple[int, Request, int]]) -> Iterator[tuple[int, Request, Answer]]:
        """A process died, of too much memory say: its site is asked once more, before all others; then it is named."""
        worker.line.close()
        worker.process.join()
        self._workers.remove(worker)
        assert worker.task is not None
        place, request, tries = worker.task
        name, code = self.hosts[place].name, worker.process.exitcode
        if tries < TRIES:
            self.progress(f"a worker died at {name} (exit code {code}); asked once more", 0, 1)
            asked.appendleft((place, request, tries + 1))
        else:
            yield place, request, Answer("code", DIED, site=name)

    def _forked(self) -> Worker:
        if not self._workers and self.job.method.prepare is not None:
            self.job.method.prepare(self.job.settings, self.job.task)  # once, for all that are forked from here
        for ledger in self._ledgers:
            ledger.shut()  # no connection may cross a fork
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=self._serve, args=(there, here), daemon=True)
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # the one other thread writes the run's pulse; nobody else needs its locks
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        self._workers.append(Worker(process, here))
        return self._workers[-1]

    def _serve(self, line: Connection, other: Connection) -> None:
        """What a process does until its line is closed: answer for one site after the other."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the run, and the run ends its processes
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        other.close()
        for worker in self._workers:  # lines of those who were forked before
            worker.line.close()
        runtime.tune(1)
        self.progress = _Told(line)
        state = b""
        with listening(self.progress):
            while True:
                try:
                    told, body = _received(line)
                    place = int(told.pop("place"))
                    state = state if told.pop("state") else body
                    _send(line, *self._words(self.hosts[place], Request(**{**told, "state": state})))
                except (EOFError, ConnectionError):
                    os._exit(0)  # the run is over, or gone

    def _words(self, host: Host, request: Request) -> tuple[dict[str, Any], bytes]:
        """A site's answer, or what it raised: that ends the run in the process that was asked for it."""
        try:
            answer = self._answer(host, request)
        except Exception as error:
            kind, trace = type(error).__name__, traceback.format_exc(limit=-6)
            return {"kind": "raised", "type": kind, "text": str(error), "trace": trace}, b""
        finally:
            if not self._shared:
                host.ledger.shut()
        own = self.own.pop(host.name, None)
        return {"kind": answer.kind}, answer.body if own is None else encode(own)


class _Told:
    """What a process says of its progress, now and then."""

    def __init__(self, line: Connection) -> None:
        self._line, self._last = line, -math.inf

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            _send(self._line, {"kind": "progress", "what": what, "done": done, "total": total})


def _send(line: Connection, words: Mapping[str, Any], body: bytes = b"") -> None:
    line.send_bytes(json.dumps({**words, "bytes": len(body)}).encode())
    if body:
        line.send_bytes(body)


def _received(line: Connection) -> tuple[dict[str, Any], bytes]:
    words = json.loads(line.recv_bytes())
    return words, line.recv_bytes() if words.pop("bytes") else b""
