"""DP-FETA (Li et al. 2025): central images first, then DP-SGD of a diffusion model that was warmed up on them.

Paper: Li et al., "From Easy to Hard: Building a Shortcut for Differentially Private Image Synthesis",
https://arxiv.org/abs/2504.01395.

Easy stage: noisy sums over Poisson samples of a site's records, by class and at a low resolution (central images);
a small U-Net learns to draw them, which is post-processing. Hard stage: DP-SGD on the records, several noise draws
averaged inside each record's gradient. Both stages are in one account. What leaves a site each round: the averaged
network and noisy class sizes (share = "generator"), or images drawn from it (share = "samples"); with easy = "pooled"
also the noisy sums, in the first round, which the server adds up, so that every site warms up on everybody's.

A long training is spread over `rounds`: after each the site keeps where it is in its memory and releases the network so
far, so a run that was interrupted goes on from the last round, and no question is asked twice. A part that was cut off
left nothing and is done again; it is charged when it leaves.

Differs from the paper: sums over noised denominators (the published code divides by true counts); a smaller network,
fewer draws and steps; `aggregate = "bucket"` divides a class by public patterns, which gives more kinds of central
images for one question; Adam instead of the paper's settings, without guidance. With `network = "frequencies"` the
model is small enough for many records and noise draws on a CPU: linear layers on the low frequencies of a picture. The
easy stage then asks for the mean and the covariance of each class instead of central images, and the diffusion starts
from these Gaussians instead of from a warm-up.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import JsonDict, Payload, Statistics, Synthesizer, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Loss, Params
from prismfl.methods import robust
from prismfl.methods.generators import auto
from prismfl.methods.generators import images as generators
from prismfl.methods.generators.central import Central
from prismfl.methods.generators.class_moments import ClassMoments
from prismfl.methods.generators.diffusers import Diffuser, OnFrequencies, OnPixels, fixed_of
from prismfl.methods.generators.images import COUNTS
from prismfl.nets import diffusion
from prismfl.nets.diffusion import Learner, Sampler
from prismfl.nets.frequencies import Coefficients
from prismfl.nets.training import cosine
from prismfl.nets.unet import UNetShape, build_unet
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

SUMS = "sums"
HIGHEST, LOWEST = 12.0, 0.05  # of the noise levels that frequencies are drawn through


class Config(generators.GeneratorSettings):
    """Both stages, the network and its sampler."""

    rounds: int = Field(1, ge=1, description="parts of the training: each ends with a release and a checkpoint")
    easy: Literal["none", "own", "pooled"] = Field("own", description="central images: of the site, of all sites, none")
    aggregate: Literal["mean", "mode", "bucket"] = Field("mean", description="what a central image is of its sample")
    queries: int = Field(5, ge=1, description="questions for central images")
    query_rate: float = Field(0.1, gt=0, le=1, description="Poisson rate of each")
    query_factor: float = Field(5.0, gt=0, description="their noise, as a multiple of sigma")
    query_side: int = Field(14, ge=2, description="side of central images in pixels")
    query_bound: float = Field(0.5, gt=0, description="root mean square pixel above which a picture is dimmed")
    bins: int = Field(6, ge=2, description="grey levels of modes")
    buckets: int = Field(8, ge=1, description="parts of a class for aggregate = bucket")
    count_factor: float = Field(20.0, gt=0, description="noise of class sizes without central images, likewise")
    warm_steps: int = Field(400, ge=0, description="steps on central images")
    warm_batch: int = Field(64, ge=1, description="batch of a step on central images")
    warm_lr: float = Field(2e-3, gt=0, description="learning rate on central images, falling along a cosine")
    steps: int = Field(150, ge=1, description="DP-SGD steps in all")
    batch: float = Field(1024, gt=0, description="expected batch")
    draws: int = Field(4, ge=1, description="noise draws per record, averaged before the clip")
    clip: float = Field(0.05, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(1e-3, gt=0, description="of DP-Adam, falling to 0")
    mean: float = Field(0.97, ge=0, lt=1, description="memory of the running mean of the weights, which is released")
    network: Literal["unet", "frequencies"] = Field(
        "unet", description="a U-Net on pixels, or linear layers on low frequencies around a Gaussian of each class"
    )
    frequencies: int = Field(10, ge=2, description="kept a side, with network = frequencies")
    width: int = Field(24, ge=2, multiple_of=2, description="channels of the U-Net, or of the linear layers")
    sampler: Literal["euler", "heun", "stochastic"] = Field("heun", description="the first two are deterministic")
    sampler_steps: int = Field(10, ge=2, description="noise levels that an image is drawn through")
    grid: int = Field(2, ge=0, description="images per class, of each round, that show how the training goes")

    @model_validator(mode="after")
    def _a_round_for_the_sums(self) -> Self:
        if self.easy == "pooled" and self.rounds < 2:
            raise ValueError("expected rounds >= 2 with easy = pooled: the first adds up the sites' central images")
        return self

    @property
    def first(self) -> int:
        """The round in which training begins."""
        return 1 if self.easy == "pooled" else 0

    def part(self, round: int) -> range:
        """The DP-SGD steps of a round."""
        parts, i = self.rounds - self.first, round - self.first
        return range(self.steps * i // parts, self.steps * (i + 1) // parts) if i >= 0 else range(0)


def model_of(cfg: Config, task: Task) -> Diffuser:
    """The public structure of the network, and how pictures are drawn from it."""
    if cfg.network == "unet":
        sampler = Sampler(cfg.sampler, cfg.sampler_steps)
        return OnPixels(UNetShape(task.shape, len(task.classes), cfg.width), sampler, task.device)
    sampler = Sampler(cfg.sampler, cfg.sampler_steps, highest=HIGHEST, lowest=LOWEST)
    return OnFrequencies(space_of(cfg, task), len(task.classes), cfg.width, sampler, cfg.easy != "none", task.device)


def space_of(cfg: Config, task: Task) -> Coefficients:
    """The low frequencies of the task's pictures."""
    return Coefficients(task.shape, min(cfg.frequencies, task.shape[1]))


def central_of(cfg: Config, task: Task) -> Central | ClassMoments:
    """The questions for central images, or for the Gaussian of each class."""
    if cfg.network == "frequencies":
        return ClassMoments(space_of(cfg, task), len(task.classes), cfg.noise * cfg.query_factor)
    return Central(
        kind=cfg.aggregate,
        image=task.shape,
        classes=len(task.classes),
        side=min(cfg.query_side, task.shape[1]),
        queries=cfg.queries,
        batch=cfg.query_rate * task.records,
        sigma=cfg.noise * cfg.query_factor,
        bound=cfg.query_bound,
        bins=cfg.bins,
        buckets=cfg.buckets,
    )


def count_noise(cfg: Config, task: Task) -> float:
    """Standard deviation of a released class size."""
    if cfg.easy == "none":
        return cfg.noise * cfg.count_factor
    return central_of(cfg, task).total_noise(records=task.records)


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The first questions where they have not been asked, then this round's part of the training."""
    task, memory = site.task, dict(site.memory)
    sums: torch.Tensor | None = None
    if "counts" not in memory:  # the first round, or a later one that this site is the first time in
        sums, memory["counts"] = _first_questions(cfg, site)
    if "training" not in memory and state.round >= cfg.first:
        released = sums if cfg.easy != "pooled" else state.items["central"].tensors[SUMS]
        learner, fixed = _begin(cfg, task, released, key.child("warm"))
        memory |= {"training": Weights(learner.tensors()), **({"fixed": Weights(fixed)} if fixed else {})}
    why, model = None, model_of(cfg, task)
    if state.round >= cfg.first:
        fixed = dict(memory["fixed"].tensors) if "fixed" in memory else {}
        learner = Learner.of(memory["training"].tensors).to(task.device)
        learner, why = train(cfg, site, learner, cfg.part(state.round), loss=model.loss(fixed))
        memory["training"] = Weights(learner.tensors())
        network = {**learner.mean, **fixed}
    else:
        network = {name: torch.zeros(size) for name, size in model.shapes().items()}
    tensors = {**network, COUNTS: generators.said(memory["counts"].tensors[COUNTS], why)}
    items = generators.release(
        cfg, task, tensors, model.draw, key=key.child("draw"), noise=count_noise(cfg, task),
        spec=specs(cfg, task, site.name)["generator"], last=state.round == cfg.rounds - 1,
    )  # fmt: skip
    return {"central": _central_item(cfg, task, sums), **items}, memory


def specs(cfg: Config, task: Task, site: str) -> dict[str, JsonDict]:
    """The words that the generator carries: its kind and the declared classes."""
    return {"generator": {"kind": "dpdm" if cfg.easy == "none" else "dp-feta", "classes": list(task.classes)}}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Class sizes and weights that training can reach, and central sums as long as records allow."""
    reach = generators.ADAM * (cfg.warm_lr * cfg.warm_steps + cfg.lr * cfg.steps)
    return robust.first_fault(
        lambda: generators.possible(task, items, noise=count_noise(cfg, task), reach=reach),
        lambda: _sums_fault(cfg, task, items),
    )


def _sums_fault(cfg: Config, task: Task, items: Items) -> str | None:
    """A record adds a vector of norm 1 at most to an answer, of which the count takes a fixed part."""
    if cfg.easy != "pooled":
        return None
    central, sums = central_of(cfg, task), items["central"].tensors[SUMS].double()
    rate = 1.0 if central.batch is None else task.rate(central.batch)
    most = 1.001 * robust.most_drawn(rate * robust.most_held(task)) + robust.noise_norm(sums[0].numel(), central.sigma)
    if bool((torch.linalg.vector_norm(sums.flatten(1), dim=1) > central.together * most + 1e-3).any()):
        return "sums of central images are longer than its records allow"
    return None


def _first_questions(cfg: Config, site: Site) -> tuple[torch.Tensor | None, Payload]:
    """Central sums with class sizes in them, or class sizes alone."""
    if cfg.easy == "none":
        return None, Statistics({COUNTS: site.records.noisy_histogram(sigma=cfg.noise * cfg.count_factor)})
    central = central_of(cfg, site.task)
    sums = central.ask(site.records)
    return sums, Statistics({COUNTS: central.counts(sums, records=site.task.records)})


def _central_item(cfg: Config, task: Task, sums: torch.Tensor | None) -> Statistics:
    if cfg.easy != "pooled":
        return Statistics({})
    return Statistics({SUMS: torch.zeros(_sums_shape(cfg, task)) if sums is None else sums})


def _begin(cfg: Config, task: Task, sums: torch.Tensor | None, key: Key) -> tuple[Learner, Params]:
    """The training at its start, and what is fixed beforehand.

    A U-Net learns to draw the central images; around Gaussians there is nothing to learn beforehand.
    """
    learner, sites = model_of(cfg, task).fresh(key.child("network")), 1 if cfg.easy == "own" else len(task.sites)
    if sums is None:
        return learner, {}
    central = central_of(cfg, task)
    if isinstance(central, ClassMoments):
        return learner, fixed_of(central.gaussians(sums, sites=sites))
    images = central.images(sums, sites=sites)
    if not len(images[0]):
        return learner, {}
    warm = diffusion.warm_up(
        build_unet(UNetShape(task.shape, len(task.classes), cfg.width), Key.seed(0)),
        diffusion.sketched(learner, *images).to(task.device),
        x=images[0].to(task.device),
        y=images[1],
        steps=cfg.warm_steps,
        batch=cfg.warm_batch,
        lr=cfg.warm_lr,
        key=key.child("steps"),
    )
    return warm, {}


def train(cfg: Config, site: Site, learner: Learner, part: range, *, loss: Loss) -> tuple[Learner, str | None]:
    """The DP-SGD steps of `part`. If weights stop being finite, the rest is charged all the same and the reason said.

    Weights come out of noised gradients alone, so that they diverged is no secret of the records.
    """
    normals = model_of(cfg, site.task).normals(cfg.draws)
    for i in part:
        gradient = site.records.noisy_gradient(
            loss,
            learner.params,
            batch=cfg.batch,
            clip=cfg.clip,
            sigma=cfg.noise,
            normals=normals,
        )
        after = learner.step(gradient, cosine(cfg.lr, i, cfg.steps), keep=cfg.mean)
        if not after.finite:
            site.records.forfeit(sigma=cfg.noise, times=part.stop - i - 1, batch=cfg.batch)
            return learner, f"Weights are not finite after DP-SGD step {i + 1} of {cfg.steps}; lower lr ({cfg.lr:g})."
        learner = after
    return learner, None


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Pools the central sums first; after the last round, images and the classifier trained on them."""
    if state.round < cfg.first:
        return {"central": Statistics({SUMS: _pooled_sums(cfg, task, inbox)})}
    noise, draw = count_noise(cfg, task), model_of(cfg, task).draw
    kept: dict[str, Payload] = {name: p for name, p in state.items.items() if name in ("central", "history")}
    kept |= _history(cfg, task, state, inbox, draw, key.child("history"))
    if state.round < cfg.rounds - 1:
        return kept
    made = generators.gather(cfg, task, inbox, draw, noise=noise, key=key.child("draw"))
    sent = {f"generator-{site}": items["generator"] for site, items in sorted(inbox.items())}
    return {**kept, **(sent if cfg.share == "generator" else {}), **generators.outcome(cfg, task, made, key)}


def _pooled_sums(cfg: Config, task: Task, inbox: Inbox) -> torch.Tensor:
    """Everybody's sums; in no class does one site outweigh all others."""
    sites = sorted(inbox)
    sums = torch.stack([inbox[site]["central"].tensors[SUMS] for site in sites])
    counts = torch.stack([inbox[site]["generator"].tensors[COUNTS] for site in sites])
    factors = robust.capped(counts, records=task.records, noise=count_noise(cfg, task))
    per_class = sums.shape[2] // counts.shape[1]
    return (sums * factors.repeat_interleave(per_class, 1)[:, None, :, None]).sum(0)


def _history(cfg: Config, task: Task, state: State, inbox: Inbox, draw: generators.Draw, key: Key) -> Items:
    """A few images of each round, always from the same noise, so that one sees the training go on."""
    if cfg.share != "generator" or not cfg.grid:
        return {}
    labels = torch.arange(len(task.classes)).repeat_interleave(cfg.grid)
    site = sorted(inbox)[0]
    fixed = Key.seed(0).child("history")
    now = generators.to_bytes(draw(inbox[site]["generator"].tensors, labels, fixed))
    before = state.items.get("history")
    x = now if before is None else torch.cat([before.tensors["x"], now])
    return {"history": SyntheticSet.of(x, labels.repeat(len(x) // len(labels)))}


def plan(cfg: Config, task: Task) -> Cost:
    """The first questions and all DP-SGD steps."""
    return _easy(cfg, task) + task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.steps)


def round_cost(cfg: Config, task: Task, round: int, first: bool) -> Cost:
    """The first questions where the site has not asked them yet, and this round's steps."""
    part = cfg.part(round)
    steps = task.gaussian(cfg.noise, batch=cfg.batch, times=len(part))
    return _easy(cfg, task) + steps if first else steps


def _easy(cfg: Config, task: Task) -> Cost:
    """The first questions: central images, or class sizes alone."""
    if cfg.easy == "none":
        return task.gaussian(cfg.noise * cfg.count_factor)
    central = central_of(cfg, task)
    return task.gaussian(central.sigma, batch=central.batch, times=central.queries)


def _sums_shape(cfg: Config, task: Task) -> tuple[int, ...]:
    # Shapes do not depend on sigma, which a plan may not have yet.
    return central_of(cfg.model_copy(update={"sigma": 0.0}), task).shape


def shapes(cfg: Config, task: Task) -> Shapes:
    """Central sums where they are pooled, and the generator or its images."""
    central = {SUMS: ("float32", _sums_shape(cfg, task))} if cfg.easy == "pooled" else {}
    return {"central": central, **generators.release_shapes(cfg, task, model_of(cfg, task).shapes())}


def advice(cfg: Config, task: Task) -> list[str]:
    """What the sampling rates mean for this many records, before anything is spent."""
    found = auto.advice(cfg, task, sum(math.prod(size) for size in model_of(cfg, task).shapes().values()))
    if cfg.batch > task.records:
        found.append(f"batch {cfg.batch:g} takes in all of the {task.records} declared records: nothing is sampled.")
    rate = cfg.query_rate if cfg.network == "unet" else 1.0
    if cfg.easy != "none" and rate * task.records < 20 * len(task.classes):
        found.append(
            f"query_rate {rate:g} of {task.records} records is less than 20 records a class: central images "
            "will be noise."
        )
    return found


METHOD = Method(
    name="dp-feta",
    summary="central images, then DP-SGD of a diffusion model warmed up on them",
    paper="Li et al. 2025, arXiv:2504.01395",
    settings=Config,
    leaves={"central": Statistics, "generator": Synthesizer, "synthetic": SyntheticSet},
    guarantee="site",
    init=generators.init,
    client=client,
    server=server,
    plan=plan,
    round_cost=round_cost,
    shapes=shapes,
    specs=specs,
    possible=possible,
    advice=advice,
    auto=partial(auto.diffusion, central=True),
    kinds=("image",),
    tiny={
        "queries": 2, "query_rate": 0.5, "query_side": 4, "warm_steps": 2, "warm_batch": 4, "steps": 3, "batch": 8,
        "draws": 2, "width": 4, "sampler_steps": 2, "samples": 12, "train_steps": 3, "grid": 1,
    },
)  # fmt: skip
