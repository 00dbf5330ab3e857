"""FedSGD (McMahan et al. 2017): every round each site sends one gradient of one batch.

Paper: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", https://arxiv.org/abs/1602.05629.

What leaves: the exact gradient, which gradient-leakage attacks turn back into records. No guarantee.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import Gradient, Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.averaging.fedavg import Averaging, init, model_shapes, plan
from prismfl.nets.classifier import network
from prismfl.nets.training import cosine, step
from prismfl.rng import Key


class Config(Averaging):
    """One batch per round, and the server's learning rate."""

    rounds: int = Field(100, ge=1, description="communication rounds: one batch each")
    batch: int = Field(64, ge=1, description="records in a site's batch")
    lr: float = Field(0.2, gt=0, description="the server's learning rate, falling along a cosine")


def batch_rows(count: int, size: int, key: Key) -> torch.Tensor:
    """Which of a site's `count` records a round uses, from the key of that site and round."""
    return torch.randperm(count, generator=key.child("batch").torch())[:size]


def exact_gradient(batch: int, state: State, site: Site, key: Key) -> Params:
    """The gradient of one batch of the site's records, without any protection."""
    classifier, _ = network(site.task, key=key)
    records = site.records.exact()
    rows = batch_rows(len(records), batch, key)
    return classifier.gradient(state.items["model"].to(site.task.device), records.x[rows], records.y[rows])


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The exact gradient of one batch."""
    return {"gradient": Gradient(exact_gradient(cfg.batch, state, site, key))}, {}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """One step along the combined gradient."""
    gradient = robust.combine(cfg.aggregate, inbox, "gradient")
    return {"model": Weights(step(state.items["model"].tensors, gradient, cosine(cfg.lr, state.round, cfg.rounds)))}


def shapes(cfg: Averaging, task: Task) -> Shapes:
    """One gradient, of the model's shapes."""
    return {"gradient": model_shapes(task)}


def too_long(items: Items, most: float) -> str | None:
    """Why no honest site can have sent a gradient of this length, if so."""
    found = robust.length(items["gradient"].tensors)
    return None if found <= most else f"its gradient is {found:.3g} long, and clipped ones are {most:.3g} at most"


METHOD = Method(
    name="fedsgd",
    summary="average of one exact gradient per site and round",
    paper="McMahan et al. 2017, arXiv:1602.05629",
    settings=Config,
    leaves={"gradient": Gradient},
    guarantee=None,
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    tiny={"rounds": 2, "batch": 8},
)
