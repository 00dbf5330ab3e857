from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prismfl.core.payloads import Weights
from prismfl.core.records import as_floats
from prismfl.data import Column, Schema, load_path
from prismfl.errors import UserError
from prismfl.metrics.utility import accuracy

SCHEMA = Schema(
    columns=(Column("age", min=0, max=100), Column("sex", type="binary", categories=("f", "m"))),
    label="ill",
    classes=("no", "yes"),
)


def write_table(path: Path, rows: int = 40, *, header: str = "age,sex,ill,patient,clinic") -> Path:
    lines = [f"{i},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]},p{i // 4},{'AB'[i // 4 % 2]}" for i in range(rows)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_images(root: Path, *, classes: tuple[str, ...] = ("cat", "dog"), each: int = 12, mode: str = "L") -> Path:
    for value, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(each):
            colour = 255 * value if mode == "L" else (255 * value, 0, 51)
            Image.new(mode, (8, 6), colour).save(root / name / f"{i:02}.png")
    return root


def refused(message: str, path: Path, **arguments: object) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_path(path, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_csv_with_units_and_natural_ids(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    data = load_path(path, schema=SCHEMA, unit="patient", natural="clinic", test_fraction=0.2)
    assert data.spec.classes == ("no", "yes")
    assert data.spec.shape == (2,)
    assert data.unit_train is not None
    assert data.natural_train is not None
    assert len(data.y_train) + len(data.y_test) == 40
    assert len(data.unit_train) == len(data.natural_train) == len(data.y_train)
    # Four records a patient, none of them on both sides: age is the row number, so the patient is age // 4.
    patients = [set((part[:, 0].add(1).mul(50).round().long() // 4).tolist()) for part in (data.x_train, data.x_test)]
    assert not patients[0] & patients[1]
    assert sorted(np.unique(data.unit_train, return_counts=True)[1]) == [4] * len(patients[0])
    assert set(data.natural_train) == {"A", "B"}


def test_csv_values_by_hand(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sex;age;ill\nm;50;yes\nf;0;no\n")
    data = load_path(tmp_path / "t.csv", schema=SCHEMA)
    assert torch.equal(data.x_train, torch.tensor([[0.0, 1.0], [-1.0, -1.0]]))
    assert data.y_train.tolist() == [1, 0]


def test_common_bounds_instead_of_a_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n0,1,n\n2,4,p\n")
    data = load_path(tmp_path / "t.csv", label="y", classes=["n", "p"], bounds=(0, 4))
    assert torch.equal(data.x_train, torch.tensor([[-1.0, -0.5], [0.0, 1.0]]))


def test_a_unit_under_two_natural_ids_is_refused_without_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,sex,ill,patient,clinic\n1,f,no,ann,A\n2,m,yes,bob,A\n3,f,no,ann,B\n")
    refused(r"all records of one 'patient' under one 'clinic'", path, schema=SCHEMA, unit="patient", natural="clinic")
    with pytest.raises(UserError) as error:
        load_path(path, schema=SCHEMA, unit="patient", natural="clinic")
    assert "ann" not in str(error.value)


def test_a_column_declares_the_test_part(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,sex,ill,part\n1,f,no,train\n2,m,yes,Test\n3,f,no,0\n4,f,no,1\n5,f,yes,true\n6,f,yes,\n")
    data = load_path(path, schema=SCHEMA, test="part", test_fraction=0.5)
    assert data.x_train[:, 0].add(1).mul(50).tolist() == pytest.approx([1, 3, 6])
    assert data.y_test.tolist() == [1, 0, 1]
    assert data.prints_train is not None
    assert len(data.prints_train) == 3
    assert not any("Ignored" in notice for notice in data.notices)
    refused(r"Expected test column 'fold'", path, schema=SCHEMA, test="fold")
    refused(r"Expected no test for this kind of data", write_images(tmp_path / "pets"), test="part")


def test_small_data_are_read_whatever_is_held_out(tmp_path: Path) -> None:
    for rows in range(1, 9):
        data = load_path(write_table(tmp_path / "t.csv", rows), schema=SCHEMA, test_fraction=0.2)
        assert len(data.y_train) + len(data.y_test) == rows
    assert accuracy(lambda items, x: x, {"model": Weights({})}, data.x_test[:0], data.y_test[:0]) is None


def test_train_size_is_declared_or_said_to_be_public(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    counted = load_path(path, schema=SCHEMA)
    assert any("treated as public" in notice for notice in counted.notices)
    declared = load_path(path, schema=SCHEMA, train_size=1000)
    assert declared.spec.train_size == 1000
    assert not any("treated as public" in notice for notice in declared.notices)


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"age": [50.0, 100.0], "sex": ["m", "f"], "ill": ["yes", "no"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    data = load_path(tmp_path / "t.parquet", schema=SCHEMA)
    assert torch.equal(data.x_train, torch.tensor([[0.0, 1.0], [1.0, -1.0]]))
    parquet.write_table(
        arrow.table({"age": [50.0, None], "sex": ["m", "f"], "ill": ["yes", "no"]}), tmp_path / "n.parquet"
    )
    refused(r"n\.parquet: Empty or NaN cell in column 'age', row 2", tmp_path / "n.parquet", schema=SCHEMA)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    refused(r"Cannot read .*bad\.parquet as Parquet", tmp_path / "bad.parquet", schema=SCHEMA)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    refused(r"needs pyarrow: pip install 'prismfl\[parquet\]'", tmp_path / "t.parquet", schema=SCHEMA)


def test_bad_tables(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    refused(r"nothing", tmp_path / "none.csv", schema=SCHEMA)
    refused(r"Expected a label column for .*give --label .*one of age, sex, ill", path, classes=["no", "yes"])
    refused(r"Expected label column 'sick' \(--label\) in .*got columns age, sex, ill, patient", path, label="sick")
    refused(r"Expected declared classes for label 'ill'.*never taken from the data", path, label="ill")
    refused(r"Expected declared columns for .* give --schema", path, label="ill", classes=["no", "yes"])
    refused(
        r"Label 'yes' in row 1 is not one of the declared classes \(no, maybe\)",
        path,
        schema=SCHEMA,
        classes=["no", "maybe"],
    )
    refused(r"Expected unit column 'person'", path, schema=SCHEMA, unit="person")
    refused(r"Expected 0 <= test_fraction < 1 \(--test\), got 1", path, schema=SCHEMA, test_fraction=1)
    (tmp_path / "nan.csv").write_text("age,sex,ill\n1,f,no\nnan,m,yes\n")
    refused(r"nan\.csv: Empty or NaN cell in column 'age', row 2", tmp_path / "nan.csv", schema=SCHEMA)
    (tmp_path / "ragged.csv").write_text("age,sex,ill\n1,f,no\n2,m\n")
    refused(r"Expected 3 values in row 2 of .*ragged\.csv, got 2", tmp_path / "ragged.csv", schema=SCHEMA)
    (tmp_path / "short.csv").write_text("age,ill\n1,no\n")
    refused(r"Expected column 'sex' of the schema in .*short\.csv", tmp_path / "short.csv", schema=SCHEMA)
    (tmp_path / "empty.csv").write_text("")
    refused(r"Expected a header line", tmp_path / "empty.csv", schema=SCHEMA)
    (tmp_path / "head.csv").write_text("age,sex,ill\n")
    refused(r"got only a header", tmp_path / "head.csv", schema=SCHEMA)
    (tmp_path / "latin.csv").write_bytes("age,sex,ill\n1,f,é\n".encode("latin-1"))
    refused(r"Expected UTF-8 text", tmp_path / "latin.csv", schema=SCHEMA)
    (tmp_path / "unit.csv").write_text("age,sex,ill,patient\n1,f,no,a\n2,m,yes,\n")
    refused(r"Empty or NaN cell in id column 'patient', row 2", tmp_path / "unit.csv", schema=SCHEMA, unit="patient")
    (tmp_path / "t.txt").write_text("x")
    refused(r"Expected a folder, \.csv", tmp_path / "t.txt")


def test_class_folders(tmp_path: Path) -> None:
    data = load_path(write_images(tmp_path / "pets", mode="RGB"))
    assert data.spec.classes == ("cat", "dog")
    assert data.spec.shape == (3, 6, 8)
    assert len(data.y_train) + len(data.y_test) == 24
    dog = as_floats(data.x_train[data.y_train == 1][0])
    assert dog[:, 0, 0].tolist() == pytest.approx([1.0, 0.0, 0.2])


def test_train_and_test_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "train", each=5)
    write_images(tmp_path / "test", each=2)
    data = load_path(tmp_path)
    assert (len(data.y_train), len(data.y_test)) == (10, 4)
    assert data.y_test.bincount().tolist() == [2, 2]


def test_declared_class_without_a_folder_is_allowed(tmp_path: Path) -> None:
    data = load_path(write_images(tmp_path / "pets"), classes=["bird", "cat", "dog"])
    assert data.spec.classes == ("bird", "cat", "dog")
    assert set(data.y_train.tolist()) == {1, 2}


def test_sixteen_bit_images_keep_their_range(tmp_path: Path) -> None:
    root = write_images(tmp_path / "scans", each=4)
    for path in root.glob("*/*.png"):
        Image.fromarray(np.full((6, 8), 32768, dtype=np.uint16)).save(path)
    data = load_path(root)
    assert data.x_train.mean() == pytest.approx(32768 / 65535, abs=1e-4)


def test_bad_image_folders(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets")
    (root / "dog" / "notes.txt").write_text("x")
    assert any("Ignored 1 files" in notice for notice in load_path(root).notices)
    refused(r"Folder .*dog is not one of the declared classes \(cat, cow\)", root, classes=["cat", "cow"])
    refused(r"Expected no label .* for this kind of data", root, label="y")
    Image.new("L", (9, 6)).save(root / "dog" / "99.png")
    refused(r"got 8x6 \(.*00\.png\) and 9x6 \(.*dog/99\.png\); give --image-size", root)
    assert load_path(root, image_size=5).spec.shape == (1, 5, 5)
    Image.new("RGB", (8, 6)).save(root / "dog" / "99.png")
    refused(r"all images grey or all in colour.*give --channels", root)
    assert load_path(root, channels=3).spec.shape == (3, 6, 8)
    cut = (root / "cat" / "00.png").read_bytes()[:40]
    (root / "dog" / "99.png").write_bytes(cut)
    refused(r"Cannot read image .*dog/99\.png", root)
    (root / "dog" / "99.png").write_bytes(b"not a picture")
    refused(r"Cannot read image .*dog/99\.png \(not an image or cut short\); replace or remove it", root)
    refused(r"Cannot read image .*dog/99\.png", root, image_size=5, channels=1)


def test_folders_without_images(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    refused(r"Expected PNG or JPEG images in class folders of .*, got none\.", tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "flat.png")
    refused(r"the images lie directly in it, without class folders", tmp_path)


def test_npz(tmp_path: Path) -> None:
    x = np.zeros((30, 5, 4, 3), dtype=np.uint8)
    x[:, 0, 1, 2] = 255
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(30) % 2)
    data = load_path(tmp_path / "d.npz", classes=["a", "b"])
    assert data.spec.shape == (3, 5, 4)
    shown = as_floats(data.x_train)
    assert (shown[:, 2, 0, 1] == 1).all()
    assert shown.sum() == len(shown)
    np.savez(tmp_path / "p.npz", x_train=x[:20], y_train=["a", "b"] * 10, x_test=x[:4], y_test=["b"] * 4)
    parts = load_path(tmp_path / "p.npz", classes=["a", "b"])
    assert (len(parts.y_train), parts.y_test.tolist()) == (20, [1] * 4)


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.zeros((4, 3)), y=[0, 1, 0, 5])
    refused(r"Expected declared classes for the labels", path)
    refused(r"Expected declared bounds for x of", path, classes=["a", "b"])
    refused(r"Label 5 in row 4 of y of .* is outside 0 to 1", path, classes=["a", "b"], bounds=(0, 1))
    np.savez(path, x=np.array([[0.0, 1.0], [np.nan, 1.0]]), y=[0, 1])
    refused(r"NaN or infinite value in x of .*, row 2, column 1", path, classes=["a", "b"], bounds=(0, 1))
    np.savez(path, x=np.full((2, 8, 8), 7.0), y=[0, 1])
    refused(r"Expected values in 0 to 1 in x of", path, classes=["a", "b"])
    np.savez(path, x=np.zeros((2, 8, 8)), y=[0])
    refused(r"got 1 and 2", path, classes=["a", "b"])
    np.savez(path, z=[1])
    refused(r"Expected array 'x_train' in .*, got z", path, classes=["a", "b"])
    np.savez(path, x=np.array([object()]), y=[0])
    refused(r"Cannot read .* as npz of plain arrays", path, classes=["a", "b"])
    path.write_bytes(b"PK\x03\x04 broken")
    refused(r"Cannot read .* as npz of plain arrays", path, classes=["a", "b"])
