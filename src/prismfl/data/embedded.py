"""Data sets that come inside this package or scikit-learn: no download, no file to find."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.data import declared
from prismfl.data.schema import Schema
from prismfl.data.spec import Dataset, Spec
from prismfl.data.split import assemble, divide


def read_embedded(spec: Spec, subset: int | None) -> Dataset:
    """The embedded data set that a spec names, in a training and a test part."""
    if spec.name == "mnist-5k":
        x, y = _mnist_5k()
        return _split(spec, x.reshape(-1, 1, 28, 28), y, subset=subset)
    if spec.name == "digits":
        images, labels = _digits()
        return _split(spec, images.reshape(-1, 1, 8, 8), labels, subset=subset, top=16.0)
    if spec.name == "drawn-patients":
        from prismfl.data.drawn_patients import TEST, draw_patients
        from prismfl.data.text_sets import as_rows

        rows, labels, _ = draw_patients(spec.train_size + TEST)
        first = slice(spec.train_size)
        rest = slice(spec.train_size, None)
        return as_rows(spec, ((rows[first], labels[first]), (rows[rest], labels[rest])), subset=subset)
    from sklearn import datasets

    tables = {
        "breast-cancer": (datasets.load_breast_cancer, declared.BREAST_CANCER),
        "wine-cultivar": (datasets.load_wine, declared.WINE_CULTIVAR),
    }
    read, schema = tables[spec.name]
    bunch = read()
    table = {str(name): bunch.data[:, i] for i, name in enumerate(bunch.feature_names)}
    return _split(spec, schema.encode(table).numpy(), bunch.target, subset=subset, schema=schema)


def _split(
    spec: Spec,
    x: npt.NDArray[np.generic],
    y: npt.NDArray[np.int64],
    *,
    subset: int | None,
    schema: Schema | None = None,
    top: float = 255.0,
) -> Dataset:
    return assemble(spec, divide(spec, x, y), subset=subset, schema=schema, top=top)


def _digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """scikit-learn's digits from its file, since importing it takes longer than a small run; else as it reads them."""
    found = find_spec("sklearn")
    file = Path(next(iter(found.submodule_search_locations or ()), "") if found else "") / "datasets/data/digits.csv.gz"
    if not file.is_file():
        from sklearn import datasets

        bunch = datasets.load_digits()
        return bunch.data, bunch.target
    rows = np.loadtxt(file, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def _mnist_5k() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """One sheet of tiles beside this file, 100 in a row and class after class; NOTICE says whose digits they are."""
    from PIL import Image

    with (files("prismfl.data") / "mnist_5k.png").open("rb") as raw, Image.open(raw) as sheet:
        pixels = np.asarray(sheet, dtype=np.uint8)
    tiles = pixels.reshape(50, 28, 100, 28).transpose(0, 2, 1, 3).reshape(5000, 784)
    return tiles, np.repeat(np.arange(10), 500)
