"""The server's side of a federation over any transport: a deadline and a quorum a round, and per-sender drops.

A site that is absent, late, silent, refusing or malformed is dropped from the round by name, with a code; the others
go on. Replies are kept on disk as they arrive, so memory does not grow with the number of sites and a killed server
does not ask again for what it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import JsonDict, encode
from prismfl.core.rounds import Hub, initial_state, participants, receive, surviving_step
from prismfl.errors import PrismError, WireError
from prismfl.files.atomic import write_atomically
from prismfl.runs.directory import Message, RunDirectory, digest
from prismfl.secure import protocol as secure
from prismfl.transport.faults import CODE_LENGTH, SPOILS, Fault, clean_code, faults, note
from prismfl.transport.inbox import Inbox, Raw

Kind = Literal["hello", "round", "finish"]
TURNS_END_AT = (0.15, 0.3, 0.7, 0.85, 1.0)
"""When each turn of a secure sum ends, in parts of the round's deadline: keys, letters, numbers, sent, shares."""


class QuorumError(PrismError):
    """Too few sites are left to go on."""

    code = "quorum-missed"


@dataclass(frozen=True)
class Request:
    """What the server asks of a site. `job` describes the run in public words, `state` is what it sends down.

    A round with secure sums is asked for in turns; `told` is what the other sites said in the turn before.
    """

    kind: Kind
    job: JsonDict
    round: int = 0
    seconds: float = 0.0
    state: bytes = b""
    turn: str = ""
    told: str = ""


@dataclass(frozen=True)
class Answer:
    """What comes back: a release, or a word. Of an exception on a site only its code crosses.

    Kinds: "ready", "release", "done", "code"; and "lost", the transport's own word that nothing will come.
    """

    kind: str
    code: str = ""
    site: str = ""
    body: bytes = b""


class Post(Protocol):
    """A transport: it numbers the places it can reach and moves requests and answers; it decides nothing."""

    def places(self) -> Mapping[int, str | None]:
        """Every reachable place and, where its key proves it, the name of the site there."""

    def send(self, place: int, request: Request) -> bool:
        """Whether the request was taken for delivery."""

    def collect(self) -> Iterable[tuple[int, Request, Answer]]:
        """Answers that have arrived since the last call, each with the request that it answers."""


@dataclass(frozen=True)
class Rules:
    """How long a round may take and how many releases it needs."""

    quorum: int
    deadline: float = 600.0
    join: float = 600.0
    poll: float = 0.5
    ask_again: float = 3.0


Check = Callable[[str, bytes], object]
AfterRound = Callable[[State, dict[str, int]], None]
Say = Callable[[str], None]


@dataclass
class Conductor:
    """One run, from its last checkpoint to its end."""

    job: Job
    description: JsonDict
    post: Post
    directory: RunDirectory
    rules: Rules
    hub: Hub | None = None
    keep: str = "ends"
    say: Say = lambda line: None
    after_round: AfterRound = lambda state, traffic: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    roster: dict[str, int] = field(default_factory=dict)
    greeted: dict[int, str] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)

    def run(self) -> State:
        state = self.directory.load_state()
        if state is None:
            state = initial_state(self.job)
            self.directory.save_state(state)
        else:
            self.say(f"going on from the checkpoint of round {state.round}")
        self._assemble(state.round)
        while state.round < self.job.settings.rounds:
            state = self._round(state)
        self._finish(state)
        return state

    # Who is there

    def _assemble(self, round: int) -> None:
        """Wait until every site is there, or until `join` seconds have passed and a quorum is."""
        end = self.clock() + self.rules.join
        wanted = set(self.job.task.sites)
        while not wanted <= set(self.roster) and self.clock() < end:
            self._greet()
            for place, _, answer in self.post.collect():
                self._welcome(place, answer, round)
            self.sleep(self.rules.poll)
        for site in sorted(wanted - set(self.roster)):
            self._fault(round, site, "absent")
        need = min(self.rules.quorum, len(wanted))
        if len(self.roster) < need:
            raise QuorumError(
                f"{len(self.roster)} of {len(wanted)} sites are there after {self.rules.join:g} s, the quorum is "
                f"{need}; nothing was lost, start again with --resume."
            )

    def _greet(self) -> None:
        """Ask places that are new, or were refused before, who they are and whether they will take part."""
        for place in self.post.places():
            if place not in self.greeted and self.post.send(place, Request("hello", self.description)):
                self.greeted[place] = ""

    def _welcome(self, place: int, answer: Answer, round: int) -> None:
        """Admit the site behind an answered hello, or note a fault. A name must be the one that its key proves."""
        name = self.post.places().get(place) or answer.site
        if answer.kind == "lost":
            self.greeted.pop(place, None)
        elif answer.kind != "ready":
            self.greeted[place] = "refused"
            self._fault(round, name or f"place {place}", answer.code)
        elif name not in self.job.task.sites or answer.site != name:
            self._fault(round, name or f"place {place}", "unknown-site")
        elif self.roster.get(name, place) != place and self.roster[name] in self.post.places():
            self._fault(round, name, "duplicate-name")
        else:
            self.roster[name] = place
            self.greeted[place] = name
            self.say(f"site {name} is ready")

    # A round

    def _round(self, state: State) -> State:
        for place in [place for place, name in self.greeted.items() if name not in self.roster]:
            del self.greeted[place]  # a refusal is asked again, once a round: people correct their site.toml
        if self.job.secure is not None:
            return self._secure_round(state)
        chosen = participants(self.job, state.round)
        inbox = Inbox(self._folder(state.round))
        down = encode(state.items, {"round": state.round, "phase": state.phase})
        pending = {site for site in chosen if site not in inbox.refused and not self._held(state, inbox, site)}
        request = Request("round", self.description, state.round, self.rules.deadline, down)
        check = partial(receive, self.job, state)
        self._gather(dict.fromkeys(pending, request), inbox, seconds=self.rules.deadline, check=check)
        quorum = min(self.rules.quorum, len(chosen))
        self._need(state, inbox, "releases", quorum=quorum, expected=len(chosen))
        return self._close_round(state, inbox, down, lambda: self._step(state, inbox, quorum))

    def _step(self, state: State, inbox: Inbox, quorum: int) -> State:
        """The server's step; a sender that makes it fail is named and left out, here and when the run is resumed."""
        after, dropped = surviving_step(self.job, state, inbox, hub=self.hub, quorum=quorum)
        for site, why in dropped.items():
            inbox.refuse(site)
            self.counted.discard(site)
            self._fault(state.round, site, SPOILS, why)
        return after

    def _need(self, state: State, inbox: Inbox, what: str, *, quorum: int, expected: int) -> None:
        if len(inbox) < quorum:
            raise QuorumError(
                f"Round {state.round + 1} has {len(inbox)} of {expected} {what} after {self.rules.deadline:g} s, the "
                f"quorum is {quorum}; the checkpoint of round {state.round} is kept, go on with --resume."
            )

    def _secure_round(self, state: State) -> State:
        """A round in turns, of which the server can read only the sum. What a turn gave is closed on disk, so that a
        killed server goes on with the same question."""
        assert self.job.secure is not None
        down = encode(state.items, {"round": state.round, "phase": state.phase})
        empty = encode({}, {"round": state.round, "phase": state.phase})
        answers: dict[str, Mapping[str, bytes]] = {}
        start = self.clock()
        for turn, share in zip(secure.TURNS, TURNS_END_AT):
            box, words = Inbox(self._folder(state.round, turn)), secure.told(self.job, turn, answers)
            closed = box.folder / "closed"
            if not closed.exists():
                for site in sorted(set(answers.get("keys", ())) - set(words)) if turn == "letters" else ():
                    self._fault(state.round, site, "roster-mismatch", "its list of the sites' keys is not the others'")
                # A turn that ran over its time leaves the next ones a tenth of the deadline each.
                seconds = max(start + share * self.rules.deadline - self.clock(), 0.1 * self.rules.deadline)
                body = down if turn == "numbers" else empty
                requests = {
                    site: Request("round", self.description, state.round, seconds, body, turn, told)
                    for site, told in words.items()
                    if site not in set(box)
                }
                check = partial(secure.check_answer, self.job, state, turn=turn, answers=dict(answers))
                self._gather(requests, box, seconds=seconds, check=check)
                self._need(state, box, f"{turn} of the secure sum", quorum=self.job.secure.quorum, expected=len(words))
                write_atomically(closed, json.dumps(sorted(box)).encode())
            answers[turn] = Raw(box, json.loads(closed.read_bytes()))
        return self._close_round(
            state, Inbox(self._folder(state.round, "numbers")), down, lambda: self._open(state, answers)
        )

    def _open(self, state: State, answers: secure.Answers) -> State:
        after, opened = secure.secure_server_step(self.job, state, answers, hub=self.hub)
        secure.note(self.directory.path, opened)
        self.say(opened.line())
        return after

    def _folder(self, round: int, turn: str = "") -> Path:
        return self.directory.path / "inbox" / (f"{round:04d}-{turn}" if turn else f"{round:04d}")

    def _gather(self, requests: Mapping[str, Request], inbox: Inbox, *, seconds: float, check: Check) -> None:
        """Ask every site and keep what passes the check, until all have answered or the time is over."""
        if not requests:
            return
        first = next(iter(requests.values()))
        round, pending = first.round, set(requests)
        start = self.clock()
        asked: dict[str, float] = {}
        again = False
        while pending and self.clock() < start + seconds:
            self._greet()
            if not again and self.clock() > start + seconds / 2:
                # A site that was restarted has lost the request; asking twice is free, the answer is the same bytes.
                asked, again = {}, True
            self._ask(pending, requests, asked)
            for place, asked_for, answer in self.post.collect():
                if asked_for.kind == "hello":
                    self._welcome(place, answer, round)
                elif (asked_for.kind, asked_for.round, asked_for.turn) == ("round", round, first.turn):
                    site = next((name for name, known in self.roster.items() if known == place), "")
                    if answer.kind == "lost":
                        asked[site] = self.clock() + self.rules.ask_again
                    elif site in pending:
                        pending.discard(site)
                        self._take(asked_for, inbox, site, answer, check)
            if pending:
                self.sleep(self.rules.poll)
        for site in sorted(pending):
            self._fault(round, site, "late" if site in self.roster else "absent")

    def _ask(self, pending: set[str], requests: Mapping[str, Request], asked: dict[str, float]) -> None:
        now = self.clock()
        for site in sorted(pending & set(self.roster)):
            if now >= asked.get(site, now):
                taken = self.post.send(self.roster[site], requests[site])
                asked[site] = float("inf") if taken else now + self.rules.ask_again

    def _take(self, asked: Request, inbox: Inbox, site: str, answer: Answer, check: Check) -> None:
        """One answer: a release that counts, a code, or something that only costs its sender the round."""
        if answer.kind == "release":
            try:
                check(site, answer.body)
            except WireError as error:
                self._fault(asked.round, site, error.code, str(error))
            else:
                inbox.put(site, answer.body)
                what = f" ({asked.turn})" if asked.turn else ""
                self.say(f"round {asked.round + 1}: {site} has sent {len(answer.body)} bytes{what}")
        else:
            self._fault(asked.round, site, answer.code or "malformed")

    def _held(self, state: State, inbox: Inbox, site: str) -> bool:
        """Whether the release of a site is on disk, from before a crash, and still good. One that is not is removed."""
        if site not in set(inbox):
            return False
        try:
            receive(self.job, state, site, inbox.raw(site))
        except WireError:
            inbox.drop(site)
            return False
        return True

    def _close_round(self, state: State, inbox: Inbox, down: bytes, step: Callable[[], State]) -> State:
        whole = self.keep == "full" or (self.keep == "ends" and state.round in (0, self.job.settings.rounds - 1))
        traffic = {"bytes_up": 0, "bytes_down": 0}
        for i, site in enumerate(inbox):
            raw = inbox.raw(site)
            self._note(state.round, site, "down", down, whole=whole and i == 0)
            self._note(state.round, site, "up", raw, whole=whole)
            traffic["bytes_up"] += len(raw)
            traffic["bytes_down"] += len(down) if state.items else 0
        self.counted = set(inbox)
        after = step()
        self.directory.save_state(after)
        if self.hub is not None:
            self.hub.ledger.confirm(f"{self.job.run}/hub/{state.round}")
        # The checkpoint before this one may still be needed, and with it the releases that led from it to here.
        for turn in ("", *secure.TURNS):
            Inbox(self._folder(state.round - 1, turn)).clear()
        self.say(f"round {state.round + 1} of {self.job.settings.rounds} is done with {len(inbox)} sites")
        self.after_round(after, traffic)
        return after

    def _finish(self, state: State) -> None:
        """Tell the sites that the run is over and give them the final state; whoever misses it is named.

        Nobody waits for a site that was not there in the last round.
        """
        down = encode(state.items, {"round": state.round, "phase": state.phase})
        request = Request("finish", self.description, state.round, self.rules.deadline, down)
        told = {site: place for site, place in self.roster.items() if self.post.send(place, request)}
        waiting = set(told) & (self.counted or set(told))
        missed = set(self.job.task.sites)
        end = self.clock() + self.rules.deadline
        while waiting and self.clock() < end:
            for place, asked_for, answer in self.post.collect():
                for site in [s for s, known in told.items() if known == place and asked_for.kind == "finish"]:
                    waiting.discard(site)
                    if answer.kind == "done":
                        missed.discard(site)
            if waiting:
                self.sleep(self.rules.poll)
        for site in sorted(missed):
            self._fault(state.round, site, "missed-the-end")

    def _note(self, round: int, site: str, direction: str, raw: bytes, *, whole: bool) -> None:
        file = f"transcript/{round:04d}-{direction}-{site}.safetensors" if whole else None
        self.directory.record(Message(round, site, direction, len(raw), digest(raw), file), raw if whole else None)

    def _fault(self, round: int, site: str, code: str, why: str = "") -> None:
        self.say(note(self.directory, round, site, code).line(why))


__all__ = [
    "CODE_LENGTH", "Answer", "Conductor", "Fault", "Post", "QuorumError", "Request", "Rules", "clean_code", "faults",
]  # fmt: skip
