"""All sites in one process: flat in their number, whatever the server does with what they send."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from prismfl.core.job import Job
from prismfl.core.method import Inbox, Items, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.records import Records
from prismfl.core.rounds import ROOM, Host, folding_of, site_step
from prismfl.core.task import Task
from prismfl.errors import BudgetError
from prismfl.methods import METHODS
from prismfl.methods.averaging import fedavg
from prismfl.privacy.ledger.book import Ledger
from prismfl.rng import Key
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.transport import in_process as local
from prismfl.transport.workers import transport
from tests.laws.world import make_job, some_records

FOLDS = [name for name, method in METHODS.items() if method.fold is not None and method.fold.server is method.server]


def hosts_of(job: Job, folder: Path, *, keep: bool, records: Records | None = None) -> list[Host]:
    """The sites on one ledger of the run's own, as a simulation of named data has them."""
    ledger = Ledger.open(folder / "ledger.sqlite", lasting=False)
    dataset = ledger.dataset("data", records=[b"one"])
    ledger.reserve(job.run, dataset, job.site_plan())
    found = []
    for i, name in enumerate(job.task.sites):
        own = records or some_records(job.task.records, seed=i, table=len(job.task.shape) == 1)
        host = Host(name, lambda own=own: own, ledger, dataset, folder / name, part=name, keep=keep)  # type: ignore[misc]
        found.append(host)
    return found


def ran(job: Job, folder: Path, *, room: int = ROOM, keep: bool = True) -> str:
    directory = RunDirectory.create(folder / "run", {}, {})
    hosts = hosts_of(job, folder, keep=keep)
    return state_digest(local.run(job, hosts, directory=directory, room=room).state)


def many(name: str, sites: int) -> Job:
    job = make_job(name)
    return replace(job, task=replace(job.task, sites=tuple(f"site-{i}" for i in range(sites))))


def test_the_methods_that_fold_are_those_that_say_so() -> None:
    assert {"fedavg", "dp-fedavg", "fedprox", "prism", "prism-head"} <= set(FOLDS)
    assert "scaffold" not in FOLDS, "made from FedAvg, with a server of its own"
    assert folding_of(make_job("scaffold"), State(0, {}), room=0) is None


@pytest.mark.parametrize("name", FOLDS)
def test_what_is_folded_is_what_the_server_makes_of_all_bit_for_bit(name: str, tmp_path: Path) -> None:
    job = many(name, 12)  # "site-10" comes before "site-2": releases do not arrive in the order they are asked for
    whole = ran(job, tmp_path / "whole")
    assert ran(job, tmp_path / "folded", room=0, keep=False) == whole
    assert ran(replace(job, method=replace(job.method, fold=None)), tmp_path / "read again", room=1) == whole


def test_where_a_site_is_clipped_the_releases_are_made_again(tmp_path: Path) -> None:
    """Four sites move the model little and one much: only who has seen all five knows that it is too much."""
    job = many("fedavg", 5)

    def client(cfg: fedavg.Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
        site.records.exact()
        far = 50.0 if site.name == "site-1" else 0.01
        return {"model": Weights({k: v + far for k, v in state.items["model"].tensors.items()})}, {}

    job = replace(job, method=replace(job.method, client=client))
    whole = ran(job, tmp_path / "whole")
    assert ran(job, tmp_path / "folded", room=0, keep=False) == whole
    mean = replace(job, settings=job.settings.model_copy(update={"aggregate": "mean"}))
    assert ran(mean, tmp_path / "mean", room=0, keep=False) != whole


def test_cut_off_in_a_folded_round_it_ends_the_same_and_nobody_pays_twice(tmp_path: Path) -> None:
    job = many("dp-fedavg", 6)
    whole = ran(job, tmp_path / "whole")
    directory, turns = RunDirectory.create(tmp_path / "run", {}, {}), 0

    def cut(what: str, done: int, total: int) -> None:
        nonlocal turns
        turns += "round" in what
        if turns == 5:
            raise KeyboardInterrupt

    folder = tmp_path / "cut"
    hosts = hosts_of(job, folder, keep=False)
    with pytest.raises(KeyboardInterrupt):
        local.run(job, hosts, directory=directory, room=0, progress=cut)
    before = hosts[0].ledger.charges()
    assert len(before) == 4, "four sites were done"
    hosts[0].ledger.shut()
    hosts = hosts_of(job, folder, keep=False)
    assert state_digest(local.run(job, hosts, directory=directory, room=0).state) == whole
    charges = hosts[0].ledger.charges()
    assert len(charges) == len({charge.release for charge in charges}) == 6 * job.settings.rounds
    assert [charge.digest for charge in charges[:4]] == [charge.digest for charge in before]


def test_a_release_that_comes_out_otherwise_is_not_sent_again(tmp_path: Path) -> None:
    job = many("dp-fedavg", 1)
    (host,) = hosts_of(job, tmp_path, keep=False)
    state = State(0, dict(job.method.init(job.settings, job.task, job.key.child("init"))))
    first = site_step(job, state, host)
    assert site_step(job, state, host) == first
    host.records = lambda: some_records(job.task.records, seed=99)
    with pytest.raises(BudgetError, match="other content"):
        site_step(job, state, host)


class Watch:
    """Open files and resident memory, looked at whenever a site begins."""

    def __init__(self) -> None:
        self.files: list[int] = []
        self.bytes: list[int] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.files.append(len(os.listdir("/proc/self/fd")))
        resident = int(Path("/proc/self/statm").read_text().split()[1])
        self.bytes.append(resident * os.sysconf("SC_PAGE_SIZE"))


NUMBERS, SITES = 50_000, 500


def wide_job() -> Job:
    """A method whose releases are 200 kB each and cost next to nothing to make."""
    shapes = {"model": {"w": ("float32", (NUMBERS,))}}

    def init(cfg: object, task: Task, key: Key) -> Items:
        return {"model": Weights({"w": torch.zeros(NUMBERS)})}

    def client(cfg: object, state: State, site: Site, key: Key) -> tuple[Items, Items]:
        site.records.exact()
        return {"model": Weights({"w": torch.full((NUMBERS,), float(site.name[5:]))})}, {}

    def server(cfg: object, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
        means = np.mean([float(inbox[site]["model"].tensors["w"][0]) for site in sorted(inbox)])
        return {"model": Weights({"w": torch.full((NUMBERS,), float(means))})}

    method = replace(fedavg.METHOD, name="wide", init=init, client=client, shapes=lambda cfg, task: shapes)
    task = Task("t", (1,), ("a", "b"), tuple(f"site-{i}" for i in range(SITES)), 1)
    return Job("wide", replace(method, server=server), fedavg.Config(rounds=1, aggregate="mean"), task, 0)


@pytest.mark.parametrize("folds", [True, False], ids=["folded", "read again"])
def test_open_files_and_memory_do_not_grow_with_500_sites(folds: bool, tmp_path: Path) -> None:
    job, watch = wide_job(), Watch()
    if folds:
        job = replace(job, method=replace(job.method, server=fedavg.METHOD.server))
    directory = RunDirectory.create(tmp_path / "run", {}, {})
    one = Records(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    hosts = hosts_of(job, tmp_path, keep=not folds, records=one)
    before = len(os.listdir("/proc/self/fd"))
    outcome = local.run(job, hosts, directory=directory, room=1_000_000, progress=watch, keep="ends")
    assert outcome.state.items["model"].tensors["w"][7] == pytest.approx((SITES - 1) / 2)
    assert len(watch.files) >= SITES
    assert max(watch.files) <= before + 16
    half = len(watch.bytes) // 5
    grown = (max(watch.bytes) - watch.bytes[half]) / 2**20
    assert grown < 40, f"400 releases are {400 * 4 * NUMBERS / 2**20:.0f} MB, and memory grew by {grown:.0f} MB"
    if folds:
        hosts[0].ledger.shrink()
        disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        whole = 50 * 4 * NUMBERS  # of fifty sites the messages are kept whole
        assert (disk - whole) / SITES < 20_000


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_site_that_is_rarely_asked_has_sent_is_not_kept_until_it_is_asked_again(
    count: int, tmp_path: Path
) -> None:
    job = many("dp-fedavg", 8)
    job = replace(
        job, task=replace(job.task, participation=0.25), settings=job.settings.model_copy(update={"rounds": 6})
    )
    hosts, kept = hosts_of(job, tmp_path, keep=True), []

    def count_them(state: State, traffic: object) -> None:
        waiting = [hosts[0].ledger.waiting(job.run, host.name, before=9) for host in hosts]
        kept.append(sum(len(names) for names in waiting))
        hosts[0].ledger.shut()

    directory = RunDirectory.create(tmp_path / "run", {}, {})
    local.run(job, hosts, directory=directory, after_round=count_them, transport=transport(count))
    assert len(kept) == 6
    assert max(kept) <= 2 * job.task.asked, kept
