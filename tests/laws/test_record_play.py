"""Record-play: one record (or patient) taken out, at every position; all public randomness and the secret stream fixed.

Both worlds ask the same questions, with the same bounds and noise, and what each adds noise to lies no further apart
than its bound. From the first world's answers on, the second world is given the same ones: then every later question
can be compared too, and what leaves must be the same to the last bit, for it may depend on the answers alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core import door
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.records import Records
from prismfl.core.rounds import initial_state, receive, server_step, site_step
from prismfl.kernels import clipped_gradients
from prismfl.methods import METHODS
from prismfl.privacy import mechanisms
from tests.laws.world import AT_SITE, RECORDS, make_job, make_world, some_records

SLACK = 1 + 1e-5
WHOLE = {"batch": float(RECORDS), "sgd_batch": float(RECORDS), "query_rate": 1.0, "rate": 1.0}
"""Settings under which every record is in every question: no sampling can hide what a record does."""
VARIANTS: list[tuple[str, dict[str, object]]] = [
    ("3dgl", {"synthesizers": ("dp-copula",)}),
    ("3dgl", {"synthesizers": ("dp-gaussian",)}),
    ("3dgl", {"joint": True}),
    ("dp-feta", {"aggregate": "mode"}),
    ("dp-marginals", {"rounds": 2, "further": 3, "further_cells": 40}),
    ("dp-feta", {"aggregate": "bucket", "queries": 2}),
    ("dp-feta", {"network": "frequencies", "frequencies": 3}),
    ("dp-feta", {"network": "frequencies", "frequencies": 3, "easy": "pooled", "rounds": 2}),
    ("dpdm", {"network": "frequencies", "frequencies": 3}),
    ("fedem-dp", {"norm": "l2"}),
    ("fedem-dp", {"start": "zero"}),
    ("fedlap-dp", {"augment": ("crop", "cutout", "flip", "scale", "rotate", "colour")}),
    ("ldp-fedsgd", {"kind": "laplace"}),
    ("prism-head", {"views": 1.0, "rounds": 2, "budget": "adaptive", "enough": 1e-9}),
]
"""Settings that ask the door in another way than the tiny ones do."""
Pair = tuple[str, Records, Records]
Public = tuple[tuple[int, ...], float, float, str]  # shape, bound, sigma, kind of noise


@dataclass
class Spy:
    """Every sum before its noise, with its public numbers. With `given`, the answers are another world's."""

    calls: list[tuple[torch.Tensor, Public]] = field(default_factory=list)
    answers: list[torch.Tensor] = field(default_factory=list)
    given: list[torch.Tensor] | None = None

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        real = mechanisms.add_noise

        def spying(
            total: torch.Tensor, *, bound: float, sigma: float, stream: object, kind: str = "gaussian"
        ) -> torch.Tensor:
            self.calls.append((total.clone(), (tuple(total.shape), bound, sigma, kind)))
            answer = real(total, bound=bound, sigma=sigma, stream=stream, kind=kind)  # type: ignore[arg-type]
            self.answers.append(answer)
            if self.given is None:
                return answer
            assert len(self.calls) <= len(self.given), "one world asks more questions than the other"
            return self.given[len(self.calls) - 1]

        patch.setattr(mechanisms, "add_noise", spying)
        # Few records at a time: taking one out moves all later ones to other blocks, which may change nothing.
        patch.setattr(door, "CHUNK", 10)
        patch.setattr(clipped_gradients, "MAX_CHUNK", 10)
        patch.setattr(clipped_gradients, "MIN_CHUNK", 10)


World = tuple[Spy, list[str]]


def run(job: Job, records: Records, folder: Path, *, given: list[torch.Tensor] | None = None) -> World:
    """All rounds of the one site: what it added noise to, and the digests of what left it."""
    spy, left = Spy(given=given), []
    with pytest.MonkeyPatch.context() as patch:
        spy.watch(patch)
        world = make_world(job, folder, records=lambda name: records)
        state: State = initial_state(job)
        for _ in range(job.settings.rounds):
            [host] = world.hosts
            release = receive(job, state, host.name, site_step(job, state, host))
            left += [release.items[k].digest for k in sorted(release.items)]
            state = server_step(job, state, {host.name: release.items})
    return spy, left


def play(job: Job, first: World, other: Records, folder: Path) -> float:
    """The largest distance of two inputs to the noise from a world's, in parts of their bound."""
    a, left = first
    b, left_too = run(job, other, folder, given=a.answers)
    assert [public for _, public in a.calls] == [public for _, public in b.calls]
    assert left == left_too, "what leaves does not depend on the noisy answers alone"
    apart = []
    for (here, public), (there, _) in zip(a.calls, b.calls):
        _, bound, _, kind = public
        apart.append(float(torch.linalg.vector_norm(here - there, ord=mechanisms.NORM_ORDER[kind])) / bound)
    assert apart
    assert all(math.isfinite(a) for a in apart)
    return max(apart)


def plays(job: Job, pairs: Iterator[Pair], folder: Path) -> Iterator[tuple[str, float]]:
    """The name of each case and how far it moves the inputs to the noise."""
    first: World | None = None
    whole: Records | None = None
    for i, (what, one, other) in enumerate(pairs):
        if first is None or one is not whole:
            first, whole = run(job, one, folder / f"{i} with"), one
        yield what, play(job, first, other, folder / f"{i} without")


def without(records: Records, gone: torch.Tensor) -> Records:
    return records.take(torch.nonzero(~gone).flatten())


def at(records: Records, row: int) -> torch.Tensor:
    return torch.arange(len(records)) == row


def record_pairs(table: bool) -> Iterator[Pair]:
    base = some_records(RECORDS, seed=0, table=table)
    for what, row in (("first", 0), ("middle", RECORDS // 2), ("last", RECORDS - 1)):
        yield what, base, without(base, at(base, row))
    lonely = Records(base.x, torch.where(at(base, 0), 2, 0))
    yield "first, only one of its class", lonely, without(lonely, at(base, 0))
    twice = Records(base.x.clone(), base.y.clone())
    twice.x[[0, 9]], twice.y[[0, 9]] = base.x[5], base.y[5]
    yield "first of three equal ones", twice, without(twice, at(base, 0))
    same = some_records(RECORDS, seed=0, classes=(1,), table=table)
    yield "first, all of one class", same, without(same, at(base, 0))
    alone = base.take(torch.arange(1))
    yield "the only one", alone, without(alone, at(alone, 0))


def patient_pairs(table: bool) -> Iterator[Pair]:
    """Patients with one to four records each, strewn over the file."""
    base = some_records(RECORDS, seed=0, table=table)
    unit = torch.tensor([3, 9, 7, 7, 1, 3, 9, 7, 12, 7, 1, 40] * 2)[:RECORDS]
    unit[-1] = 5
    base = Records(base.x, base.y, unit)
    for what, code in (("lowest", 1), ("middle", 7), ("highest", 40), ("with one record", 5)):
        yield what, base, without(base, unit == code)
    alone = base.take(torch.nonzero(unit == 7).flatten())
    yield "the only one", alone, without(alone, unit[unit == 7] == 7)


def job_of(name: str, *, whole: bool, unit: str = "record", **settings: Any) -> Job:
    fields = METHODS[name].settings.model_fields
    settings |= {k: v for k, v in WHOLE.items() if k in fields} if whole else {}
    return make_job(name, sites=("site-0",), records=RECORDS, unit=unit, settings=settings)


@pytest.mark.parametrize("name", AT_SITE)
def test_a_record_moves_no_question_by_more_than_its_bound(name: str, tmp_path: Path) -> None:
    for whole in (False, True):
        job = job_of(name, whole=whole)
        for what, apart in plays(job, record_pairs(len(job.task.shape) == 1), tmp_path / str(whole)):
            assert apart <= SLACK, f"{name}, {what}: {apart:.3g} times the bound"
            assert apart > 0 or not whole, f"{name}, {what}: the record is in no question"


@pytest.mark.parametrize("name", AT_SITE)
def test_a_patient_moves_no_question_by_more_than_its_bound(name: str, tmp_path: Path) -> None:
    for whole in (False, True):
        job = job_of(name, whole=whole, unit="patient_id")
        for what, apart in plays(job, patient_pairs(len(job.task.shape) == 1), tmp_path / str(whole)):
            assert apart <= SLACK, f"{name}, {what}: {apart:.3g} times the bound"


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=[f"{n} {' '.join(s)}" for n, s in VARIANTS])
def test_nor_does_it_under_other_settings(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    for whole in (False, True):
        job = job_of(name, whole=whole, **settings)
        few = (pair for pair in record_pairs(False) if pair[0] in ("first", "first of three equal ones"))
        for what, apart in plays(job, few, tmp_path / str(whole)):
            assert apart <= SLACK, f"{name}, {what}: {apart:.3g} times the bound"
