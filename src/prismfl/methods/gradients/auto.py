"""Settings of methods that share one noisy gradient a round, by the rule of `averaging/auto.py`: a round is a step.

What is other than there: the server steps (so its rate falls along a cosine, and begins at twice the mean), and every
step is a message, so there are no more of them than bring something. Adam is not chosen: it makes every number's step
as long as any other's, however much of it is noise. Looked at: digits, held-out records of its training part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.averaging import auto
from prismfl.methods.drowning import CHANCE, noise_share, warn_records

ROUNDS = 50


def by_gradient(asked: Wanted) -> Chosen:
    """Rounds, batch, the server's optimiser, clip and rate."""
    given, task = asked.given, asked.task
    rounds = int(given.get("rounds", ROUNDS))
    if asked.free_model and task.model != (small := auto.quiet_model(asked, rounds)):
        found = by_gradient(replace(asked, task=replace(task, model=small), free_model=False))
        return replace(found, words=(auto.words_for(task, small), *found.words), model=small)
    batch, sigma = auto.batch_of(asked, rounds)
    chosen: dict[str, Any] = {"rounds": rounds, "batch": batch, "optimiser": "sgd"}
    words = [
        f"rounds {rounds}: one step each; batch {batch:g} of {task.records} records: sigma {sigma:.3g} where the noise "
        "is Gaussian",
    ]
    if given.get("optimiser", "sgd") == "sgd":
        numbers = auto.weights(task)
        share = noise_share(
            auto.unsampled(asked, rounds), numbers, steps=rounds, units=task.records, sites=task.asked
        )  # fmt: skip
        lr, clip = auto.rate_of(given, 2.0 * auto.way_of(share, auto.LONGEST) / rounds)
        chosen |= {"clip": clip, "lr": lr}
        way = rounds * clip * lr / 2.0
        words.append(f"sgd, clip {clip:.3g}, lr {lr:.3g}: the whole way {way:.3g}, its noise {way * share:.3g}")
    return Chosen({k: v for k, v in chosen.items() if k not in given}, tuple(words))


def advice(cfg: Any, task: Task) -> list[str]:
    """A line if the noise drowns the gradients, or a smaller network where that would help."""
    share = noise_share(
        cfg.noise, auto.weights(task), steps=cfg.rounds, units=task.rate(cfg.batch) * task.records, sites=task.asked
    )
    if getattr(cfg, "kind", "gaussian") == "laplace":  # clipped in L1, a gradient is at least so much shorter in L2
        share *= auto.weights(task) ** 0.5
    return warn_records(share, "gradients") if share > CHANCE else auto.loud(task, share)
