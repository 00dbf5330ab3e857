"""FedSGD (McMahan et al. 2017): every round each site sends one gradient of one batch.

What leaves: the exact gradient, which gradient-leakage attacks turn back into records. No guarantee.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import Gradient, Weights
from prismfl.core.task import Task
from prismfl.methods import robust
from prismfl.methods.averaging.fedavg import Averaging, init, model_shapes, plan
from prismfl.nets.classifier import network
from prismfl.nets.training import cosine, step
from prismfl.rng import Key


class Config(Averaging):
    rounds: int = Field(100, ge=1, description="communication rounds: one batch each")
    batch: int = Field(64, ge=1, description="records in a site's batch")
    lr: float = Field(0.2, gt=0, description="the server's learning rate, falling along a cosine")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    task = site.task
    classifier, _ = network(task, key=key)
    records = site.records.exact()
    rows = torch.randperm(len(records), generator=key.child("batch").torch())[: cfg.batch]
    gradient = classifier.gradient(state.items["model"].to(task.device), records.x[rows], records.y[rows])
    return {"gradient": Gradient(gradient)}, {}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    gradient = robust.combine(cfg.aggregate, inbox, "gradient")
    return {"model": Weights(step(state.items["model"].tensors, gradient, cosine(cfg.lr, state.round, cfg.rounds)))}


def shapes(cfg: Config, task: Task) -> Shapes:
    return {"gradient": model_shapes(task)}


METHOD = Method(
    name="fedsgd",
    summary="average of one exact gradient a site and round",
    paper="McMahan et al. 2017",
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
