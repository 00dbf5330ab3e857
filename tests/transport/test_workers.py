"""Sites in several processes: the same bits, whoever dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.method import Items, Site, State
from prismfl.core.rounds import Hub
from prismfl.errors import BoundaryError, UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.rng import Key
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.stages import Progress, tell
from prismfl.transport import in_process as local
from prismfl.transport import workers
from prismfl.transport.conductor import QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.workers import WorkerError, fitting
from tests.laws.world import make_job
from tests.transport.test_in_process import hosts_of, many

Client = Callable[[Any, State, Site, Key], tuple[Items, Items]]


def ran(job: Job, folder: Path, *, count: int, progress: Progress = lambda *_: None, **more: Any) -> local.Outcome:
    place = folder / "run"
    directory = RunDirectory.open(place) if place.exists() else RunDirectory.create(place, {}, {})
    hub = None
    if job.method.guarantee == "client":
        ledger = Ledger.open(folder / "hub.sqlite", lasting=False)
        clients = ledger.dataset("clients", records=[b"one"])
        ledger.reserve(job.run, clients, job.plan())
        hub = Hub(ledger, clients)
    transport = workers.transport(count, *([hub.ledger] if hub else ()))
    hosts = hosts_of(job, folder, keep=more.pop("keep", True))
    return local.run(job, hosts, directory=directory, hub=hub, transport=transport, progress=progress, **more)


def charges(folder: Path) -> list[str]:
    with Ledger.open(folder / "ledger.sqlite", create=False) as ledger:
        return [charge.release for charge in ledger.charges()]


def with_client(job: Job, before: Callable[[str], None]) -> Job:
    """The same job, whose sites do something in their own process before they compute."""
    client = job.method.client

    def wrapped(cfg: Any, state: State, site: Site, key: Key) -> tuple[Items, Items]:
        before(site.name)
        return client(cfg, state, site, key)

    return replace(job, method=replace(job.method, client=wrapped))


def once(place: Path, name: str, does: Callable[[], None]) -> Callable[[str], None]:
    """Does something the first time that a site of this name is at work, in whatever process."""

    def before(site: str) -> None:
        if site == name and not place.exists():
            place.touch()
            does()

    return before


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["dp-fedavg", "prism-head", "scaffold", "prism-local", "dp-fedavg-client"])
def test_the_same_bits_as_one_process(name: str, tmp_path: Path) -> None:
    job = many(name, 5)
    one, three = ran(job, tmp_path / "one", count=1), ran(job, tmp_path / "three", count=3)
    assert state_digest(three.state) == state_digest(one.state)
    assert {site: {k: p.digest for k, p in own.items()} for site, own in three.own.items()} == {
        site: {k: p.digest for k, p in own.items()} for site, own in one.own.items()
    }
    assert sorted(charges(tmp_path / "three")) == sorted(charges(tmp_path / "one"))
    assert not multiprocessing.active_children()


def test_folded_releases_come_in_any_order_and_are_taken_in_by_name(tmp_path: Path) -> None:
    job = many("dp-fedavg", 12)
    expected = state_digest(ran(job, tmp_path / "one", count=1).state)
    assert state_digest(ran(job, tmp_path / "three", count=3, room=0, keep=False).state) == expected


def test_sites_are_at_work_in_other_processes_side_by_side(tmp_path: Path) -> None:
    seen, told = tmp_path / "seen", []
    seen.mkdir()
    job = with_client(many("fedavg", 4), lambda name: (seen / f"{os.getpid()}").touch())
    ran(job, tmp_path / "run", count=2, progress=lambda what, done, total: told.append(what))
    numbers = {int(path.name) for path in seen.iterdir()}
    assert len(numbers) == 2
    assert os.getpid() not in numbers
    assert any("site-1 (and site-0)" in what for what in told)


def test_what_every_site_makes_of_public_facts_is_made_once_before_any_process_begins(tmp_path: Path) -> None:
    """Made in each process, it would take as long in all of them as in one."""
    job = make_job("prism-head")
    made: list[int] = []
    there = with_client(job, lambda _: None if made else pytest.fail("asked before it was prepared"))
    prepared = replace(there.method, prepare=lambda cfg, task: made.append(os.getpid()))
    ran(replace(there, method=prepared), tmp_path, count=2)
    assert made == [os.getpid()]
    assert job.method.prepare is not None


def test_a_worker_that_is_killed_costs_its_site_nothing_more(tmp_path: Path) -> None:
    job, told = many("dp-fedavg", 4), []
    expected = state_digest(ran(job, tmp_path / "one", count=1).state)
    killed = with_client(job, once(tmp_path / "mark", "site-2", die))
    found = ran(killed, tmp_path / "two", count=2, progress=lambda what, done, total: told.append(what))
    assert state_digest(found.state) == expected
    assert any(what == "a worker died at site-2 (exit code -9); asked once more" for what in told)
    assert len(charges(tmp_path / "two")) == len(set(charges(tmp_path / "two"))) == 4 * job.settings.rounds
    assert not faults(RunDirectory(tmp_path / "two" / "run"))


def test_a_site_that_kills_two_workers_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    job = many("dp-fedavg", 4)
    rounds = range(job.settings.rounds)
    found = ran(with_client(job, lambda name: die() if name == "site-2" else None), tmp_path, count=2)
    assert found.state.round == job.settings.rounds
    assert [(f.round, f.site, f.code) for f in faults(RunDirectory(tmp_path / "run"))] == [
        (round, "site-2", "worker-died") for round in rounds
    ]
    assert charges(tmp_path).count(f"{job.run}/site-2/0") == 1, "charged before it died, and once"
    assert not multiprocessing.active_children()


def test_where_every_worker_dies_the_run_ends(tmp_path: Path) -> None:
    with pytest.raises(QuorumError):
        ran(with_client(many("fedavg", 2), lambda name: die()), tmp_path, count=2)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [(UserError("no such thing"), UserError, "no such thing"), (KeyError("x"), WorkerError, "KeyError"),
     (BoundaryError("not declared"), BoundaryError, "not declared")],
)  # fmt: skip
def test_what_a_site_raises_ends_the_run_here(
    raised: Exception, kind: type[Exception], words: str, tmp_path: Path
) -> None:
    def fails(name: str) -> None:
        if name == "site-1":
            raise raised

    with pytest.raises(kind, match=words):
        ran(with_client(many("fedavg", 3), fails), tmp_path, count=2)
    assert not multiprocessing.active_children()


def test_cut_off_by_hand_it_leaves_no_process_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    job = many("dp-fedavg", 5)
    expected = state_digest(ran(job, tmp_path / "whole", count=1).state)

    def cut(what: str, done: int, total: int) -> None:
        if what.startswith("round 2, site-3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(job, tmp_path / "cut", count=2, progress=cut)
    assert not multiprocessing.active_children()
    before = charges(tmp_path / "cut")
    assert state_digest(ran(job, tmp_path / "cut", count=2).state) == expected
    after = charges(tmp_path / "cut")
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 5 * job.settings.rounds


def test_how_far_a_site_is_comes_from_its_process(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    job = with_client(many("fedavg", 2), lambda name: tell("looking", 3, 7))
    ran(job, tmp_path, count=2, progress=lambda *words: told.append(words))
    assert any(what.startswith("site-0, looking") and (done, total) == (3, 7) for what, done, total in told)


def test_more_workers_than_there_is_memory_for_are_refused_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    job = many("fedavg", 100)
    assert fitting(0, job) == min(runtime.physical_cores(), 100)
    assert fitting(1, job) == 1
    monkeypatch.setattr(workers, "A_WORKER", runtime.memory_left() // 3)
    with pytest.raises(UserError, match=r"^50 workers need about .* would fit: --workers [23]\.$"):
        fitting(50, job)
    assert 1 <= fitting(0, job) <= 3, "what nobody asked for is lowered"


def test_no_more_workers_than_sites_and_none_beside_another_device() -> None:
    assert fitting(2, make_job("dp-central")) == 1
    job = many("fedavg", 3)
    assert fitting(2, job) == 2
    job = replace(job, task=replace(job.task, device="cuda"))
    assert fitting(0, job) == 1
    with pytest.raises(UserError, match="Expected workers = 1 here"):
        fitting(2, job)
