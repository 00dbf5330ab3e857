"""FedLAP-DP (Wang, Kerkouche, Chen, Fritz 2023): sites share images that stand for their loss landscapes.

Paper: Wang, Kerkouche, Chen, Fritz, "FedLAP-DP: Federated Learning by Sharing Differentially Private Loss
Approximations", https://arxiv.org/abs/2302.01068.

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

from dataclasses import replace
from typing import Literal

from pydantic import Field

from prismfl.core.method import DPSettings, Inbox, Items, Site, State
from prismfl.core.payloads import SyntheticSet
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Loss, Params
from prismfl.methods.landscape import auto, fedlap, image_exchange
from prismfl.methods.landscape.matching import Criterion, Matcher, walk
from prismfl.nets.classifier import Classifier, cross_entropy_of_one, network
from prismfl.nets.siamese import BehindView, View
from prismfl.nets.training import cosine
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(fedlap.Landscape, DPSettings):
    """FedLAP with a bound and noise on each gradient of the records."""

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
    loss = Loss(BehindView(view, classifier.module), cross_entropy_of_one)
    behind = {f"net.{k}": v for k, v in params.items()}
    found = site.records.noisy_gradient(loss, behind, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise)
    return {k.removeprefix("net."): g for k, g in found.items()}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Images fitted to noisy gradients; queries that were planned and not asked are paid all the same."""
    task = site.task
    classifier, _ = network(task, key=key)
    y = image_exchange.labels_of(cfg, task, site.name).to(task.device)
    made, asked = fedlap.fit_images(
        cfg,
        state,
        site,
        key,
        Matcher(classifier, Criterion(mse=cfg.mse), site.records.reference),
        x=image_exchange.first_images(site, key, count=len(y), carried=cfg.start == "carried"),
        y=y,
        target=lambda params, view: noisy_target(cfg, classifier, site, params, view),
    )
    site.records.forfeit(sigma=cfg.noise, times=cfg.schedule(state.round).queries - asked, batch=cfg.batch)
    return {"images": made}, {"images": made}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Descent on everybody's images inside the constant trust region."""
    classifier, _ = network(task, key=Key.seed(0))
    matcher, (x, y) = Matcher(classifier), image_exchange.pool(inbox, task)
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
    return image_exchange.after(done, x, y, last=state.round + 1 == cfg.rounds)


def plan(cfg: Config, task: Task) -> Cost:
    """Every planned gradient of every round."""
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
    """What is declared public, and the paper's figure beside ours where sites take part in turn."""
    said = auto.advice(cfg, task)
    if task.participation < 1 and task.relation == "add-remove":
        ours, theirs = (account.epsilon_rdp(cost, task.delta) for cost in (plan(cfg, task), theorem_5_8(cfg, task)))
        said.append(
            f"a site drawn in every round pays epsilon {ours:.2f} (RDP); the paper's Theorem 5.8 would say "
            f"{theirs:.2f} at participation {task.participation:g}, but everybody sees here who was drawn."
        )
    return said


METHOD = replace(
    fedlap.METHOD,
    name="fedlap-dp",
    summary="images fitted to noisy gradients stand for each site's loss",
    settings=Config,
    leaves={"images": SyntheticSet},
    guarantee="site",
    client=client,
    server=server,
    plan=plan,
    shapes=image_exchange.shapes,
    possible=image_exchange.possible,
    advice=advice,
    auto=auto.fedlap,
    tiny={
        "rounds": 2, "images": 2, "paths": 2, "stops": 2, "batches": 2, "updates": 2, "batch": 8, "server_lr": 0.01,
        "image_lr": 1.0, "server_steps": 5,
    },
)  # fmt: skip
