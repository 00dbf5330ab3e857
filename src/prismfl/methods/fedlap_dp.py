"""FedLAP-DP (Wang, Kerkouche, Chen, Fritz 2023): sites share images that stand for their loss landscapes.

What leaves: a few synthetic images with public labels, every round, fitted to noisy gradients of the records; they
are post-processing, so they cost what the gradients cost. All planned gradients are charged, however early the trust
region ends a path. The server trains the model on everybody's images, inside the same constant radius.

Differs from the paper: Poisson batches, and division by the expected batch; images of *every* declared class, unless
`public_classes` declares which classes a site holds (the paper takes that for known); biases right before a norm are
not matched, since their gradients are rounding errors; every site counts the same; a step that would leave the trust
region is not taken; the server has a learning rate of its own, since it goes further. Augmentation draws from its own
generator and is off by default: with it, records' gradients cannot be taken in one pass.

Partial participation. The paper's Theorem 5.8 gives a round's first query the rate C q where a site is drawn with
probability C. The guarantee here does not lean on it: who is drawn is public and every release is seen, so a site pays
in full for each round it took part in. (A hidden draw would not be enough either: it moves all records of a site
together, and the theorem compares with a site whose other records stay.) `theorem_5_8` states the paper's figure.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, field_validator

from prismfl.boundary import Loss
from prismfl.errors import BoundaryError, UserError
from prismfl.method import DPSettings, Inbox, Items, Method, Settings, Shapes, Site, State, Task
from prismfl.methods import fedavg
from prismfl.models.classifier import Classifier, Params, build, cross_entropy_of_one
from prismfl.models.landscape import Criterion, Matcher, Schedule, Walk, approximate, walk
from prismfl.models.siamese import OPERATIONS, Seen, View, draw
from prismfl.models.training import cosine
from prismfl.payloads import Payload, Statistics, SyntheticSet, Weights
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Declared(Settings):
    """Settings of methods whose sites send images of declared classes."""

    images: int = Field(10, ge=1, description="synthetic images a class")
    public_classes: tuple[tuple[int, ...], ...] | None = Field(
        None, description="classes of each site, where they are public; None: images of every declared class"
    )


class Landscape(Declared):
    """Settings that FedLAP and FedLAP-DP share."""

    rounds: int = Field(15, ge=1, description="communication rounds")
    paths: int = Field(4, ge=1, description="training paths from the server's model (R_i)")
    stops: int = Field(5, ge=1, description="stops on a path at most")
    batches: int = Field(10, ge=1, description="batches of records at each stop")
    updates: int = Field(5, ge=1, description="image updates a batch (R_b)")
    model_steps: int = Field(2, ge=0, description="model steps on the images from stop to stop (R_l)")
    radius: float = Field(1.5, gt=0, description="trust region around the server's model")
    image_lr: float = Field(100.0, gt=0, description="learning rate of the images")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of the images")
    lr: float = Field(0.1, gt=0, description="learning rate of the model, falling along a cosine over the rounds")
    server_steps: int = Field(500, ge=1, description="steps of the server a round at most")
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


class Config(Landscape, DPSettings):
    batch: float = Field(256, gt=0, description="expected batch of a query")
    clip: float = Field(1.0, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(0.002, gt=0, description="learning rate of the sites' models, falling along a cosine")
    server_lr: float = Field(0.04, gt=0, description="learning rate of the server's model, falling along a cosine")
    start: Literal["noise", "carried"] = Field("carried", description="images begin as noise each round, or once")


def classes_of(cfg: Declared, task: Task, site: str) -> tuple[int, ...]:
    """The classes a site makes images of: all declared ones, or those it has declared public."""
    if cfg.public_classes is None:
        return tuple(range(len(task.classes)))
    return cfg.public_classes[task.sites.index(site)]


def check_classes(cfg: Declared, task: Task) -> None:
    declared = cfg.public_classes
    if declared is None:
        return
    if len(declared) != len(task.sites):
        raise UserError(f"Expected public_classes of {len(task.sites)} sites, got {len(declared)}.")
    if len({len(own) for own in declared}) != 1 or not declared[0]:
        sizes = [len(own) for own in declared]
        raise UserError(f"Expected public_classes of one size > 0, so that all releases look alike, got sizes {sizes}.")
    for own in declared:
        if len(set(own)) != len(own) or not set(own) <= set(range(len(task.classes))):
            raise UserError(f"Expected public_classes out of 0 to {len(task.classes) - 1}, each once, got {list(own)}.")


def init(cfg: Declared, task: Task, key: Key) -> Items:
    check_classes(cfg, task)
    return fedavg.init(cfg, task, key)


def labels_of(cfg: Declared, task: Task, site: str) -> torch.Tensor:
    return torch.tensor(classes_of(cfg, task, site)).repeat_interleave(cfg.images)


def first_images(site: Site, key: Key, *, count: int, carried: bool) -> torch.Tensor:
    """The last round's images, or noise."""
    kept = site.memory.get("images")
    if carried and isinstance(kept, SyntheticSet):
        return kept.x.to(site.task.device)
    return torch.randn(count, *site.task.shape, generator=key.child("images").torch()).to(site.task.device)


def noisy_target(cfg: Config, classifier: Classifier, site: Site, params: Params, view: View | None) -> Params:
    """One private query: the records' gradient, seen through the same view as the images."""
    if view is None:
        return site.records.noisy_gradient(
            classifier.record_loss, params, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise
        )
    loss = Loss(Seen(view, classifier.module), cross_entropy_of_one)
    behind = {f"net.{k}": v for k, v in params.items()}
    found = site.records.noisy_gradient(loss, behind, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise)
    return {k.removeprefix("net."): g for k, g in found.items()}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    task, schedule = site.task, cfg.schedule(state.round)
    classifier, _ = build(task.model, task.shape, len(task.classes), key=key, device=task.device)
    augmentation = key.child("augment").torch()
    y = labels_of(cfg, task, site.name).to(task.device)
    x, asked = approximate(
        Matcher(classifier, Criterion(mse=cfg.mse)),
        state.items["model"].to(task.device),
        x=first_images(site, key, count=len(y), carried=cfg.start == "carried"),
        y=y,
        target=lambda params, view: noisy_target(cfg, classifier, site, params, view),
        schedule=schedule,
        views=lambda: draw(cfg.augment, augmentation),
    )
    site.records.forfeit(sigma=cfg.noise, times=schedule.queries - asked, batch=cfg.batch)
    made = sealed_images(x, y, image_lr=cfg.image_lr, site=site.name, round=state.round)
    return {"images": made}, {"images": made}


def sealed_images(x: torch.Tensor, y: torch.Tensor, *, image_lr: float, site: str, round: int) -> SyntheticSet:
    if not bool(torch.isfinite(x).all()):
        raise BoundaryError(
            f"Images of {site} in round {round + 1} are not finite at image_lr {image_lr:g}; nothing was sent. "
            "Use a smaller image_lr (or lr)."
        )
    return SyntheticSet.of(x, y)


def pool(inbox: Inbox, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Everybody's images; as many from each site, so the mean over them counts every site the same."""
    sets = [items["images"] for _, items in sorted(inbox.items())]
    made = [s for s in sets if isinstance(s, SyntheticSet)]
    return torch.cat([s.x for s in made]).to(task.device), torch.cat([s.y for s in made]).to(task.device)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Descent on everybody's images inside the constant trust region."""
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0), device=task.device)
    matcher, (x, y) = Matcher(classifier), pool(inbox, task)
    lr = cosine(cfg.server_lr, state.round, cfg.rounds)
    done = walk(
        lambda params: matcher.gradient(params, x, y),
        state.items["model"].to(task.device),
        lr=lr,
        radius=cfg.radius,
        steps=cfg.server_steps,
    )
    if done.steps == 0:
        raise UserError(
            f"Radius {cfg.radius:g} allows no step of the server at server_lr {lr:g}: the first would leave it. "
            "Use a larger radius or a smaller server_lr."
        )
    return after(done, x, y, last=state.round + 1 == cfg.rounds)


def after(done: Walk, x: torch.Tensor, y: torch.Tensor, *, last: bool) -> Items:
    """The next state. The last one is not sent down to anybody, so the images may stay in it."""
    taken = Statistics({"radius": torch.tensor([done.distance]), "steps": torch.tensor([done.steps])})
    shown: dict[str, Payload] = {"synthetic": SyntheticSet.of(x, y)} if last else {}
    return {"model": Weights(done.params), "taken": taken, **shown}


def plan(cfg: Config, task: Task) -> Cost:
    return task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.schedule(0).queries * cfg.rounds)


def theorem_5_8(cfg: Config, task: Task) -> Cost:
    """The paper's account of partial participation: the first query of each round at rate C q, the others at q.

    It needs relation add-remove, each site drawn by itself with probability C, and nobody who learns the draw.
    """
    if task.relation != "add-remove":
        raise UserError(f"Theorem 5.8 needs relation add-remove, got {task.relation}.")
    queries = cfg.schedule(0).queries
    first = Cost.gaussian(cfg.noise, rate=task.participation * task.rate(cfg.batch), times=cfg.rounds, unit=task.unit)
    return first + task.gaussian(cfg.noise, batch=cfg.batch, times=(queries - 1) * cfg.rounds)


def shapes(cfg: Declared, task: Task) -> Shapes:
    count = cfg.images * len(classes_of(cfg, task, task.sites[0]))
    return {"images": {"x": ("float32", (count, *task.shape)), "y": ("int64", (count,))}}


def advice(cfg: Declared, task: Task) -> list[str]:
    """Said before anything is spent."""
    if cfg.public_classes is None:
        return []
    own = "; ".join(f"{site}: {', '.join(task.classes[c] for c in classes_of(cfg, task, site))}" for site in task.sites)
    return [f"which classes a site holds is declared public ({own}); the guarantee does not cover it."]


METHOD = Method(
    name="fedlap-dp",
    summary="images fitted to noisy gradients stand for each site's loss",
    paper="Wang et al. 2023 (FedLAP-DP)",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    kinds=("image",),
    advice=advice,
    tiny={
        "rounds": 2, "images": 2, "paths": 2, "stops": 2, "batches": 2, "updates": 2, "batch": 8, "server_lr": 0.01,
        "image_lr": 1.0, "server_steps": 5,
    },
)  # fmt: skip
