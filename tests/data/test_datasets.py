from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from prismfl.data import DATASETS, EMBEDDED, available, load
from prismfl.data.embedded import _mnist_5k
from prismfl.data.manifest import FILES
from prismfl.data.split import stratified
from prismfl.errors import UserError

DATA = os.environ.get("PRISMFL_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="PRISMFL_DATA is not set")
STORED = [name for name in DATASETS if name not in EMBEDDED]


def test_importing_the_package_imports_neither_torch_nor_sklearn() -> None:
    code = "import sys, prismfl.data; sys.exit(bool({'torch', 'sklearn', 'PIL', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_embedded_sets_are_as_declared(name: str) -> None:
    data = load(name)
    spec = DATASETS[name]
    assert data.spec == spec
    assert tuple(data.x_train.shape) == (spec.train_size, *spec.shape)
    assert tuple(data.x_test.shape[1:]) == spec.shape
    numbers = torch.float32 if spec.parts is None else torch.uint8  # rows of parts stay bytes
    assert (data.x_train.dtype, data.y_train.dtype) == (numbers, torch.int64)
    low = -1 if spec.kind == "table" else 0
    assert data.x_train.min() >= low
    assert data.x_train.max() <= (1 if spec.parts is None else 255)
    assert data.y_train.bincount().shape == (len(spec.classes),)


def test_the_digits_of_the_sheet_are_those_of_the_csv_file_they_come_from() -> None:
    """Every pixel and label in its old place: else every seeded result on them would change."""
    x, y = _mnist_5k()
    assert (x.shape, x.dtype, y.dtype) == ((5000, 784), np.dtype(np.uint8), np.dtype(np.int64))
    found = hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
    assert found == "1f75c140503b3082c96134f5593303f3133e59989a92e21f060c644c655c3722"


def test_embedded_counts_and_statistics() -> None:
    mnist = load("mnist-5k")
    assert mnist.y_train.bincount().tolist() == [400] * 10
    assert mnist.y_test.bincount().tolist() == [100] * 10
    assert mnist.x_train.mean() == pytest.approx(0.1307, abs=0.002)
    assert mnist.x_train.std() == pytest.approx(0.3081, abs=0.002)
    assert mnist.x_train.max() == 1
    digits = load("digits")
    assert len(digits.y_train) + len(digits.y_test) == 1797
    assert digits.x_train.max() == 1
    assert load("breast-cancer").y_train.bincount().add(load("breast-cancer").y_test.bincount()).tolist() == [212, 357]
    assert load("wine-cultivar").y_train.bincount().add(load("wine-cultivar").y_test.bincount()).tolist() == [
        59,
        71,
        48,
    ]


def test_table_scaling_uses_the_declared_bounds() -> None:
    bunch = load_breast_cancer()
    train, _ = stratified(bunch.target, 114)
    # mean radius is declared from 6 to 30: 18 is the middle.
    expected = (bunch.data[train, 0] - 18) / 12
    assert np.allclose(load("breast-cancer").x_train[:, 0].numpy(), expected, atol=1e-6)


def test_declared_bounds_cut_off_nothing_of_the_embedded_tables() -> None:
    for name in ("breast-cancer", "wine-cultivar"):
        data = load(name)
        x = torch.cat([data.x_train, data.x_test])
        assert (x.abs() > 1 - 1e-7).float().mean() < 0.02, name


def test_subset_is_stratified_repeatable_and_leaves_the_test_part() -> None:
    small = load("mnist-5k", subset=100)
    assert small.spec.train_size == 100
    assert small.y_train.bincount().tolist() == [10] * 10
    assert len(small.y_test) == 1000
    assert torch.equal(small.x_train, load("mnist-5k", subset=100).x_train)


def test_subset_out_of_range() -> None:
    with pytest.raises(UserError, match=r"Expected 1 <= subset <= 4000 \(key: subset\) for data 'mnist-5k', got 4001"):
        load("mnist-5k", subset=4001)


def test_stratified_is_disjoint_exhaustive_and_proportional() -> None:
    y = np.repeat([0, 1, 2], [50, 30, 21])
    kept, held = stratified(y, 20)
    assert sorted([*kept, *held]) == list(range(101))
    assert np.bincount(y[held]).tolist() == [10, 6, 4]
    # Spread through the class, not taken from one end.
    assert held[:10].max() - held[:10].min() >= 45


def test_unknown_name_has_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"Unknown data 'mnist5k' \(--data\); did you mean 'mnist-5k'\?"):
        load("mnist5k")


def test_no_folder_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMFL_DATA", raising=False)
    with pytest.raises(UserError, match=r"^Data 'mnist' needs mnist/train-images.*set PRISMFL_DATA.*mnist-5k") as error:
        load("mnist")
    assert "\n" not in str(error.value)
    rows = {spec.name: (ok, where) for spec, ok, where in available()}
    assert rows["mnist"][0] is False
    assert rows["digits"] == (True, "embedded")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected .*titanic\.csv for data 'titanic'.*breast-cancer"):
        load("titanic", data_dir=tmp_path)
    assert {spec.name: where for spec, _, where in available(tmp_path)}["titanic"] == "missing tabular/titanic.csv"


def test_a_wrong_file_fails_its_checksum(tmp_path: Path) -> None:
    (tmp_path / "tabular").mkdir()
    (tmp_path / "tabular" / "titanic.csv").write_text("Survived\n1\n")
    with pytest.raises(UserError, match=r"Expected SHA-256 4a437fde05fe5264\.\.\. for .*titanic\.csv, got"):
        load("titanic", data_dir=tmp_path)


@pytest.mark.data
@needs_data
def test_a_flipped_byte_fails_its_checksum(tmp_path: Path) -> None:
    assert DATA is not None
    for path in FILES["mushroom"]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copyfile(Path(DATA) / path, tmp_path / path)
    assert len(load("mushroom", data_dir=tmp_path).y_train) == 6499
    content = bytearray((tmp_path / path).read_bytes())
    content[1000] ^= 1
    (tmp_path / path).write_bytes(content)
    with pytest.raises(UserError, match="damaged or another version"):
        load("mushroom", data_dir=tmp_path)


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "train", "test", "mean", "std"),
    [
        ("mnist", 60000, 10000, 0.1307, 0.3081),
        ("fashion-mnist", 60000, 10000, 0.2860, 0.3530),
        ("pneumonia", 4708, 624, 0.5719, 0.1684),
        ("celeba-hair", 3600, 450, 0.4476, 0.2929),
    ],
)
def test_stored_images(name: str, train: int, test: int, mean: float, std: float) -> None:
    data = load(name)
    assert (len(data.y_train), len(data.y_test)) == (train, test)
    assert tuple(data.x_train.shape[1:]) == DATASETS[name].shape
    assert data.x_train.mean() == pytest.approx(mean, abs=1e-4)
    assert data.x_train.std() == pytest.approx(std, abs=1e-4)


@pytest.mark.data
@needs_data
def test_cifar10_channels_and_labels() -> None:
    data = load("cifar10", subset=5000)
    assert data.y_train.bincount().tolist() == [500] * 10
    assert data.y_test.bincount().tolist() == [1000] * 10
    assert data.x_train.mean((0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.005)
    assert data.x_train.std((0, 2, 3)).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.005)


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("adult", [37155, 11687]),
        ("titanic", [549, 342]),
        ("mushroom", [4208, 3916]),
        ("wine-quality", [1359, 3961]),
    ],
)
def test_stored_tables(name: str, counts: list[int]) -> None:
    data = load(name)
    assert data.schema is not None
    assert data.spec.shape == (data.schema.width,) == tuple(data.x_train.shape[1:])
    assert data.y_train.bincount().add(data.y_test.bincount()).tolist() == counts
    assert data.x_train.abs().max() <= 1
    for column, block in data.schema.blocks():
        if column.type == "categorical":
            assert torch.equal(data.x_train[:, block].sum(1), torch.ones(len(data.y_train))), column.name


@pytest.mark.data
@needs_data
def test_adult_first_record_reads_back() -> None:
    data = load("adult")
    assert data.schema is not None
    first = {name: column[0] for name, column in data.schema.decode(data.x_train[:1]).items()}
    assert (first["age"], first["workclass"], first["education-num"], first["sex"]) == (39, "State-gov", 13, "Male")
    assert first["capital-gain"] == 2174
    assert data.schema.decode_labels(data.y_train[:1])[0] == "<=50K"


@pytest.mark.data
@needs_data
def test_every_declared_file_is_there() -> None:
    assert [spec.name for spec, ok, _ in available() if not ok] == []
