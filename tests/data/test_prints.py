from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from prismfl.data import Column, Schema, load_path
from prismfl.data.prints import (
    bag_prints,
    canonical_cell,
    matrix_prints,
    picture_print,
    row_print,
    row_prints,
)

ROWS = {"age": ["50", "7.25"], "name": ["Zo\u00eb", "Bo"], "ill": ["yes", "no"], "seen": ["true", ""]}
SCHEMA = Schema((Column("age", min=0, max=100),), "ill", ("no", "yes"))


def prints(path: Path, **arguments: object) -> list[bytes]:
    found = load_path(path, **arguments).prints_train  # type: ignore[arg-type]
    assert found is not None
    return found


def write(path: Path, table: dict[str, list[str]], separator: str = ",") -> Path:
    rows = [separator.join(table), *(separator.join(row) for row in zip(*table.values()))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_row_is_the_same_in_any_file(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    first = prints(write(tmp_path / "a.csv", ROWS), schema=SCHEMA)
    assert len(set(first)) == 2
    other = {"seen": ["1", "NA"], "name": [" Zoe\u0308", "Bo\u200b"], "age": ["5e1", "7.250"], "ill": ["no", "no"]}
    assert prints(write(tmp_path / "b.tsv", other, "\t"), schema=SCHEMA) == first
    wide = Schema((Column("age", min=-9, max=1000, scale="log"),), "ill", ("yes", "no", "new"))
    assert prints(write(tmp_path / "c.csv", ROWS), schema=wide) == first
    typed = {"age": [50.0, 7.25], "name": ROWS["name"], "ill": ["yes", "no"], "seen": [True, None]}
    parquet.write_table(arrow.table(typed), tmp_path / "d.parquet")
    assert prints(tmp_path / "d.parquet", schema=SCHEMA) == first
    assert [row_print({k: v[i] for k, v in typed.items() if k != "ill"}) for i in range(2)] == first  # type: ignore[index]
    single = arrow.array([0.1, 1 / 3], type=arrow.float32())
    parquet.write_table(arrow.table({"age": single, "ill": ["yes", "no"]}), tmp_path / "f.parquet")
    short = {"age": ["0.1", "0.3333333333333333"], "ill": ["yes", "no"]}
    assert prints(tmp_path / "f.parquet", schema=SCHEMA) == prints(write(tmp_path / "f.csv", short), schema=SCHEMA)


def test_other_rows_are_others() -> None:
    rows: list[dict[str, object]] = [
        {"a": "1", "b": "2"},
        {"a": "2", "b": "1"},
        {"a": "12", "b": ""},
        {"a": "", "b": "12"},
        {"a": "1", "c": "2"},
        {"a": "1.5", "b": "2"},
        {"a": "1", "b": "2", "c": ""},
        {"a": "20240101", "b": "2"},
        {"a": "20240102", "b": "2"},
        {"a": "2024-01-02", "b": "2"},
    ]
    assert len({row_print(row) for row in rows}) == len(rows)
    assert row_prints({"b": ["2"], "a": [1.0]}) == [row_print({"a": "1", "b": 2})]
    assert row_prints({"a": [[1], [2]]})[0] != row_prints({"a": [[1], [2]]})[1]


def test_a_picture_is_the_same_in_any_file(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (6, 10, 12), dtype=np.uint8)
    folders = {}
    for kind, suffix in (("L", "png"), ("RGB", "bmp"), ("RGBA", "png"), ("I;16", "png")):
        for label in "ab":
            (tmp_path / kind / label).mkdir(parents=True)
        for i, pixels in enumerate(grey):
            image = Image.fromarray(pixels.astype(np.uint16) * 257) if kind == "I;16" else Image.fromarray(pixels)
            image = image if kind == "I;16" else image.convert(kind)
            image.save(tmp_path / kind / "ab"[i % 2] / f"{'xyz'[i // 2]}{i}.{suffix}")
        folders[kind] = prints(tmp_path / kind, image_size=8, channels=1)
    expected = sorted(picture_print(pixels) for pixels in grey)
    assert len(set(expected)) == 6
    assert [sorted(found) for found in folders.values()] == [expected] * 4
    arrays: dict[str, npt.NDArray[Any]] = {
        "byte": grey,
        "float": (grey / 255).astype(np.float32),
        "rows": np.repeat(grey[..., None], 3, 3),
        "planes": np.repeat(grey[:, None], 3, 1) / 255.0,
    }
    for name, x in arrays.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(6) % 2)
        assert sorted(prints(tmp_path / f"{name}.npz", classes=["a", "b"])) == expected, name
    assert picture_print(grey[0].T) != picture_print(grey[0])
    assert picture_print(np.zeros((4, 6), np.uint8)) != picture_print(np.zeros((6, 4), np.uint8))


def test_rows_of_an_npz(tmp_path: Path) -> None:
    x = np.array([[0.1, -0.0], [3, 4]])
    for dtype in (np.float64, np.float32):
        np.savez(tmp_path / f"{dtype.__name__}.npz", x=x.astype(dtype), y=[0, 1])
    one, two = (
        prints(tmp_path / f"{name}.npz", classes=["a", "b"], bounds=(0, high))
        for name, high in (("float64", 1), ("float32", 9))
    )
    assert one == two
    assert len(set(one)) == 2


def test_a_long_matrix_has_the_prints_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(0, 1, (8, 5)).astype(np.float32)
    alone = [bag_prints([row])[0] for row in x.tolist()]
    monkeypatch.setattr("prismfl.data.prints._ROWS", 3)
    monkeypatch.setattr("prismfl.data.prints._KNOWN", 4)
    assert matrix_prints(x) == alone


def test_no_more_cells_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(value: object) -> str:
        asked.append(value)
        return canonical_cell(value)

    monkeypatch.setattr("prismfl.data.prints.canonical_cell", counted)
    monkeypatch.setattr("prismfl.data.prints._KNOWN", 4)
    bag_prints([[0.5] * 3, [1.5, 2.5, 3.5], [4.5, 0.5, 0.5]])
    assert asked.count(0.5) == 2  # once at first, and once after all were forgotten
