"""Drawn patients: the same every time, and each part tells of the one hidden state."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from prismfl.data import load
from prismfl.data.declared_parts import DRAWN_PATIENTS
from prismfl.data.drawn_patients import draw_patients
from prismfl.data.parts import byte_columns


@cache
def drawn() -> Any:
    return draw_patients(600)


def test_the_same_patients_every_time_and_others_by_another_seed() -> None:
    rows, labels, _ = drawn()
    again = draw_patients(600)
    assert (rows == again[0]).all()
    assert (labels == again[1]).all()
    assert (rows != draw_patients(600, seed=1)[0]).any()
    assert set(labels.tolist()) == {0, 1, 2, 3}


def test_film_and_report_share_the_side_and_the_pacemaker_beyond_the_diagnosis() -> None:
    rows, labels, states = drawn()
    films, texts = DRAWN_PATIENTS.images(rows)[:, 0].astype(float), DRAWN_PATIENTS.texts(rows)
    there = films.any((1, 2)) & (labels == 1)
    right = films[:, :, 14:].mean((1, 2)) - films[:, :, :14].mean((1, 2))
    assert right[there & states.right].mean() > right[there & ~states.right].mean() + 2
    said = np.array(["pacemaker" in text or "catheter" in text for text in texts])
    assert said[states.pacemaker].mean() > 0.6
    assert said[~states.pacemaker].mean() < 0.02


def test_the_row_tells_of_the_diagnosis() -> None:
    rows, labels, _ = drawn()
    cells = byte_columns(rows[:, DRAWN_PATIENTS.place("table")])
    temperature = cells[:, 3]
    assert temperature[labels == 1].mean() > temperature[labels == 0].mean() + 0.2


def test_some_lack_their_film_or_their_report_and_the_set_is_split() -> None:
    rows, _, _ = drawn()
    lacks = [(rows[:, DRAWN_PATIENTS.place(kind)] == 0).all(1).mean() for kind in ("image", "text")]
    assert all(0 < share < 0.06 for share in lacks)
    data = load("drawn-patients", subset=100)
    assert (len(data.x_train), len(data.x_test)) == (100, 1000)
