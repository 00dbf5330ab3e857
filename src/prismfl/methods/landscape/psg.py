"""Private set generation (Chen, Kerkouche, Fritz 2022): images fitted to noisy gradients of many fresh networks, once.

Paper: Chen, Kerkouche, Fritz, "Private Set Generation with Discriminative Information",
https://arxiv.org/abs/2211.04446.

What leaves: synthetic images with public labels, in one release; the model is trained on them alone. `psg` pools all
records in one place, as published; `psg-sites` lets every site make its own set and the server train on all of them.
Each network starts afresh and is trained on the images from stop to stop, so they serve any network, not one.

Differs from the paper: Poisson batches divided by their expected size; all classes in one query, since a query per
class would have to say how large the class is; images begin as noise, and there is no augmentation.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from prismfl.core.method import DPSettings, Items, Site, State
from prismfl.core.task import Task
from prismfl.methods.landscape import auto, dsc
from prismfl.methods.landscape.image_exchange import first_images, labels_of, sealed_images
from prismfl.methods.landscape.matching import Matcher, Schedule, approximate
from prismfl.nets.classifier import network
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(dsc.OneShot, DPSettings):
    """Dataset condensation's settings, with the bound and the batch of each noisy gradient."""

    batch: float = Field(256, gt=0, description="expected batch of a query")
    clip: float = Field(0.1, gt=0, description="bound on the norm of a record's gradient")

    def schedule(self) -> Schedule:
        """One path from each fresh network, one query at each stop."""
        return Schedule(
            stops=self.stops,
            updates=self.updates,
            model_steps=self.model_steps,
            image_lr=self.image_lr,
            momentum=self.momentum,
            lr=self.lr,
        )


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images fitted to noisy gradients along the training of fresh networks."""
    task = site.task
    classifier, _ = network(task, key=key)
    matcher, y = Matcher(classifier, reference=site.records.reference), labels_of(cfg, task, site.name).to(task.device)
    x = first_images(site, key, count=len(y), carried=False)
    for params in dsc.fresh_networks(cfg, task, key):
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


def plan(cfg: Config, task: Task) -> Cost:
    """One sampled Gaussian answer at every stop of every network."""
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.networks * cfg.schedule().queries)


METHOD = replace(
    dsc.METHOD,
    name="psg",
    summary="images fitted to noisy gradients of fresh networks, all records in one place",
    paper="Chen et al. 2022 (PSG), arXiv:2211.04446",
    settings=Config,
    guarantee="site",
    client=client,
    plan=plan,
    advice=auto.advice,
    auto=auto.psg,
    tiny={"images": 2, "networks": 2, "stops": 2, "updates": 2, "batch": 8, "image_lr": 1.0, "epochs": 2},
)
SITES = replace(METHOD, name="psg-sites", summary="PSG at every site, the server trains on all sets", pooled=False)
