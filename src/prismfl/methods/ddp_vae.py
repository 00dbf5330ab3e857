"""DDP-beta-VAE (Lomurno et al. 2022) as a synthesizer of its own: one holder of records, one generator a class.

What leaves: once, the decoders. The method `ddp-vae` is 3DGL with all records in one place; `DDPVAE` is the same thing
in scikit-learn's manner, for use in a program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from prismfl.boundary import PrivateRecords, Records
from prismfl.errors import UserError
from prismfl.method import Site, State, Task
from prismfl.methods import threedgl
from prismfl.methods.threedgl import Config
from prismfl.payloads import Payload
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

SITE = "site-0"

METHOD = dataclasses.replace(
    threedgl.METHOD, name="ddp-vae", summary="one DP beta-VAE a class, trained on all records in one place", pooled=True
)


def solve(cfg: Config, task: Task, epsilon: float) -> Config:
    """The settings with sigma solved from epsilon over the whole plan."""

    def cost(sigma: float) -> Cost:
        return threedgl.plan(cfg.model_copy(update={"sigma": sigma}), task)

    return cfg.model_copy(update={"sigma": account.calibrate(cost, epsilon, task.delta)})


class DDPVAE:
    """`fit(x, y)` on encoded records, then `sample(n)`. Everything that `fit` keeps is differentially private.

    `records` is the public number of records, `classes` the public number of classes. Without labels (a regression
    table, with its target as a column) one generator is trained. `seed` makes a simulation that can be repeated;
    without it the noise comes from the operating system. `unit` in `fit` numbers the person behind each record.
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
        **settings: Any,
    ) -> None:
        account.check_epsilon(epsilon)
        account.check_delta(delta)
        self.epsilon, self.delta, self.records, self.classes, self.seed = epsilon, delta, records, classes, seed
        self.settings = Config(columns=None if columns is None else tuple(columns), **settings)
        self._pool: dict[str, Payload] | None = None

    def fit(self, x: torch.Tensor, y: torch.Tensor | None = None, unit: torch.Tensor | None = None) -> DDPVAE:
        labels = torch.zeros(len(x), dtype=torch.int64) if y is None else y
        if len(labels) != len(x):
            raise UserError(f"Expected as many labels as records, got {len(labels)} and {len(x)}.")
        if y is None and self.classes > 1:
            raise UserError(f"Expected labels for {self.classes} classes, got none.")
        task = self._task(tuple(x.shape[1:]), "record" if unit is None else "unit")
        self.config_, self.task_ = solve(self.settings, task, self.epsilon), task
        entropy = Key.from_os() if self.seed is None else Key.seed(self.seed)
        door = PrivateRecords(
            Records(x, labels, unit),
            declared=self.records,
            classes=max(1, self.classes),
            noise=entropy.child("noise").noise(),
            unit=task.unit,
            allow_exact=False,
        )
        items, _ = threedgl.client(self.config_, State(0, {}), Site(SITE, door, {}, task), entropy.child("client"))
        self._pool = {f"{threedgl.PREFIX}{SITE}": items["generator"]}
        self.cost_, self.noise_ = door.meter.cost, door.noise_source
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
