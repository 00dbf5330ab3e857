"""How long a round waits, in time that only the test moves: a quorum and a grace, sites that go and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.site.office import Office
from prismfl.transport.conductor import Conductor, QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.post import Answer, Request, RoundRules
from tests.site.folders import NAMES, make_run, make_site, run_config

RULES = RoundRules(2, deadline=600.0, join=600.0, poll=1.0)
Slow = Callable[[str, Request], float]
Away = Callable[[str, float], bool]


class Clock:
    """Time that passes when somebody sleeps."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class TimedPost:
    """Real sites whose answers take as long as the test says, and which are there when it says so."""

    def __init__(self, offices: list[Office], clock: Clock, slow: Slow, away: Away) -> None:
        self.offices, self.clock, self.slow, self.away = offices, clock, slow, away
        self.sent: list[tuple[float, int, Request]] = []

    def places(self) -> Mapping[int, str | None]:
        names = {i: office.config.name for i, office in enumerate(self.offices)}
        return {i: name for i, name in names.items() if not self.away(name, self.clock.now)}

    def send(self, place: int, request: Request) -> bool:
        name = self.places().get(place)
        if name is not None:
            self.sent.append((self.clock.now + self.slow(name, request), place, request))
        return name is not None

    def collect(self) -> Iterator[tuple[int, Request, Answer]]:
        due = [(at, place, request) for at, place, request in self.sent if at <= self.clock.now]
        self.sent = [letter for letter in self.sent if letter not in due]
        for _, place, request in due:
            if place in self.places():
                yield place, request, self.offices[place].answer(request)


def conducted(
    folder: Path,
    rules: RoundRules,
    *,
    rounds: int = 2,
    slow: Slow = lambda site, request: 0.0,
    away: Away = lambda site, now: False,
) -> tuple[RunDirectory, list[float], Conductor]:
    """A run, the times at which its rounds ended, and who conducted it."""
    clock, ends = Clock(), list[float]()
    offices = [make_site(folder / "sites", name) for name in NAMES]
    directory = make_run(folder / "run", rules, run_config(settings={"rounds": rounds}))
    description = directory.read_json("federation.json")["description"]
    conductor = Conductor(
        job_of(description),
        description,
        TimedPost(offices, clock, slow, away),
        directory,
        rules,
        clock=clock.time,
        sleep=clock.sleep,
        after_round=lambda state, traffic: ends.append(clock.now),
    )
    return directory, ends, conductor


def senders(directory: RunDirectory, round: int) -> set[str]:
    return {m.site for m in directory.messages() if m.round == round and m.direction == "up"}


def steady(site: str, request: Request) -> float:
    return 20.0 if request.kind == "round" else 0.0


def west_is_slow(site: str, request: Request) -> float:
    return 100.0 if (site, request.kind, request.round) == ("west", "round", 0) else 0.0


def test_a_round_closes_a_grace_after_its_quorum(tmp_path: Path) -> None:
    """The bugs: the whole deadline is waited, or who was late once is not asked again."""
    directory, ends, conductor = conducted(tmp_path, replace(RULES, close_after=5.0), slow=west_is_slow)
    conductor.run()
    assert 5.0 <= ends[0] <= 8.0
    assert senders(directory, 0) == {"north", "south"}
    assert senders(directory, 1) == set(NAMES)
    assert [(f.round, f.site, f.code) for f in faults(directory)] == [(0, "west", "late")]


def test_who_answers_within_the_grace_counts(tmp_path: Path) -> None:
    directory, ends, conductor = conducted(tmp_path, replace(RULES, close_after=200.0), slow=west_is_slow)
    conductor.run()
    assert 100.0 <= ends[0] <= 103.0
    assert senders(directory, 0) == set(NAMES)
    assert faults(directory) == []


@pytest.mark.parametrize(("quorum", "close_after"), [(2, None), (3, 5.0)])
def test_without_a_grace_or_below_the_quorum_a_round_stays_open(
    quorum: int, close_after: float | None, tmp_path: Path
) -> None:
    rules = replace(RULES, quorum=quorum, close_after=close_after)
    directory, ends, conductor = conducted(tmp_path, rules, slow=west_is_slow)
    conductor.run()
    assert 100.0 <= ends[0] <= 103.0
    assert senders(directory, 0) == set(NAMES)


def test_a_site_that_is_away_holds_up_one_round_and_no_more(tmp_path: Path) -> None:
    """It goes in the first round, which waits for it; the second does not; back in the middle of one, it is asked."""

    def away(site: str, now: float) -> bool:
        return site == "west" and 2.0 < now < 640.0

    directory, ends, conductor = conducted(tmp_path, RULES, rounds=5, slow=steady, away=away)
    conductor.run()
    waited = [after - before for before, after in zip([0.0, *ends], ends)]
    assert waited[0] >= 600.0
    assert waited[1] <= 25.0
    assert senders(directory, 0) == senders(directory, 1) == {"north", "south"}
    assert senders(directory, 4) == set(NAMES)
    assert all(seconds <= 45.0 for seconds in waited[1:])  # at most its own twenty seconds more, once it is back


def test_nobody_waits_for_a_site_that_never_came(tmp_path: Path) -> None:
    directory, ends, conductor = conducted(tmp_path, RULES, away=lambda site, now: site == "west")
    conductor.run()
    assert ends[0] <= 605.0  # the time to join, once
    assert ends[1] - ends[0] <= 5.0
    assert {(f.site, f.code) for f in faults(directory)} == {("west", "absent"), ("west", "missed-the-end")}


def test_below_the_quorum_a_site_that_is_away_is_waited_for(tmp_path: Path) -> None:
    rules = replace(RULES, quorum=3)
    gone: Away = lambda site, now: site == "west" and now > 2.0  # noqa: E731
    directory, _, conductor = conducted(tmp_path, rules, slow=steady, away=gone)
    with pytest.raises(QuorumError, match="2 of 3"):
        conductor.run()
    assert ("west", "late") in {(f.site, f.code) for f in faults(directory)}


def test_a_site_that_went_before_it_said_who_it_is_is_asked_when_it_is_back(tmp_path: Path) -> None:
    """The bug: the question was lost with it, and for minutes it was not asked again; the run began without it."""

    def slow(site: str, request: Request) -> float:
        return 5.0

    directory, ends, conductor = conducted(
        tmp_path, replace(RULES, join=100.0), slow=slow, away=lambda site, now: site == "west" and 2.0 < now < 10.0
    )
    conductor.run()
    assert ends[0] <= 30.0
    assert senders(directory, 0) == set(NAMES)
    assert faults(directory) == []


def test_a_site_that_was_restarted_in_a_round_is_asked_when_it_is_back(tmp_path: Path) -> None:
    """The bug: it was asked again half-way to the deadline, which is twelve hours where somebody approves."""
    day = replace(RULES, quorum=3, deadline=86400.0)
    directory, ends, conductor = conducted(
        tmp_path, day, slow=steady, away=lambda site, now: site == "west" and 5.0 < now < 30.0
    )
    conductor.run()
    assert ends[0] <= 60.0
    assert senders(directory, 0) == set(NAMES)
    assert faults(directory) == []
