"""One data holder, no federation: a DDP-beta-VAE of encoded records, scikit-learn style."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from prismfl.core.job import Job
from prismfl.core.once import Holder, release_once
from prismfl.core.payloads import Payload
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.data.ids import unit_codes
from prismfl.data.prints import bag_prints, vector_prints
from prismfl.errors import UserError
from prismfl.methods.generators import threedgl
from prismfl.methods.generators.ddp_vae import METHOD, SITE, solve
from prismfl.methods.generators.threedgl import Config
from prismfl.privacy import account
from prismfl.rng import Key


class DDPVAE:
    """`fit(x, y)` on encoded records, then `sample(n)`. Everything that `fit` keeps is differentially private.

    `records` is the public number of records, `classes` the public number of classes. Without labels (a regression
    table, with its target as a column) one generator is trained. `seed` makes a simulation that can be repeated and
    protects nobody; without it the noise comes from the operating system. `unit` in `fit` numbers the person behind
    each record: the same person has the same number in every fit. Every fit is charged to the one lasting ledger of the
    user, or to the one in the folder `ledger`.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        *,
        records: int,
        classes: int = 1,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
        ledger: str | Path | None = None,
        cap: float | None = None,
        **settings: Any,
    ) -> None:
        account.check_epsilon(epsilon)
        account.check_delta(delta)
        self.epsilon, self.delta, self.records, self.classes, self.seed = epsilon, delta, records, classes, seed
        self.settings = Config(columns=None if columns is None else tuple(columns), **settings)
        self.ledger, self.cap = None if ledger is None else Path(ledger), cap
        self._pool: dict[str, Payload] | None = None

    def fit(
        self,
        x: torch.Tensor,
        y: torch.Tensor | None = None,
        unit: torch.Tensor | None = None,
        *,
        name: str | None = None,
    ) -> DDPVAE:
        labels = torch.zeros(len(x), dtype=torch.int64) if y is None else y
        if len(labels) != len(x):
            raise UserError(f"Expected as many labels as records, got {len(labels)} and {len(x)}.")
        if y is None and self.classes > 1:
            raise UserError(f"Expected labels for {self.classes} classes, got none.")
        task = self._task(tuple(x.shape[1:]), "record" if unit is None else "unit")
        self.config_, self.task_ = solve(self.settings, task, self.epsilon), task
        job = Job("synth", METHOD, self.config_, task, self.seed or 0)
        prints = vector_prints(x.flatten(1).numpy()) + bag_prints(x.flatten(1).tolist())
        if unit is not None:
            if unit.shape != labels.shape or unit.is_floating_point():
                raise UserError(f"Expected a whole number a record as unit, got {tuple(unit.shape)} of {unit.dtype}.")
            unit = torch.from_numpy(unit_codes(unit.tolist(), "unit"))
        holder = Holder(Records(x, labels, unit), prints, name, self.ledger, self.cap, deployed=self.seed is None)
        made = release_once(job, holder)
        self._pool = {f"{threedgl.PREFIX}{SITE}": made.release.items["generator"]}
        self.cost_, self.noise_, self.total_ = made.release.cost, made.release.noise, made.total
        self.guarantee_ = made.guarantee()
        self.epsilon_ = account.epsilon(self.cost_, self.delta)
        return self

    def sample(self, count: int, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Records and labels, about `count` of them; post-processing, so it may be called as often as wanted."""
        if self._pool is None:
            raise UserError("Expected a fitted synthesizer; call fit first.")
        return threedgl.sample_pool(self.config_, self.task_, self._pool, count, key=Key.seed(seed).child("sample"))

    @property
    def generator_(self) -> Payload:
        """What may leave: the decoders."""
        if self._pool is None:
            raise UserError("Expected a fitted synthesizer; call fit first.")
        return self._pool[f"{threedgl.PREFIX}{SITE}"]

    def _task(self, shape: tuple[int, ...], unit: str) -> Task:
        names = tuple(str(c) for c in range(max(1, self.classes)))
        return Task("own data", shape, names, (SITE,), self.records, "mlp", unit=unit, delta=self.delta)
