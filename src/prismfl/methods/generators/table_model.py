"""What is drawn from: a model of released tables, and how each bin of a number is filled. All of it is post-processing.

A graphical model where the fitter is there, else a copula, both as tensors. A model may come from a file: what the
tensors say of which column hangs on which is checked against the questions before anything is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from prismfl.core.payloads import Synthesizer
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods.generators import copula_tables, graphical, second
from prismfl.methods.generators.graphical import Drawing
from prismfl.methods.generators.questions import Counts, Questions
from prismfl.nets.discrete import Clique, cells


def known(asked: Questions, flat: torch.Tensor, noise: float) -> tuple[dict[int, Counts], dict[Clique, Counts]]:
    """Single columns in fine bins, and all tables that a model can be made of."""
    variables, (singles, tables) = asked.variables, asked.tables(flat, noise)
    coarse: dict[Clique, Counts] = {}
    for k, one in enumerate(variables.columns):
        if k in singles:
            coarse[(k,)] = coarser(one.bins, asked.finer, singles[k], variables.labels)
        else:
            pair = tables[(k, len(variables.columns))]
            coarse[(k,)] = coarser(0, 1, pair, variables.labels)
    return singles, {**coarse, **tables}


def fitted(
    asked: Questions,
    flat: torch.Tensor,
    noise: float,
    *,
    cells: int | None,
    steps: int,
    more: Mapping[Clique, Counts] | None = None,
) -> Synthesizer:
    """One table of probabilities a column, and how each bin of a number is filled.

    `cells` is how large a graphical model may be, None makes a copula; `more` are tables of a second exchange.
    """
    variables, (singles, tables) = asked.variables, known(asked, flat, noise)
    bins = [one.bins for one in variables.columns]
    inside = {f"inside.{k}": filling(bins[k], asked.finer, one, variables.labels) for k, one in singles.items()}
    if cells is None:
        return Synthesizer({**copula_tables.fit(variables, tables), **inside}, {"kind": "copula"})
    used = second.joined({c: t for c, t in tables.items() if len(c) > 1 or not variables.labels}, more or {})
    model = graphical.chosen(variables, used, limit=cells)
    drawn = graphical.fit(variables, used, model, steps=steps)
    made = {f"chances.{step.column}": step.chances.to(torch.float32) for step in drawn}
    made |= {f"given.{step.column}": torch.tensor(step.given, dtype=torch.int64) for step in drawn}
    order = torch.tensor([step.column for step in drawn])
    return Synthesizer({**made, **inside, "order": order}, {"kind": "graphical"})


def coarser(bins: int, finer: int, table: Counts, labels: int) -> Counts:
    """A single column's table in its own bins, whatever the label."""
    counts, noise = table.counts.reshape(-1, max(1, labels)).sum(1), table.noise * math.sqrt(max(1, labels))
    if not bins or finer == 1:
        return Counts(counts, noise)
    cut = bins * finer
    whole = torch.cat([counts[:cut].reshape(bins, finer).sum(1), counts[cut:]])
    return Counts(whole, noise * math.sqrt(finer))


def filling(bins: int, finer: int, table: Counts, labels: int) -> torch.Tensor:
    """(labels, bins, parts): how the parts of each bin share its records. Evenly, but for what is more than noise; and
    for each label as for all, but for what is more than noise."""
    if not bins or finer == 1:
        return torch.ones(1, max(1, bins), 1)
    found = table.counts.reshape(-1, max(1, labels))[: bins * finer].T.reshape(-1, bins, finer)
    even = torch.full((bins, finer), 1.0 / finer, dtype=torch.float64)
    common = _kept(found.sum(0), even, table.noise * math.sqrt(max(1, labels)))
    return torch.stack([_kept(one, common, table.noise) for one in found]).to(torch.float32)


def _kept(found: torch.Tensor, guess: torch.Tensor, noise: float) -> torch.Tensor:
    """Shares of each row: as guessed, and of the difference what is more than noise (James and Stein's factor, with
    room for two standard deviations: a few parts of a bin that noise alone tells apart would mislead a tree)."""
    usual = found.sum(1, keepdim=True).clamp(min=0.0) * guess
    apart = found - usual
    parts = found.shape[1] - 1
    usually = (parts + 2.0 * math.sqrt(2.0 * parts)) * noise**2
    part = 1.0 - usually / apart.square().sum(1, keepdim=True).clamp(min=1e-9)
    shares = (usual + part.clamp(min=0.0) * apart).clamp(min=0.0)
    total = shares.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.clamp(min=1e-9), guess)


def records(asked: Questions, tensors: Params, count: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` encoded records drawn from a fitted model, and their labels (0 where there are none)."""
    variables = asked.variables
    codes = codes_of(asked, tensors, count, draws)
    y = codes[:, variables.label] if variables.label is not None else torch.zeros(count, dtype=torch.int64)
    return variables.records(codes, draws, finer=asked.finer), y


def codes_of(asked: Questions, tensors: Params, count: int, draws: torch.Generator) -> torch.Tensor:
    """(count, variables): places drawn from a fitted model, those of numbers in fine bins."""
    variables = asked.variables
    if "order" in tensors:
        codes = graphical.draw(_steps(asked, tensors), variables.sizes, count, draws)
    else:
        codes = copula_tables.draw(variables, tensors, count, draws)
    y = codes[:, variables.label] if variables.label is not None else torch.zeros_like(codes[:, 0])
    for k, one in enumerate(variables.columns):
        if one.bins and asked.finer > 1:
            codes[:, k] = _finer_place(codes[:, k], y, one.bins, tensors[f"inside.{k}"], draws)
    return codes


def _steps(asked: Questions, tensors: Params) -> list[Drawing]:
    """How each column is drawn; every column once, and after those that it hangs on."""
    sizes, order, found = asked.variables.sizes, tensors["order"].tolist(), list[Drawing]()
    if sorted(order) != list(range(len(sizes))):
        raise UserError(f"Expected a model of {len(sizes)} columns, each drawn once; it is of another table.")
    for at, k in enumerate(order):
        given, chances = tensors.get(f"given.{k}", torch.zeros(0)).tolist(), tensors.get(f"chances.{k}")
        known = set(given) <= set(order[:at]) and len(set(given)) == len(given)
        if chances is None or not known or tuple(chances.shape) != (cells(sizes, tuple(given)), sizes[k]):
            raise UserError(f"Expected a model of the declared columns, got another one for column {k}.")
        found.append(Drawing(k, tuple(given), chances))
    return found


def _finer_place(
    place: torch.Tensor, y: torch.Tensor, bins: int, inside: torch.Tensor, draws: torch.Generator
) -> torch.Tensor:
    edges, finer = inside.double().cumsum(2)[y, place.clamp(max=bins - 1)], inside.shape[2]
    at = torch.rand(len(place), 1, generator=draws, dtype=torch.float64) * edges[:, -1:]
    part = (at >= edges).sum(1).clamp(max=finer - 1)
    return torch.where(place < bins, place * finer + part, bins * finer)
