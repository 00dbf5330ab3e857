"""L-BFGS on many small problems at once: each row of a matrix is a problem with its own history and step length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Evaluate = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]  # rows -> (value, slope) of each row
Point = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
TRIALS, SHRINK, ARMIJO, ENOUGH = 6, 0.4, 1e-4, 0.8
CURVED = 1e-14


def minimise(
    evaluate: Evaluate, start: torch.Tensor, *, iterations: int, history: int = 20
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows after `iterations` steps and their values. A row never gets worse; a hopeless one stays where it is.

    Halving the step of the few rows that refuse it would cost an evaluation of all of them, so once most rows have
    moved the rest wait for the next iteration and start there with a shorter step.
    """
    z, (value, slope) = start, evaluate(start)
    past: list[Point] = []
    scale = 1.0 / slope.abs().sum(1).clamp(min=1.0)
    reach = torch.ones_like(value)
    for _ in range(iterations):
        step = -_precondition(slope, past, scale)
        downhill = (step * slope).sum(1)
        uphill = downhill >= 0
        step = torch.where(uphill[:, None], -slope * scale[:, None], step)
        downhill = torch.where(uphill, -(slope * slope).sum(1) * scale, downhill)
        after, moved = _search(evaluate, (z, value, slope), step, downhill, reach)
        s, y = after[0] - z, after[2] - slope
        curvature = (s * y).sum(1)
        curved = moved & (curvature > CURVED)
        weight = torch.where(curved, 1.0 / curvature.clamp(min=CURVED), torch.zeros_like(curvature))
        scale = torch.where(curved, curvature / (y * y).sum(1).clamp(min=CURVED), scale)
        past = [*past[-(history - 1) :], (s, y, weight)]
        reach = torch.where(moved, torch.ones_like(reach), (reach * SHRINK**TRIALS).clamp(min=1e-12))
        z, value, slope = after
    return z, value


def _precondition(slope: torch.Tensor, past: Sequence[Point], scale: torch.Tensor) -> torch.Tensor:
    """The two-loop recursion, all rows together; steps without curvature have weight 0 and drop out."""
    q, weights = slope, []
    for s, y, rho in reversed(past):
        a = rho * (s * q).sum(1)
        q = q - a[:, None] * y
        weights.append(a)
    q = q * scale[:, None]
    for (s, y, rho), a in zip(past, reversed(weights)):
        q = q + s * (a - rho * (y * q).sum(1))[:, None]
    return q


def _search(
    evaluate: Evaluate, at: Point, step: torch.Tensor, downhill: torch.Tensor, reach: torch.Tensor
) -> tuple[Point, torch.Tensor]:
    """Backtracking: the first step length of each row that lowers its value enough."""
    z, value, _ = at
    best, moved = at, torch.zeros_like(value, dtype=torch.bool)
    for _ in range(TRIALS):
        there = z + reach[:, None] * step
        v, g = evaluate(there)
        good = (v <= value + ARMIJO * reach * downhill) & torch.isfinite(v) & ~moved
        row = good[:, None]
        best = (torch.where(row, there, best[0]), torch.where(good, v, best[1]), torch.where(row, g, best[2]))
        moved = moved | good
        if float(moved.float().mean()) >= ENOUGH:
            break
        reach = torch.where(moved, reach, reach * SHRINK)
    return best, moved
