"""The one round loop: the server's side of a run over any transport, with a deadline and a quorum a round.

A site that is absent, late, silent, refusing or malformed is dropped from the round by name, with a code; the others
go on. A round is one turn, or the five turns of a secure sum. What a turn gave is kept as it arrives, so that a killed
server does not ask again for what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Items, JsonDict, encode
from prismfl.core.rounds import Hub, initial_state, most_bytes, participants, receive, surviving_step
from prismfl.errors import PrismError, WireError
from prismfl.runs.directory import Message, RunDirectory, digest
from prismfl.secure import protocol as secure
from prismfl.transport.faults import SPOILS, note
from prismfl.transport.inbox import Inbox, Raw
from prismfl.transport.parts import PART
from prismfl.transport.post import Answer, Post, Request, RoundRules

PLAIN = {"": 1.0}
SECURE = {"keys": 0.15, "letters": 0.3, "numbers": 0.7, "sent": 0.85, "shares": 1.0}
"""The turns of a round and when each ends, in parts of the round's deadline."""
CARRIES = ("", "numbers")
"""The turns that send the state down and a release up."""
HELLO_SECONDS = 240.0  # a site's first answer starts the process that gives it, which imports and reads the data
WHOLE_SITES = 50
"""Of so many sites the first and the last round are kept whole by default; of the others, their digests."""


class QuorumError(PrismError):
    """Too few sites are left to go on."""

    code = "quorum-missed"


Check = Callable[[str, bytes], Items | None]
AfterRound = Callable[[State, dict[str, int]], None]
Say = Callable[[str], None]


@dataclass
class Conductor:
    """One run, from its last checkpoint to its end. `say` hears what happens, `warn` who does not count and why."""

    job: Job
    description: JsonDict
    post: Post
    directory: RunDirectory
    rules: RoundRules
    hub: Hub | None = None
    keep: str = "ends"
    say: Say = lambda line: None
    warn: Say | None = None
    after_round: AfterRound = lambda state, traffic: None
    before_step: Callable[[int], None] = lambda round: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    in_memory: Callable[[State], Inbox] | None = None
    roster: dict[str, int] = field(default_factory=dict)
    greeted: dict[int, str] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    traffic: dict[str, int] = field(default_factory=dict)
    shown: tuple[int, frozenset[str]] = (-1, frozenset())
    lowered: bool = False

    def __post_init__(self) -> None:
        self.known = frozenset(self.job.task.sites)

    def run(self) -> State:
        """All rounds that are left, and the end: the final state."""
        state = self.directory.load_state()
        if state is None:
            state = initial_state(self.job)
            self.directory.save_state(state)
        elif state.round:
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
            if not wanted <= set(self.roster):
                self.sleep(self.rules.poll)
        self.away = wanted - set(self.roster)
        for site in sorted(self.away):
            self._fault(round, site, "absent")
        need = min(self.rules.quorum, len(wanted))
        if len(self.roster) < need:
            raise QuorumError(
                f"{len(self.roster)} of {len(wanted)} sites are there after {self.rules.join:g} s, the quorum is "
                f"{need}; nothing was lost, start again with --resume."
            )

    def _greet(self) -> None:
        """Ask places that are new, or were refused before, who they are and whether they will take part."""
        there = self.post.places()
        for place in [place for place, name in self.greeted.items() if not name and place not in there]:
            del self.greeted[place]  # it went, and the question with it
        for place in there:
            hello = Request("hello", self.description, seconds=HELLO_SECONDS)
            if place not in self.greeted and self.post.send(place, hello):
                self.greeted[place] = ""

    def _welcome(self, place: int, answer: Answer, round: int) -> None:
        """Admit the site behind an answered hello, or note a fault. A name must be the one that its key proves."""
        name = self.post.places().get(place) or answer.site
        if answer.kind == "lost":
            self.greeted.pop(place, None)
        elif answer.kind != "ready":
            self.greeted[place] = "refused"
            self._fault(round, name or f"place {place}", answer.code)
        elif name not in self.known or answer.site != name:
            self._fault(round, name or f"place {place}", "unknown-site")
        elif self.roster.get(name, place) != place and self.roster[name] in self.post.places():
            self._fault(round, name, "duplicate-name")
        else:
            self.roster[name] = place
            self.greeted[place] = name
            self.say(f"site {name} is ready")

    def _site_at(self, place: int) -> str:
        """The site that was welcomed at a place, and still is the one of its name."""
        site = self.greeted.get(place, "")
        return site if self.roster.get(site) == place else ""

    # A round

    def _round(self, state: State) -> State:
        """Every turn of a round, and the server's step on what they gave."""
        for place in [place for place, name in self.greeted.items() if name not in self.roster]:
            del self.greeted[place]  # a refusal is asked again, once a round: people correct their site.toml
        self.traffic, self.lowered = {"bytes_up": 0, "bytes_down": 0}, False
        turns = PLAIN if self.job.secure is None else SECURE
        answers: dict[str, Inbox] = {}
        start = self.clock()
        for turn, share in turns.items():
            # A turn that ran over its time leaves the next ones a tenth of the deadline each.
            seconds = max(start + share * self.rules.deadline - self.clock(), 0.1 * self.rules.deadline)
            answers[turn] = self._turn(state, turn, answers, seconds)
        return self._close_round(state, answers)

    def _turn(self, state: State, turn: str, answers: Mapping[str, Inbox], seconds: float) -> Inbox:
        """What the sites answer in a turn. That of a secure sum is closed then: all later turns build on it."""
        box = self.in_memory(state) if self.in_memory else self._box(state.round, turn)
        told = self._told(state, turn, answers)
        if box.closed:
            return box
        for site in sorted(set(answers["keys"]) - set(told)) if turn == "letters" else ():
            self._fault(state.round, site, "roster-mismatch", "its list of the sites' keys is not the others'")
        check = self._check(state, turn, answers)
        down = encode(state.items if turn in CARRIES else {}, {"round": state.round})
        refused, there = box.refused, set(box)
        most = self._most(state, turn, told)
        requests = {
            site: Request("round", self.description, state.round, seconds, down, turn, told[site], most)
            for site in (sorted(told) if box.folds else told)
            if site not in refused
        }
        for site in [site for site in requests if site in there and self._held(box, site, check)]:
            self._count(state, requests.pop(site), site, box.raw(site))
        quorum = self._quorum(len(told)) if self.job.secure is None else self.job.secure.quorum
        self._gather(state, requests, box, seconds=seconds, check=check, quorum=quorum)
        self._need(state, box, turn, len(told), quorum)
        if turn:
            box.close()
        return box

    def _most(self, state: State, turn: str, told: Mapping[str, str]) -> int:
        """How long an answer that comes in parts may be; 0 in a turn whose answers are short."""
        if turn not in CARRIES or not told:
            return 0
        masked = 8 * self.job.sum_rules(state.round).length if turn else 0
        return most_bytes(self.job, next(iter(told)), state.round) + masked + PART

    def _told(self, state: State, turn: str, answers: Mapping[str, Inbox]) -> dict[str, str]:
        """Who is asked in a turn, and what each is told of the others."""
        if not turn:
            return dict.fromkeys(participants(self.job, state.round), "")
        return secure.told(self.job, turn, {name: Raw(box) for name, box in answers.items()})

    def _check(self, state: State, turn: str, answers: Mapping[str, Inbox]) -> Check:
        """What an answer must be: else a `WireError`. Gives what a plain release holds."""
        if not turn:
            return lambda site, raw: receive(self.job, state, site, raw).items
        known = {name: Raw(box) for name, box in answers.items()}
        return partial(secure.check_answer, self.job, state, turn=turn, answers=known)

    def _need(self, state: State, box: Inbox, turn: str, expected: int, quorum: int) -> None:
        what = f"{turn} of the secure sum" if turn else "releases"
        if len(box) < quorum:
            raise QuorumError(
                f"Round {state.round + 1} has {len(box)} of {expected} {what} after {self.rules.deadline:g} s, the "
                f"quorum is {quorum}; the checkpoint of round {state.round} is kept, go on with --resume."
            )

    def _quorum(self, expected: int) -> int:
        return min(self.rules.quorum, expected)

    def _shown(self, round: int) -> frozenset[str]:
        """The sites of a round whose messages are kept whole."""
        if self.shown[0] != round:
            self.shown = round, frozenset(participants(self.job, round)[:WHOLE_SITES])
        return self.shown[1]

    def _held(self, box: Inbox, site: str, check: Check) -> bool:
        """Whether a site's answer is there from before a crash, and still good. One that is not is removed."""
        try:
            check(site, box.raw(site))
        except WireError:
            box.drop(site)
            return False
        return True

    def _gather(
        self, state: State, requests: Mapping[str, Request], box: Inbox, *, seconds: float, check: Check, quorum: int
    ) -> None:
        """Ask every site and keep what passes the check, until all have answered or the time is over.

        With `close_after` the time is over so many seconds after the quorum has answered. Where the quorum has, nobody
        waits for a site that was away when the last turn ended and has not come back since.
        """
        if not requests:
            return
        first = next(iter(requests.values()))
        pending = dict(requests)
        start = self.clock()
        end = start + seconds
        asked: dict[str, float] = {}
        again = enough = False
        while pending and self.clock() < end and not (enough and self._all_away(pending)):
            self._greet()
            if not again and self.clock() > start + seconds / 2:
                # A site that was restarted has lost the request; asking twice is free, the answer is the same bytes.
                asked, again = {}, True
            self._ask(pending, asked)
            for place, asked_for, answer in self.post.collect():
                if asked_for.kind == "hello":
                    self._welcome(place, answer, first.round)
                elif (asked_for.kind, asked_for.round, asked_for.turn) == ("round", first.round, first.turn):
                    site = self._site_at(place)
                    if answer.kind == "lost":
                        asked[site] = self.clock() + self.rules.ask_again
                    elif pending.pop(site, None) is not None:
                        self._take(state, asked_for, site, answer, box=box, check=check)
            if not enough and len(box) >= quorum:
                enough, grace = True, self.rules.close_after
                end = end if grace is None else min(end, self.clock() + grace)
            if pending:
                self.sleep(self.rules.poll)
        for site in sorted(pending):
            self._fault(first.round, site, "late" if site in self.roster else "absent")
        self.away = self.away.difference(requests) | {site for site in pending if not self._connected(site)}

    def _connected(self, site: str) -> bool:
        return site in self.roster and self.roster[site] in self.post.places()

    def _all_away(self, pending: Mapping[str, Request]) -> bool:
        """Whether only such sites have not answered as were away before this turn began, and still are."""
        return all(site in self.away and not self._connected(site) for site in pending)

    def _ask(self, pending: Mapping[str, Request], asked: dict[str, float]) -> None:
        now = self.clock()
        for site, request in pending.items():
            if not self._connected(site):
                asked.pop(site, None)  # what it was asked is lost with it; once it is back, it is asked again
            elif now >= asked.get(site, now):
                taken = self.post.send(self.roster[site], request)
                asked[site] = float("inf") if taken else now + self.rules.ask_again

    def _take(self, state: State, asked: Request, site: str, answer: Answer, *, box: Inbox, check: Check) -> None:
        """One answer: a release that counts, a code, or something that only costs its sender the round."""
        if answer.kind != "release":
            box.skip(site)
            self._fault(asked.round, site, answer.code or "malformed")
            return
        try:
            items = check(site, answer.body)
        except WireError as error:
            box.skip(site)
            self._fault(asked.round, site, error.code, str(error))
            return
        box.put(site, answer.body, items)
        self._count(state, asked, site, answer.body)
        what = f" ({asked.turn})" if asked.turn else ""
        self.say(f"round {asked.round + 1}: {site} has sent {len(answer.body)} bytes{what}")

    def _count(self, state: State, asked: Request, site: str, raw: bytes) -> None:
        """What crossed is counted, in every turn; releases and states are in the transcript."""
        self.traffic["bytes_up"] += len(raw)
        self.traffic["bytes_down"] += len(asked.told)
        if asked.turn in CARRIES:
            self.traffic["bytes_down"] += len(asked.state) if state.items else 0
            ends = asked.round in (0, self.job.settings.rounds - 1) and site in self._shown(asked.round)
            whole = self.keep == "full" or (self.keep == "ends" and ends)
            if self.keep != "none":
                self._note(asked.round, site, "down", asked.state, whole=whole and not self.lowered)
                self._note(asked.round, site, "up", raw, whole=whole)
            self.lowered = self.lowered or whole

    def _close_round(self, state: State, answers: Mapping[str, Inbox]) -> State:
        carried = answers.get("", answers.get("numbers"))
        assert carried is not None
        self.counted = set(carried)
        self.before_step(state.round)
        after = self._step(state, carried) if self.job.secure is None else self._open(state, answers)
        self.directory.save_state(after)
        if self.hub is not None:
            self.hub.ledger.confirm(f"{self.job.run}/hub/{state.round}")
        # The checkpoint before this one may still be needed, and with it the releases that led from it to here.
        for turn in answers if self.in_memory is None else ():
            self._box(state.round - 1, turn).clear()
        self.say(f"round {state.round + 1} of {self.job.settings.rounds} is done with {len(self.counted)} sites")
        self.after_round(after, self.traffic)
        return after

    def _step(self, state: State, box: Inbox) -> State:
        """The server's step; a sender that makes it fail is named and left out, here and when the run is resumed."""
        quorum = self._quorum(len(participants(self.job, state.round)))
        after, dropped = surviving_step(self.job, state, box, hub=self.hub, quorum=quorum, folding=box.folded())
        for site, why in dropped.items():
            box.refuse(site)
            self.counted.discard(site)
            self._fault(state.round, site, SPOILS, why)
        return after

    def _open(self, state: State, answers: Mapping[str, Inbox]) -> State:
        known = {name: Raw(box) for name, box in answers.items()}
        after, opened = secure.secure_server_step(self.job, state, known, hub=self.hub)
        secure.note(self.directory.path, opened)
        self.say(opened.line())
        return after

    def _box(self, round: int, turn: str) -> Inbox:
        return Inbox(self.directory.path / "inbox" / (f"{round:04d}-{turn}" if turn else f"{round:04d}"))

    def _finish(self, state: State) -> None:
        """Tell the sites that the run is over and give them the final state; whoever misses it is named.

        Nobody waits for a site that was not there in the last round.
        """
        down = encode(state.items, {"round": state.round})
        request = Request("finish", self.description, state.round, self.rules.deadline, down)
        told = {place: site for site, place in self.roster.items() if self.post.send(place, request)}
        waiting = set(told.values()) & (self.counted or set(told.values()))
        missed = set(self.job.task.sites)
        end = self.clock() + self.rules.deadline
        while waiting and self.clock() < end:
            for place, asked_for, answer in self.post.collect():
                if asked_for.kind == "finish" and place in told:
                    waiting.discard(told[place])
                    if answer.kind == "done":
                        missed.discard(told[place])
            if waiting:
                self.sleep(self.rules.poll)
        for site in sorted(missed):
            self._fault(state.round, site, "missed-the-end")

    def _note(self, round: int, site: str, direction: str, raw: bytes, *, whole: bool) -> None:
        file = f"transcript/{round:04d}-{direction}-{site}.safetensors" if whole else None
        self.directory.record(Message(round, site, direction, len(raw), digest(raw), file), raw if whole else None)

    def _fault(self, round: int, site: str, code: str, why: str = "") -> None:
        (self.warn or self.say)(note(self.directory, round, site, code).line(why))
