"""Training on soft labels: balanced draw weights, averaged weights, pictures that teach."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from prismfl.kernels import parts
from prismfl.nets.classifier import build
from prismfl.nets.distil import balanced_weights, distil
from prismfl.rng import Key


def test_balanced_labels_weigh_alike() -> None:
    weights = balanced_weights(torch.eye(3).repeat(4, 1))
    assert float(weights.max() / weights.min()) == pytest.approx(1.0)


def test_a_rare_class_is_raised_to_equal_mass() -> None:
    """Nine of one class, one of the other: the one weighs nine times as much."""
    labels = torch.cat([torch.tensor([[1.0, 0.0]]).repeat(9, 1), torch.tensor([[0.0, 1.0]])])
    weights = balanced_weights(labels)
    mass = (weights[:, None] * labels).sum(0)
    assert float(mass[0] / mass[1]) == pytest.approx(1.0, rel=1e-3)


def test_no_class_is_raised_beyond_the_limit() -> None:
    labels = torch.cat([torch.tensor([[1.0, 0.0]]).repeat(99, 1), torch.tensor([[0.0, 1.0]])])
    weights = balanced_weights(labels, most=5.0)
    assert float(weights[-1] / weights[0]) == pytest.approx(5.0)


def trained(y: torch.Tensor, *, steps: int = 60, weights: torch.Tensor | None = None, seed: int = 1) -> torch.Tensor:
    """Logits of a black and a white picture after training on both."""
    x = torch.stack([torch.zeros(1, 4, 4), torch.ones(1, 4, 4)])
    classifier, params = build("logreg", (1, 4, 4), 2, key=Key.seed(0))
    found = distil(
        classifier,
        params,
        x=x,
        y=y,
        weights=torch.ones(2) if weights is None else weights,
        steps=steps,
        batch=4,
        lr=0.1,
        colour=False,
        key=Key.seed(seed),
    )
    return classifier.logits(found, x).detach()


def test_pictures_teach_their_labels() -> None:
    assert trained(torch.eye(2)).argmax(1).tolist() == [0, 1]
    assert trained(torch.eye(2).flip(0)).argmax(1).tolist() == [1, 0]


def test_a_label_of_one_half_teaches_doubt() -> None:
    """The gap between the scores shrinks where the label is undecided."""
    sure = trained(torch.eye(2))
    unsure = trained(torch.full((2, 2), 0.5))
    assert float((unsure[:, 0] - unsure[:, 1]).abs().max()) < float((sure[:, 0] - sure[:, 1]).abs().min())


def test_a_picture_of_weight_nothing_is_never_drawn() -> None:
    only = trained(torch.eye(2), weights=torch.tensor([1.0, 0.0]))
    assert only.argmax(1).tolist()[0] == 0
    assert torch.equal(only, trained(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), weights=torch.tensor([1.0, 0.0])))


def test_the_key_decides() -> None:
    assert torch.equal(trained(torch.eye(2), steps=5), trained(torch.eye(2), steps=5))
    assert not torch.equal(trained(torch.eye(2), steps=5), trained(torch.eye(2), steps=5, seed=2))


def test_the_parameters_that_come_in_are_left_alone() -> None:
    classifier, params = build("logreg", (1, 4, 4), 2, key=Key.seed(0))
    before = {k: v.clone() for k, v in params.items()}
    distil(
        classifier,
        params,
        x=torch.rand(2, 1, 4, 4),
        y=torch.eye(2),
        weights=torch.ones(2),
        steps=2,
        batch=2,
        lr=0.1,
        colour=False,
        key=Key.seed(0),
    )
    assert all(torch.equal(params[k], before[k]) for k in before)


def test_a_batch_of_large_pictures_teaches_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of unequal size: each counts for its pictures."""
    x = torch.rand(12, 3, 8, 8, generator=Key.seed(3).torch())
    y = torch.softmax(torch.randn(12, 2, generator=Key.seed(4).torch()), 1)
    found, largest = [], []
    seen: list[int] = []
    for numbers in (parts.LEARNT, 3 * x[0].numel()):
        monkeypatch.setattr(parts, "LEARNT", numbers)
        classifier, params = build("logreg", (3, 8, 8), 2, key=Key.seed(0))
        seen.clear()
        classifier.module.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
        how: dict[str, Any] = {"weights": torch.ones(12), "steps": 3, "batch": 8, "lr": 0.01, "colour": False}
        found.append(distil(classifier, params, x=x, y=y, key=Key.seed(1), **how))
        largest.append(max(seen))
    assert largest == [8, 3]
    assert all(torch.allclose(found[0][k], found[1][k], atol=1e-5) for k in found[0])
