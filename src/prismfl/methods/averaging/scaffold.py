"""SCAFFOLD (Karimireddy et al. 2020): control variates correct the drift of local training.

Paper: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
https://arxiv.org/abs/1910.06378.

What leaves: the model's weights and the change of the site's control variate, no guarantee. The control variate
itself stays on the site as its memory.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Shapes, Site, State
from prismfl.core.payloads import Gradient, Weights
from prismfl.core.task import Task
from prismfl.methods import robust
from prismfl.methods.averaging import fedavg
from prismfl.nets.classifier import batches, network
from prismfl.nets.training import step
from prismfl.rng import Key


class Config(fedavg.Averaging):
    """How long and how fast each site trains."""

    rounds: int = Field(10, ge=1, description="communication rounds")
    epochs: int = Field(5, ge=1, description="local epochs per round")
    batch: int = Field(64, ge=1, description="local batch size")
    lr: float = Field(0.05, gt=0, description="local learning rate")


def init(cfg: Config, task: Task, key: Key) -> Items:
    """A fresh model, and a common control variate of zero."""
    items = dict(fedavg.init(cfg, task, key))
    items["control"] = Gradient({k: torch.zeros_like(v) for k, v in items["model"].tensors.items()})
    return items


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The model after corrected local training, and the change of the site's control variate."""
    task = site.task
    classifier, _ = network(task, key=key)
    start, common = state.items["model"].to(task.device), state.items["control"].to(task.device)
    own = (
        site.memory["control"].to(task.device)
        if "control" in site.memory
        else {k: torch.zeros_like(v) for k, v in start.items()}
    )
    records, params, steps, order = site.records.exact(), dict(start), 0, key.child("order").torch()
    for _ in range(cfg.epochs):
        for rows in batches(len(records), cfg.batch, order):
            g = classifier.gradient(params, records.x[rows], records.y[rows])
            params = step(params, {k: g[k] - own[k] + common[k] for k in g}, cfg.lr)
            steps += 1
    scale = 1.0 / (max(1, steps) * cfg.lr)
    after = {k: own[k] - common[k] + scale * (start[k] - params[k]) for k in own}
    change = {k: after[k] - own[k] for k in own}
    return {"model": Weights(params), "control": Gradient(change)}, {"control": Gradient(after)}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The sites' models as one; the common control variate moves by the part of the sites that took part."""
    change = robust.combine(cfg.aggregate, inbox, "control")
    share = len(inbox) / len(task.sites)
    control = {k: v + share * change[k] for k, v in state.items["control"].tensors.items()}
    model = robust.combine(cfg.aggregate, inbox, "model", base=state.items["model"].tensors)
    return {"model": Weights(model), "control": Gradient(control)}


def shapes(cfg: Config, task: Task) -> Shapes:
    """A model and a control variate of the same shapes."""
    return {"model": fedavg.model_shapes(task), "control": fedavg.model_shapes(task)}


METHOD = replace(
    fedavg.METHOD,
    name="scaffold",
    summary="FedAvg with control variates",
    paper="Karimireddy et al. 2020, arXiv:1910.06378",
    settings=Config,
    leaves={"model": Weights, "control": Gradient},
    init=init,
    client=client,
    server=server,
    shapes=shapes,
)
