"""DP-FedProx at record level: DP-FedAvg with a proximal term, added after the noise. What leaves: weights."""

from __future__ import annotations

from pydantic import Field

from prismfl.core.method import Method
from prismfl.core.payloads import Weights
from prismfl.methods.averaging import dp_fedavg, fedavg


class Config(dp_fedavg.Config):
    clip: float = Field(0.2, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(1.0, gt=0, description="local learning rate")
    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = Method(
    name="dp-fedprox",
    summary="DP-FedAvg with a proximal term",
    paper="Li et al. 2020; Abadi et al. 2016",
    settings=Config,
    leaves={"model": Weights},
    guarantee="site",
    init=fedavg.init,
    client=dp_fedavg.client,
    server=fedavg.server,
    plan=dp_fedavg.plan,
    shapes=fedavg.shapes,
    possible=dp_fedavg.possible,
    tiny={"rounds": 2, "steps": 2, "batch": 8},
)
