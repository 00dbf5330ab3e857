"""What the image generators share: how far a site's classes are trusted, how images travel, what is trained on them.

A site may lack a class, and the server must not look: each site says, noisily, how many records of each class it has,
and a generator is asked only for classes that stand out of that noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from prismfl.core.method import DPSettings, Inbox, Items, Shapes
from prismfl.core.payloads import Synthesizer, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.nets.distil import train_fresh
from prismfl.rng import Key

COUNTS = "counts"
START = 10.0  # weights of a fresh network lie within, and Adam moves one by less than ADAM times the rate a step
ADAM = 10.0
CLEAR = 3.0  # a class counts as present when its noisy size is over so many standard deviations
LEAST_SIDE = 8
Draw = Callable[[Params, torch.Tensor, Key], torch.Tensor]  # (tensors, labels, key) -> images


class GeneratorSettings(DPSettings):
    """What every image generator can be told."""

    share: Literal["generator", "samples"] = Field("generator", description="what leaves: the network, or its images")
    samples: int = Field(10_000, ge=1, description="synthetic images that the classifier is trained on, in all")
    train_steps: int = Field(600, ge=1, description="training steps of the classifier on synthetic images")
    train_batch: int = Field(64, ge=1, description="batch of a training step of the classifier")
    train_lr: float = Field(2e-3, gt=0, description="learning rate of the classifier, falling along a cosine")


def check_images(task: Task, *, multiple: int = 4) -> None:
    """Refuse, from public facts alone, what the networks cannot draw."""
    if len(task.shape) != 3 or task.shape[1] != task.shape[2]:
        raise UserError(f"Image generators need square images, got shape {task.shape}; pad or crop the images first.")
    if task.shape[1] < LEAST_SIDE or task.shape[1] % multiple:
        raise UserError(
            f"Image generators need a side that is a multiple of {multiple} and at least {LEAST_SIDE}, "
            f"got {task.shape[1]}; pad the images first."
        )


def init(cfg: GeneratorSettings, task: Task, key: Key) -> Items:
    """Nothing to begin with, but images that cannot be drawn are refused."""
    check_images(task)
    return {}


def trust(counts: torch.Tensor, noise: float) -> torch.Tensor:
    """The part of all images that each site (row) makes of each class (column); sums to 1.

    Classes that stand out of the noise anywhere get equal parts, divided among the sites by their noisy sizes.
    """
    sizes = torch.where(counts > CLEAR * noise, counts, torch.zeros_like(counts)).clamp(min=0.0)
    present = sizes.sum(0) > 0
    if not bool(present.any()):
        return torch.full_like(counts, 1.0 / counts.numel())
    by_site = sizes / sizes.sum(0).clamp(min=1e-12)
    return by_site * present / present.sum()


def labels_of(share: torch.Tensor, count: int) -> torch.Tensor:
    """Exactly `count` class numbers in the proportions of `share`, in order."""
    part = share.double().clamp(min=0.0)
    if not float(part.sum()) > 0:
        return torch.zeros(0, dtype=torch.int64)
    ends = torch.round(torch.cumsum(part / part.sum(), 0) * count).to(torch.int64)
    return torch.repeat_interleave(torch.arange(len(share)), torch.diff(ends, prepend=torch.zeros(1).to(ends)))


def to_bytes(images: torch.Tensor) -> torch.Tensor:
    """Images in [0, 1] as they travel."""
    return (images.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)


def per_site(cfg: GeneratorSettings, task: Task) -> int:
    """Images that each site sends, where images are what leaves."""
    return -(-cfg.samples // len(task.sites))


def no_images(task: Task) -> SyntheticSet:
    """What stands in the place of images that were not asked for."""
    return SyntheticSet.of(torch.zeros(0, *task.shape, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))


def image_shapes(task: Task, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Public shapes of `count` images and their labels, as they travel."""
    return {"x": ("uint8", (count, *task.shape)), "y": ("int64", (count,))}


def release(cfg: GeneratorSettings, task: Task, tensors: Params, draw: Draw, *, key: Key,
            noise: float, spec: Mapping[str, object], last: bool = True) -> Items:  # fmt: skip
    """The two items that leave a site; the one that was not asked for is empty. `tensors` holds COUNTS as well."""
    if cfg.share == "generator":
        return {"generator": Synthesizer(tensors, dict(spec)), "synthetic": no_images(task)}
    labels = labels_of(trust(tensors[COUNTS][None], noise)[0], per_site(cfg, task))
    images = draw(tensors, labels, key) if last else torch.zeros(len(labels), *task.shape)
    return {
        "generator": Synthesizer({COUNTS: tensors[COUNTS]}, dict(spec)),
        "synthetic": SyntheticSet.of(to_bytes(images), labels),
    }


def release_shapes(cfg: GeneratorSettings, task: Task, tensors: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Public shapes of `release`; `tensors` are those of the network."""
    counts = {COUNTS: ("float32", (len(task.classes),))}
    network = {name: ("float32", size) for name, size in tensors.items()} if cfg.share == "generator" else {}
    images = 0 if cfg.share == "generator" else per_site(cfg, task)
    return {"generator": dict(sorted((counts | network).items())), "synthetic": image_shapes(task, images)}


def gather(cfg: GeneratorSettings, task: Task, inbox: Inbox, draw: Draw, *, noise: float, key: Key) -> SyntheticSet:
    """About `samples` images from what the sites sent, shuffled."""
    sites, count = sorted(inbox), cfg.samples
    counts = torch.stack([inbox[s]["generator"].tensors[COUNTS] for s in sites])
    shares = trust(counts * robust.capped(counts, records=task.records, noise=noise), noise)
    xs, ys = [], []
    for site, share in zip(sites, shares):
        sent = inbox[site]["synthetic"]
        if cfg.share == "samples":
            xs.append(sent.tensors["x"])
            ys.append(sent.tensors["y"])
            continue
        # At least one image where there is any trust, so that a tiny set is not lost to rounding.
        labels = labels_of(share, max(1, round(float(share.sum()) * count)))
        if len(labels):
            xs.append(to_bytes(draw(inbox[site]["generator"].tensors, labels, key.child(site))))
            ys.append(labels)
    x, y = torch.cat(xs), torch.cat(ys)
    order = torch.randperm(len(y), generator=key.child("shuffle").torch())[:count]
    return SyntheticSet.of(x[order], y[order])


def possible(task: Task, items: Items, *, noise: float, reach: float) -> str | None:
    """Class sizes of declared records, and weights that training can `reach`.

    Sizes that are all exactly zero are a site's word that its training has stopped (`said`).
    """
    tensors = dict(items["generator"].tensors)
    counts = tensors.pop(COUNTS, None)
    if counts is not None and noise > 0 and not bool(counts.any()):
        return "its training has stopped at weights that are not finite, and was charged; lower lr"
    return robust.first_fault(
        lambda: None if counts is None else robust.count_fault(counts, task, noise),
        lambda: robust.beyond(tensors, START + reach),
    )


def said(counts: torch.Tensor, why: str | None) -> torch.Tensor:
    """A site's class sizes; none at all where its training has stopped, since a word would be free text."""
    return counts if why is None else torch.zeros_like(counts)


def train_classifier(cfg: GeneratorSettings, task: Task, made: SyntheticSet, key: Key) -> Params:
    """A fresh network from synthetic images: a fixed number of steps, averaged weights, nothing chosen by a score."""
    return train_fresh(
        task,
        x=made.x.to(task.device),
        y=F.one_hot(made.hard_y, len(task.classes)).float().to(task.device),
        weights=torch.ones(len(made.y)),
        steps=cfg.train_steps,
        batch=cfg.train_batch,
        lr=cfg.train_lr,
        key=key,
    )


def outcome(cfg: GeneratorSettings, task: Task, made: SyntheticSet, key: Key) -> Items:
    """The images, and the classifier trained on them."""
    return {"model": Weights(train_classifier(cfg, task, made, key.child("classifier"))), "synthetic": made}
