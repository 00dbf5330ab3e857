"""DP-FedProx at record level: DP-FedAvg with a proximal term, added after the noise. What leaves: weights.

Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks",
https://arxiv.org/abs/1812.06127; Abadi et al., "Deep Learning with Differential Privacy",
https://arxiv.org/abs/1607.00133.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pydantic import Field

from prismfl.methods.averaging import auto, dp_fedavg


class Config(dp_fedavg.Config):
    """As `dp-fedavg`, with a pull back to the server's model."""

    clip: float = Field(0.2, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(1.0, gt=0, description="local learning rate")
    mu: float = Field(0.1, ge=0, description="strength of the proximal term")


METHOD = replace(
    dp_fedavg.METHOD,
    name="dp-fedprox",
    summary="DP-FedAvg with a proximal term",
    paper="Li et al. 2020, arXiv:1812.06127; Abadi et al. 2016, arXiv:1607.00133",
    settings=Config,
    auto=partial(auto.by_record, proximal=True),
)
