"""npz data sets: scaling by declared bounds, layouts of pictures, labels by name or number, faults by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.core.records import as_floats
from prismfl.data.arrays import measured_arrays, read_arrays
from prismfl.data.faults import Faults
from prismfl.data.found import Found
from prismfl.errors import UserError

TWO = ("no", "yes")


def saved(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    return path


def read(path: Path, *, lenient: bool = False, **given: Any) -> Found:
    plain: dict[str, Any] = {"classes": TWO, "bounds": (0.0, 10.0), "unit": None, "natural": None}
    return read_arrays(path, **{**plain, **given}, faults=Faults(lenient=lenient))


def refused(path: Path, line: str, **given: Any) -> None:
    with pytest.raises(UserError) as error:
        read(path, **given)
    assert str(error.value) == line.replace("PATH", str(path))


def test_numbers_are_scaled_by_the_declared_bounds_and_cut_off_there(tmp_path: Path) -> None:
    found = read(saved(tmp_path, x=np.array([[0.0, 5.0], [10.0, 99.0], [-3.0, 2.5]]), y=np.array([0, 1, 0])))
    assert found.kind == "table"
    assert found.x.tolist() == [[-1.0, 0.0], [1.0, 1.0], [-1.0, -0.5]]
    assert found.y.tolist() == [0, 1, 0]
    assert found.x.dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "found"),
    [((2, 4, 5), (1, 4, 5)), ((2, 1, 4, 5), (1, 4, 5)), ((2, 4, 5, 1), (1, 4, 5)), ((2, 4, 5, 3), (3, 4, 5))],
)
def test_pictures_become_channels_first(shape: tuple[int, ...], found: tuple[int, ...], tmp_path: Path) -> None:
    x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    got = read(saved(tmp_path, x=x, y=np.array([0, 1])), bounds=None)
    assert got.kind == "image"
    assert got.x.shape[1:] == found
    first = x[0, 1, 2, 0] if shape[-1] in (1, 3) and len(shape) == 4 else x[0].reshape(-1, *shape[-2:])[0, 1, 2]
    assert got.x[0, 0, 1, 2] == first
    assert got.x.dtype == np.uint8, "bytes stay bytes"


def test_bytes_stand_for_255ths_and_floats_are_taken_as_they_are(tmp_path: Path) -> None:
    bytes_ = read(saved(tmp_path, x=np.full((1, 2, 2), 51, dtype=np.uint8), y=np.array([0])), bounds=None)
    floats = read(saved(tmp_path, x=np.full((1, 2, 2), 0.2), y=np.array([0])), bounds=None)
    declared = read(saved(tmp_path, x=np.full((1, 2, 2), 51, dtype=np.uint8), y=np.array([0])), bounds=(0.0, 255.0))
    other = read(saved(tmp_path, x=np.full((1, 2, 2), 51, dtype=np.uint8), y=np.array([0])), bounds=(0.0, 102.0))
    for found in (bytes_, declared):
        assert np.allclose(as_floats(torch.from_numpy(found.x)), 0.2)
    assert np.allclose(floats.x, 0.2)
    assert np.allclose(other.x, 0.5)


def test_pictures_of_other_numbers_need_bounds(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.full((1, 2, 2), 300.0), y=np.array([0]))
    refused(
        path,
        "Expected values in 0 to 1 in x of PATH (float64); save them so; a site takes others (key: bounds).",
        bounds=None,
    )
    assert read(path, bounds=(0.0, 600.0)).x[0, 0, 0, 0] == 0.5


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [[0], [1]], [False, True]])
def test_labels_are_names_or_count_the_classes(labels: list[Any], tmp_path: Path) -> None:
    assert read(saved(tmp_path, x=np.zeros((2, 1)), y=np.array(labels))).y.tolist() == [0, 1]


def test_where_classes_are_numbers_labels_are_those_numbers(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.zeros((2, 1)), y=np.array([7, 3]))
    assert read(path, classes=("3", "7")).y.tolist() == [1, 0]


def test_a_declared_test_part_stays_apart(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        x_train=np.zeros((3, 1)),
        y_train=np.array([0, 1, 0]),
        x_test=np.full((1, 1), 10.0),
        y_test=np.array([1]),
    )
    found = read(path)
    assert len(found.y) == 3
    assert found.test is not None
    assert found.test[0].tolist() == [[1.0]]
    assert found.test[1].tolist() == [1]


def test_unit_and_natural_ids_are_in_one_form(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.zeros((2, 1)), y=np.array([0, 1]), who=np.array([" 07", "7.0"]), where=np.array([1, 2]))
    found = read(path, unit="who", natural="where")
    assert found.unit is not None
    assert found.natural is not None
    assert found.unit.tolist() == ["7", "7"]
    assert found.natural.tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("arrays", "given", "line"),
    [
        ({"x": np.zeros((1, 1))}, {}, "Expected array 'y' in PATH, got x."),
        ({"z": np.zeros(1)}, {}, "Expected array 'x_train' in PATH, got z."),
        ({"x": np.zeros((2, 1)), "y": np.zeros(1)}, {}, "Expected as many y as x in PATH, got 1 and 2."),
        (
            {"x": np.zeros((1, 1)), "y": np.zeros(1, dtype=np.int64)},
            {"bounds": None},
            "Expected declared bounds for x of PATH: a site takes them (key: bounds of site.toml); else save the table "
            "as CSV with a --schema. They are never taken from the data.",
        ),
        (
            {"x": np.zeros((1, 1)), "y": np.zeros(1, dtype=np.int64)},
            {"classes": None},
            "Expected declared classes for the labels of PATH: give --classes a,b (key: classes); never taken "
            "from the data.",
        ),
        (
            {"x": np.array([["a"]]), "y": np.zeros(1, dtype=np.int64)},
            {},
            "Expected numbers in x of PATH, got <U1.",
        ),
        (
            {"x": np.array([[1.0, np.nan]]), "y": np.zeros(1, dtype=np.int64)},
            {},
            "NaN or infinite value in x of PATH, row 1, column 2.",
        ),
        (
            {"x": np.zeros((1, 1)), "y": np.array([5])},
            {},
            "Label 5 in row 1 of y of PATH is outside 0 to 1; mend it or --classes.",
        ),
        (
            {"x": np.zeros((1, 0)), "y": np.zeros(1, dtype=np.int64)},
            {},
            "Expected at least one number a record in x of PATH, got shape (1, 0).",
        ),
        (
            {"x": np.zeros((1, 1)), "y": np.zeros((1, 2), dtype=np.int64)},
            {},
            "Expected one label a record in y of PATH, got shape (1, 2).",
        ),
        (
            {"x": np.zeros((1, 2, 2, 7), dtype=np.uint8), "y": np.zeros(1, dtype=np.int64)},
            {"bounds": None},
            "Expected (n, features), (n, h, w), (n, 1 or 3, h, w) or (n, h, w, 1 or 3) as x of PATH, got (1, 2, 2, 7).",
        ),
        (
            {"x": np.zeros((2, 1)), "y": np.zeros(2, dtype=np.int64), "who": np.array(["a"])},
            {"unit": "who"},
            "Expected 2 values in 'who' of PATH, got 1.",
        ),
    ],
)
def test_what_is_refused(arrays: dict[str, Any], given: dict[str, Any], line: str, tmp_path: Path) -> None:
    refused(saved(tmp_path, **arrays), line, **given)


def test_on_a_site_a_bad_record_is_a_gap_and_the_others_stay(tmp_path: Path) -> None:
    x = np.array([[1.0], [np.inf], [3.0], [4.0]])
    found = read(saved(tmp_path, x=x, y=np.array([0, 1, 9, 1])), lenient=True)
    assert found.x[:, 0].tolist() == pytest.approx([-0.8, -0.2])
    assert found.y.tolist() == [0, 1]
    assert [(f.row, f.what) for f in found.faults.shown] == [
        (2, "a value is not a finite number"),
        (3, "its label is not a declared class"),
    ]


def test_on_a_site_one_text_among_numbers_does_not_change_the_others(tmp_path: Path) -> None:
    found = read(saved(tmp_path, x=np.array([["1.0"], ["one"], ["3"]]), y=np.array([0, 1, 0])), lenient=True)
    assert found.x[:, 0].tolist() == pytest.approx([-0.8, -0.4])
    assert found.faults.rows == {1}


def test_what_an_archive_tells_to_whoever_declares_it(tmp_path: Path) -> None:
    assert measured_arrays(saved(tmp_path, x=np.zeros((3, 5)))) == {"features": 5}
    assert measured_arrays(saved(tmp_path, x=np.zeros((3, 8, 8), dtype=np.uint8))) == {
        "image_size": 8,
        "channels": 1,
        "bounds": (0.0, 255.0),
    }
    assert measured_arrays(saved(tmp_path, x_train=np.zeros((3, 4, 6, 3), dtype=np.uint16))) == {
        "channels": 3,
        "bounds": (0.0, 65535.0),
    }
