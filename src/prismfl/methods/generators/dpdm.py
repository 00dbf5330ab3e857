"""DPDM (Dockhorn et al. 2023): DP-SGD of a diffusion model, without central images. The baseline of `dp-feta`.

Paper: Dockhorn, Cao, Vahdat, Kreis, "Differentially Private Diffusion Models", https://arxiv.org/abs/2210.09929.

What leaves: the averaged network and noisy class sizes, or images drawn from it. Everything else is `dp_feta`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal

from pydantic import Field

from prismfl.methods.generators import auto, dp_feta


class Config(dp_feta.Config):
    """As `dp-feta`, without its easy stage."""

    easy: Literal["none"] = Field("none", description="no central images")


METHOD = dataclasses.replace(
    dp_feta.METHOD,
    name="dpdm",
    summary="DP-SGD of a diffusion model, without central images",
    paper="Dockhorn et al. 2023, arXiv:2210.09929",
    settings=Config,
    auto=partial(auto.diffusion, central=False),
    tiny={k: v for k, v in dp_feta.METHOD.tiny.items() if not k.startswith(("query", "warm"))},
)
