"""A frame in, a frame out: the same columns, in the same order, with declared values; labels and ids included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import prismfl
from prismfl.errors import UserError

SCHEMA: dict[str, Any] = {
    "label": "outcome",
    "classes": ["well", "ill"],
    "columns": [
        {"name": "age", "min": 0, "max": 100, "integer": True},
        {"name": "ward", "type": "categorical", "categories": ["north", "south", "west"]},
    ],
}
FAST: dict[str, Any] = {"seed": 0, "records": 300, "fitter": "copula", "bins": 8}


def some_columns(n: int = 300) -> dict[str, list[Any]]:
    g = np.random.default_rng(0)
    age = g.integers(20, 90, n)
    return {
        "outcome": ["ill" if a > 60 else "well" for a in age],
        "age": age.tolist(),
        "ward": [["north", "south", "west"][i % 3] for i in range(n)],
    }


class Frame:
    """As much of a data frame as anybody needs: made from a mapping, with columns by name."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.columns = data, list(data)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


@pytest.mark.parametrize("kind", [dict, Frame])
def test_frames_in_frames_out(kind: Any) -> None:
    found = prismfl.create("dp-marginals", epsilon=8, schema=SCHEMA, **FAST).fit(kind(some_columns()))
    made = found.sample(500)
    assert type(made) is kind
    columns = made if kind is dict else made.data
    assert list(columns) == ["outcome", "age", "ward"]
    assert {len(cells) for cells in columns.values()} == {500}
    assert set(columns["ward"]) <= {"north", "south", "west"}
    age = np.asarray(columns["age"])
    assert age.dtype.kind == "i"
    ill = np.asarray(columns["outcome"]) == "ill"
    assert age[ill].mean() > age[~ill].mean() + 15
    assert found.certificate()["mechanism"]["name"].startswith("one Gaussian release of 4 tables")


def test_drawing_again_fits_nothing_again_and_is_the_same_for_a_seed() -> None:
    found = prismfl.create("dp-marginals", epsilon=2, schema=SCHEMA, **FAST).fit(some_columns())
    first, again, other = found.sample(50, seed=3), found.sample(50, seed=3), found.sample(50, seed=4)
    assert all(list(first[name]) == list(again[name]) for name in first)
    assert any(list(first[name]) != list(other[name]) for name in first)


def test_patients_get_new_ids_and_are_what_is_protected() -> None:
    data = {"patient": [f"p{i // 3}" for i in range(300)], **some_columns()}
    found = prismfl.create("dp-marginals", epsilon=2, schema={**SCHEMA, "unit": "patient"}, **FAST).fit(data)
    assert found.certificate()["unit"] == "patient"
    assert not set(map(str, found.sample(20)["patient"])) & set(data["patient"])


def test_what_a_schema_and_a_frame_cannot_be() -> None:
    create = prismfl.create("dp-marginals", epsilon=1, schema=SCHEMA, **FAST)
    with pytest.raises(UserError, match="one frame with the label"):
        create.fit(np.zeros((3, 4)))
    with pytest.raises(UserError, match="one frame with the label"):
        create.fit(some_columns(), ["ill"] * 300)
    with pytest.raises(UserError, match="Expected column 'ward'"):
        create.fit({name: cells for name, cells in some_columns().items() if name != "ward"})
    with pytest.raises(UserError, match="number of records"):
        prismfl.create("dp-marginals", epsilon=1, schema=SCHEMA, seed=0).fit(some_columns())
