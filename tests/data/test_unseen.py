"""Records to be classified: every form of data in the run's shape; what cannot be read is left out and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data import Column, Schema, load
from prismfl.data.unseen import UNKNOWN, Batch, Form, Unseen, open_unseen
from prismfl.errors import UserError

IMAGES = Form((1, 8, 8), ("cat", "dog/wolf"))
SCHEMA = Schema(
    (Column("age", min=0, max=100), Column("sex", type="binary", categories=("f", "m"))), "ill", ("no", "yes")
)
ROWS = Form((2,), ("no", "yes"), SCHEMA)


def png(path: Path, value: int, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side, side), value, dtype=np.uint8)).save(path)


def read(unseen: Unseen) -> Batch:
    parts = list(unseen.batches())
    return Batch(
        [name for part in parts for name in part.names],
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
    )


def test_class_folders_flat_files_and_other_sizes(tmp_path: Path) -> None:
    png(tmp_path / "cat" / "a.png", 255)
    png(tmp_path / "test" / "dog-wolf" / "b.png", 0, side=16)
    png(tmp_path / "c.png", 51)
    png(tmp_path / ".hidden" / "d.png", 0)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "cat" / "broken.png").write_bytes(b"\x89PNG no")
    unseen = open_unseen(str(tmp_path), IMAGES)
    found = read(unseen)
    assert found.names == ["c.png", "cat/a.png", "test/dog-wolf/b.png"]
    assert found.y.tolist() == [UNKNOWN, 0, 1]
    assert found.x[:, 0, 0, 0] == pytest.approx([0.2, 1.0, 0.0])
    assert (unseen.total, unseen.labelled) == (4, True)
    assert unseen.left_out == {"the file is not an image": 1, "the picture cannot be read": 1}


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    png(tmp_path / "a.png", 1)
    assert not open_unseen(str(tmp_path), IMAGES).labelled
    with pytest.raises(UserError, match="a table's rows, but"):
        open_unseen(str(tmp_path), ROWS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="images in"):
        open_unseen(str(tmp_path / "empty"), IMAGES)


def test_many_records_come_in_batches() -> None:
    unseen = open_unseen("mnist-5k", Form((1, 28, 28), tuple("0123456789")))
    sizes = [len(batch.names) for batch in unseen.batches()]
    assert sizes == [500, 500]
    assert Form((3, 1024, 1024), ("a", "b")).rows == 1


def test_arrays_with_and_without_labels(tmp_path: Path) -> None:
    x = np.zeros((3, 8, 8), dtype=np.float32)
    x[1, 0, 0] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 7]))
    unseen = open_unseen(str(tmp_path / "a.npz"), IMAGES)
    found = read(unseen)
    assert found.names == ["1", "3"]
    assert found.y.tolist() == [0, UNKNOWN]
    assert unseen.left_out == {"a value is not a finite number": 1}
    np.savez(tmp_path / "b.npz", x_test=np.full((2, 8, 8), 255, dtype=np.uint8), y_test=np.array([[0.1, 0.9]] * 2))
    found = read(open_unseen(str(tmp_path / "b.npz"), IMAGES))
    assert (found.x.max(), found.y.tolist()) == (1.0, [1, 1])
    np.savez(tmp_path / "c.npz", x=np.array([[0.5, 1.0], [np.inf, 0.0]]))
    unseen = open_unseen(str(tmp_path / "c.npz"), ROWS)
    assert (read(unseen).names, unseen.labelled) == (["1"], False)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"z": np.zeros(1)}, "Expected array 'x'"),
        ({"x": np.zeros((2, 9, 9), dtype=np.uint8)}, "shape \\(1, 8, 8\\) as in the run"),
        ({"x": np.zeros((2, 8, 8)), "y": np.zeros(3)}, "as many labels"),
        ({"x": np.array([["a", "b"]])}, "Expected numbers"),
        ({"x": np.full((2, 8, 8), 300.0)}, "0 to 1"),
    ],
)
def test_arrays_that_are_none(arrays: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=words):
        open_unseen(str(tmp_path / "a.npz"), IMAGES)


def test_a_table_by_the_runs_columns(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text("sex,age,name,ill\nf,50,Ann,yes\nx,50,Bob,no\nm,,Cid,no\nm,100,Dan,perhaps\n")
    unseen = open_unseen(str(place), ROWS)
    found = read(unseen)
    assert found.names == ["1", "4"]
    assert found.x.tolist() == [[0.0, -1.0], [1.0, 1.0]]
    assert found.y.tolist() == [1, UNKNOWN]
    assert unseen.left_out == {"a cell is not a declared category": 1, "a cell is empty": 1}
    place.write_text("sex,age\nf,50\n")
    assert not open_unseen(str(place), ROWS).labelled
    place.write_text("sex\nf\n")
    with pytest.raises(UserError, match="Expected column 'age'"):
        open_unseen(str(place), ROWS)
    with pytest.raises(UserError, match="no named columns"):
        open_unseen(str(place), IMAGES)


def test_a_named_set_is_its_test_part() -> None:
    data = load("digits")
    found = read(open_unseen("digits", Form((1, 8, 8), ("1", "0"))))
    assert len(found.names) == len(data.y_test)
    assert (found.y[data.y_test.numpy() == 1] == 0).all()
    assert (found.y[data.y_test.numpy() > 1] == UNKNOWN).all()
    with pytest.raises(UserError, match="shape"):
        open_unseen("digits", ROWS)


def test_what_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'digits'"):
        open_unseen("digts", IMAGES)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UserError, match="Expected a folder of images"):
        open_unseen(str(tmp_path / "a.txt"), IMAGES)
