"""Records from gradients: DLG (Zhu et al. 2019), iDLG (Zhao et al. 2020), Inverting Gradients (Geiping et al. 2020).

Each looks for records whose gradient equals an observed one. All victims and restarts are solved at once; of the
restarts the one with the best match is kept, which the attacker can judge by itself.

With `against` (FedEM's public settings) an attack is *adaptive*: it knows that the gradient was taken at a perturbed
input, works out the perturbation that a candidate record would have got, averaged over its unknown random start, and
takes it off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from prismfl.adversary.attacks.lbfgs import minimise
from prismfl.methods.gradients import fedem
from prismfl.nets.classifier import Classifier, Params
from prismfl.rng import Key

Distance = Callable[[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]], torch.Tensor]
LABEL_PICTURES = 64
FIXED_POINT_STEPS = 10


@dataclass(frozen=True)
class Problem:
    """What the attacker holds: the network, its weights, and stacked gradients, one a victim, of `records` records.

    `rescaled`: the gradients may have been shortened (a clip, unknown step lengths), so only their direction counts.
    """

    classifier: Classifier
    params: Params
    gradients: Params
    records: int
    shape: tuple[int, ...]
    classes: int
    labels: torch.Tensor | None = None
    rescaled: bool = False

    @property
    def victims(self) -> int:
        """The number of victims."""
        return len(next(iter(self.gradients.values())))


@dataclass(frozen=True)
class Effort:
    """How hard to try. `tv` weighs smoothness, `lr` is Adam's; both are for Inverting Gradients."""

    restarts: int = 4
    iterations: int = 200
    lr: float = 0.1
    tv: float = 1e-5
    against: fedem.Perturbing | None = None
    starts: int = 4


@dataclass(frozen=True)
class Reconstruction:
    """Found records (victims, records, *shape) in [0, 1], their labels, and how well each victim's gradient is met."""

    x: torch.Tensor
    y: torch.Tensor
    mismatch: torch.Tensor


def stack(gradients: Sequence[Params]) -> Params:
    """The gradients of several victims as one, with the victims along the first axis."""
    return {k: torch.stack([g[k] for g in gradients]) for k in gradients[0]}


def dlg(problem: Problem, effort: Effort, *, key: Key) -> Reconstruction:
    """Squared distance, L-BFGS, records *and* soft labels unknown (labels are used where they are given)."""
    return _by_lbfgs(problem, effort, problem.labels, key=key)


def idlg(problem: Problem, effort: Effort, *, key: Key) -> Reconstruction:
    """DLG with the labels read off the last layer's gradient first."""
    labels = infer_labels(problem, key=key.child("labels")) if problem.labels is None else problem.labels
    return _by_lbfgs(problem, effort, labels, key=key)


def inverting(problem: Problem, effort: Effort, *, key: Key) -> Reconstruction:
    """Cosine distance, total variation, Adam on the slope's sign, records kept in [0, 1], labels given or inferred."""
    labels = infer_labels(problem, key=key.child("labels")) if problem.labels is None else problem.labels
    y = labels.repeat_interleave(effort.restarts, 0)
    q = F.one_hot(y, problem.classes).to(torch.float32)
    target = _repeat(problem.gradients, effort.restarts)
    evaluate = _evaluator(problem, cosine_distance)
    x = torch.rand(len(y), problem.records, *problem.shape, generator=key.child("start").torch())
    first, second, shift = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for i in range(effort.iterations):
        if effort.against is not None and i % FIXED_POINT_STEPS == 0:
            shift = expected_shift(problem, x, y, against=effort.against, starts=effort.starts, key=key.child(i))
        slope, _, _ = evaluate(x + shift, q, target)
        slope = (slope + effort.tv * tv_slope(x)).sign()
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope * slope
        move = (first / (1 - 0.9 ** (i + 1))) / ((second / (1 - 0.999 ** (i + 1))).sqrt() + 1e-8)
        x = (x - _decayed(effort.lr, i, effort.iterations) * move).clamp(0.0, 1.0)
    _, _, mismatch = evaluate(x + shift, q, target)
    return _best(problem, x, y, mismatch)


@dataclass(frozen=True)
class SeenGradients:
    """The gradients of a round as an adversary holds them, how hard it tries, and its own randomness."""

    problem: Problem
    effort: Effort
    key: Key


def by_dlg(seen: SeenGradients) -> Reconstruction:
    """Records by `dlg` from what was seen."""
    return dlg(seen.problem, seen.effort, key=seen.key)


def by_idlg(seen: SeenGradients) -> Reconstruction:
    """Records by `idlg` from what was seen."""
    return idlg(seen.problem, seen.effort, key=seen.key)


def by_inverting(seen: SeenGradients) -> Reconstruction:
    """Records by `inverting` from what was seen."""
    return inverting(seen.problem, seen.effort, key=seen.key)


def _by_lbfgs(problem: Problem, effort: Effort, labels: torch.Tensor | None, *, key: Key) -> Reconstruction:
    rows, n, shape, c = problem.victims * effort.restarts, problem.records, problem.shape, problem.classes
    target = _repeat(problem.gradients, effort.restarts)
    evaluate = _evaluator(problem, cosine_distance if problem.rescaled else squared_distance)
    generator = key.child("start").torch()
    x = torch.rand(rows, n, *shape, generator=generator)
    size = x[0].numel()
    logits = torch.randn(rows, n, c, generator=generator)
    known = None if labels is None else F.one_hot(labels, c).to(torch.float32).repeat_interleave(effort.restarts, 0)

    def both(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pictures, free = z[:, :size].reshape(x.shape), z[:, size:].reshape(logits.shape)
        q = free.softmax(-1) if known is None else known
        slope, by_q, value = evaluate(pictures, q, target)
        by_logits = q * (by_q - (by_q * q).sum(-1, keepdim=True)) if known is None else torch.zeros_like(q)
        return value, torch.cat([slope.flatten(1), by_logits.flatten(1)], dim=1)

    z, value = minimise(both, torch.cat([x.flatten(1), logits.flatten(1)], dim=1), iterations=effort.iterations)
    found = z[:, :size].reshape(x.shape)
    y = z[:, size:].reshape(logits.shape).argmax(-1) if known is None else known.argmax(-1)
    if effort.against is not None:
        found = _take_off(problem, found, y, effort=effort, key=key)
    return _best(problem, found.clamp(0.0, 1.0), y, value)


def _evaluator(problem: Problem, distance: Distance) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """A function of stacked candidates (x, label rows q, target): slopes by x and by q, and the distance, of each."""
    module = problem.classifier.module

    def loss(params: Params, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        scores = F.log_softmax(torch.func.functional_call(module, dict(params), (x,)), dim=1)
        return -(q * scores).sum(1).mean()

    def objective(x: torch.Tensor, q: torch.Tensor, target: Params) -> torch.Tensor:
        return distance(torch.func.grad(loss)(problem.params, x, q), target)

    every = torch.func.vmap(torch.func.grad_and_value(objective, argnums=(0, 1)))

    def evaluate(x: torch.Tensor, q: torch.Tensor, target: Params) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        (by_x, by_q), value = every(x, q, target)
        return by_x, by_q, value

    return evaluate


def squared_distance(found: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The squared Euclidean distance of two gradients."""
    return torch.stack([((found[k] - target[k]) ** 2).sum() for k in found]).sum()


def cosine_distance(found: Mapping[str, torch.Tensor], target: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """One minus the cosine of the angle between two gradients."""
    inner = torch.stack([(found[k] * target[k]).sum() for k in found]).sum()
    sizes = [torch.stack([(g[k] ** 2).sum() for k in found]).sum().clamp(min=1e-20).sqrt() for g in (found, target)]
    return 1.0 - inner / (sizes[0] * sizes[1])


def tv_slope(x: torch.Tensor) -> torch.Tensor:
    """Gradient of the mean absolute difference of neighbouring pixels; tables have no neighbours."""
    if x.dim() < 4:
        return torch.zeros_like(x)
    out = torch.zeros_like(x)
    for dim in (-1, -2):
        sign = x.diff(dim=dim).sign() / x[0, 0].numel()
        out.narrow(dim, 1, sign.shape[dim]).add_(sign)
        out.narrow(dim, 0, sign.shape[dim]).sub_(sign)
    return out


def infer_labels(problem: Problem, *, key: Key) -> torch.Tensor:
    """Labels from the last layer: its bias gradient is the mean of (prediction - truth).

    For one record the only negative entry is its class. For more, the mean prediction is estimated on random
    pictures and the counts are what is missing, in whole numbers.
    """
    signal = _last_layer(problem)
    if problem.records == 1:
        return signal.argmin(1)[:, None]
    noise = torch.rand(LABEL_PICTURES, *problem.shape, generator=key.torch())
    with torch.no_grad():
        guess = problem.classifier.logits(problem.params, noise).softmax(1).mean(0)
    wanted = (problem.records * (guess - signal)).clamp(min=0.0)
    wanted = wanted * (problem.records / wanted.sum(1, keepdim=True).clamp(min=1e-12))
    return torch.stack([_whole(row, problem.records) for row in wanted])


def _last_layer(problem: Problem) -> torch.Tensor:
    name = list(problem.params)[-1]
    gradient = problem.gradients[name]
    return gradient if gradient.dim() == 2 else gradient.flatten(2).sum(2)


def _whole(row: torch.Tensor, total: int) -> torch.Tensor:
    counts = row.floor()
    missing = total - int(counts.sum())
    counts[(row - counts).argsort(descending=True)[:missing]] += 1
    return torch.repeat_interleave(torch.arange(len(row)), counts.to(torch.int64))[:total]


def expected_shift(
    problem: Problem, x: torch.Tensor, y: torch.Tensor, *, against: fedem.Perturbing, starts: int, key: Key
) -> torch.Tensor:
    """FedEM's perturbation of candidate records, averaged over random starts."""
    flat, labels = x.flatten(0, 1), y.flatten()
    generator, total = key.child("shift").torch(), torch.zeros_like(flat)
    for _ in range(starts):
        start = fedem.first_shift(flat.shape, against, generator)
        total += fedem.perturbation(problem.classifier, problem.params, flat, labels, cfg=against, start=start)
    return (total / starts).reshape(x.shape)


def _take_off(problem: Problem, z: torch.Tensor, y: torch.Tensor, *, effort: Effort, key: Key) -> torch.Tensor:
    """Solve x + E[perturbation of x] = z for x by fixed-point steps."""
    assert effort.against is not None
    x = z
    for i in range(FIXED_POINT_STEPS):
        shift = expected_shift(
            problem, x, y, against=effort.against, starts=effort.starts, key=key.child("take off", i)
        )
        x = (z - shift).clamp(0.0, 1.0)
    return x


def _decayed(lr: float, i: int, total: int) -> float:
    return float(lr * 0.1 ** sum(i >= share * total for share in (0.375, 0.625, 0.875)))


def _repeat(gradients: Params, times: int) -> Params:
    return {k: g.repeat_interleave(times, 0) for k, g in gradients.items()}


def _best(problem: Problem, x: torch.Tensor, y: torch.Tensor, mismatch: torch.Tensor) -> Reconstruction:
    """Of each victim's restarts the one whose gradient fits best."""
    by_victim = mismatch.detach().reshape(problem.victims, -1)
    best = by_victim.nan_to_num(nan=float("inf")).argmin(1)
    rows = torch.arange(problem.victims) * by_victim.shape[1] + best
    return Reconstruction(x[rows].detach(), y[rows], mismatch[rows].detach())
