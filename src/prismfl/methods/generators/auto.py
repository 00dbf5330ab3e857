"""Settings of generators by a rule from public numbers: what is asked of the records, and how much is made of it.

Three thoughts. Sums before gradients: a noisy mean of a class has one number a pixel, a gradient one a weight, so few
records are asked for sums, and many for gradients as well. No more numbers than the noise carries: features, channels
and steps grow with the records. And whatever comes after the release (training a generator on sums, drawing,
training a classifier) costs time alone, so that it is as long as the data are many, and no longer.

The constants were set on held-out records of digits' training part at epsilon 3 and 1 (five sites), nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.averaging.auto import pools_away
from prismfl.methods.drowning import CHANCE, noise_share, warn_records
from prismfl.methods.generators.images import CLEAR
from prismfl.privacy import account

FEATURES = (200, 4000)  # of dp-merf
STEPS = (50, 400)  # noisy steps of dp-gan
DIFFUSION_STEPS = (5, 150)  # and of a diffusion model: a record's gradient takes long, and few records' are noise
MANY = 5000.0  # records over noise from which gradients are worth as much as the plain defaults ask for
SAMPLES = (1000, 10_000)
SUMS_FIRST = 0.3  # noise of central images in that of a step: nearly all of the budget is theirs


def merf(asked: Wanted) -> Chosen:
    """As many random features as stand out of the noise; a generator trained as long as they are many."""
    task = asked.task
    sites = math.sqrt(len(task.sites))
    clear = sites * task.records / len(task.classes) / _sigma(asked)
    features = _even(min(FEATURES[1], max(FEATURES[0], clear**2)))
    # A class whose noisy size does not stand out is left alone, so that sizes must be twice as clear as they have to.
    sizes = float(f"{min(0.5, max(0.02, (2.0 * CLEAR / clear) ** 2)):.2g}")
    chosen = {
        "share_count": sizes, "features": features, "picked": max(1, features // 4),
        "steps": _between(300, 2000, asked), "per_class": _between(20, 40, asked), **_after(asked),
    }  # fmt: skip
    line = (
        f"features {features}: a class has {clear:.3g} records for each of noise, over all sites; a feature is one "
        "over the root of their number, so more would be noise"
    )
    return _kept(asked, chosen, line)


def gan(asked: Wanted) -> Chosen:
    """Steps, batch and channels of both networks."""
    steps, width = _between(*STEPS, asked), _even(_between(8, 16, asked))
    chosen = {
        "steps": steps, "batch": float(min(_between(128, 512, asked), asked.task.records)), "width": width,
        "made_batch": 64, "maker_steps": 4, "lr": 5e-3, "maker_lr": 2e-3, **_after(asked),
    }  # fmt: skip
    return _kept(asked, chosen, _steps_line(asked, steps, width))


def diffusion(asked: Wanted, *, central: bool) -> Chosen:
    """Steps, draws, channels; central images of everybody where there are several sites."""
    task = asked.task
    steps, width = _between(*DIFFUSION_STEPS, asked), _even(_between(8, 24, asked))
    chosen: dict[str, Any] = {
        "steps": steps, "batch": float(min(_between(64, 1024, asked), task.records)), "draws": _between(1, 4, asked),
        "width": width, "sampler_steps": _between(5, 10, asked), "grid": 0, **_after(asked),
    }  # fmt: skip
    lines = [_steps_line(asked, steps, width)]
    if central:
        pooled = (
            len(task.sites) > 1 and asked.given.get("rounds", 2) > 1 and asked.given.get("easy") in (None, "pooled")
        )
        chosen |= {"easy": "pooled", "rounds": 2} if pooled else {"easy": "own"}
        chosen |= {"warm_steps": _between(150, 400, asked)}
        if _few(asked):  # else many central images of few records each, as published: more kinds of pictures
            chosen |= {"queries": 1, "query_rate": 1.0, "query_factor": SUMS_FIRST}
            lines.append(
                "one central image a class, of all records: sums say more than gradients where records are few"
            )
    return _kept(asked, chosen, *lines)


def decoders(asked: Wanted) -> Chosen:
    """Questions of a generator a class: how many are sums, and how many gradients."""
    task = asked.task
    queries = int(asked.given.get("queries", _between(20, 100, asked)))
    start = min(queries, max(1, round(queries * (0.75 if _few(asked) else 0.2))))
    chosen: dict[str, Any] = {"queries": queries, "start": start, "rate": 1.0 if _few(asked) else 0.125}
    most = min(5000, max(1000, task.records * len(task.sites)))
    chosen |= {"candidates": (most // 2, most) if most > 1000 else (most,), "samples": 1000}
    line = (
        f"{queries} questions to each class, {start} of them sums for the decoder's start: "
        f"{_room(asked):.3g} records for each of noise"
    )
    return _kept(asked, chosen, line)


def drowned(cfg: Any, task: Task, numbers: int) -> float:
    """How long the noise of all steps is on a network of so many weights, which each site trains for itself."""
    return noise_share(cfg.noise, numbers, steps=cfg.steps, units=task.rate(cfg.batch) * task.records)


def advice(cfg: Any, task: Task, numbers: int) -> list[str]:
    """Whether the noise drowns the gradients of a network of so many weights."""
    share = drowned(cfg, task, numbers)
    if getattr(cfg, "easy", "none") == "none" or share <= CHANCE:
        return warn_records(share, "gradients")
    return [
        f"noise drowns the gradients ({share:.3g} times as long as what the records add to them): what is learnt is "
        "what the central images show."
    ]


def _sigma(asked: Wanted) -> float:
    """The noise of one answer that takes the whole budget."""
    return account.calibrate(asked.task.gaussian, asked.epsilon, asked.task.delta)


def _room(asked: Wanted) -> float:
    """Records of a site for each of noise: what all choices grow with."""
    return asked.task.records / _sigma(asked)


def _few(asked: Wanted) -> bool:
    return _room(asked) < MANY / 5


def _between(least: int, most: int, asked: Wanted) -> int:
    """A number that grows with the records over the noise, from the least to the plain default."""
    return round(least + (most - least) * min(1.0, _room(asked) / MANY))


def _even(value: float) -> int:
    return 2 * max(1, round(value / 2))


def _after(asked: Wanted) -> dict[str, Any]:
    """How much is drawn and how long the classifier is trained: post-processing."""
    return {"samples": _between(*SAMPLES, asked), "train_steps": _between(300, 600, asked)}


def _steps_line(asked: Wanted, steps: int, width: int) -> str:
    room = f"{_room(asked):.3g} records of a site for each of noise"
    return f"{steps} noisy steps of a network with {width} channels: {room}; more of either would be noise"


def _kept(asked: Wanted, chosen: dict[str, Any], *words: str) -> Chosen:
    found = Chosen({k: v for k, v in chosen.items() if k not in asked.given}, words)
    if not asked.free_model or not pools_away(asked.task):
        return found
    line = f"model mlp: {asked.task.model} pools images of {asked.task.shape[1]} pixels to a single point"
    return replace(found, words=(line, *found.words), model="mlp")
