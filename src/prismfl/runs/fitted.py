"""The models of a finished run as one uses them: scikit-learn's `predict`, `predict_proba` and `classes_`.

A run directory may come from anybody. No code that it names is imported, sizes are bounded before room is made for
them, and weights that do not fit are one clear line. No record is needed: a head that looks through public images or an
encoder gets those again, and they must be the ones that the run had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from prismfl.core.job import Job
from prismfl.core.method import Settings
from prismfl.core.payloads import MAX_BYTES, Payload
from prismfl.data import Schema, load_public
from prismfl.data.public_rows import load_public_rows
from prismfl.data.schema import listed
from prismfl.errors import UserError
from prismfl.metrics.utility import logits_of
from prismfl.nets.classifier import size_of
from prismfl.nets.encoders.base import Encoder
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.description import images_digest
from prismfl.runs.directory import RunDirectory
from prismfl.runs.encoders import encoder_of
from prismfl.runs.models import models_of
from prismfl.runs.parted import parted
from prismfl.runs.planning import find_method, task_of
from prismfl.runs.public_facts import PublicFacts, read_facts
from prismfl.runs.result import state_digest

Array = npt.NDArray[Any]

MOST_PUBLIC = 2**30  # numbers in all public images together
MOST_SETTING = 100_000  # of what the size of public features follows from
SIZES = ("networks", "width", "depth", "views", "atoms", "patch", "pool", "colour", "rank")
BATCH, NUMBERS = 250, 2**22  # records at a time, and numbers in them


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model of a finished run. Images are (n, h, w) or (n, c, h, w), as bytes or in [0, 1]; a table's rows are
    encoded (n, columns), or its own columns by their names (a DataFrame, a dict of lists).

    `predict` answers with names of the declared classes.
    """

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    module: nn.Module
    schema: Schema | None = None

    @property
    def classes_(self) -> Array:
        """The names of the declared classes, in the order of the columns of `predict_proba`."""
        return np.asarray(self.classes)

    def predict(self, X: Any) -> Array:
        """The likeliest class of each record."""
        found: Array = self.classes_[self.decision_function(X).argmax(1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, a row a record."""
        return probabilities(self.decision_function(X))

    def decision_function(self, X: Any) -> Array:
        """The logit of each class, a row a record."""
        return self.logits(as_records(X, self.shape, schema=self.schema)).numpy()

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """The same of records that are tensors in the run's own shape already."""
        if not len(x):
            return torch.zeros(0, len(self.classes))
        step = max(1, min(BATCH, NUMBERS // math.prod(self.shape)))
        return torch.cat([logits_of(self.module, part) for part in torch.split(x, step)])


def probabilities(logits: Array) -> Array:
    """The softmax of rows of logits."""
    found: Array = torch.softmax(torch.from_numpy(np.asarray(logits, dtype=np.float64)), 1).numpy()
    return found


def as_records(X: Any, shape: tuple[int, ...], *, schema: Schema | None = None) -> torch.Tensor:
    """What a program hands over, as records of a shape; whatever else it is, is an error that says so."""
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        if schema is None:
            raise UserError("Expected an array: the run knows no columns by name.")
        X = schema.encode({name: list(X[name]) for name in (*schema.names, schema.unit or "") if name in X})
    array = X.detach().cpu().numpy() if isinstance(X, torch.Tensor) else np.asarray(X)
    if array.dtype.kind not in "biuf":
        raise UserError(f"Expected an array of numbers, got {array.dtype}; `prismfl predict` reads files.")
    wanted = _words(shape)
    if len(shape) == 3 and array.ndim == 3 and shape[0] == 1:
        array = array[:, None]
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        one = "; one record is X[None]" if array.shape in (shape, shape[1:]) and array.ndim > 0 else ""
        raise UserError(f"Expected records as {wanted}, got an array of shape {array.shape}{one}.")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise UserError(f"Expected finite numbers, got NaN or infinity in record {row} (the first is 0).")
    return _scaled(array) if len(shape) == 3 else torch.tensor(array, dtype=torch.float32)


def _words(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"(n, {shape[0]}), encoded rows"
    grey = f"(n, {shape[1]}, {shape[2]}) or " if shape[0] == 1 else ""
    return f"{grey}(n, {shape[0]}, {shape[1]}, {shape[2]})"


def _scaled(array: Array) -> torch.Tensor:
    if array.dtype == np.uint8:
        return torch.tensor(array, dtype=torch.float32) / 255.0
    if array.dtype.kind in "iu":
        raise UserError(f"Expected images as bytes (uint8) or as numbers in [0, 1], got {array.dtype}.")
    if array.size and not (float(array.min()) >= 0.0 and float(array.max()) <= 1.0):
        raise UserError(
            f"Expected images as bytes (uint8) or in [0, 1], got numbers from {array.min():g} to {array.max():g}."
        )
    return torch.tensor(array, dtype=torch.float32)


@dataclass(frozen=True, eq=False)
class Shelf:
    """The models of one finished run. One that needs no public images is made without them."""

    path: Path
    config: RunConfig
    facts: PublicFacts
    job: Job
    items: Mapping[str, Payload]
    source: str | None

    def take(self, name: str | None = None) -> FittedModel:
        """The model of this name; without one, the recommended."""
        if name is None and self.job.method.recommended is not None:
            name = self.job.method.recommended(self.job.settings)
        if self._quick and (name is None or name in self._quick):
            return self._quick[name or next(iter(self._quick))]
        found = self.every()
        if name is not None and name not in found:
            raise UserError(f"'{self.path}' has no model '{name:.80}'; it has {listed(found)}.")
        return found[name or next(iter(found))]

    def every(self) -> dict[str, FittedModel]:
        """All models by name."""
        return self._quick if self.job.method.models is None else self._whole

    @cached_property
    def _quick(self) -> dict[str, FittedModel]:
        return self._made(self.job)

    @cached_property
    def _whole(self) -> dict[str, FittedModel]:
        task = self.job.task
        looked = replace(task, public=self._public(), encoder=self._encoder())
        return self._made(replace(self.job, task=looked))

    def _made(self, job: Job) -> dict[str, FittedModel]:
        bad = UserError(
            f"The model in '{self.path}' does not fit its config: a tensor is missing or has another shape."
        )
        task, facts = job.task, self.facts
        try:
            found = models_of(job, self.items)
            for model in found.values():
                rows = logits_of(model.eval(), torch.zeros(2, *task.shape))
                if tuple(rows.shape) != (2, len(task.classes)) or not bool(rows.isfinite().all()):
                    raise bad
        except (RuntimeError, KeyError, AttributeError):  # what torch says of tensors that do not fit
            raise bad from None
        return {name: FittedModel(name, facts.classes, facts.shape, m, facts.schema) for name, m in found.items()}

    def _public(self) -> torch.Tensor:
        """The run's public images again."""
        task, config, source = self.job.task, self.config, self.source or "procedural"
        if config.public_count * math.prod(task.shape) > MOST_PUBLIC:
            raise UserError(f"'{self.path}' names {config.public_count:,} public images, more than are read here.")
        folder = config.data_dir if config.data_dir and Path(config.data_dir).is_dir() else None
        try:
            asked: dict[str, Any] = {"count": config.public_count, "key_seed": config.seed or 0, "data_dir": folder}
            if task.parts is not None:
                found = load_public_rows(task.parts, images=source, text=config.public_text, **asked).images
            else:
                channels, height, width = task.shape
                found = load_public(source, shape=(channels, height, width), **asked).images
        except UserError as error:
            raise UserError(
                f"The heads of '{self.path}' look through its public images ('{source}'), which are gone: {error}"
            ) from None
        if self.facts.public is not None and images_digest(found) != self.facts.public:
            raise UserError(
                f"The public images '{source}' are not the ones that '{self.path}' had: they have another digest."
            )
        return found

    def _encoder(self) -> Encoder | None:
        """The run's public encoder again."""
        name, facts = self.config.encoder, self.facts
        if name is not None and (":" in name or "/" in name):
            raise UserError(
                f"The heads of '{self.path}' look through the encoder '{name:.80}', which is not one of prismfl's own; "
                "what a run directory names is not loaded."
            )
        found = encoder_of(self.config, self.job.method)
        if self.job.task.parts is not None:
            found = parted(found, self.job.task.parts)
        if facts.encoder is not None and found is None:
            raise UserError(
                f"The heads of '{self.path}' look through the encoder '{facts.encoder:.80}', which is not installed; "
                "install it with: pip install 'prismfl[encoders]'."
            )
        if facts.encoder_digest is not None and (found is None or found.digest != facts.encoder_digest):
            raise UserError(f"The encoder here is not the one that '{self.path}' had: it has another digest.")
        return found


def open_shelf(directory: RunDirectory, identity: str, config: RunConfig) -> Shelf:
    """The models of a run directory; what is not finished, not at the server or not ours is one clear line."""
    path = directory.path
    method = find_method(config.method)
    if directory.status != "finished":
        raise UserError(f"'{path}' is not finished, so it has no model yet; go on with: prismfl resume {path}.")
    if method.model_at != "server":
        raise UserError(f"With method '{method.name}' each site keeps its own model; '{path}' has none.")
    state = directory.load_state()
    if state is None or "model" not in state.items:
        raise UserError(f"'{path}' holds no model.")
    if state_digest(state) != directory.read_json("result.json").get("digest"):
        raise UserError(f"The checkpoint of '{path}' is not what the run ended with: it has another digest.")
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    facts = read_facts(directory, config)
    task = replace(task_of(config, facts.spec(config.data), method), device="cpu")
    _check_sizes(path, settings, task.model, facts)
    job = Job(identity, method, settings, task, config.seed or 0)
    return Shelf(path, config, facts, job, state.items, _source(directory, config))


def _source(directory: RunDirectory, config: RunConfig) -> str | None:
    """Where the public images are: of a federation, where its server had them from."""
    if (directory.path / "federation.json").exists():
        told = directory.read_json("federation.json").get("public")
        return told if isinstance(told, str) else config.public
    return config.public


def _check_sizes(path: Path, settings: Settings, model: str, facts: PublicFacts) -> None:
    """Refuse what would not fit into memory, before room is made for it."""
    for name in SIZES:
        value = getattr(settings, name, 0)
        if isinstance(value, int) and value > MOST_SETTING:
            raise UserError(f"'{path}' has {name} = {value:,}; at most {MOST_SETTING:,} are read here.")
    if size_of(model, facts.shape, len(facts.classes)) * 4 > MAX_BYTES:
        raise UserError(f"The network '{model:.80}' of '{path}' is larger than a run can hold.")
