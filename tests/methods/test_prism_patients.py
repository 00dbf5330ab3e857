"""Synthetic records of several parts: they fit what was released, go together, and hold no private phrase."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site, State
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.data.concepts import vocabulary
from prismfl.data.declared_parts import DIAGNOSES, DRAWN_PATIENTS
from prismfl.data.drawn_patients import draw_patients
from prismfl.data.grammar import every_sentence
from prismfl.data.parts import Parts
from prismfl.data.public_rows import load_public_rows
from prismfl.data.texts import text_bytes
from prismfl.errors import UserError
from prismfl.methods.prism import patients, prism, statistics
from prismfl.methods.prism.encoder import encoder
from prismfl.methods.prism.head import read_statistics
from prismfl.metrics.text_leakage import exposed
from prismfl.nets.encoders.text import HashedNgrams, finder, said_in
from prismfl.rng import Key
from prismfl.runs.encoders import ready

WORDS = Parts(DRAWN_PATIENTS.parts[1:], DRAWN_PATIENTS.schema)  # no film: quick
SETTINGS = {"rank": 80, "covariance": 80, "networks": 0, "images": 20, "steps": 0, "spectrum": "cleaned"}
CHEST = vocabulary("chest")
CANARY = "zebra crossing under seven purple moons tonight"


@cache
def task(parts: Parts = WORDS) -> Task:
    public = load_public_rows(parts, images="procedural", text=None, count=300, key_seed=0).images
    found = Task("own", (parts.width,), DIAGNOSES, ("site-0",), 500, public=public, parts=parts)
    return replace(found, encoder=ready(None, found))


@cache
def some(count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    rows, labels, _ = draw_patients(count)
    return torch.from_numpy(rows[:, 784:].copy()), torch.from_numpy(labels)


def released(x: torch.Tensor, y: torch.Tensor, sigma: float = 0.0) -> Any:
    cfg = prism.Config(sigma=sigma, **SETTINGS)
    door = PrivateRecords(Records(x, y), declared=500, classes=4, noise=Key.seed(0).noise())
    site = Site("site-0", door, {}, task())
    leaves, _ = statistics.client(cfg, State(0, {}), site, Key.seed(0))
    return cfg, leaves["statistics"].tensors


def made(x: torch.Tensor, y: torch.Tensor, sigma: float = 0.0, **settings: Any) -> Any:
    cfg, tensors = released(x, y, sigma)
    cfg = cfg.model_copy(update=settings)
    enc, pooled = read_statistics(cfg, task(), [tensors])
    return prism.synthetic_records(cfg, task(), enc, pooled, Key.seed(1))


def test_synthetic_rows_and_reports_are_like_those_of_their_class() -> None:
    found = made(*some())
    rows, labels = found.tensors["x"].numpy(), found.hard_y.numpy()
    assert rows.dtype == np.uint8
    assert np.bincount(labels).tolist() == [20] * 4
    texts, find = WORDS.texts(rows), finder(CHEST)
    ill = [t for t, label in zip(texts, labels) if label == 1]
    well = [t for t, label in zip(texts, labels) if label == 0]

    def says(group: list[str]) -> float:
        found = [{CHEST[i].name for i, denied in said_in(text, find) if not denied} for text in group]
        return float(np.mean([bool(names & {"pneumonia", "consolidation", "opacity"}) for names in found]))

    assert says(ill) > says(well) + 0.3
    heat = rows[:, 1000 + 3].astype(float)
    assert heat[labels == 1].mean() > heat[labels == 0].mean() + 10


@pytest.mark.parametrize("texts", ["written", "chosen"])
def test_a_canary_in_every_private_text_never_comes_out(texts: str) -> None:
    x, y = some()
    rows = x.clone()
    rows[:, :1000] = torch.from_numpy(text_bytes([CANARY] * len(rows), 1000))
    found = made(rows, y, texts=texts)
    words = CANARY.split()
    told = " ".join(WORDS.texts(found.tensors["x"].numpy()))
    assert not [word for word in words if word in told.split() and word not in ("under", "tonight")]
    assert CANARY not in told
    assert found.spec["text_origin"] == patients.ORIGINS[texts]


def test_every_phrase_of_a_written_report_is_in_the_grammar_and_none_of_anybody() -> None:
    """Whatever the release says: noise alone, and a release made of private texts that are all alike."""
    x, y = some()
    alike = x.clone()
    alike[:, :1000] = torch.from_numpy(text_bytes([f"Findings of {CANARY}. No {CANARY}."] * len(x), 1000))
    public = list(every_sentence(CHEST))
    for rows, sigma in ((x, 5.0), (alike, 0.0)):
        texts = WORDS.texts(made(rows, y, sigma=sigma).tensors["x"].numpy())
        assert {p.rstrip(".") + "." for t in texts if t for p in t.split(". ")} <= set(public)
        assert exposed(texts, WORDS.texts(rows.numpy()), public) == 0


def test_noise_across_the_parts_is_not_taken_for_what_they_have_in_common() -> None:
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(20, 30, generator=g).double()
    assert float(torch.linalg.matrix_norm(patients.across(noise, noise=1.0), 2)) < 4
    left, right = torch.ones(20).double() / 20**0.5, torch.ones(30).double() / 30**0.5
    found = patients.across(noise + 40 * torch.outer(left, right), noise=1.0)
    assert 35 < float(left @ found @ right) < 42
    assert torch.allclose(patients.across(noise, noise=0.0), noise)


def test_a_record_without_parts_counts_and_is_bounded() -> None:
    x, y = some()
    nothing = torch.zeros_like(x)
    cfg, tensors = released(nothing, y)
    layout = statistics.row_layout(cfg, task())
    assert not tensors["sums"][:, :-1].any()
    assert torch.allclose(tensors["sums"][:, -1], layout.count * torch.bincount(y, minlength=4).float(), atol=1e-3)
    assert len(WORDS.texts(made(nothing, y).tensors["x"].numpy())) == 80


def test_the_second_moment_must_hold_all_directions() -> None:
    cfg = prism.Config(sigma=1.0, **{**SETTINGS, "covariance": 8})
    with pytest.raises(UserError, match="covariance"):
        prism.init(cfg, task(), Key.seed(0))


def test_a_model_learns_from_the_synthetic_records_alone() -> None:
    x, y = some()
    cfg, tensors = released(x, y)
    enc, pooled = read_statistics(cfg, task(), [tensors])
    items = prism.from_statistics(cfg, task(), enc, pooled, Key.seed(1))
    models = prism.models(cfg, task(), items)
    for name in ("network", "head", "linear"):
        right = (models[name](x.float() / 255).argmax(1) == y).float().mean()
        assert float(right) > 0.6, name


def test_layers_stand_in_the_order_of_the_parts_and_each_part_has_one() -> None:
    x, _ = some(40)
    turned = prism.Config(sigma=0.0, layers=("row/columns", "text/groups", "text/concepts"), **SETTINGS)
    plain = prism.Config(sigma=0.0, **SETTINGS)
    one, other = (encoder(cfg, task()).coordinates(x.float() / 255) for cfg in (turned, plain))
    assert torch.allclose(one, other)
    with pytest.raises(UserError, match="each part"):
        encoder(prism.Config(sigma=1.0, layers=("row/columns",), **SETTINGS), task())


def test_without_the_concepts_a_text_is_chosen_and_says_so() -> None:
    """It was an error after the release was charged; and a chosen sentence called itself written."""
    hashed = replace(task(), encoder=ready(HashedNgrams(), replace(task(), encoder=None)))
    cases: list[tuple[Task, dict[str, Any]]] = [(hashed, {}), (task(), {"layers": ("text/groups", "row/columns")})]
    for one, cfg in cases:
        settings = prism.Config(sigma=0.0, **{**SETTINGS, "rank": 12, "covariance": 12, **cfg})
        enc = encoder(settings, one)
        zeros = {
            "sums": torch.zeros(4, statistics.row_layout(settings, one).width),
            "moment": torch.zeros(78),
            "spent": torch.ones(1),
        }
        found = prism.synthetic_records(settings, one, *read_statistics(settings, one, [zeros]), Key.seed(1))
        assert found.spec["text_origin"] == patients.ORIGINS["chosen"]
        assert enc.frame.basis.shape[1] == 12
