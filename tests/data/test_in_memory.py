"""Arrays and frames in hand: read as files are, and every mistake is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.data.files import load_path
from prismfl.data.in_memory import columns_of, dataset_of, found_frame, found_site, joined, same_columns
from prismfl.data.schema import Column, Schema
from prismfl.data.tables import Roles
from prismfl.errors import UserError

TWO = ("no", "yes")
SCHEMA = Schema((Column("age", min=0, max=100), Column("sex", type="binary", categories=("f", "m"))), "ill", TWO)


def images(n: int = 30, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 8, 8), dtype=np.uint8), rng.integers(0, 2, n)


def frame(n: int = 20) -> dict[str, list[Any]]:
    return {"age": [20 + i for i in range(n)], "sex": ["f", "m"] * (n // 2), "ill": ["no", "yes"] * (n // 2)}


def read(*sites: Any, **given: Any) -> Any:
    return joined([found_site(site, f"site {i}", classes=TWO, **given) for i, site in enumerate(sites, 1)])


def test_arrays_are_the_same_records_as_in_an_npz(tmp_path: Path) -> None:
    (x, y), (x2, y2) = images(), images(seed=1)
    np.savez(tmp_path / "a.npz", x=np.concatenate([x, x2]), y=np.concatenate([y, y2]))
    stored = load_path(tmp_path / "a.npz", classes=TWO, test_fraction=0.2, train_size=60)
    kept = x.copy(), x2.copy()
    held = dataset_of(read((x, y), (x2, y2)), "a", records=60, unit=None)
    assert held.prints_train == stored.prints_train
    assert (held.x_train == stored.x_train).all()
    assert (held.y_test == stored.y_test).all()
    assert len(held.y_test) > 0
    assert (x == kept[0]).all(), "what is given is left as it was"
    assert (x2 == kept[1]).all()


def test_frames_are_the_same_records_as_in_a_csv(tmp_path: Path) -> None:
    table = frame()
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values()))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    stored = load_path(tmp_path / "a.csv", schema=SCHEMA, test_fraction=0.2)
    found = found_frame(table, "site 1", roles=Roles(), classes=None, schema=SCHEMA)
    held = dataset_of(joined([found]), "a", records=20, unit=None)
    assert held.prints_train == stored.prints_train
    assert held.more_prints == stored.more_prints
    assert (held.x_train == stored.x_train).all()


GOOD = images()
ROWS = np.ones((4, 3))
BAD: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("Expected a pair (X, y) as site 1, got 3 values.", (*GOOD, 1), {}),
    ("Expected a pair (X, y) as site 1, got ndarray.", GOOD[0], {}),
    ("as many labels as records in site 1", (GOOD[0], GOOD[1][:-1]), {}),
    ("give y.astype(int)", (GOOD[0], GOOD[1].astype(float)), {}),
    ("Label 2 in row 1 of y of site 1 is outside 0 to 1; mend it or --classes.", (GOOD[0], GOOD[1] * 0 + 2), {}),
    ("Label 'maybe' in row 1 is not one of the declared classes", (GOOD[0], ["maybe"] * 30), {}),
    ("Expected declared bounds for the columns of site 1", (ROWS, [0, 1, 0, 1]), {}),
    ("row 1, column 1", (ROWS * np.nan, [0, 1, 0, 1]), {"bounds": (0.0, 1.0)}),
    ("(4, 2, 2, 2, 2)", (np.ones((4, 2, 2, 2, 2)), [0, 1, 0, 1]), {}),
    ("got objects of Python", (np.array([["a", 1]] * 4, dtype=object), [0, 1, 0, 1]), {"bounds": (0.0, 1.0)}),
    ("rows differ in length", ([[1, 2], [3]], [0, 1]), {"bounds": (0.0, 1.0)}),
    ("Expected numbers in x of site 1", (np.array([["a"]] * 4), [0, 1, 0, 1]), {"bounds": (0.0, 1.0)}),
    ("Expected one id a record as units of site 1", GOOD, {"units": [1, 2]}),
)


@pytest.mark.parametrize(("line", "site", "given"), BAD, ids=[line for line, *_ in BAD])
def test_a_mistake_is_one_line(line: str, site: Any, given: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        read(site, **given)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_sites_must_hold_the_same_kind_of_records() -> None:
    with pytest.raises(UserError, match="got 2 columns in site 2 and 3 columns in site 1"):
        read((ROWS, [0, 1, 0, 1]), (ROWS[:, :2], [0, 1, 0, 1]), bounds=(0.0, 1.0))
    with pytest.raises(UserError, match="one type, got float32 in site 2 and uint8 in site 1"):
        read(GOOD, (GOOD[0] / 255, GOOD[1]))
    with pytest.raises(UserError, match="differ in sex"):
        same_columns([frame(), {k: v for k, v in frame().items() if k != "sex"}])


def test_a_person_lies_at_one_site() -> None:
    ids = [str(i) for i in range(30)]
    found = [found_site(images(seed=i), "site", classes=TWO, units=ids) for i in range(2)]
    with pytest.raises(UserError, match="must lie at one site"):
        dataset_of(joined(found), "a", records=60, unit="unit")


def test_a_frame_is_anything_with_columns() -> None:
    class Missing:
        pass

    Missing.__name__ = "NAType"
    found = columns_of({"a": np.array([1, 2]), "b": [None, Missing()]}, "site 1")
    assert found["a"] == [1, 2]
    assert all(np.isnan(found["b"]))
    with pytest.raises(UserError, match="Expected a frame"):
        columns_of([1, 2], "site 1")
    with pytest.raises(UserError, match="one length"):
        columns_of({"a": [1], "b": []}, "site 1")
