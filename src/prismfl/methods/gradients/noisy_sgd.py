"""FedSGD with noise on the shared gradient: as gradient-leakage papers publish it, and with a real account.

Paper: the baselines of "FedEM: A Privacy-Preserving Framework for Concurrent Utility Preservation in Federated
Learning", https://arxiv.org/abs/2503.06021; `ldp-fedsgd` is DP-SGD's gradient, https://arxiv.org/abs/1607.00133.

`fedsgd-gauss`, `fedsgd-laplace`, `fedsgd-clip` add noise of a fixed scale to the batch's gradient, or cut its norm.
What leaves is a disturbed gradient *without a guarantee*: nothing bounds what one record adds to it, so no epsilon
follows from the scale, whatever it is called where it was published.

`ldp-fedsgd` is the honest version: each record's gradient is clipped, the sum is noised (Gaussian or Laplace) by the
site itself, and the noise is calibrated over all rounds. What leaves is differentially private.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from prismfl.core.method import DPSettings, Items, Site, State
from prismfl.core.payloads import Gradient
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.gradients import auto, fedem, fedsgd
from prismfl.nets.classifier import network
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Noisy(fedem.GradientSettings):
    """FedSGD with noise of a fixed scale."""

    batch: int = Field(32, ge=1, description="records in a site's batch")
    scale: float = Field(0.01, ge=0, description="scale of the noise on each number of the gradient")


class Clipped(Noisy):
    """The same, after the batch's gradient is cut to a norm."""

    scale: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise after the clip")
    clip: float = Field(1.0, gt=0, description="bound on the norm of the batch's gradient")


class Accounted(fedem.GradientSettings, DPSettings):
    """Records clipped and noise calibrated: the version with a guarantee."""

    batch: float = Field(32, gt=0, description="expected batch of a round")
    clip: float = Field(1.0, gt=0, description="bound on the norm of a record's gradient (laplace: its L1 norm)")
    kind: Literal["gaussian", "laplace"] = Field("gaussian", description="distribution of the noise")


def gauss_client(cfg: Noisy, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The exact gradient plus Gaussian noise; no guarantee."""
    return {"gradient": Gradient(_gauss(fedsgd.exact_gradient(cfg.batch, state, site, key), cfg.scale, key))}, {}


def laplace_client(cfg: Noisy, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The exact gradient plus Laplace noise; no guarantee."""
    gradient, generator = fedsgd.exact_gradient(cfg.batch, state, site, key), key.child("noise").torch()
    noisy = {}
    for k, g in gradient.items():
        u = torch.rand(g.shape, generator=generator, dtype=torch.float64) - 0.5
        drawn = -u.sign() * torch.log1p(-2.0 * u.abs().clamp(max=0.5 - 1e-12))
        noisy[k] = g + cfg.scale * drawn.to(g)
    return {"gradient": Gradient(noisy)}, {}


def clip_client(cfg: Clipped, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The exact gradient cut to a norm, with or without noise; no guarantee."""
    gradient = fedsgd.exact_gradient(cfg.batch, state, site, key)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradient.values()]))
    factor = (cfg.clip / norm.clamp(min=1e-12)).clamp(max=1.0)
    return {"gradient": Gradient(_gauss({k: g * factor for k, g in gradient.items()}, cfg.scale, key))}, {}


def _gauss(gradient: Params, scale: float, key: Key) -> Params:
    generator = key.child("noise").torch()
    return {k: g + scale * torch.randn(g.shape, generator=generator).to(g) for k, g in gradient.items()}


def ldp_client(cfg: Accounted, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The noisy sum of clipped gradients of records, as the door makes it."""
    task = site.task
    classifier, _ = network(task, key=key)
    gradient = site.records.noisy_gradient(
        classifier.record_loss,
        state.items["model"].to(task.device),
        batch=cfg.batch,
        clip=cfg.clip,
        sigma=cfg.noise,
        kind=cfg.kind,
    )
    return {"gradient": Gradient(gradient)}, {}


def ldp_plan(cfg: Accounted, task: Task) -> Cost:
    """One sampled answer per round, of the kind of noise that is asked for."""
    make = Cost.gaussian if cfg.kind == "gaussian" else Cost.laplace
    return make(cfg.noise, rate=task.rate(cfg.batch), times=cfg.rounds, unit=task.unit, relation=task.relation)


def ldp_possible(cfg: Accounted, task: Task, state: State, site: str, items: Items) -> str | None:
    """No longer a gradient than clipped ones of all records there are, and their noise."""
    size = robust.size(items["gradient"].tensors)
    most = robust.most_moved(task, size, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise, kind=cfg.kind)
    return fedsgd.too_long(items, most)


def clip_possible(cfg: Clipped, task: Task, state: State, site: str, items: Items) -> str | None:
    """No longer a gradient than the clip, and its noise."""
    size = robust.size(items["gradient"].tensors)
    return fedsgd.too_long(items, 1.001 * cfg.clip + robust.noise_norm(size, cfg.scale))


GAUSS = replace(
    fedsgd.METHOD,
    name="fedsgd-gauss",
    summary="FedSGD, Gaussian noise of a fixed scale; no guarantee",
    paper="baselines of FedEM 2025, arXiv:2503.06021",
    settings=Noisy,
    init=fedem.init,
    client=gauss_client,
    server=fedem.server,
)
LAPLACE = replace(
    GAUSS,
    name="fedsgd-laplace",
    summary="FedSGD, Laplace noise of a fixed scale; no guarantee",
    client=laplace_client,
)
CLIP = replace(
    GAUSS,
    name="fedsgd-clip",
    summary="FedSGD, batch gradient clipped; no guarantee",
    settings=Clipped,
    client=clip_client,
    possible=clip_possible,
)
LDP = replace(
    GAUSS,
    name="ldp-fedsgd",
    summary="FedSGD, records clipped and noise accounted on each site",
    settings=Accounted,
    guarantee="site",
    client=ldp_client,
    plan=ldp_plan,
    possible=ldp_possible,
    advice=auto.advice,
    auto=auto.by_gradient,
)
