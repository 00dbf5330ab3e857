"""prism-table: the closed-form classifier of a table, and the bound that its one release keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.method import Site, State
from prismfl.core.payloads import Items
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods.prism import table
from prismfl.methods.prism.statistics import record_rows
from prismfl.privacy import mechanisms
from prismfl.rng import Key, NoiseStream

KEY, NOTHING = Key.seed(0), State(0, {})


def task_of(columns: int, classes: int = 2) -> Task:
    return Task("rows", (columns,), tuple("abcdefgh"[:classes]), ("here",), 500)


def rows(n: int = 600, columns: int = 5, *, seed: int = 0) -> Records:
    """Two overlapping clouds, the first three times as large."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.arange(n) % 4 == 0).long()
    x = 0.15 * torch.randn(n, columns, generator=g)
    x[:, 1] += 0.8 * x[:, 0]
    x[:, :2] += 0.12 * y[:, None] * torch.tensor([1.0, -1.0])
    return Records(x, y)


def answer(cfg: table.TableConfig, records: Records, task: Task) -> Items:
    door = PrivateRecords(records, declared=task.records, classes=len(task.classes), noise=NoiseStream(KEY))
    return table.client(cfg, NOTHING, Site("here", door, {}, task), KEY)[0]


def model(cfg: table.TableConfig, records: Records) -> tuple[Task, Items]:
    task = task_of(records.x.shape[1])
    return task, table.server(cfg, task, NOTHING, {"here": answer(cfg, records, task)}, KEY)


def contribution(cfg: table.TableConfig, row: torch.Tensor) -> float:
    """The length of all that one row adds to a release, before any further clipping."""
    task = task_of(len(row))
    form = table.layout(cfg, task)
    one = record_rows(table.features(cfg, task), form, row[None].float()).double()
    second = form.scale * one[:, : form.second].T @ one[:, : form.second]
    return float(torch.cat([one.flatten(), mechanisms.triangle(second)]).norm())


@pytest.mark.parametrize("columns", [1, 2, 30, 100])
def test_no_row_reaches_beyond_one_and_the_farthest_reaches_it(columns: int) -> None:
    """A share, the clip or the box that is left out turns this red."""
    cfg = table.TableConfig(sigma=1.0, reach=0.05 if columns == 100 else 0.3)
    for scale in (0.0, 0.1, 1.0, 1e6):
        assert contribution(cfg, torch.full((columns,), scale)) <= 1 + 1e-5
    corner = torch.ones(columns) if columns < 100 else table.features(cfg, task_of(columns)).frame.basis[:, 0].sign()
    assert contribution(cfg, 1e6 * corner) == pytest.approx(1.0, abs=1e-5)


def test_without_noise_it_is_linear_discriminant_analysis() -> None:
    """The classes are weighed by how common they are: without that, one row in eight would differ."""
    cfg, records, held = table.TableConfig(sigma=1e-6, reach=1.0), rows(), rows(seed=1)
    task, items = model(cfg, records)
    theirs = LinearDiscriminantAnalysis().fit(records.x.numpy(), records.y.numpy())
    ours = table.predict(cfg, task, items, held.x).argmax(1)
    assert float((ours.numpy() == theirs.predict(held.x.numpy())).mean()) > 0.98
    chances = torch.softmax(table.predict(cfg, task, items, held.x), 1).numpy()
    assert abs(chances - theirs.predict_proba(held.x.numpy())).max() < 0.05


def test_a_wide_table_is_turned_to_fewer_directions() -> None:
    cfg = table.TableConfig(sigma=1e-6, rank=8)
    task, items = model(cfg, rows(columns=40))
    assert items["model"].tensors["weight"].shape == (8, 2)
    basis = table.features(cfg, task).frame.basis
    assert torch.allclose(basis.T @ basis, torch.eye(8), atol=1e-5)
    assert torch.equal(basis, table.features(cfg, task).frame.basis), "public: the same for everybody"


@pytest.mark.parametrize(("n", "columns"), [(0, 3), (40, 3), (40, 70)])
def test_the_shapes_of_a_release_are_public(n: int, columns: int) -> None:
    cfg, task = table.TableConfig(sigma=1.0), task_of(columns)
    made = answer(cfg, Records(torch.zeros(n, columns), torch.zeros(n, dtype=torch.int64)), task)
    assert {name: item.shapes() for name, item in made.items()} == table.shapes(cfg, task)


def test_a_rows_score_does_not_hang_on_its_neighbours() -> None:
    cfg, records = table.TableConfig(sigma=0.5), rows()
    task, items = model(cfg, records)
    together = table.predict(cfg, task, items, records.x[:130])
    alone = torch.cat([table.predict(cfg, task, items, row[None]) for row in records.x[:130]])
    assert float((together - alone).abs().max()) < 1e-9


@pytest.mark.parametrize("change", [{"reach": 0.0}, {"share_count": 0.0}, {"rank": 0}, {"patch": 3}])
def test_impossible_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        table.TableConfig(**change)


def test_one_exchange_and_what_it_costs() -> None:
    task, cfg = task_of(3), table.TableConfig(sigma=2.0)
    with pytest.raises(UserError, match="expected rounds = 1, got 2"):
        table.init(cfg.model_copy(update={"rounds": 2}), task, KEY)
    assert Job("x", table.METHOD, cfg, task, 0).plan() == task.gaussian(2.0)


def test_a_column_beyond_its_bounds_takes_no_room_from_the_others() -> None:
    cfg = table.TableConfig(sigma=1.0)
    far, on = (table.features(cfg, task_of(2)).coordinates(torch.tensor([[high, 0.5]])) for high in (1e6, 1.0))
    assert torch.equal(far, on)


def test_rows_within_reach_stay_as_long_as_they_are() -> None:
    """Of few columns nothing within a norm of 1 is shortened: else a single column would be its sign."""
    for columns, reach, clip in ((1, 0.3, 1.0), (4, 0.3, 1.0), (36, 0.3, 1.8), (4, 1.0, 2.0)):
        seen = table.features(table.TableConfig(sigma=1.0, reach=reach), task_of(columns))
        row = torch.full((1, columns), 0.9 * clip / columns**0.5)
        assert float(seen.coordinates(row).norm()) == pytest.approx(0.9, abs=1e-5)
