"""The second exchange of dp-marginals: tables that the server chose from the first release, asked of every site.

Which tables those are comes from the server, so a site takes them as numbers from a stranger: what is no clique of
declared columns, has too many cells or was asked before counts as nothing. The shape, the weights and the noise of the
answer are planned and hang on none of it: every clique has as many cells as any may have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from prismfl.methods.generators import graphical
from prismfl.methods.generators.questions import BOUND, HAIR, Counts
from prismfl.nets.discrete import Clique, Variables, cells

WIDEST = 3  # columns of a clique
NONE = -1


def nothing(count: int) -> torch.Tensor:
    """No clique at all, in the shape that cliques are sent in."""
    return torch.full((count, WIDEST), NONE, dtype=torch.int64)


def written(cliques: Sequence[Clique], count: int) -> torch.Tensor:
    """Cliques as they are sent: one a row, filled up."""
    out = nothing(count)
    for row, clique in zip(out, cliques):
        row[: len(clique)] = torch.tensor(clique)
    return out


def read(sent: torch.Tensor, variables: Variables, *, most: int) -> list[Clique]:
    """The cliques that were sent; an empty one for whatever cannot be asked."""
    found: list[Clique] = []
    for row in sent.tolist():
        clique = tuple(sorted(k for k in row if k != NONE))
        known = len(set(clique)) == len(clique) >= 2 and all(0 <= k < len(variables) for k in clique)
        good = known and clique not in found and cells(variables.sizes, clique) <= most
        found.append(clique if good else ())
    return found


def weight(count: int) -> float:
    """What a record counts in each of so many tables."""
    return BOUND * HAIR / math.sqrt(count)


def places(variables: Variables, cliques: Sequence[Clique], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The cell of each record in each table; the first one of a table that is not asked."""
    codes = variables.codes(x, y)
    out = torch.zeros(len(codes), len(cliques), dtype=torch.int64)
    for at, clique in enumerate(cliques):
        for k in clique:
            out[:, at] = out[:, at] * variables.sizes[k] + codes[:, k]
    return out


def chosen(variables: Variables, tables: Mapping[Clique, Counts], *, count: int, most: int, limit: int) -> list[Clique]:
    """The tables that the first release says most of, in the order of what they tell."""
    label = variables.label
    found = graphical.chosen(variables, tables, limit=limit)
    further = [c for c in found if len(c) > 2 or label is None or label not in c]
    return [c for c in further if cells(variables.sizes, c) <= most][:count]


def tables(
    flat: torch.Tensor, variables: Variables, cliques: Sequence[Clique], *, noise: float
) -> dict[Clique, Counts]:
    """The answers as tables of records."""
    parts = flat.double().reshape(len(cliques), -1) / weight(len(cliques))
    own = noise * BOUND / weight(len(cliques))
    return {c: Counts(part[: cells(variables.sizes, c)], own) for c, part in zip(cliques, parts) if c}


def joined(first: Mapping[Clique, Counts], second: Mapping[Clique, Counts]) -> dict[Clique, Counts]:
    """The tables of both exchanges; one that was asked twice is averaged, each by its noise."""
    out = dict(first)
    for clique, table in second.items():
        known = out.get(clique)
        if known is None:
            out[clique] = table
            continue
        mine, other = (1.0 / max(one.noise, 1e-9) ** 2 for one in (table, known))
        both = (mine * table.counts + other * known.counts) / (mine + other)
        out[clique] = Counts(both, 1.0 / math.sqrt(mine + other))
    return out
