"""Private set generation (Chen, Kerkouche, Fritz 2022): images fitted to noisy gradients of many fresh networks, once.

What leaves: synthetic images with public labels, in one release; the model is trained on them alone. `psg` pools all
records in one place, as published; `psg-sites` lets every site make its own set and the server train on all of them.
Each network starts afresh and is trained on the images from stop to stop, so they serve any network, not one.

Differs from the paper: Poisson batches divided by their expected size; all classes in one query, since a query per
class would have to say how large the class is; images begin as noise, and there is no augmentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from prismfl.core.method import DPSettings, Inbox, Items, Method, Site, State
from prismfl.core.payloads import SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.methods.landscape.image_exchange import (
    Declared,
    advice,
    first_images,
    init,
    labels_of,
    pool,
    possible,
    sealed_images,
    shapes,
)
from prismfl.methods.landscape.matching import Matcher, Schedule, approximate
from prismfl.nets.classifier import Params, build
from prismfl.nets.training import fit
from prismfl.privacy.cost import Cost
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

    def schedule(self) -> Schedule:
        return Schedule(
            paths=1,
            stops=self.stops,
            batches=1,
            updates=self.updates,
            model_steps=self.model_steps,
            radius=math.inf,
            image_lr=self.image_lr,
            momentum=self.momentum,
            lr=self.lr,
        )


class Config(OneShot, DPSettings):
    batch: float = Field(256, gt=0, description="expected batch of a query")
    clip: float = Field(0.1, gt=0, description="bound on the norm of a record's gradient")


def fresh_networks(cfg: OneShot, task: Task, key: Key) -> Iterator[Params]:
    for k in range(cfg.networks):
        yield build(task.model, task.shape, len(task.classes), key=key.child("network", k), device=task.device)[1]


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    task = site.task
    classifier, _ = build(task.model, task.shape, len(task.classes), key=key, device=task.device)
    matcher, y = Matcher(classifier, reference=site.records.reference), labels_of(cfg, task, site.name).to(task.device)
    x = first_images(site, key, count=len(y), carried=False)
    for params in fresh_networks(cfg, task, key):
        x, _ = approximate(
            matcher,
            params,
            x=x,
            y=y,
            target=lambda at, view: site.records.noisy_gradient(
                classifier.record_loss, at, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise
            ),
            schedule=cfg.schedule(),
        )
    return {"images": sealed_images(x, y, image_lr=cfg.image_lr, site=site.name, round=state.round)}, {}


def server(cfg: OneShot, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """A fresh model trained on the images."""
    classifier, params = build(task.model, task.shape, len(task.classes), key=key.child("model"), device=task.device)
    x, y = pool(inbox, task)
    trained = fit(classifier, params, x=x, y=y, epochs=cfg.epochs, batch=256, lr=cfg.train_lr, key=key.child("fit"))
    return {"model": Weights(trained), "synthetic": SyntheticSet.of(x, y)}


def plan(cfg: Config, task: Task) -> Cost:
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.networks * cfg.schedule().queries)


METHOD = Method(
    name="psg",
    summary="images fitted to noisy gradients of fresh networks, all records in one place",
    paper="Chen et al. 2022 (PSG)",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    possible=possible,
    pooled=True,
    kinds=("image",),
    advice=advice,
    tiny={"images": 2, "networks": 2, "stops": 2, "updates": 2, "batch": 8, "image_lr": 1.0, "epochs": 2},
)
SITES = replace(METHOD, name="psg-sites", summary="PSG at every site, the server trains on all sets", pooled=False)
METHODS = (METHOD, SITES)
