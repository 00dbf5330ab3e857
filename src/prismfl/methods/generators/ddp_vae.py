"""DDP-beta-VAE (Lomurno et al. 2022): one generator per class, trained on all records in one place.

Paper: Lomurno, Di Perna, Cazzella, Samele, Matteucci, "A Generative Federated Learning Framework for Differential
Privacy", 2022.

What leaves: once, the decoders. The method `ddp-vae` is 3DGL with all records in one place; `prismfl.Synthesizer` fits
and samples it for one data holder.
"""

from __future__ import annotations

import dataclasses

from prismfl.core.task import Task
from prismfl.methods.generators import threedgl
from prismfl.methods.generators.threedgl import Config
from prismfl.privacy import account
from prismfl.privacy.cost import Cost

SITE = "site-0"

METHOD = dataclasses.replace(
    threedgl.METHOD,
    name="ddp-vae",
    summary="one DP beta-VAE per class, trained on all records in one place",
    pooled=True,
)


def solve(cfg: Config, task: Task, epsilon: float) -> Config:
    """The settings with sigma solved from epsilon over the whole plan."""

    def cost(sigma: float) -> Cost:
        return threedgl.plan(cfg.model_copy(update={"sigma": sigma}), task)

    return cfg.model_copy(update={"sigma": account.calibrate(cost, epsilon, task.delta)})
