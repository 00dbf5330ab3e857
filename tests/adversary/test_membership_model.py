"""Each attack must succeed on an over-fitted model and say nothing about a model that never saw the members."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismfl.adversary.attacks.membership_model import (
    Shadows,
    confidence,
    gradient_scores,
    lira_scores,
    logits_of,
    loss_scores,
    rmia_scores,
    train_shadows,
)
from prismfl.adversary.scores.membership import auc
from prismfl.errors import UserError
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import fit
from prismfl.rng import Key

N, FEATURES, CLASSES = 120, 60, 5


def candidates() -> tuple[torch.Tensor, torch.Tensor]:
    """Records with labels that carry no signal: whatever a model knows about them it has memorised."""
    g = torch.Generator().manual_seed(1)
    return torch.randn(2 * N, FEATURES, generator=g), torch.randint(CLASSES, (2 * N,), generator=g)


@pytest.fixture(scope="module")
def overfitted() -> tuple[Classifier, Params, torch.Tensor, torch.Tensor]:
    x, y = candidates()
    classifier, params = build("mlp", (FEATURES,), CLASSES, key=Key.seed(0))
    return classifier, fit(classifier, params, x=x[:N], y=y[:N], epochs=60, batch=32, lr=0.1, key=Key.seed(0)), x, y


@pytest.fixture(scope="module")
def shadows() -> Shadows:
    x, y = candidates()
    return train_shadows("mlp", x, y, classes=CLASSES, shadows=8, key=Key.seed(7), epochs=30, batch=32)


def area(scores: np.ndarray) -> float:
    return auc(scores[:N], scores[N:])


def test_loss_and_gradient_find_the_members_of_an_overfitted_model(
    overfitted: tuple[Classifier, Params, torch.Tensor, torch.Tensor],
) -> None:
    classifier, params, x, y = overfitted
    assert area(loss_scores(lambda rows: classifier.logits(params, rows), x, y)) >= 0.95
    assert area(gradient_scores(classifier, params, x, y)) >= 0.95


def test_nothing_is_found_in_a_model_that_saw_nobody() -> None:
    x, y = candidates()
    classifier, params = build("mlp", (FEATURES,), CLASSES, key=Key.seed(3))
    for scores in (
        loss_scores(lambda rows: classifier.logits(params, rows), x, y),
        gradient_scores(classifier, params, x, y),
    ):
        assert abs(area(scores) - 0.5) < 0.15


def test_gradient_norm_equals_autograd(overfitted: tuple[Classifier, Params, torch.Tensor, torch.Tensor]) -> None:
    classifier, params, x, y = overfitted
    got = gradient_scores(classifier, params, x[:3], y[:3])
    for i in range(3):
        grads = classifier.gradient(params, x[i : i + 1], y[i : i + 1])
        norm = torch.cat([g.flatten() for g in grads.values()]).norm()
        assert got[i] == pytest.approx(-float(norm), rel=1e-4)


def test_shadow_attacks_find_members(
    overfitted: tuple[Classifier, Params, torch.Tensor, torch.Tensor], shadows: Shadows
) -> None:
    classifier, params, x, y = overfitted
    target = logits_of(lambda rows: classifier.logits(params, rows), x)
    assert area(lira_scores(target, y, shadows)) >= 0.95
    assert area(lira_scores(target, y, shadows, offline=True)) >= 0.95
    assert area(rmia_scores(target, y, shadows, population=torch.arange(N, 2 * N))) >= 0.95


def test_each_record_is_seen_by_half_of_the_shadows(shadows: Shadows) -> None:
    assert shadows.used.shape == (8, 2 * N)
    assert bool((shadows.used.sum(0) == 4).all())
    # The shadows know the records they saw, and only those.
    _, y = candidates()
    known = torch.stack([confidence(one, y) for one in shadows.logits])
    assert float(known[shadows.used].mean()) > float(known[~shadows.used].mean()) + 3


def test_convolutional_shadows_train_in_turn_on_their_own_halves() -> None:
    g = torch.Generator().manual_seed(2)
    x, y = torch.randn(60, 1, 8, 8, generator=g), torch.randint(2, (60,), generator=g)
    made = train_shadows("lenet:8", x, y, classes=2, shadows=2, key=Key.seed(0), epochs=60, batch=16, lr=0.05)
    known = torch.stack([confidence(one, y) for one in made.logits])
    assert float(known[made.used].mean()) > float(known[~made.used].mean()) + 1


def test_confidence_is_the_logit_of_the_true_class_and_never_overflows() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [1e4, -1e4, 0.0]])
    p = torch.softmax(logits[0].double(), 0)[1]
    got = confidence(logits, torch.tensor([1, 0]))
    assert float(got[0]) == pytest.approx(float(torch.log(p / (1 - p))))
    assert bool(torch.isfinite(got).all())


def test_silly_requests_are_refused() -> None:
    x, y = candidates()
    with pytest.raises(UserError, match="at least 2 shadow"):
        train_shadows("mlp", x, y, classes=CLASSES, shadows=1, key=Key.seed(0))
    empty = Shadows(torch.zeros(2, 4, 2), torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1]]).bool())
    with pytest.raises(UserError, match="population"):
        rmia_scores(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), empty, population=torch.zeros(0).long())
