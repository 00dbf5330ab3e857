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
together, and the theorem compares with a site whose other records stay.) `theorem_5_8` states the paper's
figure, which a run prints beside its own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from prismfl.core.method import DPSettings, Inbox, Items, Method, Site, State
from prismfl.core.payloads import SyntheticSet
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Loss
from prismfl.methods.landscape import image_exchange
from prismfl.methods.landscape.image_exchange import (
    Declared,
    after,
    first_images,
    init,
    labels_of,
    pool,
    possible,
    sealed_images,
    shapes,
)
from prismfl.methods.landscape.matching import Criterion, Matcher, Schedule, approximate, walk
from prismfl.nets.classifier import Classifier, Params, build, cross_entropy_of_one
from prismfl.nets.siamese import OPERATIONS, Seen, View, draw
from prismfl.nets.training import cosine
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


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
        Matcher(classifier, Criterion(mse=cfg.mse), site.records.reference),
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


def advice(cfg: Config, task: Task) -> list[str]:
    said = image_exchange.advice(cfg, task)
    if task.participation < 1 and task.relation == "add-remove":
        ours, theirs = (account.epsilon_rdp(cost, task.delta) for cost in (plan(cfg, task), theorem_5_8(cfg, task)))
        said.append(
            f"a site drawn in every round pays epsilon {ours:.2f} (RDP); the paper's Theorem 5.8 would say "
            f"{theirs:.2f} at participation {task.participation:g}, but everybody sees here who was drawn."
        )
    return said


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
    possible=possible,
    kinds=("image",),
    advice=advice,
    tiny={
        "rounds": 2, "images": 2, "paths": 2, "stops": 2, "batches": 2, "updates": 2, "batch": 8, "server_lr": 0.01,
        "image_lr": 1.0, "server_steps": 5,
    },
)  # fmt: skip
