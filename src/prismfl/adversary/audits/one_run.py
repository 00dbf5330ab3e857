"""The one-run audit: canaries in or out by a coin, one run, guesses; and again without noise, which must be caught."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from prismfl.adversary.audits import bounds, trial
from prismfl.adversary.scores.membership import mu_of
from prismfl.core.method import Method, Settings
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

CANARIES = 1000
CONFIDENCE = 0.95
CONTROL = 5.0
"""What the audit must measure at least when the noise is switched off, or its silence would mean nothing."""


@dataclass(frozen=True)
class Audit:
    """Claimed against measured. None stands for infinity, as in every table."""

    audit: str
    method: str
    claimed: float | None
    lower: float
    lower_counting: float
    lower_curve: float
    estimate_mu: tuple[float, float] | None
    noise: tuple[float, float] | None
    claimed_mu: float | None
    control: float | None
    right: int
    canaries: int
    delta: float
    confidence: float
    answers: int
    passed: bool
    words: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def audit_method(
    method: Method,
    *,
    epsilon: float = 4.0,
    delta: float = 1e-5,
    canaries: int = CANARIES,
    seed: int = 0,
    control: bool = True,
    **changes: Any,
) -> Audit:
    """The method on its tiny setting, end to end; `changes` are settings of the method."""
    reason = trial.auditable(method)
    if reason is not None:
        raise UserError(f"Method '{method.name}' cannot be audited: {reason}.")
    task = trial.tiny_task(method, canaries, delta=delta)
    settings = trial.tiny_settings(method, task, epsilon=epsilon, **changes)
    return _audit("one run, canaries", method, settings, task, canaries=canaries, seed=seed, control=control)


def audit_run(run: Reopened, *, canaries: int = 400, seed: int = 0) -> Audit:
    """A finished run's method, settings and task once more at one site, which holds canaries instead of its records."""
    method, task = run.job.method, replace(run.job.task, public=run.public)
    if trial.auditable(method) is not None:
        raise UserError(f"Run '{run.directory.path}' cannot be audited: {trial.auditable(method)}.")
    sites = tuple(f"site-{i}" for i in range(canaries)) if method.guarantee == "client" else task.sites[:1]
    found = _audit(
        "one run, canaries at one site",
        method,
        run.job.settings,
        replace(task, sites=sites, unit="record", participation=1.0),
        canaries=canaries,
        seed=seed,
        control=True,
    )
    result = run.directory.read_json("result.json")
    claimed = result["epsilon"]
    passed = found.passed and (claimed is None or found.lower <= claimed)
    return replace(found, claimed=claimed, passed=passed)


def _audit(
    name: str, method: Method, settings: Settings, task: Task, *, canaries: int, seed: int, control: bool
) -> Audit:
    started, key = time.monotonic(), Key.seed(seed).child("audit", method.name)
    records, inside = trial.make_canaries(task, canaries, key), trial.coins(canaries, key)
    watched = trial.run(method, settings, task, canaries=records, inside=inside, key=key)
    caught = _control(method, settings, task, records=records, inside=inside, key=key) if control else None
    return judge(name, method.name, watched, task.delta, control=caught, seconds=time.monotonic() - started)


def judge(
    name: str, method: str, watched: trial.Trial, delta: float, *, control: float | None, seconds: float = 0.0
) -> Audit:
    """The verdict on one run. It fails if a bound, the claimed curve, the estimate of mu or the noise says so."""
    found = bounds.one_run(watched.scores, watched.truth, delta=delta, confidence=CONFIDENCE)
    claimed = account.epsilon(watched.cost, delta)
    lower = max(found.epsilon, found.epsilon_of_mu)
    mu = mu_of(claimed, delta)
    inside, outside = watched.scores[watched.truth], watched.scores[~watched.truth]
    estimate = bounds.mu_interval(inside, outside)
    noise = bounds.noise_interval(watched.squares, watched.numbers) if watched.numbers else None
    over = [
        text
        for broken, text in (
            (lower > claimed, f"epsilon is at least {lower:.3g}"),
            (
                bounds.curve_rejected(watched.scores, watched.truth, watched.cost, confidence=CONFIDENCE),
                "more right guesses than the claimed trade-off curve allows",
            ),
            (estimate[0] > mu, f"mu is about {sum(estimate) / 2:.3g}, claimed {mu:.3g}"),
            (
                noise is not None and noise[1] < 1.0,
                f"the noise is {0.0 if noise is None else noise[1]:.3g} times the claimed at most",
            ),
        )
        if broken
    ]
    return Audit(
        audit=name,
        method=method,
        claimed=claimed if math.isfinite(claimed) else None,
        lower=lower,
        lower_counting=found.epsilon,
        lower_curve=found.epsilon_of_mu,
        estimate_mu=estimate if math.isfinite(mu) else None,
        noise=noise,
        claimed_mu=mu if math.isfinite(mu) else None,
        control=control,
        right=found.guesses.right,
        canaries=len(watched.scores),
        delta=delta,
        confidence=CONFIDENCE,
        answers=watched.answers,
        passed=not over,
        words="; ".join(over) or _silence(control, len(watched.scores)),
        seconds=round(seconds, 2),
    )


def _silence(control: float | None, canaries: int) -> str:
    """What it means that nothing was found; with few canaries even perfect guesses stay below `CONTROL`."""
    if control is None or control >= CONTROL or canaries < 900:
        return "within the claim"
    return f"within the claim, but inconclusive: without noise only {control:.3g} was measured"


def _control(
    method: Method, settings: Settings, task: Task, *, records: Any, inside: torch.Tensor, key: Key
) -> float | None:
    """What the same audit measures with the noise switched off; None for a method that has none to switch off."""
    if method.guarantee is None or "sigma" not in type(settings).model_fields:
        return None
    silent = settings.model_copy(update={"sigma": 0.0})
    watched = trial.run(method, silent, task, canaries=records, inside=inside, key=key)
    found = bounds.one_run(watched.scores, watched.truth, delta=task.delta, confidence=CONFIDENCE)
    return max(found.epsilon, found.epsilon_of_mu)
