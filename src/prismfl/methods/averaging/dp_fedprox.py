"""DP-FedProx at record level: DP-FedAvg with a proximal term, added after the noise. What leaves: weights."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from prismfl.methods.averaging import dp_fedavg


class Config(dp_fedavg.Config):
    clip: float = Field(0.2, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(1.0, gt=0, description="local learning rate")
    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = replace(
    dp_fedavg.METHOD,
    name="dp-fedprox",
    summary="DP-FedAvg with a proximal term",
    paper="Li et al. 2020; Abadi et al. 2016",
    settings=Config,
)
