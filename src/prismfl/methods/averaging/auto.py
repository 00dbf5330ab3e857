"""Settings of dp-fedavg and its kin by a rule, from public numbers alone: instant, and no record or image is needed.

A clip below the usual gradient makes every record's gradient as long as the clip, so a step is lr * clip long and only
the *way* counts: steps * lr * clip. At a given budget sigma grows with the root of the steps, and so does the sum of
their noise: noise is in proportion to the way, however many steps it has, and a sampled batch costs next to nothing
while sigma is well above one. So the rule has three parts. Many short steps, and an average over the sites after every
second: sites that go on alone drift apart, by noise and by their classes. The batch only as large as sigma needs. And
the way as long as its noise allows, within limits.

The constants were set on digits, MNIST, the embedded 5,000 of it and Fashion-MNIST, IID and with few classes a site, at
epsilon 0.2 to 5, with logistic regression, one hidden layer and ConvNet; a rule was enough, so nothing is rehearsed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.averaging import fedavg
from prismfl.methods.drowning import noise_share, warn_clients
from prismfl.nets.classifier import IMAGE_MODELS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost

ROUNDS, STEPS, POOLED_STEPS = 50, 100, 200  # rounds, and steps in all
CLIP = 0.1
NOISE = 20.0  # how long the noise of the whole way may be
SHORTEST, LONGEST = 10.0, 300.0
BATCHES = (256, 1024)
ENOUGH = 1.5  # sigma above which a larger batch lowers the noise by little
PULL = 0.1  # share of the way back to the server's model that a proximal step goes
LOUD = 0.15  # share of noise beyond which a smaller network is named
CLIENT_WAY = 50.0


def by_record(asked: Wanted, *, pooled: bool = False, proximal: bool = False) -> Chosen:
    """Rounds, steps, batch, clip and rate (and the pull of a proximal term) for DP-SGD on each site."""
    given, task = asked.given, asked.task
    rounds, steps = _schedule(given, pooled=pooled)
    total = rounds * steps
    batch, sigma = batch_of(asked, total)
    if asked.free_model and task.model != (small := quiet_model(asked, total)):
        found = by_record(
            replace(asked, task=replace(task, model=small), free_model=False), pooled=pooled, proximal=proximal
        )
        return replace(found, words=(words_for(task, small), *found.words), model=small)
    share = noise_share(unsampled(asked, total), weights(task), steps=total, units=task.records, sites=task.asked)
    way = way_of(share, LONGEST)
    lr, clip = rate_of(given, way / total)
    chosen: dict[str, Any] = {"rounds": rounds, "steps": steps, "batch": batch, "clip": clip, "lr": lr}
    words = [
        f"rounds {rounds}, steps {steps}: "
        + ("one release" if pooled else "sites average often, so that noise and classes do not lead them apart"),
        f"batch {batch:g} of {task.records} records: sigma {sigma:.3g}; more would lower the noise little",
        f"clip {clip:.3g}, lr {lr:.3g}: a step is {clip * lr:.3g} long whatever the gradients, the whole way "
        f"{total * clip * lr:.3g}, and its noise {total * clip * lr * share:.3g} on {weights(task)} weights",
    ]
    if proximal:
        chosen["mu"] = float(given.get("mu", PULL / lr))
        words.append(f"mu {chosen['mu']:.3g}: a step goes {chosen['mu'] * lr:.2g} of the way back")
    return Chosen({k: v for k, v in chosen.items() if k not in given}, tuple(words))


def by_client(asked: Wanted) -> Chosen:
    """Rounds and the bound of a client for noise at the hub. Local training costs nothing: it stays as it is."""
    given, clients = asked.given, asked.task.asked
    most = int(given.get("rounds", ROUNDS))
    sigma = account.calibrate(lambda s: _at_hub(s, most), asked.epsilon, asked.task.delta)
    share = noise_share(sigma, weights(asked.task), steps=most, units=clients)
    way = max(1.0, min(CLIENT_WAY, NOISE / share))
    rounds = int(given.get("rounds", max(1, min(ROUNDS, round(way / float(given.get("clip", 1.0)))))))
    clip = float(given.get("clip", rounded(way / rounds)))
    words = (
        f"rounds {rounds}, clip {clip:.3g}: the clients' updates come to {rounds * clip:.3g} in all, and the hub's "
        f"noise to {rounds * clip * share:.3g} on {weights(asked.task)} weights",
    )
    return Chosen({k: v for k, v in (("rounds", rounds), ("clip", clip)) if k not in given}, words)


def record_advice(cfg: Any, task: Task) -> list[str]:
    """A smaller network, where the noise is long for this one."""
    units = task.rate(cfg.batch) * task.records
    share = noise_share(cfg.noise, weights(task), steps=cfg.rounds * cfg.steps, units=units, sites=task.asked)
    return loud(task, share)


def loud(task: Task, share: float) -> list[str]:
    """The smaller network's name, if the noise is long on this one."""
    numbers, fewer = weights(task), weights(task, "logreg")
    if share <= LOUD or 2 * fewer > numbers:
        return []
    return [
        f"noise is {share:.2g} times as long as the way of the steps on {numbers} weights; a smaller network may do "
        f"better: --model logreg has {fewer}, and {math.sqrt(numbers / fewer):.2g} times less noise."
    ]


def client_advice(cfg: Any, task: Task) -> list[str]:
    """A line if the hub's noise drowns the clients."""
    return warn_clients(cfg.noise, weights(task), rounds=cfg.rounds, clients=task.asked)


def weights(task: Task, model: str | None = None) -> int:
    """How many numbers the task's network has, or another one on the same records."""
    shapes = fedavg.model_shapes(task if model is None else replace(task, model=model))
    return sum(math.prod(shape) for _, shape in shapes.values())


def quiet_model(asked: Wanted, total: int) -> str:
    """The task's network or, where the noise would be long on it, the largest of smaller ones on which it is not.

    A network that pools its maps to a single point learns slowly however little noise there is, so it gives way, too.
    """
    task = asked.task
    for model in (task.model, "mlp", "logreg"):
        if pools_away(replace(task, model=model)):
            continue
        numbers = weights(task, model)
        if noise_share(unsampled(asked, total), numbers, steps=total, units=task.records, sites=task.asked) <= LOUD:
            return model
    return "logreg"


def pools_away(task: Task) -> bool:
    """Whether nothing of an image's plane is left before the last layer of the task's network."""
    least = IMAGE_MODELS.get(task.model.partition(":")[0], 1)
    return task.kind == "image" and task.shape[1] < 2 * least


def words_for(task: Task, small: str) -> str:
    """Why another network than the task's was taken."""
    if pools_away(task):
        return f"model {small}: {task.model} pools images of {task.shape[1]} pixels to a single point"
    return f"model {small}: the noise would be long on the {weights(task)} weights of {task.model}"


def _schedule(given: Mapping[str, Any], *, pooled: bool) -> tuple[int, int]:
    total, usual = (POOLED_STEPS, 1) if pooled else (STEPS, ROUNDS)
    if "rounds" in given:
        rounds = int(given["rounds"])
    else:
        rounds = usual if "steps" not in given else max(1, min(usual, total // int(given["steps"])))
    return rounds, int(given.get("steps", math.ceil(total / rounds)))


def batch_of(asked: Wanted, total: int) -> tuple[float, float]:
    """The expected batch and the sigma that comes with it."""
    task = asked.task

    def sigma(batch: float) -> float:
        return account.calibrate(lambda s: task.gaussian(s, batch=batch, times=total), asked.epsilon, task.delta)

    if "batch" in asked.given:
        batch = float(asked.given["batch"])
        return batch, sigma(batch)
    batch, found = 0.0, 0.0
    for size in BATCHES:
        batch = float(min(size, task.records))
        found = sigma(batch)
        if found >= ENOUGH or batch == task.records:
            break
    return batch, found


def unsampled(asked: Wanted, total: int) -> float:
    """Sigma of `total` answers about all records."""
    return account.calibrate(lambda s: asked.task.gaussian(s, times=total), asked.epsilon, asked.task.delta)


def _at_hub(sigma: float, rounds: int) -> Cost:
    return Cost.gaussian(sigma, times=rounds, unit="client", relation="add-remove")


def way_of(share: float, longest: float) -> float:
    """How long all steps together may be, at this share of noise."""
    return min(longest, max(SHORTEST, NOISE / share))


def rate_of(given: Mapping[str, Any], length: float) -> tuple[float, float]:
    """Rate and clip of steps of some length. A given pull of a proximal term must not throw a step beyond its start."""
    if "lr" in given:
        lr = float(given["lr"])
        return lr, float(given.get("clip", rounded(length / lr)))
    clip, mu = float(given.get("clip", CLIP)), float(given.get("mu", 0.0))
    lr = max(length / clip, 1e-6)
    if mu * lr > PULL and "clip" not in given:
        lr, clip = PULL / mu, rounded(length * mu / PULL)
    return rounded(lr), clip


def rounded(value: float) -> float:
    """Three digits: nobody reads more."""
    return float(f"{value:.3g}")
