"""What methods share whose sites send images of declared classes: settings, first images, labels, shapes, the pool."""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Settings, Shapes, Site, State
from prismfl.core.payloads import Payload, Statistics, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.errors import BoundaryError, UserError
from prismfl.methods import robust
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape.matching import Walk
from prismfl.rng import Key

MOST_PIXEL = 1e6


class Declared(Settings):
    """Settings of methods whose sites send images of declared classes."""

    images: int = Field(10, ge=1, description="synthetic images per class")
    public_classes: tuple[tuple[int, ...], ...] | None = Field(
        None, description="classes of each site, where they are public; None: images of every declared class"
    )


def classes_of(cfg: Declared, task: Task, site: str) -> tuple[int, ...]:
    """The classes a site makes images of: all declared ones, or those it has declared public."""
    if cfg.public_classes is None:
        return tuple(range(len(task.classes)))
    return cfg.public_classes[task.sites.index(site)]


def check_classes(cfg: Declared, task: Task) -> None:
    """Refuse declared classes that are not the task's, or that would make releases of different sizes."""
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
    """A fresh model, once the declared classes are checked."""
    check_classes(cfg, task)
    return fedavg.init(cfg, task, key)


def labels_of(cfg: Declared, task: Task, site: str) -> torch.Tensor:
    """The labels of a site's images: public, class by class."""
    return torch.tensor(classes_of(cfg, task, site)).repeat_interleave(cfg.images)


def first_images(site: Site, key: Key, *, count: int, carried: bool) -> torch.Tensor:
    """The last round's images, or noise."""
    kept = site.memory.get("images")
    if carried and isinstance(kept, SyntheticSet):
        return kept.x.to(site.task.device)
    return torch.randn(count, *site.task.shape, generator=key.child("images").torch()).to(site.task.device)


def sealed_images(x: torch.Tensor, y: torch.Tensor, *, image_lr: float, site: str, round: int) -> SyntheticSet:
    """The images as they leave; a refusal that says what to lower where they are not finite."""
    if not bool(torch.isfinite(x).all()):
        raise BoundaryError(
            f"Images of {site} in round {round + 1} are not finite at image_lr {image_lr:g}; nothing was sent. "
            "Use a smaller image_lr (or lr)."
        )
    return SyntheticSet.of(x, y)


def pool(inbox: Inbox, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Everybody's images; as many from each site, so the mean over them counts every site the same.

    Images are not bounded by their making: a site whose images are over twice as long as the median site's has them
    shortened, for a long image moves the model further.
    """
    sets = {site: items["images"] for site, items in sorted(inbox.items())}
    made = {site: s for site, s in sets.items() if isinstance(s, SyntheticSet)}
    factors = robust.clip_factors({site: robust.length({"x": s.x}) for site, s in made.items()})
    xs = [s.x if factors[site] == 1.0 else (factors[site] * s.x.double()).float() for site, s in made.items()]
    return torch.cat(xs).to(task.device), torch.cat([s.y for s in made.values()]).to(task.device)


def possible(cfg: Declared, task: Task, state: State, site: str, items: Items) -> str | None:
    """Labels are public; pixels that were fitted may leave [0, 1], but not by far."""
    made = items["images"]
    if not torch.equal(made.tensors["y"], labels_of(cfg, task, site)):
        return "labels are not the declared ones"
    return robust.beyond({"x": made.tensors["x"]}, MOST_PIXEL)


def after(done: Walk, x: torch.Tensor, y: torch.Tensor, *, last: bool) -> Items:
    """The next state. The last one is not sent down to anybody, so the images may stay in it."""
    taken = Statistics({"radius": torch.tensor([done.distance]), "steps": torch.tensor([done.steps])})
    shown: dict[str, Payload] = {"synthetic": SyntheticSet.of(x, y)} if last else {}
    return {"model": Weights(done.params), "taken": taken, **shown}


def shapes(cfg: Declared, task: Task) -> Shapes:
    """As many images from every site, with their labels."""
    count = cfg.images * len(classes_of(cfg, task, task.sites[0]))
    return {"images": {"x": ("float32", (count, *task.shape)), "y": ("int64", (count,))}}


def advice(cfg: Declared, task: Task) -> list[str]:
    """Said before anything is spent."""
    if cfg.public_classes is None:
        return []
    own = "; ".join(f"{site}: {', '.join(task.classes[c] for c in classes_of(cfg, task, site))}" for site in task.sites)
    return [f"which classes a site holds is declared public ({own}); the guarantee does not cover it."]
