"""All sites in this process, one at a time: real bytes, a ledger a site, no waiting."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Payload, decode
from prismfl.core.rounds import ROOM, Host, Hub, adopt_step, folding_of, participants, site_step
from prismfl.runs.directory import RunDirectory
from prismfl.secure import protocol as secure
from prismfl.stages import Progress, listening
from prismfl.transport.conductor import AfterRound, Conductor
from prismfl.transport.inbox import MemoryInbox
from prismfl.transport.post import Answer, Request, RoundRules

NO_WAITING = RoundRules(quorum=1, deadline=math.inf, join=math.inf, poll=0.0)


@dataclass(frozen=True)
class Outcome:
    """How a run in this process ended: the final state and what each site made for itself."""

    state: State
    own: dict[str, dict[str, Payload]]


class InProcess:
    """The transport between a server and sites of one process: a request is answered when its answer is collected.

    What a site raises ends the run here: it is the user's own machine, and nothing is hidden from its user.
    """

    def __init__(self, job: Job, hosts: Sequence[Host], progress: Progress) -> None:
        self.job, self.hosts, self.progress = job, hosts, progress
        self.own: dict[str, dict[str, Payload]] = {}
        self._names: dict[int, str | None] = {i: host.name for i, host in enumerate(hosts)}
        self._by_name = {host.name: host for host in hosts}
        self._shared = len({id(host.ledger) for host in hosts}) < len(hosts)
        self._asked: deque[tuple[int, Request]] = deque()
        self._state = (b"", State(0, {}))
        self._done = 0

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open but the ledgers."""

    def places(self) -> Mapping[int, str | None]:
        """Every host by its number, with its site's name."""
        return self._names

    def send(self, place: int, request: Request) -> bool:
        """Queue the request until its answer is collected; always taken."""
        self._asked.append((place, request))
        return True

    def collect(self) -> Iterator[tuple[int, Request, Answer]]:
        """Answer the queued requests one by one, each with its place and request."""
        while self._asked:
            place, request = self._asked.popleft()
            self._tell(place, request)
            answer = self._answer(self.hosts[place], request)
            if not self._shared:
                self.hosts[place].ledger.shut()  # open only while its site is at work
            yield place, request, answer

    def inbox(self, state: State, room: int) -> MemoryInbox:
        """Where the answers to a round's requests are kept."""
        return MemoryInbox(
            again=lambda site: site_step(self.job, state, self._by_name[site]),
            room=room,
            folding=folding_of(self.job, state, room=room),
            expected=participants(self.job, state.round),
        )

    def _answer(self, host: Host, request: Request) -> Answer:
        if request.kind == "hello":
            return Answer("ready", site=host.name)
        state = self._read(request)
        if request.kind == "round":
            return Answer("release", site=host.name, body=self._release(host, request, state))
        secure.forget(host)
        waiting = host.ledger.waiting(self.job.run, host.name, before=state.round)
        if waiting:
            host.ledger.confirm(*waiting)
        self.own[host.name] = adopt_step(self.job, state, host)
        return Answer("done", site=host.name)

    def _release(self, host: Host, request: Request, state: State) -> bytes:
        job, turn = self.job, request.turn
        # Both checkpoints are past what is two rounds old; what is younger may have to be sent again.
        arrived = host.ledger.waiting(job.run, host.name, before=state.round - 1)
        with listening(lambda stage, done, total: self.progress(f"{host.name}, {stage}", done, total)):
            if not turn:
                return site_step(job, state, host, arrived=arrived)
            roster = secure.simulated(job, host.name)
            return secure.site_turn(job, state, host, roster, turn=turn, told=request.told, arrived=arrived)

    def _tell(self, place: int, request: Request, also: str = "") -> None:
        """Say who is at work."""
        name = self.hosts[place].name
        if request.kind == "round":
            what = f"{request.turn} of {name}" if request.turn else name
            self.progress(f"round {request.round + 1}, {what}{also}", *self._place(request.round, self._done))
            self._done += 1
        elif request.kind == "finish" and self.job.method.adopt is not None:
            self.progress("training on each site", len(self.own), len(self.hosts))

    def before_step(self, round: int) -> None:
        """The server is at work: all sites of the round are done."""
        self._done = 0
        self._forget(round)
        self.progress(f"round {round + 1}, server", *self._place(round + 1, 0))

    def _forget(self, round: int) -> None:
        """A site that is not asked every round keeps its bytes until it is asked again, which may be never. Here both
        sides are at hand: what is two rounds old is past both checkpoints."""
        if round < 2 or self.job.task.asked == len(self.hosts):
            return
        for name in participants(self.job, round - 2):
            ledger = self._by_name[name].ledger
            ledger.confirm(*ledger.waiting(self.job.run, name, before=round - 1))
            if not self._shared:
                ledger.shut()

    def _place(self, round: int, done: int) -> tuple[int, int]:
        each = self.job.task.asked
        return round * each + min(done, each), self.job.settings.rounds * each

    def _read(self, request: Request) -> State:
        """The state that was sent down; all sites of a turn are sent the same bytes."""
        if self._state[0] is not request.state:
            items, header = decode(request.state)
            self._state = request.state, State(int(header["round"]), items)
        return self._state[1]


def run(
    job: Job,
    hosts: Sequence[Host],
    *,
    directory: RunDirectory,
    hub: Hub | None = None,
    keep: str = "ends",
    progress: Progress = lambda what, done, total: None,
    after_round: AfterRound = lambda state, traffic: None,
    room: int = ROOM,
    transport: Callable[[Job, Sequence[Host], Progress], InProcess] = InProcess,
) -> Outcome:
    """Run to the end, or on from the last checkpoint. Killed at any point, it ends with the same bytes, over this
    `transport` and over `workers`."""
    post = transport(job, hosts, progress)
    conductor = Conductor(
        job,
        {},
        post,
        directory,
        NO_WAITING,
        hub=hub,
        keep=keep,
        warn=lambda line: progress(line, 0, 1),
        after_round=after_round,
        before_step=post.before_step,
        in_memory=lambda state: post.inbox(state, room),
    )
    with post:
        state = conductor.run()
    return Outcome(state, {host.name: post.own[host.name] for host in hosts if host.name in post.own})
