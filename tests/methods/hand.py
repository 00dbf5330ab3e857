"""Two records, two classes and a logistic regression that starts at zero: steps that can be done by hand.

At zero weights both classes have probability 1/2. Record (1, 0) of class 0 has the gradient -1/2 (1, 0) in the first
row and its opposite in the second; record (0, 2) of class 1 has 1/2 (0, 2) and its opposite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Settings, Site, State
from prismfl.core.payloads import Items, Payload, Weights
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

TASK = Task(
    data="hand", shape=(2,), classes=("a", "b"), sites=("site-0", "site-1", "site-2"), records=2, model="logreg"
)
RECORDS = Records(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
WEIGHT, BIAS = "1.weight", "1.bias"
MEAN_GRADIENT = torch.tensor([[-0.25, 0.5], [0.25, -0.5]])  # of the weights; the biases' is zero
ZERO = {WEIGHT: torch.zeros(2, 2), BIAS: torch.zeros(2)}
KEY = Key.seed(5)


def model(weight: torch.Tensor | float = 0.0, bias: torch.Tensor | float = 0.0) -> Weights:
    return Weights({WEIGHT: torch.zeros(2, 2) + weight, BIAS: torch.zeros(2) + bias})


def one_step(weights: Mapping[str, torch.Tensor], lr: float, records: Records = RECORDS) -> dict[str, torch.Tensor]:
    """A full-batch step of softmax regression, written out."""
    scores = records.x @ weights[WEIGHT].T + weights[BIAS]
    shares = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
    wrong = shares - torch.eye(2)[records.y]
    return {
        WEIGHT: weights[WEIGHT] - lr * wrong.T @ records.x / len(records),
        BIAS: weights[BIAS] - lr * wrong.mean(0),
    }


@dataclass(frozen=True)
class Told:
    """What a site lets out, what it remembers, and what its meter says."""

    leaves: Items
    stays: Items
    cost: Cost


def settings(name: str, **changes: Any) -> Settings:
    return METHODS[name].settings(**changes)


def ask(
    name: str,
    items: Items,
    *,
    task: Task = TASK,
    records: Records = RECORDS,
    round: int = 0,
    memory: Mapping[str, Payload] | None = None,
    noise: int = 0,
    **changes: Any,
) -> Told:
    """One site's part in one round, behind a door as `core` makes it."""
    method = METHODS[name]
    door = PrivateRecords(
        records,
        declared=task.records,
        classes=len(task.classes),
        noise=Key.seed(noise).noise(),
        allow_exact=method.guarantee != "site",
    )
    site = Site("site-0", door, memory or {}, task)
    leaves, stays = method.client(settings(name, **changes), State(round, items), site, KEY)
    return Told(leaves, stays, door.meter.cost)


def serve(name: str, items: Items, inbox: Mapping[str, Items], *, round: int = 0, **changes: Any) -> Items:
    """The server's part in one round."""
    return METHODS[name].server(settings(name, **changes), TASK, State(round, items), inbox, KEY)


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], *, tol: float = 1e-6) -> bool:
    return set(one) == set(other) and all(torch.allclose(v, other[k], atol=tol, rtol=0) for k, v in one.items())
