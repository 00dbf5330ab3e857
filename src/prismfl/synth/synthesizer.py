"""One data holder, no federation: fit a synthesizer on private records, then sample from it as often as you like.

`Synthesizer(epsilon=1.0).fit(X, y).sample(100)` on images, or on an encoded table with its declared columns. All ways
come through `fit_records`: options are checked, the release is made and charged, and the certificate says what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.core.job import Job
from prismfl.core.once import Holder, Made, release_once
from prismfl.core.release import Release
from prismfl.core.task import Encodes, Task
from prismfl.data import load_public
from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder
from prismfl.privacy import account
from prismfl.rng import Key
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.encoders import encoder_of, ready, with_layers
from prismfl.runs.result import pretrained_on
from prismfl.sources import DEPLOYMENT, NO_PROTECTION
from prismfl.synth.arrays import read_arrays
from prismfl.synth.ways import WAYS, Way
from prismfl.version import __version__


class Synthesizer:
    """`fit` makes the one differentially private release; `sample` is post-processing and costs nothing.

    `method` is "prism" for images and "ddp-vae" for tables unless it is said; `settings` are its own. `records` is a
    public number of records, rounded; a table needs it. `classes` declares the classes, by number or by name; without
    it their number is read off the labels and counts as public. `public` are images that may be known (a name, a folder
    or a tensor), for methods that need them. `encoder` is a public encoder that images are looked at through: a name,
    or an `nets.encoders.base.Encoder`. With a `seed` the noise can be recomputed (a simulation: no protection); without
    one it comes from the operating system. Every fit is charged to the user's one lasting ledger, or to the one
    in the folder `ledger`, and refused beyond `cap`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        method: str | None = None,
        public: str | torch.Tensor | None = None,
        public_count: int = 2000,
        encoder: str | Encoder | None = None,
        data_dir: str | None = None,
        records: int | None = None,
        classes: Sequence[str] | int | None = None,
        seed: int | None = None,
        ledger: str | Path | None = None,
        cap: float | None = None,
        **settings: Any,
    ) -> None:
        account.check_epsilon(epsilon)
        account.check_delta(delta)
        if method is not None and method not in WAYS:
            raise UserError(f"Unknown synthesizer '{method}'; for images there is 'prism', for tables 'ddp-vae'.")
        if records is not None and records < 1:
            raise UserError(f"Expected records >= 1, got {records}.")
        if settings.get("sigma") is not None:
            raise UserError(f"Give epsilon or sigma, not both (got {epsilon} and {settings['sigma']}).")
        self.epsilon, self.delta, self.method, self.records, self.classes = epsilon, delta, method, records, classes
        self.public, self.public_count, self.data_dir = public, public_count, data_dir
        self.encoder = encoder
        self.seed, self.ledger, self.cap = seed, None if ledger is None else Path(ledger), cap
        self._options = settings
        self._fitted: tuple[Way, Job, Made] | None = None
        if method is not None:
            self._settings(WAYS[method])

    def fit(self, X: Any, y: Any = None, unit: Any = None, *, name: str | None = None) -> Synthesizer:
        """Release images (n, h, w) or (n, c, h, w), bytes or in [0, 1], or an encoded table (n, columns).

        Labels `y` are whole numbers from 0; a table without them gets one generator. `unit` is the id of the person
        behind each record, the same in every fit: then people are protected, not records. `name` declares the data on
        the ledger, which knows their records under any name.
        """
        records, prints = read_arrays(X, y, unit)
        if y is None and self.classes is not None and len(_names(self.classes)) > 1:
            raise UserError(f"Expected labels for {len(_names(self.classes))} classes, got none.")
        return self.fit_records(Holder(records, prints, name), unit="record" if unit is None else "unit")

    def fit_records(self, holder: Holder, *, data: str | None = None, unit: str = "record") -> Synthesizer:
        """The same for records that a reader has found, with the names that they and their unit are declared by."""
        shape = tuple(holder.records.x.shape[1:])
        way = WAYS[self.method or ("prism" if len(shape) == 3 else "ddp-vae")]
        task = self._task(way, shape, self._classes(holder.records.y), data=data or way.data, unit=unit)
        settings = self._settings(way, task.encoder)
        settings = settings.model_copy(update={"sigma": way.sigma(settings, task, self.epsilon)})
        job = Job("synth", way.method, settings, task, self.seed or 0)
        way.method.init(settings, task, job.key)  # refuses what does not fit before anything is charged
        made = release_once(job, holder, ledger=self.ledger, cap=self.cap, deployed=self.seed is None)
        self._fitted = (way, job, made)
        return self

    def sample(self, n: int, *, seed: int | None = 0) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """`n` synthetic images as bytes (n, c, h, w), classes in turn, or about `n` encoded rows; and their labels.

        The same seed gives the same records; None draws anew.
        """
        way, job, made = self._found
        if n < 1:
            raise UserError(f"Expected n >= 1, got {n}.")
        key = Key.from_os() if seed is None else Key.seed(seed)
        x, y = way.draw(job.settings, job.task, made.release.items, n, key)
        return x.numpy(), y.numpy()

    def certificate(self) -> dict[str, Any]:
        """The promise and how it is kept, for whoever receives the records: declared facts, and what was released."""
        way, job, made = self._found
        task, cost, noise = job.task, made.release.cost, made.release.noise
        epsilon, settings = account.epsilon(cost, task.delta), job.settings.model_dump(mode="json")
        promise = f"({epsilon:.4g}, {task.delta:g})-differentially private; unit {task.unit}."
        how = {**way.mechanism(job.settings, task), "sigma": settings["sigma"], "cost": cost.to_json()}
        found = {
            "schema_version": 2,
            "statement": promise if noise == DEPLOYMENT else f"{NO_PROTECTION} (the noise is seeded).",
            "guarantee": made.guarantee(),
            "method": way.method.name,
            "data": task.data,
            "epsilon": epsilon,
            "epsilon_asked": self.epsilon,
            "delta": task.delta,
            "unit": cost.unit,
            "relation": cost.relation,
            "noise": noise,
            "total_so_far": made.total,
            "mechanism": how,
            "cost": cost.to_json(),
            "records": task.records,
            "classes": list(task.classes),
            "settings": settings,
            "release_digest": next(iter(made.release.items.values())).digest,
            "not_protected": "properties of the whole group; declared classes and sizes; that the release was made",
            "software": f"prismfl {__version__}",
        }
        if task.kind == "image":
            found["image_shape"] = list(task.shape)
        if task.public is not None:
            found["public_images"] = self._source
        if task.encoder is not None:
            looked = pretrained_on(task)
            trained = f", trained on {looked}" if looked else ", not pretrained"
            found["public_encoder"] = f"{task.encoder.name}{trained}"
            found["public_encoder_digest"] = task.encoder.digest
        return found

    @property
    def release(self) -> Release:
        """What left: the noisy statistics, or the decoders."""
        return self._found[2].release

    @property
    def ledger_path(self) -> Path:
        """The ledger that the release was charged to."""
        return self._found[2].ledger

    @property
    def settings(self) -> Any:
        """The method's settings, with the noise that meets epsilon."""
        return self._found[1].settings

    @property
    def task(self) -> Task:
        """The public facts of the release."""
        return self._found[1].task

    @property
    def _found(self) -> tuple[Way, Job, Made]:
        if self._fitted is None:
            raise UserError("This synthesizer has not been fitted; call fit(X, y) first.")
        return self._fitted

    def _settings(self, way: Way, encoder: Encodes | None = None) -> Any:
        options = with_layers(self._options, encoder)
        found = validate(way.method.settings, options, f"the settings of {way.method.name}")
        if found.rounds != 1:
            raise UserError(f"A synthesizer releases once: expected rounds 1, got {found.rounds}.")
        return found

    def _classes(self, y: torch.Tensor) -> tuple[str, ...]:
        top = int(y.max()) if len(y) else 0
        names = _names(top + 1 if self.classes is None else self.classes)
        if len(y) and not 0 <= int(y.min()) <= top < len(names):
            raise UserError(f"Expected labels from 0 to {len(names) - 1} for {len(names)} declared classes.")
        return names

    def _task(self, way: Way, shape: tuple[int, ...], classes: tuple[str, ...], *, data: str, unit: str) -> Task:
        name, records = way.method.name, self.records or way.records
        if ("image" if len(shape) == 3 else "table") not in way.method.kinds:
            raise UserError(f"Expected images for {name}, got a table; leave out the method, or give 'ddp-vae'.")
        if records is None:
            raise UserError(f"Expected a public (rounded) number of records for {name}: give records=.")
        if self.public is not None and not way.method.needs_public:
            raise UserError(f"Expected no public images for {name}; it needs none.")
        public = self._public(shape) if way.method.needs_public else None
        task = Task(data, shape, classes, (way.site,), records, way.model, unit=unit, delta=self.delta, public=public)
        return replace(task, encoder=ready(self._encoder(way), task))

    def _encoder(self, way: Way) -> Encoder | None:
        if not isinstance(self.encoder, Encoder):
            return encoder_of(RunConfig(encoder=self.encoder), way.method)
        if not way.method.takes_encoder:
            raise UserError(f"Expected no public encoder for {way.method.name}; it looks through none.")
        return self.encoder

    @property
    def _source(self) -> str:
        return "given by the caller" if isinstance(self.public, torch.Tensor) else self.public or "procedural"

    def _public(self, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(self.public, torch.Tensor):
            size, seed = (shape[0], shape[1], shape[2]), self.seed or 0
            return load_public(
                self._source, shape=size, count=self.public_count, key_seed=seed, data_dir=self.data_dir
            ).images
        if tuple(self.public.shape[1:]) != shape:
            raise UserError(f"Expected public images of shape {shape}, got {tuple(self.public.shape[1:])}.")
        return self.public


def _names(classes: Sequence[str] | int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(max(1, classes))) if isinstance(classes, int) else tuple(classes)
