"""dp-marginals in a pool: it asks like every kind, its releases add up, and what cannot be is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site, State
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.methods.generators import graphical, pooled_tables, synthesizers, table_model, threedgl
from prismfl.methods.generators.moments import Queries
from prismfl.nets.columns import Columns
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

COLUMNS = Columns.parse(["n", "c3"])
ASKED = pooled_tables.asked_of(COLUMNS, 0)


@pytest.fixture(autouse=True)
def _without_the_fitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphical, "installed", lambda: False)


def some_records(n: int, seed: int = 0) -> Records:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    first = (0.3 * torch.randn(n, generator=g) + 0.5 * (2 * y - 1)).clamp(-1, 1)
    choice = torch.where(torch.rand(n, generator=g) < 0.8, y, 2)
    return Records(torch.cat([first[:, None], torch.eye(3)[choice]], 1), y)


def door(records: Records, seed: int = 0) -> PrivateRecords:
    return PrivateRecords(records, declared=len(records), classes=2, noise=Key.seed(seed).noise())


def test_it_asks_as_often_as_every_kind_and_gives_counts_back() -> None:
    queries, opened = Queries(4, 0.5, 0.5), door(some_records(400))
    made = pooled_tables.fit(opened, ASKED, queries=queries)
    assert opened.meter.cost == Cost.gaussian(0.5, rate=0.5, times=4)
    table = made["counts"][: ASKED.sizes[0]] / ASKED.weights[0]
    assert abs(float(table.sum()) - 400) < 60
    assert float(made["noise"]) == pytest.approx(0.5)
    assert {name: tuple(t.shape) for name, t in made.items()} == pooled_tables.shapes(ASKED)


def test_releases_add_up_and_impossible_ones_are_named() -> None:
    queries = Queries(1, 1.0, 1.0)
    made = [pooled_tables.fit(door(some_records(300, i), i), ASKED, queries=queries) for i in range(2)]
    both = pooled_tables.merge(made)
    assert torch.allclose(both["counts"].float(), made[0]["counts"] + made[1]["counts"])
    assert float(both["noise"]) == pytest.approx(2**0.5)
    assert pooled_tables.fault(ASKED, made[0], queries, 600.0) is None
    for wrong in (100 * made[0]["counts"], -made[0]["counts"]):
        assert pooled_tables.fault(ASKED, {**made[0], "counts": wrong}, queries, 600.0) is not None
    assert pooled_tables.fault(ASKED, {**made[0], "noise": torch.tensor([9.0])}, queries, 600.0) is not None


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("pool", ["uniform", "merged"])
def test_a_pool_of_tables_gives_records_like_those_of_the_sites(joint: bool, pool: Any) -> None:
    task = Task("own", (4,), ("no", "yes"), ("a", "b"), 400, "logreg")
    cfg = threedgl.Config(
        synthesizers=("dp-marginals",), columns=("n", "c3"), queries=2, rate=1.0, sigma=1.0, joint=joint, pool=pool
    )
    inbox = {}
    for i, site in enumerate(task.sites):
        opened = door(some_records(400, i), i)
        inbox[site], _ = threedgl.client(cfg, State(0, {}), Site(site, opened, {}, task), Key.seed(i))
        assert opened.meter.cost == threedgl.plan(cfg, task)
        assert threedgl.possible(cfg, task, State(0, {}), site, inbox[site]) is None
        assert inbox[site]["generator"].shapes() == threedgl.shapes(cfg, task)["generator"]
    items = threedgl.server(cfg, task, State(0, {}), inbox, Key.seed(3))
    x, y = items["synthetic"].tensors["x"], items["synthetic"].tensors["y"]
    assert float(x[y == 1, 0].mean()) > float(x[y == 0, 0].mean()) + 0.4
    assert bool((x[:, 1:].sum(1) == 1).all())


def test_a_model_is_fitted_once_for_all_who_sample_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pooled_tables.fit(door(some_records(100)), ASKED, queries=Queries(1, 1.0, 1.0))
    calls: list[int] = []
    real = table_model.fitted

    def counting(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return real(*given, **more)

    monkeypatch.setattr(table_model, "fitted", counting)
    pooled_tables._fitted.cache_clear()
    drawn = [pooled_tables.draw(ASKED, made, 10, torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert len(calls) == 1
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert synthesizers.KINDS[-1] == "dp-marginals"
