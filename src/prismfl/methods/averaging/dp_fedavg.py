"""DP-FedAvg at record level: FedAvg whose local training is DP-SGD on each site.

Paper: Abadi et al., "Deep Learning with Differential Privacy", https://arxiv.org/abs/1607.00133, at each site; the
rounds are FedAvg's, https://arxiv.org/abs/1602.05629.

What leaves: the model's weights, every round, protected by the noise of every step that made them. The noise
multiplier is calibrated over all steps of all rounds. Differs from common code: Poisson batches, and the gradient is
divided by the expected batch, never by the realised one.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from prismfl.core.method import DPSettings, Items, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.averaging import auto, fedavg
from prismfl.nets.classifier import network
from prismfl.nets.training import descend
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(fedavg.Averaging, DPSettings):
    """FedAvg's settings, with DP-SGD in the place of local epochs."""

    rounds: int = Field(10, ge=1, description="communication rounds")
    steps: int = Field(20, ge=1, description="local DP-SGD steps per round")
    batch: float = Field(256, gt=0, description="expected batch of a step")
    clip: float = Field(0.1, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(2.0, gt=0, description="local learning rate")
    mu: float = Field(0.0, ge=0, description="strength of the proximal term (DP-FedProx)")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The model after some steps of DP-SGD on the site's records."""
    task = site.task
    classifier, _ = network(task, key=key)
    start = state.items["model"].to(task.device)

    def gradient(params: Params, i: int) -> Params:
        noisy = site.records.noisy_gradient(
            classifier.record_loss, params, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise
        )
        return fedavg.add_proximal(noisy, params, start, cfg.mu)

    return {"model": Weights(descend(dict(start), gradient, steps=cfg.steps, lr=cfg.lr))}, {}


def plan(cfg: Config, task: Task) -> Cost:
    """Every step of every round is one sampled Gaussian answer."""
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.steps * cfg.rounds)


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """No longer a way than the planned steps: clipped gradients of all records there are, and their noise."""
    start = state.items["model"].tensors
    moved = robust.most_moved(
        task, robust.size(start), batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise, steps=cfg.steps
    )
    # The proximal term pulls back; only at a rate beyond 2 / mu would it push.
    most = cfg.lr * moved * max(1.0, abs(1.0 - cfg.lr * cfg.mu)) ** cfg.steps + 1e-3 * (1.0 + robust.length(start))
    found = robust.length(items["model"].tensors, start)
    if found <= most:
        return None
    return f"its update is {found:.3g} long, and {cfg.steps} steps reach {most:.3g} at most"


METHOD = replace(
    fedavg.METHOD,
    name="dp-fedavg",
    summary="FedAvg with DP-SGD on each site",
    paper="McMahan et al. 2017, arXiv:1602.05629; Abadi et al. 2016, arXiv:1607.00133",
    settings=Config,
    guarantee="site",
    client=client,
    plan=plan,
    possible=possible,
    advice=auto.record_advice,
    auto=auto.by_record,
    tiny={"rounds": 2, "steps": 2, "batch": 8},
)
