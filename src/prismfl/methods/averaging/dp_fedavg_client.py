"""DP-FedAvg at client level (McMahan et al. 2018): whole clients are protected, by noise at a trusted hub.

Paper: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models",
https://arxiv.org/abs/1710.06963.

What leaves a site: its exact update, to the hub only (no guarantee towards the hub). What leaves the hub: models
made from noisy sums of clipped updates, unit = client.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import DPSettings, Items, Method, PrivateSum, Shapes, Site, State, Summed
from prismfl.core.payloads import Gradient, Weights
from prismfl.core.task import Task
from prismfl.methods.averaging import auto, fedavg
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(fedavg.Config, DPSettings):
    """FedAvg's settings, with the bound on a whole client."""

    epochs: int = Field(1, ge=1, description="local epochs per round")
    clip: float = Field(1.0, gt=0, description="bound on the norm of a client's whole update")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The site's exact update, for the hub alone."""
    start, params = fedavg.train_locally(cfg, state, site, key)
    update = {k: params[k] - start[k] for k in start}
    if not all(bool(torch.isfinite(part).all()) for part in update.values()):
        # Under weights that a server chose, one record can make it so. It counts for nothing, as a row that cannot be
        # clipped does; a failure would tell of that record exactly.
        update = {k: torch.zeros_like(part) for k, part in update.items()}
    return {"update": Gradient(update)}, {}


def server(cfg: Config, task: Task, state: State, hub: PrivateSum, key: Key) -> Items:
    """The model plus the noisy sum of clipped updates, divided by the number of sites that are asked."""
    model = state.items["model"].tensors
    total = hub.noisy(lambda items: items["update"].tensors, model, bound=cfg.clip, sigma=cfg.noise)
    expected = float(task.asked)
    return {"model": Weights({k: v + total[k] / expected for k, v in model.items()})}


def plan(cfg: Config, task: Task) -> Cost:
    """One Gaussian answer of the hub per round, unit = client."""
    return Cost.gaussian(cfg.noise, times=cfg.rounds, unit="client", relation="add-remove")


def summed(cfg: Config, task: Task) -> Summed:
    """The hub needs no more than the sum of the clipped updates."""
    return Summed("update", bound=cfg.clip, sigma=cfg.noise)


def shapes(cfg: Config, task: Task) -> Shapes:
    """One update, of the model's shapes."""
    return {"update": fedavg.model_shapes(task)}


METHOD = Method(
    name="dp-fedavg-client",
    summary="FedAvg with noise at a trusted hub; protects whole clients",
    paper="McMahan et al. 2018, arXiv:1710.06963",
    settings=Config,
    leaves={"update": Gradient},
    guarantee="client",
    init=fedavg.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    summed=summed,
    advice=auto.client_advice,
    auto=auto.by_client,
    tiny={"rounds": 2, "epochs": 1, "batch": 8},
)
