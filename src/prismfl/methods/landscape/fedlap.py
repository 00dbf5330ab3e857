"""FedLAP (Wang, Kerkouche, Chen, Fritz 2023, Algorithms 1 and 2): images that stand for each site's loss, no guarantee.

Paper: Wang, Kerkouche, Chen, Fritz, "FedLAP-DP: Federated Learning by Sharing Differentially Private Loss
Approximations", https://arxiv.org/abs/2302.01068.

What leaves: synthetic images with their labels and the radius inside which they are good, every round, made from the
exact records: no differential privacy (`fedlap-dp` has it). Each site measures its radius r_k as the distance from the
server's model at which training on its images has the least loss on its records; the server stays within the smallest,
median or largest of them, or takes a fixed number of steps.

Differs from the paper: every site counts the same; biases right before a norm are not matched (their gradients are
rounding errors); r_k is at least one step long, and is measured on at most `radius_records` records.
`criterion = "calibrated"` sends the norms of the records' gradients along, layer by layer, and the server gives each
site's gradient those norms (the paper's appendix A.1).
"""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

import torch
from pydantic import Field, field_validator

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import Statistics, SyntheticSet
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape import image_exchange
from prismfl.methods.landscape.matching import Criterion, Matcher, Schedule, Target, approximate, walk
from prismfl.nets.classifier import network
from prismfl.nets.siamese import OPERATIONS, View, draw
from prismfl.nets.training import cosine
from prismfl.rng import Key

FIXED_STEPS = 100


class Landscape(image_exchange.Declared):
    """Settings of FedLAP, with and without noise."""

    rounds: int = Field(15, ge=1, description="communication rounds")
    paths: int = Field(4, ge=1, description="training paths from the server's model (R_i)")
    stops: int = Field(5, ge=1, description="stops on a path at most")
    batches: int = Field(10, ge=1, description="batches of records at each stop")
    updates: int = Field(5, ge=1, description="image updates per batch (R_b)")
    model_steps: int = Field(2, ge=0, description="model steps on the images from stop to stop (R_l)")
    radius: float = Field(1.5, gt=0, description="trust region around the server's model")
    image_lr: float = Field(100.0, gt=0, description="learning rate of the images")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of the images")
    lr: float = Field(0.1, gt=0, description="learning rate of the model, falling along a cosine over the rounds")
    server_steps: int = Field(500, ge=1, description="steps of the server per round, at most")
    mse: float = Field(0.0, ge=0, description="weight of the squared error beside the cosine distance")
    augment: tuple[str, ...] = Field((), description=f"siamese augmentation: any of {', '.join(OPERATIONS)}")

    @field_validator("augment")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in OPERATIONS:
                raise ValueError(f"expected operations out of {', '.join(OPERATIONS)}")
        return names

    def schedule(self, round: int) -> Schedule:
        """How long the images of a round are fitted."""
        return Schedule(
            paths=self.paths,
            stops=self.stops,
            batches=self.batches,
            updates=self.updates,
            model_steps=self.model_steps,
            radius=self.radius,
            image_lr=self.image_lr,
            momentum=self.momentum,
            lr=cosine(self.lr, round, self.rounds),
        )


class Config(Landscape):
    """FedLAP as published, without noise."""

    images: int = Field(50, ge=1, description="synthetic images per class")
    paths: int = Field(1, ge=1, description="training paths from the server's model (R_i)")
    batches: int = Field(40, ge=1, description="batches of records at each stop")
    batch: int = Field(256, ge=1, description="records in a batch")
    model_steps: int = Field(0, ge=0, description="model steps on the images from stop to stop (R_l)")
    radius: float = Field(10.0, gt=0, description="trust region around the server's model")
    mse: float = Field(0.1, ge=0, description="weight of the squared error beside the cosine distance")
    start: Literal["noise", "carried", "records"] = Field(
        "records", description="images begin as noise each round, as noise once, or as records"
    )
    criterion: Literal["regularised", "cosine", "mse", "calibrated"] = Field(
        "regularised", description="distance: cosine + mse, one of them alone, or cosine with norms sent along"
    )
    strategy: Literal["min", "median", "max", "fixed"] = Field("min", description="radius of the server's steps")
    radius_records: int = Field(512, ge=1, description="records that a site measures its radius on, at most")

    @property
    def distance(self) -> Criterion:
        """What the images' gradients are compared by."""
        if self.criterion == "mse":
            return Criterion(cosine=False, mse=1.0)
        return Criterion(mse=self.mse if self.criterion == "regularised" else 0.0)


def fit_images(
    cfg: Landscape, state: State, site: Site, key: Key, matcher: Matcher, *, x: torch.Tensor, y: torch.Tensor,
    target: Target,
) -> tuple[SyntheticSet, int]:  # fmt: skip
    """Images whose gradients meet those that `target` gives around the server's model, and how often it was asked."""
    augmentation = key.child("augment").torch()
    x, asked = approximate(
        matcher,
        state.items["model"].to(site.task.device),
        x=x,
        y=y,
        target=target,
        schedule=cfg.schedule(state.round),
        views=lambda: draw(cfg.augment, augmentation),
    )
    return image_exchange.sealed_images(x, y, image_lr=cfg.image_lr, site=site.name, round=state.round), asked


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images fitted to the exact gradients of random batches, and the radius inside which they are good."""
    task, records = site.task, site.records.exact()
    classifier, _ = network(task, key=key)
    matcher, start = Matcher(classifier, cfg.distance, site.records.reference), state.items["model"].to(task.device)
    own = labels_at(cfg, task, site.name, records)
    x, y = first_images(cfg, site, records, own, key)
    order = key.child("order").torch()

    def target(params: Params, view: View | None) -> Params:
        rows = torch.randint(len(records), (min(cfg.batch, len(records)),), generator=order)
        real = records.x[rows] if view is None else view(records.x[rows])
        return matcher.gradient(params, real, records.y[rows])

    made, _ = fit_images(cfg, state, site, key, matcher, x=x, y=y, target=target)
    found = {"radius": torch.tensor([measured_radius(cfg, matcher, start, made, records, round=state.round)])}
    if cfg.criterion == "calibrated":
        real = matcher.gradient(start, records.x[: cfg.radius_records], records.y[: cfg.radius_records])
        found["norms"] = torch.stack([torch.linalg.vector_norm(g) for _, g in sorted(real.items())])
    return {"images": made, "quality": Statistics(found)}, {"images": made}


def labels_at(cfg: Config, task: Task, site: str, records: Records) -> tuple[int, ...]:
    """The site's declared classes; a site with no record of any of them cannot make images of them."""
    own = image_exchange.classes_of(cfg, task, site)
    if not bool(torch.isin(records.y.cpu(), torch.tensor(own)).any()):
        raise UserError(f"{site} has no record of its declared classes {list(own)}; nothing was sent.")
    return own


def first_images(
    cfg: Config, site: Site, records: Records, own: tuple[int, ...], key: Key
) -> tuple[torch.Tensor, torch.Tensor]:
    """Records of each class (noise where there are too few), the last round's images, or noise."""
    y = image_exchange.labels_of(cfg, site.task, site.name).to(site.task.device)
    x = image_exchange.first_images(site, key, count=len(y), carried=cfg.start != "noise")
    if cfg.start == "records" and "images" not in site.memory:
        generator = key.child("records").torch()
        for place, c in enumerate(own):
            rows = torch.nonzero(records.y == c).flatten()
            rows = rows[torch.randperm(len(rows), generator=generator)][: cfg.images]
            x[place * cfg.images : place * cfg.images + len(rows)] = records.x[rows]
    return x, y


def measured_radius(
    cfg: Config, matcher: Matcher, start: Params, made: SyntheticSet, records: Records, *, round: int
) -> float:
    """The distance at which training on the images serves the records best. Looks at records: no guarantee."""
    x, y = records.x[: cfg.radius_records], records.y[: cfg.radius_records]
    best, least = cfg.radius, math.inf

    def visit(params: Params, distance: float) -> None:
        nonlocal best, least
        with torch.no_grad():
            loss = float(matcher.classifier.loss(params, x, y))
        if loss < least:
            best, least = distance, loss

    images, labels = made.x.to(x.device), made.y.to(x.device)
    walk(
        lambda params: matcher.gradient(params, images, labels),
        start,
        lr=cosine(cfg.lr, round, cfg.rounds),
        radius=cfg.radius,
        steps=FIXED_STEPS,
        visit=visit,
    )
    return best


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Descent on everybody's images, as far as the sites' radii allow."""
    radii = [float(items["quality"].tensors["radius"]) for _, items in sorted(inbox.items())]
    chosen = {"min": min(radii), "median": median(radii), "max": max(radii), "fixed": math.inf}[cfg.strategy]
    steps = FIXED_STEPS if cfg.strategy == "fixed" else cfg.server_steps
    classifier, _ = network(task, key=Key.seed(0))
    matcher, lr = Matcher(classifier), cosine(cfg.lr, state.round, cfg.rounds)
    start = state.items["model"].to(task.device)
    x, y = image_exchange.pool(inbox, task)

    def gradient(params: Params) -> Params:
        if cfg.criterion == "calibrated":
            return calibrated(matcher, params, inbox, task)
        return matcher.gradient(params, x, y)

    # A measured radius may be shorter than one step of the server: it then takes that step.
    done = walk(gradient, start, lr=lr, radius=chosen, steps=steps, at_least=1)
    if done.steps == 0:
        raise UserError(f"The first step of the server in round {state.round + 1} is not finite at lr {lr:g}.")
    return image_exchange.after(done, x, y, last=state.round + 1 == cfg.rounds)


def calibrated(matcher: Matcher, params: Params, inbox: Inbox, task: Task) -> Params:
    """Each site's gradient with the norms of its records' gradient, layer by layer; then the mean."""
    found = []
    for _, items in sorted(inbox.items()):
        x, y = image_exchange.pool({"one": items}, task)
        norms = dict(zip(sorted(params), items["quality"].tensors["norms"].to(task.device)))
        gradient = matcher.gradient(params, x, y)
        found.append({k: g * norms[k] / torch.linalg.vector_norm(g).clamp_min(1e-12) for k, g in gradient.items()})
    factors = robust.clip_factors({str(i): robust.length(g) for i, g in enumerate(found)})
    return {k: torch.stack([factors[str(i)] * g[k] for i, g in enumerate(found)]).mean(0) for k in params}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Declared labels, pixels within reach, and a radius that the site's own walk can have found."""
    quality = items["quality"].tensors
    if not 0.0 <= float(quality["radius"]) <= 1.001 * cfg.radius:
        return f"its radius is {float(quality['radius']):.3g}, and {cfg.radius:g} is the largest"
    if "norms" in quality and bool((quality["norms"] < 0).any()):
        return "norms are below zero"
    return image_exchange.possible(cfg, task, state, site, items)


def shapes(cfg: Config, task: Task) -> Shapes:
    """The images, the radius, and the norms of the gradients where they are sent along."""
    quality: dict[str, tuple[str, tuple[int, ...]]] = {"radius": ("float32", (1,))}
    if cfg.criterion == "calibrated":
        quality = {"norms": ("float32", (len(fedavg.model_shapes(task)),))} | quality
    return {**image_exchange.shapes(cfg, task), "quality": quality}


METHOD = Method(
    name="fedlap",
    summary="images fitted to exact gradients stand for each site's loss",
    paper="Wang et al. 2023 (FedLAP-DP), arXiv:2302.01068",
    settings=Config,
    leaves={"images": SyntheticSet, "quality": Statistics},
    guarantee=None,
    init=image_exchange.init,
    client=client,
    server=server,
    plan=fedavg.plan,
    shapes=shapes,
    possible=possible,
    kinds=("image",),
    advice=image_exchange.advice,
    tiny={
        "rounds": 2, "images": 2, "stops": 2, "batches": 2, "updates": 2, "batch": 8, "lr": 0.01, "image_lr": 1.0,
        "server_steps": 5,
    },
)  # fmt: skip
