"""A mistake in a cell: people see the cell, logs do not, and a column is read the same whatever one cell is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data import Column, Schema, load_path
from prismfl.data.columns import read_csv
from prismfl.data.faults import SHOWN, Faults
from prismfl.data.schema import class_codes
from prismfl.errors import CellError, words_for_log

SECRET = "Jane-Doe-4711"
SCHEMA = Schema(
    (Column("age", min=0, max=100), Column("sex", type="binary", categories=("f", "m"))), "ill", ("no", "yes")
)


def own_file(folder: Path, kind: str) -> tuple[Path, dict[str, Any]]:
    table = {"age": ["1", "2"], "sex": ["f", "m"], "ill": ["no", "yes"]}
    if kind in table:
        table[kind][1] = SECRET
        lines = [",".join(table), *(",".join(cells) for cells in zip(*table.values()))]
        (folder / "t.csv").write_text("\n".join(lines))
        return folder / "t.csv", {"schema": SCHEMA}
    if kind == "array label":
        np.savez(folder / "d.npz", x=np.zeros((2, 3)), y=["no", SECRET])
        return folder / "d.npz", {"classes": ["no", "yes"], "bounds": (0, 1)}
    for name in ("no", "yes"):
        (folder / name).mkdir()
        Image.new("L", (8, 8)).save(folder / name / "0.png")
    place = folder / "yes" / f"{SECRET}.png"
    if kind == "picture":
        place.write_bytes(b"x")
    elif kind == "no file":
        place.mkdir()
    elif kind == "size":
        Image.new("L", (9, 8)).save(place)
    elif kind == "colour":
        Image.new("RGB", (8, 8)).save(place)
    else:
        (folder / SECRET).mkdir()
    return folder, {} if kind in ("size", "colour") else {"image_size": 8, "channels": 1, "classes": ["no", "yes"]}


KINDS = ["age", "sex", "ill", "array label", "picture", "no file", "size", "colour", "folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_logs_do_not_quote_the_cell_that_people_see(kind: str, tmp_path: Path) -> None:
    path, declared = own_file(tmp_path, kind)
    with pytest.raises(CellError) as error:
        load_path(path, **declared)
    assert SECRET in str(error.value)
    assert SECRET not in words_for_log(error.value)
    if path != tmp_path:
        assert "row 2" in words_for_log(error.value)
        assert path.name in words_for_log(error.value)


def test_a_name_is_the_same_whatever_type_its_column_has() -> None:
    """One cell of text or one empty cell turns 1 into "1.0" or "1" for everybody in the column."""
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], ["1.0", "2.0"], np.array(["1", "2.0"]), ["01", "2e0"]):
        assert class_codes(values, ("2", "1"), Faults()).tolist() == [1, 0]
    # Names that are the same number are told apart as they are written, or not at all.
    assert class_codes(["01", "1"], ("1", "01"), Faults()).tolist() == [1, 0]
    with pytest.raises(CellError):
        class_codes(["1.0"], ("1", "01"), Faults())


def test_the_separator_comes_from_the_header_alone(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\r1;;;;,2\r3,4\r")  # old line ends: no line feed in all of the file
    assert read_csv(tmp_path / "t.csv") == {"a": ["1;;;;", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize("lenient", [False, True])
def test_both_readings_agree_where_nothing_is_wrong(lenient: bool, tmp_path: Path) -> None:
    text = '\ufeffa, b,c\r\n1,"x, ""y""",\u00e9\r\n\r\n 2, z ,"q"\r\n3,,\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    found = read_csv(tmp_path / "t.csv", faults=Faults(lenient=lenient))
    assert found == {"a": ["1", "2", "3"], "b": ['x, "y"', "z ", ""], "c": ["\u00e9", "q", ""]}


def test_what_is_shown_of_many_faults_is_bounded() -> None:
    faults = Faults(lenient=True)
    class_codes([SECRET] * (SHOWN + 5), ("a", "b"), faults)
    assert (len(faults.rows), len(faults.shown)) == (SHOWN + 5, SHOWN)
    assert SECRET not in repr(faults.shown)
    assert faults.kept(SHOWN + 6).tolist() == [SHOWN + 5]


def test_encoding_leaves_its_input_alone() -> None:
    ages = np.array([1.0, np.nan])
    Schema((Column("age", min=0, max=9, missing=5),), "y", ("0", "1")).encode({"age": ages})
    assert np.isnan(ages[1])
