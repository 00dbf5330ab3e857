"""The stored text sets: how reports and abstracts are read out of their archives."""

from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np

from prismfl.data import DATASETS
from prismfl.data.text_sets import as_rows, read_abstracts, read_reports

XML = """<eCitation><Abstract><AbstractText Label="COMPARISON">None.</AbstractText>
<AbstractText Label="FINDINGS">{}</AbstractText><AbstractText Label="IMPRESSION">{}</AbstractText></Abstract>
<MeSH>{}</MeSH></eCitation>"""


def archive(*reports: tuple[str, str, str]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for i, (findings, impression, headings) in reversed(list(enumerate(reports))):
            raw = XML.format(findings, impression, headings).encode()
            info = tarfile.TarInfo(f"x/{i}.xml")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return found.getvalue()


def test_reports_have_findings_and_impression_and_the_label_of_their_headings() -> None:
    found = read_reports(
        archive(
            ("Clear lungs.", "Normal.", "<major>normal</major>"),
            ("", "", "<major>normal</major>"),
            ("A nodule.", "", "<major>Nodule/lung</major><major>normal</major>"),
        )
    )
    assert [report.text for report in found] == ["Clear lungs. Normal.", "A nodule."]
    assert [report.normal for report in found] == [True, False]


def test_abstracts_and_their_classes() -> None:
    raw = gzip.compress(b'condition_label,medical_abstract\n3,"One, two."\n1,Three\n')
    texts, labels = read_abstracts(raw)
    assert texts == ["One, two.", "Three"]
    assert labels.tolist() == [2, 0]


def test_rows_stay_bytes() -> None:
    spec = DATASETS["drawn-patients"]
    rows = np.ones((spec.train_size, 3), dtype=np.uint8)
    labels = np.arange(spec.train_size) % 4
    found = as_rows(spec, ((rows, labels), (rows[:8], labels[:8])), subset=40)
    assert str(found.x_train.dtype) == "torch.uint8"
    assert found.spec.train_size == len(found.x_train) == 40
