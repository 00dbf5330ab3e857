"""The stored text sets: chest X-ray reports, medical abstracts, and pictures and reports that were put in pairs."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.data.manifest import FILES, read_checked
from prismfl.data.spec import Dataset, Spec
from prismfl.data.split import divide, stratified
from prismfl.data.texts import text_bytes

Labels = npt.NDArray[np.int64]
_SECTIONS = ("FINDINGS", "IMPRESSION")


@dataclass(frozen=True)
class XrayReport:
    """A chest X-ray report: what was found, and the headings that its readers gave it."""

    text: str
    headings: tuple[str, ...]

    @property
    def normal(self) -> bool:
        """Whether its readers gave it no heading but "normal"."""
        return [heading.casefold() for heading in self.headings] == ["normal"]


def read_reports(content: bytes) -> list[XrayReport]:
    """The reports of the archive that have findings or an impression, by their numbers."""
    found: dict[int, XrayReport] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(".xml") else None
            if file is None:
                continue
            tree = ET.fromstring(file.read())
            told = [e.text or "" for e in tree.iter("AbstractText") if e.get("Label") in _SECTIONS]
            text = " ".join(part.strip() for part in told).strip()
            if text:
                headings = tuple((e.text or "").strip() for e in tree.iter("major"))
                found[int(Path(member.name).stem)] = XrayReport(text, headings)
    return [found[number] for number in sorted(found)]


def read_abstracts(content: bytes) -> tuple[list[str], Labels]:
    """The abstracts and their classes, counted from 0."""
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(content).decode("utf-8"))))
    return [row["medical_abstract"] for row in rows], np.array([int(row["condition_label"]) - 1 for row in rows])


def read_text_set(spec: Spec, folder: Path | None, subset: int | None) -> Dataset:
    """A named text set, in a training and a test part."""
    assert spec.parts is not None
    raw = [read_checked(folder, spec.name, path) for path in FILES[spec.name]]
    if spec.name == "medical-abstracts":
        texts, y = read_abstracts(raw[0])
    else:
        reports = read_reports(raw[0])
        texts, y = [report.text for report in reports], np.array([int(not report.normal) for report in reports])
    x = text_bytes(texts, spec.parts.width)
    return as_rows(spec, divide(spec, x, y), subset=subset)


def as_rows(
    spec: Spec, parts: tuple[tuple[npt.NDArray[np.uint8], Labels], ...], *, subset: int | None = None
) -> Dataset:
    """A data set of rows of bytes; bytes they stay."""
    import torch

    (x_train, y_train), (x_test, y_test) = parts
    assert len(x_train) == spec.train_size, f"{spec.name}: declared {spec.train_size} records, found {len(x_train)}"
    if subset is not None and subset < spec.train_size:
        _, keep = stratified(y_train, subset)
        x_train, y_train, spec = x_train[keep], y_train[keep], replace(spec, train_size=subset)
    train, test = (torch.from_numpy(np.ascontiguousarray(x)) for x in (x_train, x_test))
    return Dataset(spec, train, torch.from_numpy(y_train), test, torch.from_numpy(y_test))
