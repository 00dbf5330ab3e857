"""One data holder, no federation: fit a synthesizer on private images and sample from it, scikit-learn style.

`prismfl.create("prism", epsilon=1.0, delta=1e-5).fit(X, y).sample(n)`
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl import __version__
from prismfl.core.job import Job
from prismfl.core.once import Holder, Made, release_once
from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.core.task import Task
from prismfl.data import load_public
from prismfl.data.prints import picture_print
from prismfl.errors import UserError
from prismfl.methods.prism import prism, statistics
from prismfl.methods.prism.head import read_releases
from prismfl.privacy import account
from prismfl.rng import Key
from prismfl.runs.config import validate

SITE = "holder"


def create(name: str, *, epsilon: float, delta: float = 1e-5, **options: Any) -> PrismSynthesizer:
    """A synthesizer by name, not yet fitted. Options: `public`, `seed`, `ledger`, `cap`, and the method's settings."""
    if name != "prism":
        raise UserError(f"Unknown synthesizer '{name}'; for images there is 'prism', for tables use prismfl synth.")
    return PrismSynthesizer(epsilon=epsilon, delta=delta, **options)


class PrismSynthesizer:
    """PRISM for a single site. `fit` makes the one noisy release; `sample` is post-processing and costs nothing.

    With a seed the noise can be recomputed (simulation: no protection); without one it comes from the operating system.
    Every fit is charged to the user's one lasting ledger, or to the one in the folder `ledger`.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 1e-5,
        public: str | torch.Tensor = "procedural",
        public_count: int = 2000,
        data_dir: str | None = None,
        seed: int | None = None,
        ledger: str | Path | None = None,
        cap: float | None = None,
        **settings: Any,
    ) -> None:
        account.check_epsilon(epsilon)
        account.check_delta(delta)
        self.epsilon, self.delta, self.seed, self.cap = epsilon, delta, seed, cap
        self.public, self.public_count, self.data_dir = public, public_count, data_dir
        self.ledger = None if ledger is None else Path(ledger)
        drawn = account.gaussian_sigma(epsilon, delta) * (1 + 1e-6)  # on the safe side of rounding
        self.settings: prism.Config = validate(prism.Config, {**settings, "sigma": drawn}, "the settings of prism")
        self._fitted: tuple[Job, Made] | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        classes: Sequence[str] | int | None = None,
        name: str | None = None,
        records: int = 1000,
        prints: Sequence[bytes] | None = None,
    ) -> PrismSynthesizer:
        """Release the statistics of images X (n, h, w) or (n, c, h, w), bytes or [0, 1], with labels y from 0.

        `classes` declares the classes; without it their number is read off the labels and counts as public. `records`
        is a public order of magnitude, never the exact number. `name` declares the data on the ledger, which knows
        their records under any name; `prints` are what a reader has fingerprinted them by.
        """
        x, labels = _images(X), torch.as_tensor(np.asarray(y), dtype=torch.int64)
        if len(x) != len(labels):
            raise UserError(f"Expected as many labels as images, got {len(labels)} and {len(x)}.")
        if classes is None:
            classes = int(labels.max()) + 1 if len(labels) else 1
        names = tuple(str(i) for i in range(classes)) if isinstance(classes, int) else tuple(classes)
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
            raise UserError(f"Expected labels from 0 to {len(names) - 1} for {len(names)} declared classes.")
        job = Job("synth", prism.METHOD, self.settings, self._task(x, names, records), self.seed or 0)
        own = prints if prints is not None else [picture_print(image) for image in x.numpy()]
        holder = Holder(Records(x, labels), own, name, self.ledger, self.cap, deployed=self.seed is None)
        self._fitted = (job, release_once(job, holder))
        return self

    def sample(self, n: int, *, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """`n` synthetic images as bytes (n, c, h, w) with their labels, classes in turn."""
        made = self.synthetic_set(-(-n // len(self._job.task.classes)), seed=seed)
        classes, each = len(self._job.task.classes), -(-n // len(self._job.task.classes))
        order = torch.arange(classes * each).reshape(classes, each).T.flatten()[:n]
        return made.tensors["x"][order].numpy(), made.y[order].numpy()

    def synthetic_set(self, per_class: int, *, seed: int = 0) -> SyntheticSet:
        """`per_class` images of every declared class."""
        cfg = self.settings.model_copy(update={"images": per_class})
        task, release = self._job.task, self.release
        enc, pooled = read_releases(cfg, task, {SITE: release.items})
        return SyntheticSet.of(*prism.synthesise(cfg, task, enc, pooled, Key.seed(seed).child("images")))

    def seeds(self, per_class: int, *, seed: int = 0) -> torch.Tensor:
        """The public images that `synthetic_set` starts from."""
        count = per_class * len(self._job.task.classes)
        return prism.public_seeds(self._job.task, count, Key.seed(seed).child("images"))

    @property
    def _job(self) -> Job:
        if self._fitted is None:
            raise UserError("This synthesizer has not been fitted; call fit(X, y) first.")
        return self._fitted[0]

    @property
    def release(self) -> Release:
        self._job  # noqa: B018 - says clearly that fit comes first
        assert self._fitted is not None
        return self._fitted[1].release

    @property
    def ledger_path(self) -> Path:
        """The ledger that the release was charged to."""
        self._job  # noqa: B018 - says clearly that fit comes first
        assert self._fitted is not None
        return self._fitted[1].ledger

    def certificate(self) -> dict[str, Any]:
        """What was promised and how, for whoever receives the images."""
        cost, task = self.release.cost, self._job.task
        assert self._fitted is not None
        made = self._fitted[1]
        form = statistics.row_layout(self.settings, task)
        return {
            "software": f"prismfl {__version__}",
            "method": "prism",
            "epsilon": account.epsilon(cost, self.delta),
            "epsilon_asked": self.epsilon,
            "delta": self.delta,
            "unit": cost.unit,
            "relation": cost.relation,
            "guarantee": made.guarantee(),
            "total_so_far": made.total,
            "mechanism": {
                "name": "one Gaussian release of class sums and the pooled second moment",
                "sensitivity": 1.0,
                "sigma": self.settings.noise,
                "numbers": len(task.classes) * form.width + form.second * (form.second + 1) // 2,
                "cost": cost.to_json(),
            },
            "noise": self.release.noise,
            "classes": list(task.classes),
            "image_shape": list(task.shape),
            "public_images": self.public if isinstance(self.public, str) else "given by the caller",
            "release_digest": self.release.items["statistics"].digest,
            "not_protected": "properties of the whole group; declared classes and sizes; that the release was made",
        }

    def _task(self, x: torch.Tensor, classes: tuple[str, ...], records: int) -> Task:
        shape = (int(x.shape[1]), int(x.shape[2]), int(x.shape[3]))
        public = self.public
        if isinstance(public, str):
            public = load_public(
                public, shape=shape, count=self.public_count, key_seed=self.seed or 0, data_dir=self.data_dir
            ).images
        if tuple(public.shape[1:]) != shape:
            raise UserError(f"Expected public images of shape {shape}, got {tuple(public.shape[1:])}.")
        return Task(
            data="own",
            shape=shape,
            classes=classes,
            sites=(SITE,),
            records=records,
            public=public,
            delta=self.delta,
        )


def _images(X: Any) -> torch.Tensor:
    array = np.asarray(X)
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise UserError(f"Expected images as (n, h, w) or (n, channels, h, w) with 1 or 3 channels, got {array.shape}.")
    x = torch.tensor(array, dtype=torch.float32)
    if array.dtype == np.uint8:
        return x / 255.0
    if len(x) and not (float(x.min()) >= 0.0 and float(x.max()) <= 1.0):
        raise UserError("Expected image values as bytes or in [0, 1].")
    return x
