"""FedEM with a guarantee: the perturbed gradient of each record goes through the door, clipped, noised and accounted.

Paper: "FedEM: A Privacy-Preserving Framework for Concurrent Utility Preservation in Federated Learning",
https://arxiv.org/abs/2503.06021; Abadi et al., "Deep Learning with Differential Privacy",
https://arxiv.org/abs/1607.00133.

What leaves: the noisy sum of clipped per-record gradients, each taken at the record's own perturbed input, divided by
the expected batch. A record's perturbation depends on that record, the public model and random numbers of the record's
own, which are secret, so the clip bounds what one record can do and the cost is DP-SGD's, no more and no less: FedEM's
perturbation neither helps nor hurts the account. It answers the paper's open question about a formal bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from pydantic import Field

from prismfl.core.method import DPSettings, Items, Site, State
from prismfl.core.payloads import Gradient
from prismfl.core.task import Task
from prismfl.kernels.loss import Loss, Params
from prismfl.methods import robust
from prismfl.methods.gradients import auto, fedem, fedsgd
from prismfl.nets.classifier import Classifier, cross_entropy_of_one, network
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(fedem.GradientSettings, fedem.Perturbing, DPSettings):
    """FedEM's settings, with a bound on each record's gradient."""

    batch: float = Field(32, gt=0, description="expected batch of a round")
    clip: float = Field(1.0, gt=0, description="bound on the norm of a record's gradient")


@dataclass(frozen=True)
class PerturbedLoss:
    """The loss of one record at its perturbed input, which starts where the record's own normal numbers `z` say.

    It is more than a criterion of the network's output (the input moves first), so it has none: the door then takes
    the gradient of one record at a time.
    """

    module: torch.nn.Module
    settings: fedem.Perturbing

    def __call__(self, params: Params, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """The loss of one perturbed record."""
        one, classifier = x.unsqueeze(0), Classifier(self.module)
        start = fedem.shift_of(z, tuple(one.shape), self.settings)
        shift = fedem.perturbation(classifier, dict(params), one, y.unsqueeze(0), cfg=self.settings, start=start)
        return cross_entropy_of_one(classifier.logits(params, one + shift), y)


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The noisy gradient of the records at their perturbed inputs."""
    task = site.task
    classifier, _ = network(task, key=key)

    gradient = site.records.noisy_gradient(
        cast(Loss, PerturbedLoss(classifier.module, cfg)),
        state.items["model"].to(task.device),
        batch=cfg.batch,
        clip=cfg.clip,
        sigma=cfg.noise,
        normals=fedem.normals_of(task.shape, cfg),
    )
    return {"gradient": Gradient(gradient)}, {}


def plan(cfg: Config, task: Task) -> Cost:
    """One sampled Gaussian answer per round."""
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.rounds)


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """No longer a gradient than clipped ones of all records there are, and their noise."""
    size = robust.size(items["gradient"].tensors)
    most = robust.most_moved(task, size, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise)
    return fedsgd.too_long(items, most)


METHOD = replace(
    fedem.METHOD,
    name="fedem-dp",
    summary="FedEM's perturbed gradients, clipped and noised",
    paper="FedEM 2025, arXiv:2503.06021; Abadi et al. 2016, arXiv:1607.00133",
    settings=Config,
    guarantee="site",
    client=client,
    plan=plan,
    possible=possible,
    advice=auto.advice,
    auto=auto.by_gradient,
    tiny={"rounds": 2, "batch": 8, "iterations": 2},
)
