"""FedDM (Xiong et al. 2023): each site's images match its records class by class in the features of nearby networks.

Paper: Xiong, Wang, Cheng, Yu, Hsieh, "FedDM: Iterative Distribution Matching for Communication-Efficient Federated
Learning", https://arxiv.org/abs/2207.09653.

What leaves: synthetic images with public labels, every round, made from exact class means: no guarantee (`feddm-dp`
has it). The server trains the model on everybody's images.

Differs from the paper: the network's answers before the last layer are matched, the last layer's are not; networks
are the server's model plus Gaussian noise of norm `rho`; images begin as noise and are carried over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from pydantic import Field
from torch import nn

from prismfl.core.method import Inbox, Items, Method, Site, State
from prismfl.core.payloads import SyntheticSet
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape.image_exchange import (
    Declared,
    advice,
    after,
    classes_of,
    first_images,
    init,
    labels_of,
    pool,
    possible,
    sealed_images,
    shapes,
)
from prismfl.methods.landscape.matching import Matcher, walk
from prismfl.nets.classifier import Classifier, network
from prismfl.nets.training import cosine
from prismfl.rng import Key

Means = Callable[[Params], torch.Tensor]
Look = Callable[[Params, torch.Tensor], torch.Tensor]


class Matching(Declared):
    """Settings of both forms."""

    rounds: int = Field(10, ge=1, description="communication rounds")
    networks: int = Field(50, ge=1, description="networks near the server's that images are matched in, per round")
    updates: int = Field(5, ge=1, description="image updates per network")
    rho: float = Field(5.0, ge=0, description="distance of the networks from the server's model")
    image_lr: float = Field(1.0, gt=0, description="learning rate of the images")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of the images")
    lr: float = Field(0.1, gt=0, description="learning rate of the model, falling along a cosine over the rounds")
    server_steps: int = Field(100, ge=1, description="steps of the server per round")


class Config(Matching):
    """Exact class means of random batches."""

    batch: int = Field(256, ge=1, description="records a network looks at, of each class")


def features(classifier: Classifier, params: Params, x: torch.Tensor) -> torch.Tensor:
    """What goes into the network's last layer."""
    children = list(classifier.module.named_children())
    body = nn.Sequential()
    for name, layer in children[:-1]:
        body.add_module(name, layer)
    own = {k: v for k, v in params.items() if not k.startswith(f"{children[-1][0]}.")}
    out: torch.Tensor = torch.func.functional_call(body, own, (x,))
    return out.flatten(1)


def near(start: Params, rho: float, key: Key) -> Params:
    """The model plus Gaussian noise of norm about `rho`."""
    generator = key.torch()
    size = sum(p.numel() for p in start.values())
    drawn = {k: torch.randn(p.shape, generator=generator).to(p) for k, p in start.items()}
    return {k: p + rho / math.sqrt(size) * drawn[k] for k, p in start.items()}


def matched(cfg: Matching, state: State, site: Site, key: Key, *, look: Look, means: Means) -> Items:
    """Images whose class means agree with what `means` says, network by network."""
    task, start = site.task, state.items["model"].to(site.task.device)
    y, own = labels_of(cfg, task, site.name).to(task.device), list(classes_of(cfg, task, site.name))
    x = first_images(site, key, count=len(y), carried=True)
    velocity = torch.zeros_like(x)
    for k in range(cfg.networks):
        params = near(start, cfg.rho, key.child("near", k))
        wanted = means(params)[own]
        known = torch.isfinite(wanted).all(1)
        for _ in range(cfg.updates):
            leaf = x.detach().requires_grad_()
            mine = look(params, leaf).reshape(len(own), cfg.images, -1).mean(1)
            gradient = torch.autograd.grad((mine - wanted)[known].square().sum(), leaf)[0]
            velocity = cfg.momentum * velocity + gradient
            x = x - cfg.image_lr * velocity
    return {"images": sealed_images(x, y, image_lr=cfg.image_lr, site=site.name, round=state.round)}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images whose class means are those of random batches of records."""
    task, records = site.task, site.records.exact()
    if not len(records):
        raise UserError(f"{site.name} has no records; nothing was sent.")
    classifier, _ = network(task, key=key)
    order, start = key.child("order").torch(), state.items["model"].to(task.device)
    held = [torch.nonzero(records.y == c).flatten() for c in range(len(task.classes))]

    @torch.no_grad()
    def means(params: Params) -> torch.Tensor:
        # A class the site does not hold has no mean, and its images stay what they are.
        found = torch.full((len(held), _width(classifier, start, task)), math.nan, device=task.device)
        for c, rows in enumerate(held):
            if len(rows):
                batch = rows[torch.randint(len(rows), (min(cfg.batch, len(rows)),), generator=order)]
                found[c] = features(classifier, params, records.x[batch]).mean(0)
        return found

    made = matched(cfg, state, site, key, look=partial(features, classifier), means=means)
    return made, made


def _width(classifier: Classifier, params: Params, task: Task) -> int:
    return features(classifier, params, torch.zeros(1, *task.shape, device=task.device)).shape[1]


def server(cfg: Matching, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Descent on everybody's images."""
    classifier, _ = network(task, key=Key.seed(0))
    matcher, (x, y) = Matcher(classifier), pool(inbox, task)
    lr = cosine(cfg.lr, state.round, cfg.rounds)
    start = state.items["model"].to(task.device)
    done = walk(lambda p: matcher.gradient(p, x, y), start, lr=lr, radius=math.inf, steps=cfg.server_steps)
    return after(done, x, y, last=state.round + 1 == cfg.rounds)


METHOD = Method(
    name="feddm",
    summary="images whose features match each class's, at every site",
    paper="Xiong et al. 2023 (FedDM), arXiv:2207.09653",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee=None,
    init=init,
    client=client,
    server=server,
    plan=fedavg.plan,
    shapes=shapes,
    possible=possible,
    kinds=("image",),
    advice=advice,
    tiny={"rounds": 2, "images": 2, "networks": 2, "updates": 2, "batch": 8, "image_lr": 1.0, "server_steps": 3},
)
