"""The declared parts of the named data sets whose records are texts or have several parts."""

from __future__ import annotations

from prismfl.data.parts import Parts, RecordPart
from prismfl.data.schema import Column, Schema

SIDE = 28
REPORT_BYTES, ABSTRACT_BYTES = 1000, 2000

REPORT = RecordPart("text", "text", (REPORT_BYTES,), language="en", concepts="chest")
ABSTRACT = RecordPart("text", "text", (ABSTRACT_BYTES,), language="en", concepts="medicine")
FILM = RecordPart("image", "image", (1, SIDE, SIDE))

XRAY_REPORTS = Parts((REPORT,))
MEDICAL_ABSTRACTS = Parts((ABSTRACT,))

DIAGNOSES = ("healthy", "pneumonia", "heart failure", "nodule")
ROW = Schema(
    columns=(
        Column("age", min=18, max=95, integer=True),
        Column("sex", type="binary", categories=("female", "male")),
        Column("smoker", type="binary", categories=("no", "yes")),
        Column("temperature", min=35, max=41, decimals=1),
        Column("crp", min=0, max=300, scale="log", decimals=0),
        Column("bnp", min=0, max=5000, scale="log", decimals=0),
    ),
    label="diagnosis",
    classes=DIAGNOSES,
    train_size=4000,
)
DRAWN_PATIENTS = Parts((FILM, REPORT, RecordPart("row", "table", (ROW.width,))), ROW)
PNEUMONIA_REPORTS = Parts((FILM, REPORT))
