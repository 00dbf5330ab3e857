"""What one record does to the answers of a door under weights that an adversary has chosen: record-play."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from prismfl.adversary.audits import hostile_patients
from prismfl.adversary.audits.hostile_site import CHANGES, NEEDLE, RECORDS, VICTIM, Bench, hostile, start
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.records import Records
from prismfl.core.rounds import Host, ask_method, shared_vector
from prismfl.privacy import mechanisms, shares
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.shares import Rules

SLACK = 1 + 1e-5
WHOLE = {"batch": float(RECORDS), "sgd_batch": float(RECORDS), "query_rate": 1.0, "rate": 1.0}
"""Settings under which every record is in every question: no sampling can hide what a record does."""


@dataclass
class Noted:
    """Every sum before its noise, with its public numbers. With `given`, the answers are another world's."""

    calls: list[tuple[torch.Tensor, tuple[Any, ...]]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    given: list[Any] | None = None

    def answer(self, total: torch.Tensor, public: tuple[Any, ...], made: Any) -> Any:
        """Write down a sum and its answer; gives the other world's answer in its place where there is one."""
        self.calls.append((total.detach().clone().double(), (tuple(total.shape), *public)))
        self.answers.append(made)
        given = self.given
        return made if given is None or len(self.calls) > len(given) else given[len(self.calls) - 1]


@contextmanager
def noting(given: list[Any] | None = None) -> Iterator[Noted]:
    """Write down what noise is added to, in the door of this process."""
    noted, add, steps = Noted(given=given), mechanisms.add_noise, vars(shares)["noisy_steps"]

    def add_noise(total: torch.Tensor, *, bound: float, sigma: float, stream: Any, kind: str = "gaussian") -> Any:
        made = add(total, bound=bound, sigma=sigma, stream=stream, kind=kind)
        return noted.answer(total, (bound, sigma, kind), made)

    def noisy_steps(rules: Rules, values: Any, stream: Any) -> Any:
        made = steps(rules, values, stream)
        return noted.answer(torch.as_tensor(values), (rules.bound, rules.sigma, "gaussian"), made)

    vars(mechanisms)["add_noise"], vars(shares)["noisy_steps"] = add_noise, noisy_steps
    try:
        yield noted
    finally:
        vars(mechanisms)["add_noise"], vars(shares)["noisy_steps"] = add, steps


def neighbours(kind: str) -> Iterator[tuple[str, Records, Records]]:
    """Records with and without one of them: the first, the last, and one that alone has a number set."""
    from prismfl.data import load

    if kind in hostile_patients.KINDS:
        x, y = hostile_patients.rows(kind, RECORDS)
    else:
        data = load("digits" if kind == "image" else "breast-cancer")
        x, y = data.x_train[:RECORDS].clone(), data.y_train[:RECORDS]
        x.reshape(RECORDS, -1)[:, NEEDLE] = 0.0
        x.reshape(RECORDS, -1)[-1, NEEDLE] = 1.0
    records = Records(x, y)
    _ = records.identities  # named before one of them is taken out
    yield "the last", records, records.take(torch.arange(RECORDS - 1))
    yield "the first", records, records.take(torch.arange(1, RECORDS))


def influence(bench: Bench, models: tuple[str, ...] = ("mlp:8", "convnet:4")) -> Iterator[str]:
    """What breaks: a sum that one record moves by more than its bound, or an outcome that follows from a record."""
    fields = bench.method.settings.model_fields
    whole = {**bench.settings, **{name: value for name, value in WHOLE.items() if name in fields}}
    ledger = Ledger.open(bench.folder / "play.sqlite")
    for model in models if bench.kind == "image" else models[:1]:
        told = bench.describe(settings=whole, model=model)
        job, items = start(told)
        changes = CHANGES if items else {"zero": CHANGES["zero"]}
        for what, change in changes.items():
            state = State(0, hostile(items, change))
            for who, one, other in neighbours(bench.kind):
                bench.questions += 2
                apart = _apart(job, state, one, other, ledger)
                if apart is not None:
                    yield f"{what} weights of {model}, without {who}: {apart}"
        if not items:
            break


def _apart(job: Job, state: State, one: Records, other: Records, ledger: Ledger) -> str | None:
    """What is wrong between two worlds, or None."""
    with noting() as here:
        left = _outcome(job, state, one, ledger)
    with noting(here.answers) as there:
        left_too = _outcome(job, state, other, ledger)
    if [public for _, public in here.calls] != [public for _, public in there.calls]:
        return "the two worlds ask different questions"
    if left != left_too:
        return f"what leaves does not depend on the noisy answers alone ({left[:40]} and {left_too[:40]})"
    if not here.calls:
        return "no noise is added to anything"
    # In a secure sum of clients a record may turn the clipped vector into any other: twice the bound, and charged so.
    allowed = 2.0 if job.method.guarantee == "client" else 1.0
    for (a, public), (b, _) in zip(here.calls, there.calls):
        _, bound, _, kind = public
        distance = float(torch.linalg.vector_norm(a - b, ord=mechanisms.NORM_ORDER[kind]))
        if not (math.isfinite(distance) and distance <= allowed * bound * SLACK):
            return f"one record moves a sum by {distance / bound:.3g} times its bound"
    return None


def _outcome(job: Job, state: State, records: Records, ledger: Ledger) -> str:
    """The digest of what would leave, or that the method failed."""
    site = Host(VICTIM, lambda: records, ledger, "play", ledger.path.parent)
    try:
        if job.method.guarantee == "client":
            return str(shared_vector(job, state, site, job.sum_rules(0))[1].sum().item())
        _, items, _ = ask_method(job, state, site)
        return " ".join(items[name].digest for name in sorted(items))
    except Exception as error:  # whatever it is, the server hears that there was one
        return f"refused: {type(error).__name__}"
