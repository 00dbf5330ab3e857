"""A tiny run of any method with canaries in it: the same client, server and plan as in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.adversary.audits.watcher import Notebook, Watcher, record_gradients
from prismfl.core.hub import PrivateSum
from prismfl.core.job import Job
from prismfl.core.method import Method, Settings, State
from prismfl.core.payloads import Gradient, Items, Weights
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.core.trial import ask_hub, ask_once
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

CLASSES = ("a", "b", "c", "d")
IMAGE, TABLE = (1, 8, 8), (64,)
EVERYTHING = {"batch": None, "sgd_batch": None, "rate": 1.0}
"""Settings of the sampling: every record in every step, where one run tells most about the noise."""
WIDE = {"networks": 8, "network_width": 8, "network_features": 64, "atoms": 32, "rank": 128, "covariance": 16}
SHARP: dict[str, dict[str, Any]] = {
    "dp-fedavg-client": {"clip": 0.05},
    "dp-gan": {"width": 16},
    "dp-merf": {"features": 2000},
    "prism": WIDE,
    "prism-head": WIDE,
    "prism-client": WIDE,
}
"""Settings under which canaries use up their whole bound, and answers are wide enough to tell 1000 of them apart."""


@dataclass(frozen=True)
class Trial:
    """What an attacker made of one run."""

    scores: npt.NDArray[np.float64]
    truth: npt.NDArray[np.bool_]
    cost: Cost
    answers: int
    squares: float = 0.0
    numbers: int = 0


def tiny_task(method: Method, canaries: int, *, delta: float) -> Task:
    """A small task for the method, with room for the canaries: as records of one site, or as clients."""
    image = "image" in method.kinds
    client = method.guarantee == "client"
    public = torch.rand(200, *IMAGE, generator=Key.seed(5).torch()) if method.needs_public else None
    return Task(
        data="canaries",
        shape=IMAGE if image else TABLE,
        classes=CLASSES,
        sites=tuple(f"site-{i}" for i in range(canaries)) if client else ("site-0",),
        records=1 if client else canaries,
        model="mlp:64",
        delta=delta,
        public=public,
    )


def tiny_settings(method: Method, task: Task, *, epsilon: float, noiseless: bool = False, **changes: Any) -> Settings:
    """The method's own tiny settings, with every record in every step, and noise for `epsilon`, or none."""
    fields = method.settings.model_fields
    values: dict[str, Any] = dict(method.tiny)
    for name, value in EVERYTHING.items():
        if name in fields:
            values[name] = task.records if value is None else value
    values.update({**SHARP.get(method.name, {}), **changes})
    if "sigma" not in fields:
        return method.settings(**values)

    def cost(sigma: float) -> Cost:
        return method.plan(method.settings(**{**values, "sigma": sigma}), task)

    sigma = 0.0 if noiseless else account.calibrate(cost, epsilon, task.delta)
    return method.settings(**{**values, "sigma": sigma})


def make_canaries(task: Task, count: int, key: Key) -> Records:
    """Records like no other: noise with a label drawn at random. The guarantee holds for any record, so for these."""
    generator = key.child("canaries").torch()
    x = torch.randn(count, *task.shape, generator=generator)
    return Records(x, torch.arange(count) % len(task.classes))


def run(method: Method, settings: Settings, task: Task, *, canaries: Records, inside: torch.Tensor, key: Key) -> Trial:
    """One run with the canaries that are `inside`; `inside` is the truth that only the scorer reads."""
    book, job = Notebook(canaries, inside), Job("audit", method, settings, task, seed=0)
    cost = (_client_level if method.guarantee == "client" else _site_level)(job, book, inside, key)
    if not book.answers:
        raise UserError(
            f"The audit of '{method.name}' saw no answer of a door and no gradient: it would prove nothing."
        )
    return Trial(book.scores(), inside.numpy(), cost, book.answers, squares=book.squares, numbers=book.numbers)


def _site_level(job: Job, book: Notebook, inside: torch.Tensor, key: Key) -> Cost:
    # In any order: no canary stands where it could be spared by its place.
    order = torch.randperm(len(inside), generator=key.child("places").torch())
    records, task = book.canaries.take(order[inside[order]]), job.task
    state, total = _start(job, key), Cost.zero(task.unit, task.relation)
    memory: Items = {}
    for r in range(job.settings.rounds):
        noise, client = key.child("noise", r).noise(), key.child("client", r)
        asked = ask_once(job, state, records, noise, key=client, site="site-0", memory=memory, watch=Watcher(book))
        items, memory = asked.answer
        if not asked.cost.private and not book.answers:
            _watch_release(task, state, items, book)
        total = total + asked.cost
        inbox, server = {"site-0": items}, key.child("server", r)
        state = State(r + 1, dict(job.method.server(job.settings, task, state, inbox, server)))
    return total


def _watch_release(task: Task, state: State, items: Items, book: Notebook) -> None:
    """Without a guarantee there are no noisy answers: the attacker reads the gradient or update that was sent."""
    sent = next((p for p in items.values() if isinstance(p, (Gradient, Weights))), None)
    model = state.items.get("model")
    if sent is None or model is None or set(sent.tensors) != set(model.tensors):
        return
    start = model.tensors
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    own = book.canaries
    parts = record_gradients(classifier.record_loss, start, (own.x, own.y), clip=float("inf"), kind="gaussian")
    moved = {k: sent.tensors[k] if isinstance(sent, Gradient) else start[k] - sent.tensors[k] for k in start}
    flat = torch.cat([moved[k].flatten() for k in start]).double()
    # How the update is scaled (mean, learning rate) is public only up to a factor: fit it, half of the canaries in.
    middle = 0.5 * parts.double().sum(0)
    factor = float(flat @ middle) / float(middle @ middle)
    if factor:
        book.note(parts, flat / factor, scale=0.0)


def _client_level(job: Job, book: Notebook, inside: torch.Tensor, key: Key) -> Cost:
    state, total, task = _start(job, key), Cost.zero("client"), job.task
    for r in range(job.settings.rounds):
        everyone: dict[str, Items] = {}
        for i, name in enumerate(task.sites):
            own, noise = book.canaries.take(torch.tensor([i])), key.child("noise", r, name).noise()
            asked = ask_once(job, state, own, noise, key=key.child("client", r), site=name, declared=1)
            everyone[name], _ = asked.answer
        inbox = {name: items for name, items, here in zip(everyone, everyone.values(), inside.tolist()) if here}

        def serve(hub: PrivateSum, state: State = state, r: int = r) -> Items:
            return job.method.server(job.settings, task, state, hub, key.child("server", r))

        noise, watch = key.child("hub", r).noise(), Watcher(book, everyone=everyone)
        served = ask_hub(serve, inbox, noise, declared=len(task.sites), watch=watch)
        total = total + served.cost
        state = State(r + 1, dict(served.answer))
    return total


def _start(job: Job, key: Key) -> State:
    return State(0, dict(job.method.init(job.settings, job.task, key.child("init"))))


def coins(count: int, key: Key) -> torch.Tensor:
    """A fair coin for each canary: True where it is in."""
    return torch.rand(count, generator=key.child("coins").torch()) < 0.5


def auditable(method: Method) -> str | None:
    """Why a method cannot be audited with canaries, or None."""
    if not method.leaves:
        return "nothing leaves a site"
    if method.guarantee is None and not any(issubclass(kind, (Gradient, Weights)) for kind in method.leaves.values()):
        return "it claims nothing, and what leaves is no function of a gradient that canaries could be told from"
    return None
