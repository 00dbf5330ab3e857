"""Dataset condensation (Zhao, Mopuri, Bilen 2021): images fitted to exact gradients, class by class, in one place.

What leaves: synthetic images, once, made from the exact records: no guarantee. A ceiling for what a small set of images
can hold when one party may see everything. Differs from the paper: images begin as noise; no augmentation.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Items, Method, Site, State
from prismfl.core.payloads import SyntheticSet
from prismfl.errors import UserError
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape import psg
from prismfl.methods.landscape.image_exchange import (
    classes_of,
    first_images,
    init,
    labels_of,
    possible,
    sealed_images,
    shapes,
)
from prismfl.methods.landscape.matching import Matcher
from prismfl.nets.classifier import build
from prismfl.nets.training import step
from prismfl.rng import Key


class Config(psg.OneShot):
    batch: int = Field(256, ge=1, description="records of a class in a gradient")
    updates: int = Field(1, ge=1, description="image updates at each place")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    task, records = site.task, site.records.exact()
    if not len(records):
        raise UserError(f"{site.name} has no records; nothing was sent.")
    classifier, _ = build(task.model, task.shape, len(task.classes), key=key, device=task.device)
    matcher, y = Matcher(classifier, reference=site.records.reference), labels_of(cfg, task, site.name).to(task.device)
    x = first_images(site, key, count=len(y), carried=False)
    velocity, order = torch.zeros_like(x), key.child("order").torch()
    by_class = [torch.nonzero(records.y == c).flatten() for c in classes_of(cfg, task, site.name)]
    held = {place: rows for place, rows in enumerate(by_class) if len(rows)}
    for params in psg.fresh_networks(cfg, task, key):
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


METHOD = Method(
    name="dsc",
    summary="images fitted to exact gradients class by class, all records in one place",
    paper="Zhao et al. 2021 (DSC)",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee=None,
    init=init,
    client=client,
    server=psg.server,
    plan=fedavg.plan,
    shapes=shapes,
    possible=possible,
    pooled=True,
    kinds=("image",),
    tiny={"images": 2, "networks": 2, "stops": 2, "batch": 8, "image_lr": 1.0, "epochs": 2},
)
