"""DP-SGD (Abadi et al. 2016) on all records in one place: the ceiling that federated DP methods are measured against.

What leaves: one model, once. Needs a party that may see everything, which is what federated learning avoids.
"""

from __future__ import annotations

from pydantic import Field

from prismfl.core.method import Method
from prismfl.core.payloads import Weights
from prismfl.methods.averaging import dp_fedavg, fedavg


class Config(dp_fedavg.Config):
    rounds: int = Field(1, ge=1, le=1, description="one release")
    steps: int = Field(300, ge=1, description="DP-SGD steps")
    batch: float = Field(512, gt=0, description="expected batch of a step")


METHOD = Method(
    name="dp-central",
    summary="one DP-SGD model on the pooled records (ceiling)",
    paper="Abadi et al. 2016",
    settings=Config,
    leaves={"model": Weights},
    guarantee="site",
    init=fedavg.init,
    client=dp_fedavg.client,
    server=fedavg.server,
    plan=dp_fedavg.plan,
    shapes=fedavg.shapes,
    possible=dp_fedavg.possible,
    pooled=True,
    tiny={"steps": 3, "batch": 8},
)
