"""FedEM (2025): each site perturbs its batch before it takes the gradient that it shares.

Paper: "FedEM: A Privacy-Preserving Framework for Concurrent Utility Preservation in Federated Learning",
https://arxiv.org/abs/2503.06021.

For every record a perturbation is found by a few steps of *descent* on the loss over the input, kept between two norms;
the gradient of the perturbed batch leaves, and the server averages gradients every batch (FedSGD).

What leaves: the gradient of a perturbed batch. There is no differential privacy in it: the perturbation is a function
of the record, bounded in size, and an attack that inverts the gradient finds the record up to that size. The
perturbations themselves are the site's memory and never travel.

Differs from the paper: radii and step are in 1/255 of a pixel in [0, 1] (the paper's are in 1/255 of the normalised
input: divide by the data set's standard deviation to compare); batches are drawn afresh each round, not by epochs; the
moments of the server's Adam travel down with the model, as the server keeps nothing that its state does not hold.
With no iterations and radius 0 it is FedSGD.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch.nn import functional as F

from prismfl.core.method import Inbox, Items, Settings, Site, State
from prismfl.core.payloads import Gradient, Statistics, Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.averaging import fedavg
from prismfl.methods.gradients import fedsgd
from prismfl.nets.classifier import Classifier, network
from prismfl.nets.training import cosine, step
from prismfl.rng import Key

PIXEL = 1.0 / 255.0
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8


class GradientSettings(fedavg.Averaging):
    """What every method has that shares one gradient a round with a server that may use Adam."""

    rounds: int = Field(200, ge=1, description="communication rounds: one batch each")
    lr: float = Field(0.01, gt=0, description="the server's learning rate (sgd: falling along a cosine)")
    optimiser: Literal["adam", "sgd"] = Field("adam", description="the server's optimiser")


class Perturbing(Settings):
    """How a record is perturbed. Lengths are in units of 1/255 of a pixel in [0, 1]."""

    iterations: int = Field(5, ge=0, description="descent steps on the inputs (N)")
    norm: Literal["linf", "l2"] = Field("linf", description="norm of the bounds: largest pixel, or length")
    rho_min: float = Field(0.0, ge=0, description="least norm of a perturbation, in 1/255")
    rho_max: float = Field(8.0, ge=0, description="largest norm of a perturbation, in 1/255")
    stride: float = Field(1.6, ge=0, description="length of a step on the inputs, in 1/255")
    direction: Literal["sign", "normalised"] = Field("sign", description="step along the gradient's sign or direction")
    start: Literal["random", "zero"] = Field("random", description="where a fresh perturbation starts")

    @model_validator(mode="after")
    def _ordered(self) -> Perturbing:
        if self.rho_min > self.rho_max:
            raise ValueError(f"Expected rho_min <= rho_max, got {self.rho_min} and {self.rho_max}")
        return self


class Config(GradientSettings, Perturbing):
    """FedSGD's settings and the perturbation's."""

    batch: int = Field(32, ge=1, description="records in a site's batch")
    carry: bool = Field(False, description="keep each record's perturbation on the site for its next batch")


def init(cfg: GradientSettings, task: Task, key: Key) -> Items:
    """A fresh model, and zero moments where the server uses Adam."""
    items = dict(fedavg.init(cfg, task, key))
    if cfg.optimiser == "adam":
        zeros = {k: torch.zeros_like(v) for k, v in items["model"].tensors.items()}
        items["moments"] = _moments(zeros, zeros)
    return items


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The gradient of the perturbed batch; perturbations stay on the site."""
    task = site.task
    classifier, _ = network(task, key=key)
    params = state.items["model"].to(task.device)
    records = site.records.exact()
    rows = fedsgd.batch_rows(len(records), cfg.batch, key)
    x, y = records.x[rows], records.y[rows]
    start = first_shift(x.shape, cfg, key.child("start").torch()).to(x.device)
    kept = site.memory["perturbation"].to(task.device)["delta"] if "perturbation" in site.memory else None
    if kept is not None:
        start = kept[rows]
    shift = perturbation(classifier, params, x, y, cfg=cfg, start=start)
    gradient = classifier.gradient(params, x + shift, y)
    if not cfg.carry:
        return {"gradient": Gradient(gradient)}, {}
    every = torch.zeros_like(records.x) if kept is None else kept
    every[rows] = shift
    return {"gradient": Gradient(gradient)}, {"perturbation": Statistics({"delta": every})}


def first_shift(shape: torch.Size, cfg: Perturbing, generator: torch.Generator) -> torch.Tensor:
    """Where the perturbations of a batch start: at zero, or anywhere in the ball of radius rho_max."""
    if cfg.start == "zero":
        return torch.zeros(shape)
    if cfg.norm == "linf":
        return (2.0 * torch.rand(shape, generator=generator) - 1.0) * cfg.rho_max * PIXEL
    drawn = torch.randn(shape, generator=generator)
    length = torch.rand((len(drawn), *[1] * (len(shape) - 1)), generator=generator) * cfg.rho_max * PIXEL
    return drawn / size_of(drawn, "l2") * length


def shift_of(z: torch.Tensor, shape: tuple[int, ...], cfg: Perturbing) -> torch.Tensor:
    """The same for one record, out of `normals_of` standard normal numbers of its own."""
    if cfg.start == "zero":
        return z.new_zeros(shape)
    if cfg.norm == "linf":
        return torch.erf(z.reshape(shape) / math.sqrt(2.0)) * cfg.rho_max * PIXEL
    length = torch.special.ndtr(z[0]) * cfg.rho_max * PIXEL
    shift: torch.Tensor = z[1:] / torch.linalg.vector_norm(z[1:]) * length
    return shift.reshape(shape)


def normals_of(shape: tuple[int, ...], cfg: Perturbing) -> int:
    """How many normal numbers a record's starting point takes."""
    return 1 if cfg.start == "zero" else math.prod(shape) + (cfg.norm == "l2")


def perturbation(
    classifier: Classifier, params: Params, x: torch.Tensor, y: torch.Tensor, *, cfg: Perturbing, start: torch.Tensor
) -> torch.Tensor:
    """The error-minimising perturbation of each record: `iterations` projected descent steps from `start`.

    Records do not touch each other, so a batch of one under vmap gives a record the same perturbation.
    """

    def loss(inputs: torch.Tensor) -> torch.Tensor:
        logits = classifier.logits(fixed, inputs)
        chosen = torch.arange(logits.shape[1], device=y.device) == y.unsqueeze(-1)
        return -(F.log_softmax(logits, dim=1) * chosen).sum()

    fixed = {k: v.detach() for k, v in params.items()}
    shift = project(start, cfg)
    for _ in range(cfg.iterations):
        slope = torch.func.grad(loss)(x + shift)
        move = slope.sign() if cfg.direction == "sign" else slope / size_of(slope, "l2").clamp(min=1e-12)
        shift = project(shift - cfg.stride * PIXEL * move, cfg)
    return shift.detach()


def project(shift: torch.Tensor, cfg: Perturbing) -> torch.Tensor:
    """Each record's perturbation scaled (L-infinity: cut) into rho_min <= norm <= rho_max."""
    low, high = cfg.rho_min * PIXEL, cfg.rho_max * PIXEL
    if cfg.norm == "linf":
        shift = shift.clamp(-high, high)
    else:
        size = size_of(shift, "l2")
        shift = torch.where(size > high, shift * (high / size.clamp(min=1e-12)), shift)
    if low == 0.0:
        return shift
    # A perturbation of exactly zero has no direction to grow in: it grows evenly.
    shift = torch.where(size_of(shift, cfg.norm) > 0.0, shift, torch.full_like(shift, 1e-6))
    size = size_of(shift, cfg.norm)
    return torch.where(size < low, shift * (low / size.clamp(min=1e-12)), shift)


def size_of(shift: torch.Tensor, norm: str) -> torch.Tensor:
    """The norm of each record's part, shaped to divide it."""
    order = float("inf") if norm == "linf" else 2.0
    sizes: torch.Tensor = torch.linalg.vector_norm(shift.flatten(1), ord=order, dim=1)
    return sizes.reshape(-1, *[1] * (shift.dim() - 1))


def server(cfg: GradientSettings, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """One step of the server's optimiser along the combined gradient."""
    gradient = robust.combine(cfg.aggregate, inbox, "gradient")
    model = state.items["model"].tensors
    if cfg.optimiser == "sgd":
        return {"model": Weights(step(model, gradient, cosine(cfg.lr, state.round, cfg.rounds)))}
    old, t = state.items["moments"].tensors, state.round + 1
    first = {k: BETA1 * old[f"first/{k}"] + (1 - BETA1) * g for k, g in gradient.items()}
    second = {k: BETA2 * old[f"second/{k}"] + (1 - BETA2) * g * g for k, g in gradient.items()}
    move = {k: (m / (1 - BETA1**t)) / ((second[k] / (1 - BETA2**t)).sqrt() + TINY) for k, m in first.items()}
    return {"model": Weights(step(model, move, cfg.lr)), "moments": _moments(first, second)}


def _moments(first: Params, second: Params) -> Statistics:
    named = {f"first/{k}": v for k, v in first.items()}
    return Statistics({**named, **{f"second/{k}": v for k, v in second.items()}})


METHOD = replace(
    fedsgd.METHOD,
    name="fedem",
    summary="FedSGD on inputs perturbed to lower the loss; no guarantee",
    paper="FedEM 2025, arXiv:2503.06021",
    settings=Config,
    init=init,
    client=client,
    server=server,
    kinds=("image",),
    tiny={"rounds": 2, "batch": 8, "iterations": 2, "carry": True},
)
