"""PRISM: public images are optimised to match differentially private feature statistics (one shot).

Paper: "PRISM-FL: Privacy-preserving Image Synthesis Mechanism for Federated Learning" (abstract).

What leaves a site is in `statistics`. Everything after it is post-processing at the server:
a closed-form head, public images moved until their features meet the released means, soft labels by the head, and a
fresh network trained on them. Differs from the abstract: the features come from public images instead of a DP-SGD model
(`prism-local` has the DP-SGD share), and statistics travel, pooled before the synthesis (`prism-local` sends the images
themselves).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from prismfl.core.method import Fold, Folding, Inbox, Items, State
from prismfl.core.payloads import Statistics, SyntheticEmbeddings, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods.prism import auto, patients, statistics
from prismfl.methods.prism.embeddings import embed
from prismfl.methods.prism.encoder import PublicFeatures, encoder
from prismfl.methods.prism.head import METHOD as PRISM_HEAD
from prismfl.methods.prism.head import (
    HeadConfig,
    Pooled,
    folding,
    head_of,
    head_scores,
    lda_head,
    linear,
    read_releases,
    read_statistics,
    whitening,
)
from prismfl.nets.augment import affine, blended, crops
from prismfl.nets.classifier import network
from prismfl.nets.distil import balanced_weights, train_fresh
from prismfl.nets.linear import fit_linear
from prismfl.nets.matching import Look, match_images, moment_gap
from prismfl.rng import Key


class Config(HeadConfig):
    """What is released, how images are matched to it, and how the fresh network is trained on them."""

    images: int = Field(50, ge=1, description="synthetic images per class")
    steps: int = Field(300, ge=0, description="matching steps")
    per_step: int = Field(4, ge=1, description="random networks asked in a step")
    near: float = Field(
        1.0, gt=0, le=1, description="part of the public images that is used: those nearest to what was released"
    )
    image_lr: float = Field(0.3, gt=0, description="learning rate of the images")
    moments: float = Field(0.0, ge=0, description="weight of matching the released second moments as well")
    closeness: float = Field(0.0, ge=0, description="pull towards the public seeds: more looks public, less is useful")
    texts: Literal["written", "chosen"] = Field(
        "written", description="of synthetic records with a text: written by the grammar, or public sentences"
    )
    labels: Literal["hard", "half", "soft"] = Field(
        "hard", description="of synthetic images: their class, the head's opinion, or the mean of both"
    )
    copies: int = Field(8, ge=1, description="augmented copies of each synthetic image that are trained on")
    public_copies: int = Field(0, ge=0, description="crops of each public image that are labelled and used as well")
    public_share: float = Field(0.5, ge=0, le=1, description="share of the training draws that go to those crops")
    crop: float = Field(0.5, gt=0, le=1, description="least side of those crops; small ones are blurred by enlarging")
    blends: int = Field(0, ge=0, description="mixtures of two pictures, labelled by the head, for each picture so far")
    blend_share: float = Field(0.5, ge=0, le=1, description="share of the training draws that go to those mixtures")
    centre: bool = Field(True, description="take off the public images' own leaning to some classes")
    temperature: float = Field(1.0, gt=0, description="of the soft labels")
    train_steps: int = Field(700, ge=1, description="training steps of the fresh network")
    train_batch: int = Field(128, ge=1, description="batch of a training step")
    train_lr: float = Field(2e-3, gt=0, description="learning rate of the training, falling along a cosine")
    embeddings: int = Field(100, ge=2, description="synthetic rows per class in the coordinates of the public features")
    deliver: Literal["network", "head", "linear"] = Field(
        "network",
        description="the model to take: trained on the images, the closed-form head, or linear on synthetic embeddings",
    )


def nearest_public(cfg: Config, task: Task, enc: PublicFeatures, pooled: Pooled) -> Task:
    """The task with those of its public images that lie nearest to a released class, seen as the head sees them."""
    if cfg.near == 1 or task.public is None:
        return task
    root = whitening(cfg, pooled).float().to(task.device)
    rows = torch.cat([enc.coordinates(part.to(task.device)) @ root for part in torch.split(task.public, 500)])
    far = torch.cdist(rows, pooled.means.to(task.device) @ root).amin(1)
    keep = far.argsort()[: max(1, round(cfg.near * len(far)))].sort().values
    return replace(task, public=task.public[keep.cpu()])


def synthesise(
    cfg: Config, task: Task, enc: PublicFeatures, pooled: Pooled, key: Key
) -> tuple[torch.Tensor, torch.Tensor]:
    """`images` public images per declared class, moved until they match; as the uint8 values that would travel."""
    classes = len(task.classes)
    labels = torch.arange(classes, device=task.device).repeat_interleave(cfg.images)
    seeds = public_seeds(task, len(labels), key).to(task.device)
    if cfg.steps and enc.nets:
        seeds = match_images(
            enc.nets,
            pooled.nets.to(task.device),
            seeds=seeds,
            labels=labels,
            steps=cfg.steps,
            per_step=min(cfg.per_step, cfg.networks),
            lr=cfg.image_lr,
            closeness=cfg.closeness,
            key=key.child("match"),
            spread=_moments(cfg, enc, pooled, labels) if cfg.moments and cfg.covariance else None,
        )
    return (seeds.clamp(0, 1) * 255).round().to(torch.uint8), labels


def _moments(cfg: Config, enc: PublicFeatures, pooled: Pooled, labels: torch.Tensor) -> Look:
    """The gap between images and release in means and covariance, seen as the head sees them: whitened."""
    root, means = whitening(cfg, pooled).float().to(labels.device), pooled.means.to(labels.device)

    def gap(images: torch.Tensor) -> torch.Tensor:
        z = (enc.coordinates(images) - means[labels]) @ root
        return cfg.moments * moment_gap(z, labels, classes=len(means))

    return gap


def public_seeds(task: Task, count: int, key: Key) -> torch.Tensor:
    """The public images that the synthesis of the same key starts from."""
    assert task.public is not None
    return task.public[_draw(len(task.public), count, key.child("seeds"))]


def _draw(available: int, wanted: int, key: Key) -> torch.Tensor:
    """Different public images as long as there are enough, then again from the start."""
    order = torch.randperm(available, generator=key.torch())
    return order.repeat(-(-wanted // available))[:wanted]


def training_set(
    cfg: Config,
    task: Task,
    enc: PublicFeatures,
    head: Params,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    key: Key,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Augmented copies of the synthetic images, crops of public ones and mixtures, with labels and draw weights."""
    colour, generator = task.shape[0] == 3, key.torch(task.device)
    pictures = x.new_empty(cfg.copies * len(x), *x.shape[1:])
    for copy in torch.split(pictures, len(x)):
        copy.copy_(affine(x, generator, flip=colour))
    labels = F.one_hot(y.repeat(cfg.copies), len(task.classes)).float()
    if cfg.labels != "hard":
        opinion = F.softmax(head_scores(enc, head, pictures) / cfg.temperature, 1)
        labels = opinion if cfg.labels == "soft" else 0.5 * (labels + opinion)
    weights = torch.ones(len(pictures))
    if cfg.public_copies:
        assert task.public is not None
        shown = torch.cat(
            [crops(task.public.to(task.device), least=cfg.crop, generator=generator) for _ in range(cfg.public_copies)]
        )
        scores = head_scores(enc, head, shown)
        if cfg.centre:
            scores = scores - scores.mean(0)
        guessed = F.softmax(scores / cfg.temperature, 1)
        pictures, labels = torch.cat([pictures, shown]), torch.cat([labels, guessed])
        weights = _with_share(weights, guessed, cfg.public_share)
    if cfg.blends:
        mixed = blended(pictures, cfg.blends * len(pictures), generator)
        guessed = F.softmax(head_scores(enc, head, mixed) / cfg.temperature, 1)
        pictures, labels = torch.cat([pictures, mixed]), torch.cat([labels, guessed])
        weights = _with_share(weights, guessed, cfg.blend_share)
    return pictures, labels, weights


def _with_share(weights: torch.Tensor, labels: torch.Tensor, share: float) -> torch.Tensor:
    """Draw weights where further pictures with these labels get `share` of the draws, and each class as much of it."""
    further = balanced_weights(labels).cpu()
    return torch.cat([(1 - share) / weights.sum() * weights, share / further.sum() * further])


def from_statistics(cfg: Config, task: Task, enc: PublicFeatures, pooled: Pooled, key: Key) -> Items:
    """Everything the server makes of the pooled statistics: the head, the images, and a network trained on them."""
    if task.parts is not None:
        made = synthetic_records(cfg, task, enc, pooled, key.child("images"))
        return {"model": patients.model_on(enc, made), "synthetic": made, **heads_of(cfg, task, pooled, key)}
    head = lda_head(cfg, pooled)
    task = nearest_public(cfg, task, enc, pooled)
    x, y = synthesise(cfg, task, enc, pooled, key.child("images"))
    own = key.child("model")
    shown, labels, weights = training_set(cfg, task, enc, head, x=x.float() / 255.0, y=y, key=own.child("set"))
    params = train_fresh(
        task,
        x=shown,
        y=labels,
        weights=weights,
        steps=cfg.train_steps,
        batch=cfg.train_batch,
        lr=cfg.train_lr,
        key=own,
    )
    return {"model": Weights(params), "synthetic": SyntheticSet.of(x, y), **heads_of(cfg, task, pooled, key)}


def synthetic_records(cfg: Config, task: Task, enc: PublicFeatures, pooled: Pooled, key: Key) -> SyntheticSet:
    """Synthetic records of several parts, `images` of each class."""
    return patients.records_from(
        cfg, task, enc, pooled, key, count=cfg.images, texts=cfg.texts, steps=cfg.steps, lr=cfg.image_lr
    )


def heads_of(cfg: Config, task: Task, pooled: Pooled, key: Key) -> Items:
    """What needs no images: the closed-form head, synthetic embeddings, and the linear model on them."""
    rows, classes = embed(pooled, cfg.embeddings, key.child("embeddings"))
    looked = {"encoder": task.encoder.name, "digest": task.encoder.digest} if task.encoder is not None else {}
    return {
        "head": Statistics(head_of(cfg, task, pooled)),
        "linear": Weights(fit_linear(rows, classes)),
        "embeddings": SyntheticEmbeddings.of(rows, classes, **looked),
    }


def models(cfg: Config, task: Task, items: Items) -> dict[str, torch.nn.Module]:
    """The network trained on the images, the closed-form head, and the linear model on synthetic embeddings: those of
    them that the items hold and, without the public images, that do not look through them."""
    found: dict[str, torch.nn.Module] = {}
    if "model" in items and task.parts is not None:
        if task.public is not None:
            found["network"] = linear(encoder(cfg, task), items["model"].tensors, task.device)
    elif "model" in items:
        classifier, _ = network(task, key=Key.seed(0))
        classifier.module.load_state_dict(items["model"].to(task.device))
        found["network"] = classifier.module.eval()
    if task.public is not None:
        enc = encoder(cfg, task)
        found |= {name: linear(enc, items[name].tensors, task.device) for name in ("head", "linear") if name in items}
    return found


def init(cfg: Config, task: Task, key: Key) -> Items:
    """Nothing to begin with; images that the fresh network cannot take are refused before anything is charged."""
    if task.parts is None:
        network(task, key=Key.seed(0), device="cpu")
    return statistics.init(cfg, task, key)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Images and model, after the last exchange."""
    if state.round < cfg.rounds - 1:
        return {}
    return from_statistics(cfg, task, *read_releases(cfg, task, inbox), key)


def fold(cfg: Config, task: Task, state: State) -> Folding:
    """Images and model, from statistics that come one by one."""
    if state.round < cfg.rounds - 1:
        return folding(lambda released, _: {})
    return folding(lambda released, key: from_statistics(cfg, task, *read_statistics(cfg, task, released), key))


METHOD = replace(
    PRISM_HEAD,
    name="prism",
    summary="public images matched to noisy feature statistics; a fresh model trained on them",
    settings=Config,
    init=init,
    server=server,
    fold=Fold(server, fold),
    predict=None,
    models=models,
    recommended=lambda cfg: str(cfg.deliver),
    auto=auto.auto,
    tiny={**PRISM_HEAD.tiny, "images": 3, "steps": 3, "train_steps": 5, "train_batch": 8, "copies": 2, "embeddings": 4},
)
