"""`drawn-patients`: a film, a report and a row of each patient, from one hidden state that is known. Nobody's records.

The state is a diagnosis, a side, how severe it is, and whether the patient has a pacemaker. The film is drawn from it,
the report written by the grammar, the row drawn by the diagnosis; each of them tells of the state with mistakes of its
own. Side and pacemaker do not follow from the diagnosis: they are what film and report have in common beyond it. A few
records lack their film or their report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.concepts import vocabulary
from prismfl.data.declared_parts import DIAGNOSES, DRAWN_PATIENTS, REPORT_BYTES, ROW, SIDE
from prismfl.data.drawing import grid, smooth_noise
from prismfl.data.grammar import write
from prismfl.data.parts import column_bytes
from prismfl.data.texts import Bytes, text_bytes

Codes = npt.NDArray[np.int64]
Number = float | npt.NDArray[Any]
Rng = np.random.Generator
TEST = 1000
SEED = 20_26
OFTEN = (0.4, 0.25, 0.2, 0.15)  # of the diagnoses
LACKS = 0.02  # how often a film, and how often a report is missing
FORGOTTEN = 0.25  # how often a report leaves out a thing
_FINDINGS = {1: ("consolidation", "pneumonia", "opacity"), 2: ("cardiomegaly", "edema", "effusion"), 3: ("nodule",)}
_DENIED = ("effusion", "pneumothorax", "consolidation", "nodule", "edema", "acute")


@dataclass(frozen=True, eq=False)
class States:
    """What is true of each patient."""

    diagnosis: Codes
    right: npt.NDArray[np.bool_]
    severity: Codes
    pacemaker: npt.NDArray[np.bool_]


def draw_states(count: int, rng: Rng) -> States:
    """Hidden states; all but the severity are independent of one another."""
    return States(
        rng.choice(len(DIAGNOSES), size=count, p=OFTEN),
        rng.random(count) < 0.5,
        rng.integers(0, 3, count),
        rng.random(count) < 0.3,
    )


def draw_patients(count: int, *, seed: int = SEED) -> tuple[Bytes, Codes, States]:
    """Rows of records, their classes and the truth behind them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0xD0C5]))
    states = draw_states(count, rng)
    films, reports, row = _films(states, rng), _reports(states, rng), _rows(states, rng)
    films[rng.random(count) < LACKS] = 0
    reports[rng.random(count) < LACKS] = 0
    return DRAWN_PATIENTS.joined({"image": films, "text": reports, "table": row}), states.diagnosis, states


def _films(states: States, rng: Rng) -> Bytes:
    """Dark lungs and a bright heart in a grey chest; what the state adds is bright."""
    n, (y, x) = len(states.diagnosis), grid(SIDE, SIDE)
    y, x = y[None], x[None]

    def any_(low: float, high: float) -> npt.NDArray[np.float64]:
        return rng.uniform(low, high, (n, 1, 1))

    def bump(cy: Number, cx: Number, tall: Number, wide: Number, edge: float = 6.0) -> npt.NDArray[np.float64]:
        far = np.sqrt(((y - cy) / tall) ** 2 + ((x - cx) / wide) ** 2)
        return np.asarray(1 / (1 + np.exp(np.minimum(edge * (far - 1), 50.0))))

    ill = states.diagnosis[:, None, None]
    side, worse = np.where(states.right, 1.0, -1.0)[:, None, None], 0.6 + 0.2 * states.severity[:, None, None]
    image = 0.55 * bump(0.1, 0.0, any_(0.95, 1.1), any_(0.85, 0.98))
    for one in (-1, 1):
        image = image - 0.42 * bump(any_(-0.08, 0.02), 0.42 * one, any_(0.6, 0.7), any_(0.26, 0.33))
    big = np.where(ill == 2, any_(1.25, 1.5), any_(0.85, 1.15))
    image = image + 0.3 * bump(0.3, -0.08, 0.34 * big, 0.26 * big)
    blotch = bump(any_(0.05, 0.4), side * any_(0.3, 0.5), 0.25 * worse, 0.24 * worse, 3.0)
    image = image + 0.5 * (ill == 1) * worse * blotch
    image = image + 0.4 * (ill == 2) * worse * bump(0.62, side * 0.45, 0.22, 0.3)
    image = image + 0.5 * (ill == 3) * bump(any_(-0.4, -0.05), side * any_(0.3, 0.5), 0.1, 0.1)
    image = image + 0.6 * states.pacemaker[:, None, None] * bump(-0.55, -0.62, 0.12, 0.12, 9.0)
    image = (
        image + 0.05 * smooth_noise(rng, n, SIDE, SIDE, grain=0.2, mirrored=False) + rng.normal(0, 0.04, image.shape)
    )
    pixels = np.clip(image + any_(0.02, 0.12), 0.01, 1)
    found: Bytes = np.round(pixels * 255).astype(np.uint8)[:, None]
    return found


def _reports(states: States, rng: Rng) -> Bytes:
    concepts = vocabulary("chest")
    at = {concept.name: i for i, concept in enumerate(concepts)}
    texts = []
    for ill, right, severity, paced in zip(states.diagnosis, states.right, states.severity, states.pacemaker):
        said = np.zeros(len(concepts), dtype=np.int8)
        for name in _DENIED:
            said[at[name]] = -1 if rng.random() < 0.35 else 0
        for name in _FINDINGS.get(int(ill), ()):
            said[at[name]] = rng.random() < 0.75
        if ill:
            said[at["right" if right else "left"]] = said[at[("mild", "moderate", "severe")[severity]]] = 1
        for name in ("clear", "normal"):
            said[at[name]] = rng.random() < (0.25 if ill else 0.8)
        said[at["device"]] = paced
        said[(said == 1) & (rng.random(len(said)) < FORGOTTEN)] = 0
        texts.append(write(concepts, said, rng, most=REPORT_BYTES) or "Normal chest.")
    return text_bytes(texts, REPORT_BYTES)


def _rows(states: States, rng: Rng) -> Bytes:
    n, ill = len(states.diagnosis), states.diagnosis
    age = rng.normal(np.array([48, 55, 72, 64])[ill], 14)
    columns = {
        "age": np.clip(age + 4 * states.pacemaker, 18, 95).round(),
        "sex": np.where(rng.random(n) < 0.5, "female", "male"),
        "smoker": np.where(rng.random(n) < np.array([0.2, 0.25, 0.3, 0.6])[ill], "yes", "no"),
        "temperature": np.clip(rng.normal(np.array([36.7, 37.9, 36.8, 36.8])[ill], 0.6), 35, 41).round(1),
        "crp": np.exp(rng.normal(np.array([1.2, 3.6, 1.9, 1.7])[ill], 0.9)).clip(0, 300).round(),
        "bnp": np.exp(rng.normal(np.array([3.6, 4.0, 6.0, 3.8])[ill], 0.9)).clip(0, 5000).round(),
    }
    return column_bytes(ROW.encode(columns).numpy())
