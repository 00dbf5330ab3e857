"""FedProx (Li et al. 2020): FedAvg with a pull back to the server's model. What leaves: weights, no guarantee."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from prismfl.methods.averaging import fedavg


class Config(fedavg.Config):
    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = replace(
    fedavg.METHOD, name="fedprox", summary="FedAvg with a proximal term", paper="Li et al. 2020", settings=Config
)
