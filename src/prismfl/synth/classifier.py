"""A scikit-learn classifier for one data holder: one differentially private release, then a model made from it.

`PrismClassifier(epsilon=1.0).fit(X, y).predict(X_new)` on images, or on a table of numbers with declared bounds. `fit`
takes the same step as `Synthesizer`; everything after it is post-processing and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import nn

from prismfl.core.method import State
from prismfl.core.once import Holder
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.metrics.utility import logits_of
from prismfl.nets.encoders.base import Encoder
from prismfl.rng import Key
from prismfl.synth.arrays import images_of, prints_of, units_of
from prismfl.synth.labels import UNDECLARED, label_array, named
from prismfl.synth.single import Fitted, Options, release
from prismfl.synth.ways import CLASSIFIERS, TABLE

Array = npt.NDArray[Any]
Bounds = tuple[Array, Array]
NETWORK = "network"
MODELS = {"prism": (NETWORK, "head", "linear"), "prism-head": ("head",), "prism-table": ("head",)}


class PrismClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose `fit` is one (epsilon, delta)-differentially private release.

    `method` is "prism" or, without any synthetic image, "prism-head"; a table takes the closed-form way of its own.
    `model` is "head" (closed form), "linear" (on synthetic embeddings) or "network" (trained on synthetic images);
    without it, the one that the method recommends. Images are bytes or in [0, 1]; the columns of a table are clipped to
    the declared `bounds` (lowest, highest), each one number or one a column, [-1, 1] unless they are given. `classes`
    declares the classes; without it they are read off the labels and count as public. `settings` are the method's own;
    `encoder`, `public`, `tuning`, `records`, `seed`, `ledger` and `cap` are those of `Synthesizer`, and `name` declares
    the data on the ledger. Bounds, classes and settings are public: never take them from the records.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        method: Literal["prism", "prism-head"] = "prism",
        model: Literal["head", "linear", "network"] | None = None,
        encoder: str | Encoder | None = None,
        tuning: Literal["auto", "fixed"] | None = None,
        public: str | torch.Tensor | None = None,
        public_count: int = 2000,
        data_dir: str | None = None,
        records: int | None = None,
        classes: Sequence[Any] | int | None = None,
        bounds: tuple[Any, Any] = (-1.0, 1.0),
        seed: int | None = None,
        ledger: str | Path | None = None,
        cap: float | None = None,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.epsilon, self.delta, self.method, self.model = epsilon, delta, method, model
        self.encoder, self.tuning, self.public, self.public_count = encoder, tuning, public, public_count
        self.data_dir, self.records, self.classes, self.bounds = data_dir, records, classes, bounds
        self.seed, self.ledger, self.cap, self.name, self.settings = seed, ledger, cap, name, settings

    def fit(self, X: Any, y: Any, unit: Any = None) -> PrismClassifier:
        """Release images (n, h, w) or (n, c, h, w), or a table (n, columns), with labels, and make the model.

        Labels are text, whole numbers or bools. `unit` is the id of the person behind each record, the same in every
        fit: then people are protected, not records. Every fit is charged to the ledger, those of a search or of
        cross-validation too.
        """
        options = self._options()
        if y is None:
            raise UserError("This classifier requires y to be passed, but the target y is None.")
        x, prints, bounds = self._read_private(X)
        labels = named(label_array(column_or_1d(y, dtype=None, warn=True), len(x)), self.classes)
        way = CLASSIFIERS[self.method] if x.dim() == 4 else TABLE
        self._check_model(way.method.name, self.model)
        records = Records(x, labels.codes, None if unit is None else units_of(unit, len(x)))
        self._fitted: Fitted = release(
            options,
            way,
            Holder(records, prints, self.name),
            classes=labels.names,
            unit="record" if unit is None else "unit",
            warnings=(UNDECLARED,) if self.classes is None else (),
        )
        self.classes_, self._bounds = labels.classes, bounds
        self._models: dict[str, nn.Module] = {}
        return self.use(self.model)

    def use(self, model: Literal["head", "linear", "network"] | None) -> PrismClassifier:
        """Take another model of the same release: free. None is the one that the method recommends."""
        check_is_fitted(self, "classes_")
        fitted, chooses = self._fitted, self._fitted.way.method.recommended
        self._check_model(fitted.method, model)
        self.model_ = model or (MODELS[fitted.method][0] if chooses is None else chooses(fitted.settings))
        if self.model_ not in self._models:
            self._models.update(_made(fitted, self.model_))
        return self

    def decision_function(self, X: Any) -> Array:
        """The scores of each class, a column each in the order of `classes_`; of two classes, one for the second."""
        logits = self._logits(X)
        if len(self.classes_) > 2:
            return logits
        found: Array = logits[:, -1] - logits[:, 0]
        return found

    def predict(self, X: Any) -> Array:
        """The likeliest class of each record."""
        logits = self._logits(X)
        found: Array = self.classes_[logits.argmax(1)]
        return found

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`."""
        found: Array = torch.log_softmax(torch.from_numpy(self._logits(X)), 1).numpy()
        return found

    def predict_proba(self, X: Any) -> Array:
        """What the model thinks likely, a column a class in the order of `classes_`."""
        found: Array = np.exp(self.predict_log_proba(X))
        return found

    def sample(self, n: int, *, seed: int | None = 0) -> tuple[Array, Array]:
        """`n` synthetic images as bytes (n, c, h, w) and their labels, from the same release: free."""
        check_is_fitted(self, "classes_")
        fitted, draw = self._fitted, self._fitted.way.draw
        if draw is None:
            raise UserError(f"{fitted.method} makes no images; method 'prism' does, and tables have a Synthesizer.")
        if n < 1:
            raise UserError(f"Expected n >= 1, got {n}.")
        key = Key.from_os() if seed is None else Key.seed(seed)
        x, y = draw(fitted.settings, fitted.task, fitted.made.release.items, n, key)
        return x.numpy(), self.classes_[y.numpy()]

    def certificate(self) -> dict[str, Any]:
        """The promise and how it is kept, for whoever receives the model: declared facts, and what was released."""
        check_is_fitted(self, "classes_")
        found = {**self._fitted.certificate(), "model": self.model_}
        if self._fitted.task.kind == "table":
            found["bounds"] = [part.tolist() for part in self._bounds]
        return found

    def _options(self) -> Options:
        """The parameters, checked: a refusal comes before anything is spent."""
        if self.method not in ("prism", "prism-head"):
            raise UserError(f"Unknown method '{self.method}'; there are 'prism' and 'prism-head'.")
        options = Options(
            self.epsilon,
            self.delta,
            self.public,
            self.public_count,
            self.data_dir,
            self.encoder,
            self.tuning,
            self.records,
            self.seed,
            None if self.ledger is None else Path(self.ledger),
            self.cap,
            dict(self.settings or {}),
        )
        options.check()
        return options

    def _check_model(self, method: str, model: str | None) -> None:
        if model is not None and model not in MODELS[method]:
            raise UserError(f"Expected model as one of {', '.join(MODELS[method])} for {method}, got '{model}'.")

    def _read_private(self, X: Any) -> tuple[torch.Tensor, list[bytes], Bounds]:
        """Images, or rows within the bounds, to be fitted; what the ledger knows them by; and the bounds."""
        array = _array(X)
        if array.ndim in (3, 4):
            x = images_of(np.asarray(array))
            self.n_features_in_ = math.prod(x.shape[1:])
            return x, prints_of(x.numpy()), declared_bounds((0.0, 1.0), 1)
        rows = validate_data(self, array, dtype=np.float64)
        bounds = declared_bounds(self.bounds, rows.shape[1])
        return _within(rows, bounds).float(), prints_of(rows), bounds

    def _read(self, X: Any) -> torch.Tensor:
        """The same for records that are to be classified."""
        array, task = _array(X), self._fitted.task
        if task.kind == "image" or array.ndim in (3, 4):
            if array.ndim < 3 or task.kind == "table" or (x := images_of(np.asarray(array))).shape[1:] != task.shape:
                raise UserError(f"Expected records of shape {task.shape} as fitted, got an array of {array.shape}.")
            return x
        return _within(validate_data(self, array, reset=False, dtype=np.float64), self._bounds)

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self, "classes_")
        scores = logits_of(self._models[self.model_], self._read(X), device=self._fitted.task.device)
        found: Array = scores.double().numpy()
        return found


def _array(X: Any) -> Any:
    """What has dimensions stays what it is, with the names of its columns; lists and tensors become arrays."""
    if isinstance(X, torch.Tensor):
        return X.detach().cpu().numpy()
    return X if hasattr(X, "ndim") else np.asarray(X)


def _within(rows: Array, bounds: Bounds) -> torch.Tensor:
    """Rows with the declared bounds at -1 and 1; what lies outside is clipped."""
    low, high = bounds
    return torch.from_numpy(2.0 * (rows.clip(low, high) - low) / (high - low) - 1.0)


def declared_bounds(bounds: tuple[Any, Any], columns: int) -> Bounds:
    """The lowest and the highest value of each column, as it was declared."""
    try:
        low, high = (np.broadcast_to(np.asarray(part, np.float64), (columns,)) for part in bounds)
    except (TypeError, ValueError):
        raise UserError(
            f"Expected bounds as (lowest, highest), each one number or one for each of {columns} columns, got "
            f"{bounds!r}."
        ) from None
    if not (np.isfinite(high - low) & (low < high)).all():
        raise UserError(f"Expected bounds with lowest < highest in every column, got {bounds!r}.")
    return low, high


def _made(fitted: Fitted, model: str) -> Mapping[str, nn.Module]:
    """The models of a release that come with the one that is asked for; images only where it needs them."""
    way, items, task = fitted.way, fitted.made.release.items, fitted.task
    key = Key.seed(fitted.options.seed or 0)
    if way.heads is not None and model != NETWORK:
        made = way.heads(fitted.settings, task, items, key)
    else:
        made = way.method.server(fitted.settings, task, State(0, {}), {task.sites[0]: items}, key)
    assert way.method.models is not None
    return way.method.models(fitted.settings, task, made)
