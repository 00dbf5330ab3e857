"""prism-head: the closed-form classifier out of PRISM's release."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from prismfl.methods import METHODS
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, served

NAME = "prism-head"


def test_the_classifier_tells_its_classes_apart_without_noise() -> None:
    task = job_of(NAME).task
    cfg = job_of(NAME, sigma=1e-6).settings
    items = served(NAME, answer(NAME, sigma=1e-6), sigma=1e-6)
    predict = METHODS[NAME].predict
    assert predict is not None
    held = some_records(30, seed=9)
    scores = predict(cfg, task, items, held.x)
    assert scores.shape == (30, 3)
    assert float((scores.argmax(1) == held.y).float().mean()) >= 0.75


def test_too_much_noise_is_said_from_public_numbers() -> None:
    advice = METHODS[NAME].advice
    assert advice is not None
    job = job_of(NAME, sigma=5.0)
    (line,) = advice(job.settings, job.task)
    assert line.startswith("expected noise-to-signal of a class at one site is ")
    assert advice(job.settings, replace(job.task, records=10**6)) == []


@pytest.mark.parametrize("bad", [{"share_count": 0.0}, {"power": 0.6}, {"budget": "all"}, {"patch": 1}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)
