"""DP-SGD (Abadi et al. 2016) on all records in one place: the ceiling that federated DP methods are measured against.

Paper: Abadi et al., "Deep Learning with Differential Privacy", https://arxiv.org/abs/1607.00133.

What leaves: one model, once. Needs a party that may see everything, which is what federated learning avoids.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pydantic import Field

from prismfl.methods.averaging import auto, dp_fedavg


class Config(dp_fedavg.Config):
    """As `dp-fedavg`, in one round."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    steps: int = Field(300, ge=1, description="DP-SGD steps")
    batch: float = Field(512, gt=0, description="expected batch of a step")


METHOD = replace(
    dp_fedavg.METHOD,
    name="dp-central",
    summary="one DP-SGD model on the pooled records (ceiling)",
    paper="Abadi et al. 2016, arXiv:1607.00133",
    settings=Config,
    pooled=True,
    auto=partial(auto.by_record, pooled=True),
    tiny={"steps": 3, "batch": 8},
)
