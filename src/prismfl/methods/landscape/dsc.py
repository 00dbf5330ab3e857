"""Dataset condensation (Zhao, Mopuri, Bilen 2021): images fitted to exact gradients, class by class, in one place.

Paper: Zhao, Mopuri, Bilen, "Dataset Condensation with Gradient Matching", https://arxiv.org/abs/2006.05929.

What leaves: synthetic images, once, made from the exact records: no guarantee. A ceiling for what a small set of images
can hold when one party may see everything. Differs from the paper: images begin as noise; no augmentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, Site, State
from prismfl.core.payloads import SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape.image_exchange import (
    Declared,
    classes_of,
    first_images,
    init,
    labels_of,
    pool,
    possible,
    sealed_images,
    shapes,
)
from prismfl.methods.landscape.matching import Matcher
from prismfl.nets.classifier import network
from prismfl.nets.training import fit, step
from prismfl.rng import Key


class OneShot(Declared):
    """Settings that the one-shot methods share."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    networks: int = Field(20, ge=1, description="fresh networks, one after the other")
    stops: int = Field(10, ge=1, description="places on each network's training path")
    updates: int = Field(5, ge=1, description="image updates at each place")
    model_steps: int = Field(10, ge=0, description="model steps on the images from place to place")
    image_lr: float = Field(10.0, gt=0, description="learning rate of the images")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of the images")
    lr: float = Field(0.1, gt=0, description="learning rate of the networks")
    epochs: int = Field(300, ge=1, description="epochs of the final training on the images")
    train_lr: float = Field(0.01, gt=0, description="learning rate of the final training")


class Config(OneShot):
    """Exact batches of each class."""

    batch: int = Field(256, ge=1, description="records of a class in a gradient")
    updates: int = Field(1, ge=1, description="image updates at each place")


def fresh_networks(cfg: OneShot, task: Task, key: Key) -> Iterator[Params]:
    """The parameters of one fresh network after the other."""
    for k in range(cfg.networks):
        yield network(task, key=key.child("network", k))[1]


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images fitted to the exact gradients of each class, network by network."""
    task, records = site.task, site.records.exact()
    if not len(records):
        raise UserError(f"{site.name} has no records; nothing was sent.")
    classifier, _ = network(task, key=key)
    matcher, y = Matcher(classifier, reference=site.records.reference), labels_of(cfg, task, site.name).to(task.device)
    x = first_images(site, key, count=len(y), carried=False)
    velocity, order = torch.zeros_like(x), key.child("order").torch()
    by_class = [torch.nonzero(records.y == c).flatten() for c in classes_of(cfg, task, site.name)]
    held = {place: rows for place, rows in enumerate(by_class) if len(rows)}
    for params in fresh_networks(cfg, task, key):
        for _ in range(cfg.stops):
            for place, rows in held.items():
                batch = rows[torch.randint(len(rows), (min(cfg.batch, len(rows)),), generator=order)]
                target = matcher.gradient(params, records.x[batch], records.y[batch])
                own = slice(place * cfg.images, (place + 1) * cfg.images)
                for _ in range(cfg.updates):
                    gradient = matcher.image_gradient(params, x=x[own], y=y[own], target=target)
                    velocity[own] = cfg.momentum * velocity[own] + gradient
                    x[own] -= cfg.image_lr * velocity[own]
            for _ in range(cfg.model_steps):
                params = step(params, matcher.gradient(params, x, y), cfg.lr)
    return {"images": sealed_images(x, y, image_lr=cfg.image_lr, site=site.name, round=state.round)}, {}


def server(cfg: OneShot, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """A fresh model trained on the images."""
    classifier, params = network(task, key=key.child("model"))
    x, y = pool(inbox, task)
    trained = fit(classifier, params, x=x, y=y, epochs=cfg.epochs, batch=256, lr=cfg.train_lr, key=key.child("fit"))
    return {"model": Weights(trained), "synthetic": SyntheticSet.of(x, y)}


METHOD = Method(
    name="dsc",
    summary="images fitted to exact gradients class by class, all records in one place",
    paper="Zhao et al. 2021 (DSC), arXiv:2006.05929",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee=None,
    init=init,
    client=client,
    server=server,
    plan=fedavg.plan,
    shapes=shapes,
    possible=possible,
    pooled=True,
    kinds=("image",),
    tiny={"images": 2, "networks": 2, "stops": 2, "batch": 8, "image_lr": 1.0, "epochs": 2},
)
