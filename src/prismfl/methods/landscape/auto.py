"""Settings of methods whose sites send fitted images, by a rule from public numbers: fedlap-dp, feddm-dp, psg.

Images are post-processing: fitting them long is free, and only questions to the records cost. So the rule asks as often
as leaves the noise of one question short against its answer (over all sites), and then fits long. Where the noise
allows no more than a few questions, they are about a linear model, which has the fewest numbers: its gradients and its
features are the pixels of a class, whatever its weights are, so that few questions say all there is.

The constants were set on held-out records of digits' training part at epsilon 3 and 1 (five sites), nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.averaging.auto import pools_away, unsampled, weights
from prismfl.methods.averaging.fedavg import model_shapes
from prismfl.methods.drowning import noise_share, warn_records
from prismfl.methods.landscape.image_exchange import advice as declared_advice

QUIET = 0.2  # how long the noise of one question may be, against its answer
FEWEST, MOST = 20, 100  # questions in all: with fewer, images follow the noise of each
WORK = 400  # image updates in all
CLIP = 0.1  # only directions are matched, so a clip below the usual gradient loses nothing
SHARP = 0.5  # feddm-dp: how long the noise of a class's mean may be
DROWNED = 2.0  # and where nothing is learnt from it: a class is told by a few directions, noise is in all of them

Rule = Callable[[Wanted, int, bool], dict[str, Any]]  # (asked, questions, linear) -> settings


def psg(asked: Wanted) -> Chosen:
    """Fresh networks and stops on each; how long images are fitted at each stop."""
    return _chosen(asked, _psg)


def fedlap(asked: Wanted) -> Chosen:
    """Rounds, stops and batches; the trust region and the rates of a linear model."""
    return _chosen(asked, _fedlap)


def feddm(asked: Wanted) -> Chosen:
    """Rounds, networks and how long images are matched in each."""
    return _chosen(asked, _feddm, per_class=True)


def _chosen(asked: Wanted, rule: Rule, *, per_class: bool = False) -> Chosen:
    task, given = asked.task, asked.given
    room = allowed(asked, per_class=per_class)
    if asked.free_model and task.model != "logreg" and (pools_away(task) or room < FEWEST):
        found = _chosen(replace(asked, task=replace(task, model="logreg"), free_model=False), rule, per_class=per_class)
        why = "pools everything away" if pools_away(task) else f"could be asked about {room} times only"
        return replace(found, words=(f"model logreg: {task.model} {why}", *found.words), model="logreg")
    count = max(FEWEST, min(MOST, room))
    chosen = {"batch": float(task.records), **rule(asked, count, task.model == "logreg")}
    words = (
        f"at most {count} questions about all {task.records} records: the noise of one would be "
        f"{share(asked, count, per_class):.2g} times as long as its answer over all sites",
        f"{chosen['updates']} updates of the images after each: they cost time, no privacy",
    )
    return Chosen({k: v for k, v in chosen.items() if k not in given}, words)


def allowed(asked: Wanted, *, per_class: bool = False) -> int:
    """How many questions leave the noise of one short enough: it grows with the root of their number."""
    return int(((SHARP if per_class else QUIET) / share(asked, 1, per_class)) ** 2)


def share(asked: Wanted, count: int, per_class: bool = False) -> float:
    """The noise of one of `count` questions over its answer: a gradient, or a class's mean of features."""
    task = asked.task
    numbers, units = (width(task), task.records / len(task.classes)) if per_class else (weights(task), task.records)
    return noise_share(unsampled(asked, count), numbers, steps=1, units=units, sites=task.asked)


def width(task: Task) -> int:
    """Numbers that go into the last layer of the task's network."""
    layers = [shape for _, shape in model_shapes(task).values() if len(shape) == 2]
    return int(layers[-1][1]) if layers else math.prod(task.shape)


def _psg(asked: Wanted, count: int, linear: bool) -> dict[str, Any]:
    given = asked.given
    alone = len(asked.task.sites) == 1
    stops = int(given.get("stops", min(10 if alone else 8, max(1, count // int(given.get("networks", 1))))))
    few = 2 if alone else 1  # of a linear model: a fresh one is the same question; with several sites each brings one
    networks = int(given.get("networks", few if linear else max(1, count // stops)))
    return {
        "images": 10 if alone else 5, "networks": networks, "stops": stops, "updates": _updates(networks * stops, 50),
        "clip": CLIP, "image_lr": 10.0, "epochs": 100,
    }  # fmt: skip


def _fedlap(asked: Wanted, count: int, linear: bool) -> dict[str, Any]:
    given = asked.given
    rounds = int(given.get("rounds", max(2, min(10, count // 4))))
    paths, stops = int(given.get("paths", 1)), int(given.get("stops", 2))
    batches = int(given.get("batches", max(1, count // (rounds * paths * stops))))
    found: dict[str, Any] = {
        "rounds": rounds, "paths": paths, "stops": stops, "batches": batches, "images": 5, "clip": CLIP,
        "updates": _updates(rounds * paths * stops * batches, 20),
    }  # fmt: skip
    if linear:
        found |= {"radius": 3.0, "image_lr": 10.0, "lr": 0.1, "server_lr": 0.5}
    return found


def _feddm(asked: Wanted, count: int, linear: bool) -> dict[str, Any]:
    given = asked.given
    if linear:  # features are the pixels: another network would be the same question again
        rounds, networks = int(given.get("rounds", max(1, min(2, allowed(asked, per_class=True) // 2)))), 1
    else:
        rounds = int(given.get("rounds", max(1, count // 10)))
        networks = max(1, count // rounds)
    networks = int(given.get("networks", networks))
    steps = 500 if linear else 100
    return {
        "rounds": rounds, "networks": networks, "images": 5, "updates": _updates(rounds * networks, 100),
        "server_steps": steps,
    }  # fmt: skip


def _updates(count: int, most: int) -> int:
    return max(5, min(most, WORK // count))


def advice(cfg: Any, task: Task) -> list[str]:
    """What is declared public, and whether the noise drowns the questions."""
    count, units = _count(cfg), task.rate(cfg.batch) * task.records
    found = noise_share(cfg.noise, weights(task), steps=count, units=units, sites=task.asked)
    return declared_advice(cfg, task) + warn_records(found, "gradients")


def means_advice(cfg: Any, task: Task) -> list[str]:
    """The same for means of classes."""
    units = task.rate(cfg.batch) * task.records / len(task.classes)
    found = noise_share(cfg.noise, width(task), steps=_count(cfg), units=units, sites=task.asked)
    return declared_advice(cfg, task) + warn_records(found, "means of classes", chance=DROWNED)


def _count(cfg: Any) -> int:
    """All questions of a run: a setting that a method does not have counts once."""
    return math.prod(int(getattr(cfg, name, 1)) for name in ("rounds", "networks", "paths", "stops", "batches"))
