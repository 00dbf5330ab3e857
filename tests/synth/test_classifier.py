"""The scikit-learn classifier: the estimator checks, its labels, its models, its ledger and every refusal."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import prismfl
from prismfl.data import load
from prismfl.errors import BudgetError, UserError
from prismfl.methods.prism import head as prism_head
from prismfl.methods.prism import prism
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.synth.classifier import PrismClassifier, declared_bounds

TINY = {**prism.METHOD.tiny, "rank": 40, "covariance": 40, "atoms": 24, "steps": 2}
SMALL = prism_head.METHOD.tiny
WORDS = np.array(["nil", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
LOW, HIGH = [4.0, 2.0, 1.0, 0.0], [8.0, 4.5, 7.0, 2.5]
FAILS = {"check_estimators_nan_inf": "its labels are floats, which are refused: they may hide fractions"}


def images(**options: Any) -> PrismClassifier:
    return PrismClassifier(**{"epsilon": 60.0, "seed": 0, "public_count": 300, "settings": TINY, **options})


def digits(part: slice) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    data = load("digits")
    return data.x_train[part].numpy(), data.y_train[part].numpy()


def iris(**options: Any) -> PrismClassifier:
    return PrismClassifier(**{"epsilon": 30.0, "seed": 0, "bounds": (LOW, HIGH), "classes": 3, **options})


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    # A seed and little noise: checks fit twice and compare, and want to be right on thirty records.
    [PrismClassifier(epsilon=30.0, seed=0, bounds=(-5.0, 5.0))],
    expected_failed_checks=lambda estimator: FAILS,
)
def test_scikit_learns_checks(estimator: PrismClassifier, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks hand over what is meant to be warned of
        check(estimator)


# Tables


def test_a_table_is_learnt_within_its_bounds() -> None:
    X, y = load_iris(return_X_y=True)
    made = iris().fit(X, y)
    assert made.score(X, y) > 0.93
    assert (made.n_features_in_, made.model_, made.classes_.tolist()) == (4, "head", [0, 1, 2])
    chances = made.predict_proba(X)
    assert chances.shape == (150, 3)
    assert np.allclose(chances.sum(1), 1)
    assert np.array_equal(made.decision_function(X).argmax(1), made.predict(X))
    assert np.allclose(np.exp(made.predict_log_proba(X)), chances)
    found = made.certificate()
    assert (found["method"], found["bounds"], found["warnings"]) == ("prism-table", [LOW, HIGH], [])
    assert found["mechanism"]["numbers"] == sum(
        t.numel() for t in made._fitted.made.release.items["statistics"].tensors.values()
    )


def test_what_lies_outside_the_bounds_counts_as_lying_on_them() -> None:
    X, y = load_iris(return_X_y=True)
    far = X.copy()
    far[0], far[1] = 1e12, -1e12
    near = np.clip(far, LOW, HIGH)
    first, second = (iris().fit(rows, y).decision_function(X) for rows in (far, near))
    assert np.array_equal(first, second)


def test_the_default_bounds_are_from_minus_one_to_one() -> None:
    X, y = load_iris(return_X_y=True)
    low, high = np.array(LOW), np.array(HIGH)
    scaled = PrismClassifier(30.0, seed=0, classes=3).fit(2 * (X - low) / (high - low) - 1, y)
    assert scaled.score(2 * (X - low) / (high - low) - 1, y) == iris().fit(X, y).score(X, y)


@pytest.mark.parametrize(
    "bounds", [1.0, (1, 1), (2, 1), ([0, 0], [1, 1]), (0, np.inf), (np.nan, 1), ("a", "b"), (0, 1, 2), None]
)
def test_bounds_that_are_none_are_refused(bounds: Any) -> None:
    with pytest.raises(UserError, match="Expected bounds"):
        declared_bounds(bounds, 4)


# Images


def test_every_model_of_a_release_and_images_only_when_they_are_asked_for() -> None:
    made = images(model="head").fit(*digits(slice(900)))
    x, y = digits(slice(900, 1200))
    assert made.score(x, y) > 0.7
    assert (made.model_, sorted(made._models)) == ("head", ["head", "linear"]), "no image was made"
    assert made.use("linear").score(x, y) > 0.7
    assert made.use("network").predict(x).shape == (300,)
    assert "network" in made._models
    assert made.use(None).model_ == "network", "as the settings' `deliver` says"
    with Ledger.open(ledger_path()) as ledger:
        assert [one.releases for one in ledger.status()] == [1], "one release, whatever is made of it"
    drawn, labels = made.sample(20)
    assert (drawn.shape, labels.tolist()) == ((20, 1, 8, 8), list(range(10)) * 2)


def test_the_recommended_model_is_taken() -> None:
    x, y = digits(slice(60))
    assert images(settings={**TINY, "deliver": "linear"}).fit(x, y).model_ == "linear"
    assert images(method="prism-head", settings=SMALL).fit(x, y).model_ == "head"


def test_prism_head_makes_no_images() -> None:
    made = images(method="prism-head", settings=SMALL).fit(*digits(slice(60)))
    with pytest.raises(UserError, match="prism-head makes no images"):
        made.sample(3)
    with pytest.raises(UserError, match="one of head for prism-head, got 'network'"):
        made.use("network")


def test_bytes_fractions_tensors_and_one_channel_are_the_same_images() -> None:
    x, y = digits(slice(200))
    small = np.rint(x * 255).astype(np.uint8)
    given = [small, small[:, 0], small / np.float32(255), torch.tensor(small)]
    found = [images(model="head").fit(one, y).certificate()["release_digest"] for one in given]
    assert len(set(found)) == 1
    made = images(model="head").fit(small, y)
    assert np.array_equal(made.predict(small[:, 0]), made.predict(small / np.float32(255)))


# Labels


def test_text_labels_come_back_as_text() -> None:
    x, y = digits(slice(600))
    made = images(model="head", classes=sorted(WORDS)).fit(x, WORDS[y])
    assert made.classes_.tolist() == sorted(WORDS)
    assert float((made.predict(x) == WORDS[y]).mean()) > 0.7
    assert made.certificate()["classes"] == sorted(WORDS)
    assert set(made.sample(10)[1]) == set(WORDS)


def test_classes_that_were_not_declared_are_read_off_and_warned_of() -> None:
    X, y = load_iris(return_X_y=True)
    made = iris(classes=None).fit(X, y > 0)
    assert made.classes_.tolist() == [False, True]
    assert made.decision_function(X).shape == (150,)
    assert "count as public" in made.certificate()["warnings"][0]


def test_a_declared_class_without_a_record_keeps_its_column() -> None:
    X, y = load_iris(return_X_y=True)
    made = iris(classes=[0, 1, 2, 7]).fit(X, y)
    assert made.predict_proba(X).shape == (150, 4)
    assert made.score(X, y) > 0.9


# The promise


def test_every_fit_is_charged_and_refused_beyond_the_cap(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    made = iris(epsilon=1.0, seed=None, cap=1.01, ledger=str(tmp_path)).fit(X, y)
    before, found = made.predict(X), made.certificate()
    assert (found["guarantee"], found["noise"]) == ("differential privacy", "operating system")
    assert 0.99 < found["epsilon"] <= 1.0
    assert found["total_so_far"]["epsilon"] == pytest.approx(found["epsilon"])
    with pytest.raises(BudgetError, match="cap"):
        made.set_params(bounds=(0.0, 100.0)).fit(X, y)
    assert np.array_equal(made.predict(X), before), "a refusal leaves the model as it was"
    with pytest.raises(BudgetError, match="cap"):
        clone(made).fit(X[:70], y[:70])


def test_people_are_the_unit_where_ids_are_given() -> None:
    X, y = load_iris(return_X_y=True)
    made = iris().fit(X, y, unit=[f"p{i // 3}" for i in range(150)])
    assert made.certificate()["unit"] == "unit"


def test_a_seed_is_said_and_without_one_no_two_fits_are_alike() -> None:
    X, y = load_iris(return_X_y=True)
    assert iris().fit(X, y).certificate()["guarantee"] == "simulation: no protection"
    first, second = (iris(seed=None).fit(X, y).decision_function(X) for _ in range(2))
    assert not np.array_equal(first, second)


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"method": "prism-local"}, "Unknown method 'prism-local'"),
        ({"model": "linear"}, "one of head for prism-table, got 'linear'"),
        ({"records": 0}, "records >= 1, got 0"),
        ({"classes": [0, 1]}, "Label 2 is none of the declared classes"),
        ({"settings": {"rnak": 3}}, "did you mean 'rank'"),
        ({"settings": {"sigma": 3.0}}, "Give epsilon or sigma"),
        ({"settings": {"rounds": 2}}, "expected rounds 1, got 2"),
        ({"public": "procedural"}, "no public images for prism-table"),
        ({"encoder": "efficientnet-lite0"}, "looks through no public encoder"),
        ({"bounds": (1, 0)}, "lowest < highest"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        iris(**change).fit(*load_iris(return_X_y=True))
    assert not ledger_path().exists()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((4, 2)), [0.0, 1.0, 0.0, 1.0], r"y\.astype\(int\)"),
        (np.zeros((4, 2)), [0, 1, 0], "as many labels as records"),
        (np.zeros((4, 2)), None, "requires y"),
        (np.full((4, 2), np.nan), [0, 1, 0, 1], "NaN"),
        (np.zeros((4, 2, 8, 8)), [0, 1, 0, 1], "1 or 3 channels"),
        (np.full((4, 8, 8), 7.0), [0, 1, 0, 1], r"bytes or in \[0, 1\]"),
        (np.zeros((4, 1, 1, 8, 8)), [0, 1, 0, 1], "dim"),
    ],
)
def test_wrong_arrays_are_refused_before_anything_is_spent(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrismClassifier().fit(X, y)
    assert not ledger_path().exists()


def test_other_records_than_those_that_were_fitted_are_refused() -> None:
    X, y = load_iris(return_X_y=True)
    table, pictures = iris().fit(X, y), images(model="head").fit(*digits(slice(60)))
    with pytest.raises(UserError, match=r"records of shape \(1, 8, 8\) as fitted, got an array of \(150, 4\)"):
        pictures.predict(X)
    with pytest.raises(UserError, match=r"records of shape \(1, 8, 8\)"):
        pictures.predict(np.zeros((2, 9, 9)))
    with pytest.raises(UserError, match=r"records of shape \(4,\)"):
        table.predict(np.zeros((2, 8, 8)))


def test_fit_comes_first() -> None:
    made = PrismClassifier()
    for ask in (made.certificate, lambda: made.sample(1), lambda: made.use("head"), lambda: made.predict([[0.0]])):
        with pytest.raises(NotFittedError):
            ask()
    with pytest.raises(UserError):
        made.fit([[0.0]], [0.0])
    with pytest.raises(NotFittedError):
        made.predict([[0.0]])


def test_what_is_kept_holds_no_record() -> None:
    x, y = digits(slice(60))
    made = copy.deepcopy(images(model="head").fit(x, y))
    shapes = {tuple(t.shape) for t in made._fitted.made.release.items["statistics"].tensors.values()}
    assert len(x) not in {size for shape in shapes for size in shape}
    assert not [name for name, value in vars(made).items() if getattr(value, "shape", (0,))[:1] == (60,)]
    assert prismfl.PrismClassifier is PrismClassifier
