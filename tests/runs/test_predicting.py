"""Lines of predictions: CSV and JSON lines, and scores only where they are asked for."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from prismfl.data import load
from prismfl.errors import UserError
from prismfl.metrics.classification import classifier_scores
from prismfl.runs.fitted import FittedModel
from prismfl.runs.predicting import format_of, predict_records

CLASSES = tuple("0123456789")


def model() -> FittedModel:
    torch.manual_seed(0)
    return FittedModel("network", CLASSES, (1, 8, 8), nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def test_a_line_a_record() -> None:
    file, seen = io.StringIO(), []
    told = predict_records(model(), "digits", file, progress=lambda *a: seen.append(a))
    head, *rows = csv.reader(io.StringIO(file.getvalue()))
    x = load("digits").x_test.numpy()
    assert head == ["record", "predicted", *(f"p_{c}" for c in CLASSES)]
    assert len(rows) == told.records == len(x)
    assert [row[1] for row in rows] == model().predict(x).tolist()
    assert np.array([row[2:] for row in rows], dtype=float) == pytest.approx(model().predict_proba(x), abs=1e-6)
    assert rows[0][0] == "1"
    assert seen[-1] == ("predicting", 360, 360)
    assert told.scores is None, "a score is a measurement: only if asked for"


def test_json_lines() -> None:
    file = io.StringIO()
    predict_records(model(), "digits", file, fmt="jsonl")
    first = json.loads(file.getvalue().splitlines()[0])
    assert set(first) == {"record", "predicted", "probabilities"}
    assert max(first["probabilities"], key=first["probabilities"].get) == first["predicted"]


def test_scores_are_those_of_the_labelled(tmp_path: Path) -> None:
    data = load("digits")
    told = predict_records(model(), "digits", io.StringIO(), score=True)
    assert told.scores == classifier_scores(model().logits(data.x_test), data.y_test, classes=10)
    y = data.y_test.numpy().copy()
    y[100:] = 77  # no class of the run
    np.savez(tmp_path / "a.npz", x=data.x_test.numpy(), y=y)
    told = predict_records(model(), str(tmp_path / "a.npz"), io.StringIO(), score=True)
    assert (told.records, told.scored) == (360, 100)
    np.savez(tmp_path / "b.npz", x=data.x_test.numpy())
    with pytest.raises(UserError, match="no labels"):
        predict_records(model(), str(tmp_path / "b.npz"), io.StringIO(), score=True)


def test_the_form_is_said_or_the_files_own() -> None:
    assert format_of(None, None) == "csv"
    assert format_of(Path("a.jsonl"), None) == "jsonl"
    assert format_of(Path("a.jsonl"), "csv") == "csv"
    assert format_of(Path("a.txt"), None) == "csv"
    with pytest.raises(UserError, match="csv or jsonl"):
        format_of(None, "xml")
