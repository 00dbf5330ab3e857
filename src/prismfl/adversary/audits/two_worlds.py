"""The two-world audit: many tiny runs with one canary and many without it, everything else the same."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch

from prismfl.adversary.audits import bounds, trial
from prismfl.adversary.audits.one_run import CONFIDENCE, Audit
from prismfl.adversary.scores.membership import mu_of
from prismfl.core.method import Method
from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.rng import Key

RUNS = 400
OTHERS = 5


def audit_two_worlds(
    method: Method, *, epsilon: float = 4.0, delta: float = 1e-5, runs: int = RUNS, seed: int = 0, **changes: Any
) -> Audit:
    """`runs` in each world. One canary is judged; a few others are always there."""
    reason = trial.auditable(method)
    if reason is not None:
        raise UserError(f"Method '{method.name}' cannot be audited: {reason}.")
    started, count = time.monotonic(), OTHERS + 1
    task = trial.tiny_task(method, count, delta=delta)
    settings = trial.tiny_settings(method, task, epsilon=epsilon, **changes)
    key = Key.seed(seed).child("worlds", method.name)
    canaries = trial.make_canaries(task, count, key)
    scores: dict[bool, list[float]] = {True: [], False: []}
    cost, answers = None, 0
    for world in (True, False):
        inside = torch.tensor([world] + [True] * OTHERS)
        for i in range(runs):
            made = trial.run(method, settings, task, canaries=canaries, inside=inside, key=key.child(int(world), i))
            scores[world].append(float(made.scores[0]))
            cost, answers = made.cost, made.answers
    assert cost is not None
    a, b = np.asarray(scores[True]), np.asarray(scores[False])
    claimed, lower = account.epsilon(cost, delta), bounds.two_worlds_epsilon(a, b, delta, confidence=CONFIDENCE)
    mu, estimate = mu_of(claimed, delta), bounds.mu_interval(a, b)
    over = lower > claimed or estimate[0] > mu
    return Audit(
        audit="two worlds",
        method=method.name,
        claimed=claimed if math.isfinite(claimed) else None,
        lower=lower,
        lower_counting=lower,
        lower_curve=0.0,
        estimate_mu=estimate if math.isfinite(mu) else None,
        claimed_mu=mu if math.isfinite(mu) else None,
        noise=None,
        control=None,
        right=int((a > np.median(b)).sum()),
        canaries=1,
        delta=delta,
        confidence=CONFIDENCE,
        answers=answers,
        passed=not over,
        words=f"above the claim: epsilon at least {lower:.3g}, mu about {sum(estimate) / 2:.3g}"
        if over
        else "within the claim",
        seconds=round(time.monotonic() - started, 2),
    )
