"""FedProx (Li et al. 2020): FedAvg with a pull back to the server's model. What leaves: weights, no guarantee."""

from __future__ import annotations

from pydantic import Field

from prismfl.core.method import Method
from prismfl.core.payloads import Weights
from prismfl.methods.averaging import fedavg


class Config(fedavg.Config):
    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = Method(
    name="fedprox",
    summary="FedAvg with a proximal term",
    paper="Li et al. 2020",
    settings=Config,
    leaves={"model": Weights},
    guarantee=None,
    init=fedavg.init,
    client=fedavg.client,
    server=fedavg.server,
    plan=fedavg.plan,
    shapes=fedavg.shapes,
    tiny={"rounds": 2, "epochs": 1, "batch": 8},
)
