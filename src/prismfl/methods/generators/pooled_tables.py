"""dp-marginals as one of the generators of a pool: noisy tables behind the door of a class, or of all.

Every kind of a pool asks the door alike, so the tables are asked as often as gradients would be, of Poisson samples,
and averaged. They are sums: several sites' tables can be added before a model is fitted to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import torch

from prismfl.core.door import PrivateRecords
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.generators import graphical, questions, table_model
from prismfl.methods.generators.moments import Queries
from prismfl.methods.generators.questions import BOUND, Questions
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables

BINS, FINER, PAIR_CELLS, MODEL_CELLS, STEPS = 8, 4, 150, 40_000, 1000
"""Tables of a class at one site: coarse, for it may hold few records."""


@lru_cache(maxsize=16)
def asked_of(columns: Columns, labels: int) -> Questions:
    """The tables of these columns, from public numbers alone."""
    variables = Variables.of(columns, bins=BINS, labels=labels)
    found = questions.design(variables, finer=FINER, given=None, pair_cells=PAIR_CELLS)
    names = [str(k) for k in range(len(variables))]
    questions.check_size(found, names)
    if graphical.installed():
        graphical.check_size(variables, names, limit=MODEL_CELLS)
    return found


def shapes(asked: Questions) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what a fit releases."""
    return {"counts": (sum(asked.sizes),), "noise": (1,)}


def fit(door: PrivateRecords, asked: Questions, *, queries: Queries) -> Params:
    """The mean of as many noisy answers as every kind gets, in records."""
    total = torch.zeros(sum(asked.sizes), dtype=torch.float64)
    for _ in range(queries.times):
        total += door.noisy_tables(
            asked.places,
            sizes=asked.sizes,
            weights=asked.weights,
            bound=BOUND,
            sigma=queries.sigma,
            batch=queries.batch(door),
        ).double()
    answers = queries.rate * queries.times
    noise = torch.tensor([BOUND * queries.sigma * queries.times**0.5 / answers])
    return {"counts": (total / answers).to(torch.float32), "noise": noise.to(torch.float32)}


def merge(released: Sequence[Params]) -> Params:
    """Several sites' tables as if they had been asked at one."""
    noise = torch.stack([one["noise"].double() for one in released]).square().sum(0).sqrt()
    return {"counts": torch.stack([one["counts"].double() for one in released]).sum(0), "noise": noise}


def draw(asked: Questions, tensors: Params, count: int, generator: torch.Generator) -> torch.Tensor:
    """`count` encoded records, followed by the label's block where there is a label."""
    digest = hashlib.sha256(tensors["counts"].double().numpy().tobytes()).hexdigest()
    model = _fitted(asked, digest, _Held(tensors))
    codes = table_model.codes_of(asked, model, count, generator)
    x = asked.variables.records(codes, generator, finer=asked.finer)
    if asked.variables.label is None:
        return x
    return torch.cat([x, torch.eye(asked.variables.labels)[codes[:, asked.variables.label]]], 1)


def fault(asked: Questions, part: Params, queries: Queries, held: float) -> str | None:
    """Why a fit on at most `held` records cannot have made these tables, if so."""
    noise = float(part["noise"])
    own = BOUND * queries.sigma / (queries.rate * queries.times**0.5)
    if not abs(noise - own) <= 1e-4 * own + 1e-9:
        return "it says another noise than was planned"
    most = robust.most_drawn(held) / queries.rate
    for part_counts, weight in zip(torch.split(part["counts"].double(), list(asked.sizes)), asked.weights):
        counts, doubt = part_counts / weight, robust.noise_norm(part_counts.numel(), noise / weight)
        much = float(counts.clamp(min=0.0).sum()) > most + counts.numel() ** 0.5 * doubt
        if much or float(counts.min()) < -doubt - 1e-3:
            return "its tables count more records than there are, or fewer than none"
    return robust.totals_fault(*questions.totals(part["counts"], asked.sizes, asked.weights, noise))


class _Held:
    """Tensors that a cache looks past: their digest stands beside them."""

    def __init__(self, tensors: Params) -> None:
        self.tensors = tensors

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)


@lru_cache(maxsize=64)
def _fitted(asked: Questions, digest: str, held: _Held) -> Params:
    """The model of some tables. Sites that sample the same pool fit it once."""
    cells = MODEL_CELLS if graphical.installed() else None
    flat, noise = held.tensors["counts"], float(held.tensors["noise"])
    return table_model.fitted(asked, flat, noise, cells=cells, steps=STEPS).tensors
