"""What an adversary sees of a run, read from its transcript and its public config.

The server sees the state it sends down and every release. A peer is a site: it sees the states and its own release, and
works out the mean of the others from how the model moved. An outsider sees the finished model only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from prismfl.core.job import Job
from prismfl.core.payloads import Gradient, Items, Payload, Weights
from prismfl.core.rounds import participants
from prismfl.errors import UserError
from prismfl.methods.gradients.fedem import BETA1
from prismfl.nets.classifier import Params
from prismfl.nets.training import cosine
from prismfl.runs.directory import RunDirectory

ADVERSARIES = ("server", "peer", "outsider")
NO_GRADIENT = "no gradient leaves"


@dataclass(frozen=True)
class Target:
    """A gradient to invert, as the adversary holds it: of which sites, in which round, of how many records at most.

    `exact` is False for a pseudo-gradient: a change of weights divided by the learning rates that made it. `rescaled`
    says that the gradient's length does not count: it was clipped, or is a pseudo-gradient.
    """

    sites: tuple[str, ...]
    round: int
    model: Params
    gradient: Params
    records: int
    exact: bool
    rescaled: bool


@dataclass(frozen=True)
class View:
    """What there is to attack, or in one line why there is nothing."""

    targets: tuple[Target, ...]
    why_not: str | None = None


def look(directory: RunDirectory, job: Job, *, adversary: str, round: int | None = None) -> View:
    """The adversary's view of one round (by default the first that was kept whole)."""
    if adversary not in ADVERSARIES:
        raise UserError(f"Expected --adversary {', '.join(ADVERSARIES)}, got '{adversary}'.")
    if not shares_gradient(job):
        return View((), NO_GRADIENT)
    if adversary == "outsider":
        return View((), "an outsider sees the finished model only, no gradient")
    states, releases = kept(directory)
    rounds = sorted(set(states) & set(releases))
    if not rounds:
        raise UserError(f"'{directory.path}' kept no round whole; run again with --set transcript=full.")
    chosen = rounds[0] if round is None else round
    if chosen not in rounds:
        raise UserError(f"Round {chosen} was not kept whole; kept: {', '.join(map(str, rounds))}.")
    if adversary == "server":
        found = [_from_release(job, states[chosen], site, items, chosen) for site, items in releases[chosen].items()]
        return View(tuple(found))
    after = states.get(chosen + 1)
    if after is None:
        raise UserError(
            f"A peer compares the models of rounds {chosen} and {chosen + 1}, and round {chosen + 1} was not kept; "
            "run again with --set transcript=full."
        )
    return _from_movement(job, states[chosen], after, releases[chosen], chosen)


def shares_gradient(job: Job) -> bool:
    """Whether gradients or weights of the task's own classifier leave the sites."""
    if not any(kind in (Gradient, Weights) for kind in job.method.leaves.values()):
        return False
    init = job.method.init(job.settings, job.task, job.key.child("init"))
    model = init.get("model")
    return model is not None and any(set(job.shapes[name]) == set(model.shapes()) for name in job.method.leaves)


def kept(directory: RunDirectory) -> tuple[dict[int, Items], dict[int, dict[str, Items]]]:
    """Round -> state sent down, and round -> site -> release, of the rounds that were kept whole."""
    states: dict[int, Items] = {}
    releases: dict[int, dict[str, Items]] = {}
    for message in directory.messages():
        if message.file is None:
            continue
        items = directory.payloads(message)
        if message.direction == "down":
            states[message.round] = items
        else:
            releases.setdefault(message.round, {})[message.site] = items
    final = directory.load_state()
    if final is not None:
        states.setdefault(final.round, final.items)
    return states, releases


def _from_release(job: Job, state: Items, site: str, items: Items, round: int) -> Target:
    model = _tensors(state["model"])
    gradient, exact = gradient_in(job, model, items, round)
    return Target((site,), round, model, gradient, expected_batch(job), exact, _rescaled(job, exact))


def gradient_in(job: Job, model: Params, items: Items, round: int) -> tuple[Params, bool]:
    """The gradient in a release: as it is, or from the change of the weights."""
    if isinstance(items.get("gradient"), Gradient):
        return _tensors(items["gradient"]), True
    scale = local_rate(job, round)
    for payload in items.values():
        if isinstance(payload, Weights) and set(payload.tensors) == set(model):
            return {k: (v - payload.tensors[k]) / scale for k, v in model.items()}, False
    change = next(p for p in items.values() if isinstance(p, Gradient) and set(p.tensors) == set(model))
    return {k: -change.tensors[k] / scale for k in model}, False


def _from_movement(job: Job, before: Items, after: Items, releases: Mapping[str, Items], round: int) -> View:
    """The mean of the others' gradients: the step of the model is the mean of all, and the peer knows its own part."""
    present = participants(job, round)
    me, others = present[0], tuple(present[1:])
    if not others:
        return View((), "no other site took part in this round")
    model = _tensors(before["model"])
    mean, exact = _mean_gradient(job, before, after, round)
    own, _ = gradient_in(job, model, releases[me], round)
    count = len(present)
    rest = {k: (count * mean[k] - own[k]) / (count - 1) for k in mean}
    records = expected_batch(job) * (count - 1)
    return View((Target(others, round, model, rest, records, exact, _rescaled(job, exact)),))


def _mean_gradient(job: Job, before: Items, after: Items, round: int) -> tuple[Params, bool]:
    exact = "gradient" in job.method.leaves
    if "moments" in before:  # the server's Adam: its first moment moves by the mean gradient
        old, new = before["moments"].tensors, after["moments"].tensors
        names = [k.removeprefix("first/") for k in new if k.startswith("first/")]
        return {k: (new[f"first/{k}"] - BETA1 * old[f"first/{k}"]) / (1 - BETA1) for k in names}, exact
    rate = cosine(_number(job, "lr"), round, job.settings.rounds) if exact else local_rate(job, round)
    moved = after["model"].tensors
    return {k: (v - moved[k]) / rate for k, v in before["model"].tensors.items()}, exact


def local_rate(job: Job, round: int) -> float:
    """The sum of the learning rates of a site's local steps in a round, from public settings."""
    settings, lr = job.settings, _number(job, "lr")
    steps = getattr(settings, "steps", None)
    if steps is not None:
        return lr * int(steps)
    epochs = int(getattr(settings, "epochs", 1))
    batches = max(1, -(-job.task.records // expected_batch(job)))
    return max(cosine(lr, round, settings.rounds), 1e-3 * lr) * epochs * batches


def expected_batch(job: Job) -> int:
    """The records in a batch by public settings: at least 1, at most all that the task declares."""
    return max(1, min(int(getattr(job.settings, "batch", job.task.records)), job.task.records))


def _rescaled(job: Job, exact: bool) -> bool:
    return not exact or "clip" in type(job.settings).model_fields


def _number(job: Job, name: str) -> float:
    return float(getattr(job.settings, name, 1.0))


def _tensors(payload: Payload) -> Params:
    return {k: v.to(torch.float32) for k, v in payload.tensors.items()}
