"""prism-client: PRISM with whole clients protected, by noise at a trusted hub.

Paper: "PRISM-FL: Privacy-preserving Image Synthesis Mechanism for Federated Learning" (abstract).

What leaves a site: the exact sums of its records' feature vectors, to the hub only (no guarantee towards the hub). Each
site's statistic is clipped as a whole; the hub adds noise once, unit = client, and the synthesis runs on the noisy sum.
With secure aggregation between the sites and the hub, the hub sees the sum alone.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field

from prismfl.core.method import Items, Method, PrivateSum, Shapes, Site, State, Summed
from prismfl.core.payloads import Statistics
from prismfl.core.task import Task
from prismfl.methods.drowning import warn_clients
from prismfl.methods.prism import auto, prism, statistics
from prismfl.methods.prism.encoder import encoder
from prismfl.methods.prism.head import pool
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import clipped_moments, triangle
from prismfl.rng import Key


class Config(prism.Config):
    """As `prism`, with the bound on a whole site."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    centring: float = Field(0.0, ge=0, le=0, description="none: the noise is the hub's alone")
    clip: float = Field(1.0, gt=0, description="bound on a site's whole statistic, in declared site sizes")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The exact sums of the site's rows, in units of its declared size."""
    enc, layout = encoder(cfg, site.task), statistics.row_layout(cfg, site.task)
    records, classes = site.records.exact(), len(site.task.classes)
    sums = torch.zeros(classes, layout.width, dtype=torch.float64)
    moment = torch.zeros(layout.second, layout.second, dtype=torch.float64)
    for x, y in zip(torch.split(records.x, 500), torch.split(records.y, 500)):
        rows, share = statistics.record_rows(enc, layout, x), torch.ones(len(y))
        part = clipped_moments(
            rows, y, classes=classes, second=layout.second, scale=layout.scale, bound=1.0, share=share
        )
        sums, moment = sums + part[0], moment + part[1]
    # In units of the declared size, so that an ordinary site's statistic has norm about one half to one.
    size = site.task.records
    released = {"sums": (sums / size).float(), "moment": (triangle(moment) / size).float()}
    return {"statistics": Statistics(released)}, {}


def server(cfg: Config, task: Task, state: State, hub: PrivateSum, key: Key) -> Items:
    """As `prism`, from the hub's noisy sum of the sites' statistics."""
    like = {k: torch.zeros(shape) for k, (_, shape) in shapes(cfg, task)["statistics"].items()}
    noisy = hub.noisy(lambda items: items["statistics"].tensors, like, bound=cfg.clip, sigma=cfg.noise)
    total = {k: v * task.records for k, v in noisy.items()}
    # The noise at the hub is that of one release whose records weigh clip * declared size.
    level = cfg.model_copy(update={"sigma": cfg.noise * cfg.clip * task.records})
    enc, layout = encoder(cfg, task), statistics.row_layout(cfg, task)
    pooled = pool(level, layout, [total], enc, usual=task.records * len(task.sites) / len(task.classes))
    return prism.from_statistics(cfg, task, enc, pooled, key)


def plan(cfg: Config, task: Task) -> Cost:
    """One Gaussian answer of the hub, unit = client."""
    return Cost.gaussian(cfg.noise, times=cfg.rounds, unit="client", relation="add-remove")


def summed(cfg: Config, task: Task) -> Summed:
    """The hub needs no more than the sum of the sites' clipped statistics."""
    return Summed("statistics", bound=cfg.clip, sigma=cfg.noise)


def shapes(cfg: Config, task: Task) -> Shapes:
    """As `prism`, without the account of what was spent: the hub keeps that."""
    return {"statistics": {k: v for k, v in statistics.shapes(cfg, task)["statistics"].items() if k != "spent"}}


def advice(cfg: Config, task: Task) -> list[str]:
    """A line if the hub's noise drowns the clients."""
    numbers = sum(math.prod(shape) for _, shape in shapes(cfg, task)["statistics"].values())
    return warn_clients(cfg.noise, numbers, rounds=1, clients=task.asked)


METHOD = Method(
    name="prism-client",
    summary="PRISM with noise at a trusted hub; protects whole clients",
    paper="PRISM-FL (abstract)",
    settings=Config,
    leaves={"statistics": Statistics},
    guarantee="client",
    init=prism.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    needs_public=True,
    kinds=("image", "text", "patient"),
    summed=summed,
    advice=advice,
    models=prism.models,
    recommended=prism.METHOD.recommended,
    takes_encoder=True,
    prepare=encoder,
    auto=auto.client_auto,
    tiny=prism.METHOD.tiny,
)
