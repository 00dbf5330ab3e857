"""A door asked once, outside of any run: for audits and replays. What comes out is no release and is charged nowhere.

The door, its mechanisms and its meter are those of every run; records, noise and key are the asker's. A `Watch` may
look on: it is told each question and each answer, and can change neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from prismfl.core.door import PrivateRecords, Rows, table_rows
from prismfl.core.hub import PrivateSum
from prismfl.core.job import Job
from prismfl.core.method import Site, State
from prismfl.core.payloads import Items
from prismfl.core.records import Records
from prismfl.kernels.loss import Loss
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import Params
from prismfl.rng import Key, NoiseStream, RecordDraws

R = TypeVar("R")
Vector = Callable[[Items], Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class Question:
    """The public numbers of a question to a door, and the records' own random numbers that it drew for it."""

    bound: float
    sigma: float
    rate: float = 1.0
    kind: str = "gaussian"
    declared: int = 0
    second: int = 0
    scale: float = 1.0
    normals: int = 0
    draws: RecordDraws | None = None


class Watch:
    """Somebody who looks on while a door answers. What a subclass leaves as it is goes unnoted."""

    def sampled(self, sample: Records) -> None:
        """The records that an answer was computed from."""

    def summed(self, rows: Rows, answer: torch.Tensor, asked: Question) -> None:
        """A noisy sum was answered."""

    def moments(self, rows: Rows, answer: tuple[torch.Tensor, torch.Tensor], asked: Question) -> None:
        """Noisy moments were answered."""

    def gradient(self, loss: Loss, params: Params, answer: Params, asked: Question) -> None:
        """A noisy gradient was answered."""

    def clients(self, vector: Vector, like: Params, answer: Params, asked: Question) -> None:
        """The hub's door answered with a noisy sum over clients."""

    def of_class(self, label: int) -> Watch:
        """Who looks on at the door of one class."""
        return self


class WatchedRecords(PrivateRecords):
    """A site's door with somebody beside it: the same records, noise and meter as the door that it is made from."""

    def __init__(self, door: PrivateRecords, watch: Watch) -> None:
        vars(self).update(vars(door))
        self.watch = watch

    def _draws(self) -> RecordDraws:
        self.drawn = super()._draws()
        return self.drawn

    def _sample(self, rate: float, draws: RecordDraws) -> Records:
        sample = super()._sample(rate, draws)
        self.watch.sampled(sample)
        return sample

    def noisy_sum(
        self, rows: Rows, *, bound: float, sigma: float, batch: float | None = None, kind: str = "gaussian"
    ) -> torch.Tensor:
        """The door's noisy sum, shown to the watch."""
        answer = super().noisy_sum(rows, bound=bound, sigma=sigma, batch=batch, kind=kind)
        rate = 1.0 if batch is None else self.rate(batch)
        self.watch.summed(rows, answer, Question(bound, sigma, rate, kind))
        return answer

    def noisy_tables(
        self,
        places: Rows,
        *,
        sizes: Sequence[int],
        weights: Sequence[float],
        bound: float,
        sigma: float,
        batch: float | None = None,
    ) -> torch.Tensor:
        """The door's noisy tables, shown to the watch as the sum that they are."""
        answer = super().noisy_tables(places, sizes=sizes, weights=weights, bound=bound, sigma=sigma, batch=batch)
        if not self.reference:  # there it was asked, and shown, as a sum
            rate = 1.0 if batch is None else self.rate(batch)
            self.watch.summed(table_rows(places, sizes, weights), answer, Question(bound, sigma, rate))
        return answer

    def noisy_moments(
        self, rows: Rows, *, second: int, scale: float, bound: float, sigma: float, apart: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The door's noisy moments, shown to the watch."""
        answer = super().noisy_moments(rows, second=second, scale=scale, bound=bound, sigma=sigma, apart=apart)
        self.watch.moments(rows, answer, Question(bound, sigma, second=second, scale=scale))
        return answer

    def noisy_gradient(
        self,
        loss: Loss,
        params: Params,
        *,
        batch: float,
        clip: float,
        sigma: float,
        normals: int = 0,
        kind: str = "gaussian",
    ) -> dict[str, torch.Tensor]:
        """The door's noisy gradient, shown to the watch."""
        answer = super().noisy_gradient(loss, params, batch=batch, clip=clip, sigma=sigma, normals=normals, kind=kind)
        asked = Question(clip, sigma, self.rate(batch), kind, self.declared, normals=normals, draws=self.drawn)
        self.watch.gradient(loss, params, answer, asked)
        return answer

    @contextmanager
    def by_class(self, declared: Sequence[int]) -> Iterator[list[PrivateRecords]]:
        """The doors of the classes, each with somebody beside it."""
        with super().by_class(declared) as doors:
            yield [WatchedRecords(door, self.watch.of_class(label)) for label, door in enumerate(doors)]


class WatchedSum(PrivateSum):
    """The hub's door with somebody beside it."""

    def __init__(self, door: PrivateSum, watch: Watch) -> None:
        vars(self).update(vars(door))
        self.watch = watch

    def noisy(self, vector: Vector, like: Params, *, bound: float, sigma: float) -> dict[str, torch.Tensor]:
        """The hub's noisy sum, shown to the watch."""
        answer = super().noisy(vector, like, bound=bound, sigma=sigma)
        self.watch.clients(vector, like, answer, Question(bound, sigma))
        return answer


@dataclass(frozen=True)
class Answered(Generic[R]):
    """What a question got out of a door, and what the door's meter says that it costs."""

    answer: R
    cost: Cost


def ask_door(
    question: Callable[[PrivateRecords], R],
    records: Records,
    noise: NoiseStream,
    *,
    declared: int,
    classes: int,
    watch: Watch | None = None,
    **more: Any,
) -> Answered[R]:
    """One question to a new door of these records; `more` are the door's other settings."""
    door = PrivateRecords(records, declared=declared, classes=classes, noise=noise, **more)
    answer = question(door if watch is None else WatchedRecords(door, watch))
    return Answered(answer, door.meter.cost)


def ask_hub(
    question: Callable[[PrivateSum], R],
    inbox: Mapping[str, Items],
    noise: NoiseStream,
    *,
    declared: int,
    watch: Watch | None = None,
) -> Answered[R]:
    """One question to a new door of the hub, behind which lies what clients have sent."""
    door = PrivateSum(inbox, declared=declared, noise=noise)
    answer = question(door if watch is None else WatchedSum(door, watch))
    return Answered(answer, door.meter.cost)


def ask_once(
    job: Job,
    state: State,
    records: Records,
    noise: NoiseStream,
    *,
    key: Key,
    site: str | None = None,
    memory: Items | None = None,
    declared: int | None = None,
    unit: str | None = None,
    watch: Watch | None = None,
) -> Answered[tuple[Items, Items]]:
    """A method's client asked about these records with this noise: what would leave and what it would remember.

    `declared` and `unit` stand in for those of the task where the records are not the task's own.
    """
    task = job.task
    name = task.sites[0] if site is None else site

    def question(door: PrivateRecords) -> tuple[Items, Items]:
        return job.method.client(job.settings, state, Site(name, door, memory or {}, task), key)

    return ask_door(
        question,
        records,
        noise,
        declared=task.records if declared is None else declared,
        classes=len(task.classes),
        watch=watch,
        unit=task.unit if unit is None else unit,
        relation=task.relation,
        device=task.device,
        allow_exact=job.method.guarantee != "site",
    )
