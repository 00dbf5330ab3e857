"""One data holder's one release: what it was asked with, how it is made and charged, and the certificate of it.

`Synthesizer` and `PrismClassifier` come through here: options are checked, settings that were not given are chosen,
the release is made by `core.once` and charged, and the certificate says what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from prismfl.core.job import Job
from prismfl.core.once import Holder, Made, release_once
from prismfl.core.task import Task
from prismfl.data import load_public
from prismfl.data.parts import Parts
from prismfl.data.parts_file import parts_words
from prismfl.data.public_rows import load_public_rows
from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder
from prismfl.privacy import account
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.encoders import encoder_of, ready
from prismfl.runs.planning import tuned
from prismfl.runs.result import pretrained_on
from prismfl.sources import DEPLOYMENT, NO_PROTECTION
from prismfl.synth.ways import Way, way_of
from prismfl.version import __version__


@dataclass(frozen=True)
class Options:
    """How a release is asked for; all of it public. `settings` are the method's own."""

    epsilon: float
    delta: float
    public: str | torch.Tensor | None = None
    public_count: int = 2000
    data_dir: str | None = None
    encoder: str | Encoder | None = None
    tuning: str | None = None
    records: int | None = None
    seed: int | None = None
    ledger: Path | None = None
    cap: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    public_text: str | None = None

    def check(self) -> None:
        """Refuse what cannot be."""
        account.check_epsilon(self.epsilon)
        account.check_delta(self.delta)
        if self.records is not None and self.records < 1:
            raise UserError(f"Expected records >= 1, got {self.records}.")
        if self.settings.get("sigma") is not None:
            raise UserError(f"Give epsilon or sigma, not both (got {self.epsilon} and {self.settings['sigma']}).")

    @property
    def source(self) -> str:
        """Where the public images come from, in words."""
        return "given by the caller" if isinstance(self.public, torch.Tensor) else self.public or "procedural"

    def settings_of(self, way: Way, given: Mapping[str, Any] | None = None) -> Any:
        """These settings, or further ones, as the method's own."""
        values = self.settings if given is None else given
        found = validate(way.method.settings, values, f"the settings of {way.method.name}")
        if found.rounds != 1:
            raise UserError(f"One holder releases once: expected rounds 1, got {found.rounds}.")
        return found

    def choose(self, way: Way, task: Task) -> tuple[Any, tuple[str, ...]]:
        """The settings with what was not given chosen, where that is wanted, and why."""
        values = {"epsilon": self.epsilon, "delta": self.delta, "tuning": self.tuning, "settings": dict(self.settings)}
        config: RunConfig = validate(RunConfig, values, "the arguments")
        config, words = tuned(config, task, way.method)
        settings = self.settings_of(way, config.settings)
        return settings.model_copy(update={"sigma": way.sigma(settings, task, self.epsilon)}), words

    def task(
        self,
        way: Way,
        shape: tuple[int, ...],
        classes: tuple[str, ...],
        *,
        data: str,
        unit: str,
        parts: Parts | None = None,
    ) -> Task:
        """The public facts of the release."""
        name, records = way.method.name, self.records or way.records
        if parts is None and ("image" if len(shape) == 3 else "table") not in way.method.kinds:
            raise UserError(f"Expected images for {name}, got a table; leave out the method, or give 'ddp-vae'.")
        if records is None:
            raise UserError(f"Expected a public (rounded) number of records for {name}: give records=.")
        if self.public is not None and not way.method.needs_public:
            raise UserError(f"Expected no public images for {name}; it needs none.")
        public = self._images(shape, parts) if way.method.needs_public else None
        task = Task(data, shape, classes, (way.site,), records, way.model, unit=unit, delta=self.delta, public=public)
        task = replace(task, parts=parts)
        return replace(task, encoder=ready(self._encoder(way), task))

    def _encoder(self, way: Way) -> Encoder | None:
        if self.encoder in (None, "none") or (self.encoder == "auto" and not way.method.takes_encoder):
            return None
        if not way.method.takes_encoder:
            raise UserError(f"Method '{way.method.name}' looks through no public encoder; leave out encoder=.")
        if isinstance(self.encoder, Encoder):
            return self.encoder
        return encoder_of(validate(RunConfig, {"encoder": self.encoder}, "the arguments"), way.method)

    def _images(self, shape: tuple[int, ...], parts: Parts | None = None) -> torch.Tensor:
        if parts is not None and not isinstance(self.public, torch.Tensor):
            asked: dict[str, Any] = {"count": self.public_count, "key_seed": self.seed or 0, "data_dir": self.data_dir}
            return load_public_rows(parts, images=self.source, text=self.public_text, **asked).images
        if not isinstance(self.public, torch.Tensor):
            size, seed = (shape[0], shape[1], shape[2]), self.seed or 0
            return load_public(
                self.source, shape=size, count=self.public_count, key_seed=seed, data_dir=self.data_dir
            ).images
        if tuple(self.public.shape[1:]) != shape:
            raise UserError(f"Expected public images of shape {shape}, got {tuple(self.public.shape[1:])}.")
        return self.public


@dataclass(frozen=True)
class Fitted:
    """A release that was made, and all that is public about it. The method goes by its name, so that it can be kept."""

    options: Options
    method: str
    settings: Any
    task: Task
    made: Made
    chosen: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def way(self) -> Way:
        """The way that it was made."""
        return way_of(self.method)

    def certificate(self) -> dict[str, Any]:
        """The promise and how it is kept, for whoever receives the release: declared facts, and what was released."""
        task, cost, noise = self.task, self.made.release.cost, self.made.release.noise
        epsilon, settings = account.epsilon(cost, task.delta), self.settings.model_dump(mode="json")
        promise = f"({epsilon:.4g}, {task.delta:g})-differentially private; unit {task.unit}."
        how = {**self.way.mechanism(self.settings, task), "sigma": settings["sigma"], "cost": cost.to_json()}
        found = {
            "schema_version": 2,
            "statement": promise if noise == DEPLOYMENT else f"{NO_PROTECTION} (the noise is seeded).",
            "guarantee": self.made.guarantee(),
            "method": self.way.name(self.settings),
            "data": task.data,
            "epsilon": epsilon,
            "epsilon_asked": self.options.epsilon,
            "delta": task.delta,
            "unit": cost.unit,
            "relation": cost.relation,
            "noise": noise,
            "total_so_far": self.made.total,
            "mechanism": how,
            "cost": cost.to_json(),
            "records": task.records,
            "classes": list(task.classes),
            "settings": settings,
            "settings_chosen": list(self.chosen),
            "release_digest": next(iter(self.made.release.items.values())).digest,
            "not_protected": "properties of the whole group; declared classes and sizes; that the release was made",
            "warnings": list(self.warnings),
            "software": f"prismfl {__version__}",
        }
        if task.kind == "image":
            found["image_shape"] = list(task.shape)
        if task.parts is not None:
            found["parts"] = parts_words(task.parts)["parts"]
            found["public_text"] = self.options.public_text or "written by the grammar"
        if task.public is not None:
            found["public_images"] = self.options.source
        if task.encoder is not None:
            looked = pretrained_on(task)
            trained = f", trained on {looked}" if looked else ", not pretrained"
            found["public_encoder"] = f"{task.encoder.name}{trained}"
            found["public_encoder_digest"] = task.encoder.digest
        return found


def release(
    options: Options,
    way: Way,
    holder: Holder,
    *,
    classes: tuple[str, ...],
    data: str | None = None,
    unit: str = "record",
    warnings: Sequence[str] = (),
    parts: Parts | None = None,
) -> Fitted:
    """The one release of a holder's records. What does not fit is refused before anything is charged."""
    shape = tuple(holder.records.x.shape[1:])
    task = options.task(way, shape, classes, data=data or way.data, unit=unit, parts=parts)
    settings, words = options.choose(way, task)
    job = Job("synth", way.method, settings, task, options.seed or 0)
    way.method.init(settings, task, job.key)
    made = release_once(job, holder, ledger=options.ledger, cap=options.cap, deployed=options.seed is None)
    return Fitted(options, way.method.name, settings, task, made, words, tuple(warnings))
