"""FedDM with a guarantee: the class means that the images match are noisy.

Paper: Xiong, Wang, Cheng, Yu, Hsieh, "FedDM: Iterative Distribution Matching for Communication-Efficient Federated
Learning", https://arxiv.org/abs/2207.09653.

What leaves: synthetic images with public labels, every round. A site asks the door for noisy sums by class (features of
norm at most 1, and the class's size in the same release) and pays for each network it looks through. Differs from the
paper's private form: that adds noise to gradients of the images; here the means are noised, and the images are
post-processing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from pydantic import Field
from torch.nn import functional as F

from prismfl.core.method import DPSettings, Items, Site, State
from prismfl.core.task import Task
from prismfl.kernels.clipped_gradients import tame
from prismfl.kernels.loss import Params
from prismfl.methods.landscape import auto, feddm
from prismfl.nets.classifier import Classifier, network
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

COUNT_SHARE = 0.1  # of a row's squared norm: the class's size, released with the sum


class Config(feddm.Matching, DPSettings):
    """Noisy class means."""

    batch: float = Field(256, gt=0, description="expected batch of a query")
    image_lr: float = Field(20.0, gt=0, description="learning rate of the images")


def bounded(classifier: Classifier, params: Params, x: torch.Tensor) -> torch.Tensor:
    """A record's features scaled to norm 1: what it may add to a sum."""
    return F.normalize(feddm.features(classifier, params, x), dim=1)


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images whose class means are those of the door's noisy sums."""
    task = site.task
    classifier, _ = network(task, key=key)
    classes = len(task.classes)

    def means(params: Params) -> torch.Tensor:
        @torch.no_grad()
        def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            # Of weights that are nobody's training, each record by itself: see `clipped_gradient_sum`.
            one_by_one = [bounded(classifier, params, one) for one in torch.split(x, len(x) if tame(params) else 1)]
            seen = torch.cat(one_by_one)
            sized = torch.full_like(seen[:, :1], math.sqrt(COUNT_SHARE))
            row = torch.cat([math.sqrt(1 - COUNT_SHARE) * seen, sized], 1)
            return (F.one_hot(y, classes).to(row)[:, :, None] * row[:, None]).flatten(1)

        sums = site.records.noisy_sum(rows, bound=1.0, sigma=cfg.noise, batch=cfg.batch).reshape(classes, -1)
        count = (sums[:, -1] / math.sqrt(COUNT_SHARE)).clamp_min(max(1.0, 2 * cfg.noise / math.sqrt(COUNT_SHARE)))
        return (sums[:, :-1] / math.sqrt(1 - COUNT_SHARE) / count[:, None]).to(task.device)

    made = feddm.matched(cfg, state, site, key, look=partial(bounded, classifier), means=means)
    return made, made


def plan(cfg: Config, task: Task) -> Cost:
    """One sampled Gaussian answer per network."""
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.networks * cfg.rounds)


METHOD = replace(
    feddm.METHOD,
    name="feddm-dp",
    summary="FedDM with noisy class means",
    settings=Config,
    guarantee="site",
    client=client,
    plan=plan,
    advice=auto.means_advice,
    auto=auto.feddm,
)
