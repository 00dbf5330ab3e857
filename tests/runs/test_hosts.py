"""Simulated sites: a ledger each with the plan reserved, or one ledger for one's own data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.core.job import Job
from prismfl.data import Dataset, Spec
from prismfl.errors import BudgetError, UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.runs.config import RunConfig
from prismfl.runs.hosts import check_memory, open_hosts, own_ledger, step_memory
from prismfl.runs.planning import resolve, task_of

SPEC = Spec("t", "table", (2,), ("a", "b"), 6, "none", "here")
PARTS = [np.array([0, 1]), np.array([2, 3, 4])]


def dataset(*, own: bool = False) -> Dataset:
    x = torch.arange(12).float().reshape(6, 2)
    prints = [bytes([i]) * 32 for i in range(6)] if own else None
    none = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    return Dataset(SPEC, x, torch.tensor([0, 1, 0, 1, 0, 1]), *none, prints_train=prints)


def made(name: str = "dp-fedavg", **changes: Any) -> tuple[Job, RunConfig]:
    sigma = {"sigma": 1.5} if METHODS[name].guarantee else {}
    values: dict[str, Any] = {"method": name, "data": "digits", "sites": 2, "records": 3, "model": "logreg"}
    config = RunConfig(**{**values, "settings": sigma, "seed": 1, **changes})
    method = METHODS[name]
    task = task_of(config, SPEC, method)
    return Job("run-1", method, resolve(config, task, method), task, 1), config


def opened(name: str, folder: Path, *, own: bool = False, parts: Sequence[np.ndarray] = PARTS, **changes: Any) -> Any:
    job, config = made(name, **changes)
    return job, open_hosts(job, config, dataset(own=own), list(parts), folder=folder)


def test_each_site_has_its_records_and_its_part_of_a_ledger_with_the_plan(tmp_path: Path) -> None:
    job, (hosts, hub) = opened("dp-fedavg", tmp_path)
    assert hub is None
    assert [host.name for host in hosts] == list(job.task.sites)
    assert [len(host.records()) for host in hosts] == [2, 3]
    assert hosts[1].records().x.tolist() == [[4.0, 5.0], [6.0, 7.0], [8.0, 9.0]]
    (status,) = hosts[0].ledger.status()
    assert list(status.open_runs) == ["run-1"]
    assert status.records == 5
    assert {id(host.ledger) for host in hosts} == {id(hosts[0].ledger)}, "one file holds all simulated sites"
    assert [host.part for host in hosts] == ["site-0", "site-1"]
    assert [path.name for path in (tmp_path / "ledger").glob("*.sqlite")] == ["ledger.sqlite"]


def test_at_client_level_the_hub_has_the_plan_and_the_sites_have_no_guarantee(tmp_path: Path) -> None:
    job, (hosts, hub) = opened("dp-fedavg-client", tmp_path)
    assert hub is not None
    assert job.site_plan() == Cost.non_private()
    assert len(hosts) == 2
    assert (tmp_path / "ledger" / "hub.sqlite").is_file()


def test_a_cap_is_each_sites_and_refuses_a_plan_beyond_it(tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        opened("dp-fedavg", tmp_path, cap=0.01)


def test_ledgers_may_lie_elsewhere(tmp_path: Path) -> None:
    _, (hosts, _) = opened("dp-fedavg", tmp_path / "run", ledger=str(tmp_path / "books"))
    assert len({id(host.ledger) for host in hosts}) == 2
    assert not [file for file in open_files() if file.startswith(str(tmp_path))], "open only while a site is at work"
    assert sorted(p.name for p in (tmp_path / "books").glob("*.sqlite")) == ["site-0.sqlite", "site-1.sqlite"]


def open_files() -> list[str]:
    return [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]


def test_a_run_that_an_earlier_version_began_goes_on_with_a_ledger_a_site(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger" / "site-0.sqlite"):
        pass
    _, (hosts, _) = opened("dp-fedavg", tmp_path)
    assert [host.ledger.path.name for host in hosts] == ["site-0.sqlite", "site-1.sqlite"]


def test_what_a_fold_takes_in_is_not_kept_unless_it_is_ones_own(tmp_path: Path) -> None:
    job, config = made("dp-fedavg")
    hosts, _ = open_hosts(job, config, dataset(), PARTS, folder=tmp_path / "a", room=0)
    assert not any(host.keep for host in hosts)
    hosts, _ = open_hosts(job, config, dataset(), PARTS, folder=tmp_path / "b")
    assert all(host.keep for host in hosts)
    own = {"data": str(tmp_path / "mine.csv"), "ledger": str(tmp_path / "book"), "noise": "operating-system"}
    job, config = made("dp-fedavg", **own)
    hosts, _ = open_hosts(job, config, dataset(own=True), PARTS, folder=tmp_path / "c", room=0)
    assert all(host.keep for host in hosts)


def test_own_data_are_one_data_set_on_one_ledger(tmp_path: Path) -> None:
    data = str(tmp_path / "mine.csv")
    _, (hosts, _) = opened(
        "dp-fedavg", tmp_path / "run", own=True, data=data, ledger=str(tmp_path / "book"), noise="operating-system"
    )
    assert hosts[0].ledger is hosts[1].ledger
    assert hosts[0].dataset == hosts[1].dataset
    assert [host.part for host in hosts] == ["site-0", "site-1"]
    assert all(host.deployed for host in hosts)
    (status,) = hosts[0].ledger.status()
    assert list(status.names) == [data]


def test_seeded_noise_on_own_data_with_a_cap_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "mine.csv"
    with Ledger.open(own_ledger(RunConfig(ledger=str(tmp_path / "book")))) as book:
        book.dataset(str(data), records=[bytes([i]) * 32 for i in range(6)], cap=Cap(100.0, 1e-5))
    with pytest.raises(UserError, match=r"^The data have a cap of .*, and seeded noise protects nobody; leave out"):
        opened("dp-fedavg", tmp_path / "run", own=True, data=str(data), ledger=str(tmp_path / "book"), noise="seeded")


def test_without_a_folder_the_ledger_is_the_users_one() -> None:
    assert own_ledger(RunConfig()) == ledger_path()


def test_where_nothing_leaves_nothing_is_reserved(tmp_path: Path) -> None:
    job, (hosts, _) = opened("local-only", tmp_path, settings={})
    assert job.plan().is_zero
    assert len(hosts) == 2


def test_a_declared_memory_reaches_the_steps_and_too_little_is_refused_with_what_would_do(tmp_path: Path) -> None:
    job, (hosts, _) = opened("dp-fedavg", tmp_path, memory=0.5)
    assert {host.step_memory for host in hosts} == {2**29}
    check_memory(job, made(memory=0.5)[1])
    wide, config = made(model="mlp:1000", memory=1e-4)
    with pytest.raises(UserError, match=r"memory=(\S+), or") as error:
        check_memory(wide, config)
    enough = float(str(error.value).partition("memory=")[2].partition(",")[0])
    assert step_memory(made(memory=enough)[1]) >= wide.step_bytes
    check_memory(wide, made(memory=enough)[1])
    check_memory(made("fedavg", model="mlp:1000")[0], config)  # no private step, nothing to refuse


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_memory_is_a_number_of_gigabytes(value: float) -> None:
    with pytest.raises(ValueError, match="memory"):
        made(memory=value)
