"""The scores of a classifier by hand, and against scikit-learn's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn import metrics

from prismfl.metrics.classification import classifier_scores, is_unbalanced

MAIN = ("accuracy", "balanced_accuracy", "f1", "auc")


def made(classes: int, records: int = 400, *, rare: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that know something, and labels; with `rare` two classes, and so much of the second."""
    draw = torch.Generator().manual_seed(3)
    y = torch.randint(0, classes, (records,), generator=draw)
    if rare is not None:
        y = (torch.rand(records, generator=draw) < rare).long()
    logits = torch.randn(records, classes, generator=draw) + 1.5 * torch.nn.functional.one_hot(y, classes)
    return (4 * logits).round() / 4, y  # rounded, so that there are ties


def test_scores_by_hand() -> None:
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
    found = classifier_scores(logits, torch.tensor([0, 0, 1, 1]), classes=2)
    assert found["accuracy"] == 75.0
    assert found["recall"] == [100.0, 50.0]
    assert found["balanced_accuracy"] == 75.0
    assert found["auc"] == 100.0  # both records of class 1 lie above both of class 0
    assert found["confusion"] == [[2, 0], [1, 1]]
    assert found["positive"] == 1  # of two classes that are as common, the second
    assert found["f1"] == pytest.approx(200 / 3, abs=1e-4)  # precision 1, recall 1/2


@pytest.mark.parametrize("classes", [2, 5])
def test_the_scores_are_those_of_scikit_learn(classes: int) -> None:
    logits, y = made(classes)
    found, guess = classifier_scores(logits, y, classes=classes), logits.argmax(1)
    chances = torch.softmax(logits.double(), 1).numpy()
    shown = chances[:, 1] if classes == 2 else chances
    assert found["balanced_accuracy"] == pytest.approx(100 * metrics.balanced_accuracy_score(y, guess), abs=1e-3)
    assert found["f1_macro"] == pytest.approx(100 * metrics.f1_score(y, guess, average="macro"), abs=1e-3)
    assert found["auc"] == pytest.approx(100 * metrics.roc_auc_score(y, shown, multi_class="ovr"), abs=1e-3)
    own = chances[:, found["positive"]] if classes == 2 else chances
    truth = (y == found["positive"]).numpy() if classes == 2 else np.eye(classes)[y]
    assert found["average_precision"] == pytest.approx(100 * metrics.average_precision_score(truth, own), abs=1e-3)
    assert found["confusion"] == metrics.confusion_matrix(y, guess).tolist()
    wanted = ((chances - np.eye(classes)[y]) ** 2).sum(1).mean() / (2 if classes == 2 else 1)
    assert found["brier"] == pytest.approx(wanted, abs=1e-4)


def test_the_f1_of_two_classes_is_that_of_the_rarer_one() -> None:
    logits, y = made(2, rare=0.9)
    found = classifier_scores(logits, y, classes=2)
    assert found["positive"] == 0
    assert found["f1"] == pytest.approx(100 * metrics.f1_score(y, logits.argmax(1), pos_label=0), abs=1e-3)


def test_five_percent_of_positives_that_are_never_named() -> None:
    y = torch.tensor([1] * 5 + [0] * 95)
    found = classifier_scores(torch.tensor([[1.0, 0.0]]).repeat(100, 1), y, classes=2)
    assert (found["accuracy"], found["balanced_accuracy"], found["auc"], found["f1"]) == (95.0, 50.0, 50.0, 0.0)
    assert found["unbalanced"] is True


@pytest.mark.parametrize(("counts", "wanted"), [([50, 50], False), ([75, 25], False), ([76, 24], True), ([9, 0], True)])
def test_less_than_half_of_an_even_share_is_unbalanced(counts: list[int], wanted: bool) -> None:
    assert is_unbalanced(np.asarray(counts)) is wanted


def test_a_class_without_records_has_no_recall() -> None:
    found = classifier_scores(torch.eye(3)[[0, 1]], torch.tensor([0, 1]), classes=3)
    assert found["recall"] == [100.0, 100.0, None]
    assert found["balanced_accuracy"] == found["f1_macro"] == 100.0


def test_one_class_alone_has_no_area() -> None:
    found = classifier_scores(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 0]), classes=2)
    assert found["auc"] is None
    assert found["intervals"]["auc"] is None
    assert found["average_precision"] is None
    assert found["accuracy"] == pytest.approx(200 / 3, abs=1e-3)


def test_ties_count_half_in_the_area_and_in_its_interval() -> None:
    found = classifier_scores(torch.zeros(40, 2), torch.tensor([0, 1] * 20), classes=2)
    assert found["auc"] == 50.0
    assert found["intervals"]["auc"] == [50.0, 50.0]


def test_calibration_by_hand() -> None:
    sure = torch.tensor([[0.0, 0.0], [0.0, math.log(4.0)]])  # confidence 1/2 and right, 4/5 and wrong
    found = classifier_scores(sure, torch.tensor([0, 0]), classes=2)
    assert found["ece"] == pytest.approx(100 * (0.5 + 0.8) / 2, abs=1e-3)
    assert found["brier"] == pytest.approx((0.25 + 0.64) / 2, abs=1e-4)


@pytest.mark.parametrize("classes", [2, 5])
def test_an_interval_holds_its_score_and_is_as_wide_as_it_must_be(classes: int) -> None:
    logits, y = made(classes, 600)
    found = classifier_scores(logits, y, classes=classes)
    for name in MAIN:
        low, high = found["intervals"][name]
        assert low < found[name] < high
    share = found["accuracy"] / 100
    low, high = found["intervals"]["accuracy"]
    assert high - low == pytest.approx(2 * 196 * math.sqrt(share * (1 - share) / 600), rel=0.2)


def test_the_interval_of_the_area_is_that_of_records_drawn_one_by_one() -> None:
    logits, y = made(2, 200, rare=0.2)
    chance = torch.softmax(logits.double(), 1).numpy()[:, 1]
    draw, areas = np.random.default_rng(1), []
    for _ in range(400):
        rows = draw.integers(0, 200, 200)
        areas.append(100 * metrics.roc_auc_score(y.numpy()[rows], chance[rows]))
    wanted = np.percentile(areas, [2.5, 97.5])
    assert classifier_scores(logits, y, classes=2)["intervals"]["auc"] == pytest.approx(wanted, abs=1.5)


def test_the_same_records_give_the_same_intervals() -> None:
    logits, y = made(5)
    torch.manual_seed(1)
    first = classifier_scores(logits, y, classes=5)
    torch.manual_seed(2)
    np.random.seed(2)
    assert classifier_scores(logits, y, classes=5) == first


def test_scores_that_overflowed_are_scores() -> None:
    bad = torch.tensor([[float("nan"), 1.0], [float("inf"), 0.0], [0.0, 1.0]])
    found = classifier_scores(bad, torch.tensor([0, 0, 1]), classes=2)
    assert found["auc"] is not None
    assert math.isfinite(found["brier"])


def test_a_confusion_matrix_of_too_many_classes_is_left_out() -> None:
    found = classifier_scores(torch.eye(250)[:40], torch.arange(40), classes=250)
    assert found["confusion"] is None
    assert found["accuracy"] == 100.0
    assert found["intervals"]["accuracy"] is None
