"""FedProx (Li et al. 2020): FedAvg with a pull back to the server's model. What leaves: weights, no guarantee.

Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks",
https://arxiv.org/abs/1812.06127.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from prismfl.methods.averaging import fedavg


class Config(fedavg.Config):
    """As FedAvg, with a pull back to the server's model."""

    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = replace(
    fedavg.METHOD,
    name="fedprox",
    summary="FedAvg with a proximal term",
    paper="Li et al. 2020, arXiv:1812.06127",
    settings=Config,
)
