"""The step audit: every mechanism of the doors, asked thousands of times in two worlds that differ in one unit.

The answers are projected on what that unit adds; their distance in standard deviations is mu. The claim is 1 / sigma.
The attacker knows everything but the noise: the other units, their random numbers, and the place of the one in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from prismfl.adversary.audits.bounds import mu_interval
from prismfl.core.door import PrivateRecords
from prismfl.core.hub import PrivateSum
from prismfl.core.payloads import Gradient
from prismfl.core.records import Records
from prismfl.core.trial import ask_door, ask_hub
from prismfl.kernels.loss import Loss
from prismfl.nets.classifier import build
from prismfl.rng import Key, NoiseStream

REPEATS = 1000
SIGMA = 0.5
SHORTFALL = 0.95
"""How much of the claimed mu must be reached: a mechanism that adds more noise than it says is wrong as well."""

DRAWN = "noisy_gradient with draws"  # what a unit adds is another vector in every step
PLACES = (0, 2, 5)
"""Where the unit stands among the others, in turn: first, in the middle, last."""
Answer = Callable[[bool, NoiseStream, int], torch.Tensor]  # (is the unit there, noise, its place) -> the answer


@dataclass(frozen=True)
class Step:
    """Mu of one mechanism: claimed, and measured between two limits."""

    mechanism: str
    claimed: float
    low: float
    high: float
    passed: bool

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(self.__dict__)


def audit_steps(*, repeats: int = REPEATS, seed: int = 0, only: str | None = None) -> list[Step]:
    """The audit of every mechanism, or of the one named by `only`."""
    return [
        audit_step(name, make(), repeats=repeats, seed=seed)
        for name, make in MECHANISMS.items()
        if only is None or name == only
    ]


def audit_step(name: str, ask: Answer, *, repeats: int, seed: int, sigma: float = SIGMA) -> Step:
    """Mu of one mechanism from `repeats` answers in each world, against the claim of 1 / sigma."""
    key = Key.seed(seed).child("step", name)

    @lru_cache(maxsize=len(PLACES))
    def known(entropy: Key, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        without, whole = (ask(world, Silence(entropy), place) for world in (False, True))
        return without, (whole - without) / (whole - without).norm().clamp(min=1e-12)

    def score(there: bool, i: int) -> float:
        entropy, place = key.child(int(there), i), PLACES[i % len(PLACES)]
        without, direction = known(entropy if name == DRAWN else key, place)
        return float((ask(there, entropy.noise(), place) - without) @ direction)

    def sample(there: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray([score(there, i) for i in range(repeats)])

    low, high = mu_interval(sample(True), sample(False))
    claimed = 1.0 / sigma
    return Step(name, claimed, low, high, passed=low <= claimed and high >= SHORTFALL * claimed)


class Silence(NoiseStream):
    """Noise of size zero: shows what one unit adds."""

    def normal(self, count: int) -> torch.Tensor:
        """Zeros in place of normal noise."""
        return torch.zeros(count, dtype=torch.float64)

    def laplace(self, count: int) -> torch.Tensor:
        """Zeros in place of Laplace noise."""
        return torch.zeros(count, dtype=torch.float64)


def _world(there: bool, place: int) -> Records:
    """A few ordinary records, and among them one that is loud."""
    generator = Key.seed(3).torch()
    x, y = torch.rand(6, 1, 4, 4, generator=generator), torch.arange(6) % 3
    x[-1] = 50.0 * torch.randn(1, 4, 4, generator=generator)
    order = list(range(5))
    if there:
        order.insert(place, 5)
    return Records(x, y).take(torch.tensor(order))


def _asking(question: Callable[[PrivateRecords], torch.Tensor]) -> Answer:
    def ask(there: bool, noise: NoiseStream, place: int) -> torch.Tensor:
        return ask_door(question, _world(there, place), noise, declared=6, classes=3).answer.double()

    return ask


def _flat(gradient: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in gradient.values()])


def _sum() -> Answer:
    return _asking(lambda door: door.noisy_sum(lambda x, y: x.flatten(1), bound=1.0, sigma=SIGMA))


def _histogram() -> Answer:
    return _asking(lambda door: door.noisy_histogram(sigma=SIGMA))


def _gradient() -> Answer:
    classifier, params = build("logreg", (1, 4, 4), 3, key=Key.seed(0))
    loss: Loss = classifier.record_loss
    return _asking(lambda door: _flat(door.noisy_gradient(loss, params, batch=6, clip=0.5, sigma=SIGMA)))


def _drawn_gradient() -> Answer:
    """A loss with random numbers of the record's own, which turn each record's gradient in every step."""
    classifier, params = build("logreg", (1, 4, 4), 3, key=Key.seed(0))
    loss = Loss(classifier.module, lambda output, y, z: (output[0] * z).sum())
    return _asking(lambda door: _flat(door.noisy_gradient(loss, params, batch=6, clip=0.5, sigma=SIGMA, normals=3)))


def _class_gradient() -> Answer:
    classifier, params = build("logreg", (1, 4, 4), 3, key=Key.seed(0))

    def question(door: PrivateRecords) -> torch.Tensor:
        with door.by_class([2, 2, 2]) as doors:
            asked = [d.noisy_gradient(classifier.record_loss, params, batch=2, clip=0.5, sigma=SIGMA) for d in doors]
        return torch.cat([_flat(got) for got in asked])

    return _asking(question)


def _hub() -> Answer:
    like = {"w": torch.zeros(8)}
    updates = 5.0 * torch.randn(4, 8, generator=Key.seed(4).torch())

    def question(hub: PrivateSum) -> torch.Tensor:
        return hub.noisy(lambda items: items["update"].tensors, like, bound=1.0, sigma=SIGMA)["w"]

    def ask(there: bool, noise: NoiseStream, place: int) -> torch.Tensor:
        sent = updates if there else updates[:-1]
        inbox = {f"site-{i}": {"update": Gradient({"w": u})} for i, u in enumerate(sent)}
        return ask_hub(question, inbox, noise, declared=4).answer.double()

    return ask


MECHANISMS: dict[str, Callable[[], Answer]] = {
    "noisy_sum": _sum,
    "noisy_histogram": _histogram,
    "noisy_gradient": _gradient,
    DRAWN: _drawn_gradient,
    "noisy_gradient by class": _class_gradient,
    "the hub's noisy sum": _hub,
}
