"""A graphical model from noisy tables, and records drawn from it. All of it is post-processing.

The server chooses which tables the model is made of by what they tell beyond noise: each table against what the pairs
with the label alone would say of it, as AIM (McKenna et al. 2022) does, but on released numbers only. `mbi`
(private-pgm) fits the model; it is then written as one table of probabilities per column, given the columns that are
drawn before it, so that drawing needs no more than looking up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from prismfl.errors import UserError
from prismfl.methods.generators import fitting
from prismfl.methods.generators.questions import Counts
from prismfl.nets.discrete import Clique, Variables, cells

LEAST = 1e-9


@dataclass(frozen=True)
class Drawing:
    """How one column is drawn: columns that are known by then, and a row of probabilities for each of their places."""

    column: int
    given: Clique
    chances: torch.Tensor


def installed() -> bool:
    """Whether the fitter is there (the extra `tables`)."""
    return all(find_spec(name) is not None for name in ("mbi", "jax"))


def chosen(variables: Variables, tables: Mapping[Clique, Counts], *, limit: int) -> list[Clique]:
    """The cliques of the model: pairs with the label, and the tables that tell most, as long as the model is small."""
    base = with_label(variables)
    graph = Graph(variables.sizes, base)
    known = given_label(variables, tables)
    found = []
    for clique, table in tables.items():
        if clique not in base and len(clique) > 1:
            found.append((_gain(table, expected(clique, known, variables)), clique))
    picked: list[Clique] = []
    for gain, clique in sorted(found, reverse=True):
        joined = _joined(variables, clique)
        if gain > 0 and graph.cells_with(joined) <= limit:
            graph.add(joined)
            picked.append(joined)
    return base + picked


def with_label(variables: Variables) -> list[Clique]:
    """The pairs with the label: what every model holds."""
    label = variables.label
    return [] if label is None else [(k, label) for k in range(len(variables.columns))]


def check_size(variables: Variables, names: Sequence[str], given: Iterable[Clique] = (), *, limit: int) -> None:
    """Refuse, from public numbers alone, a model that is too large: single columns by label, or with a clique that is
    given. Named before anything is charged."""
    graph = Graph(variables.sizes, with_label(variables))
    order = sorted(range(len(variables.columns)), key=lambda k: -variables.sizes[k])
    for clique, words in ((), "single columns"), *((c, "the clique " + " x ".join(names[k] for k in c)) for c in given):
        total = graph.cells_with(_joined(variables, clique))
        if total > limit:
            label = f" by {variables.labels} classes" if variables.labels else ""
            largest = sorted(clique, key=lambda k: -variables.sizes[k]) or order
            told = ", ".join(f"{names[k]} ({variables.sizes[k]:,} places)" for k in largest[:3])
            raise UserError(
                f"Expected a model of at most {limit:,} cells (model_cells), got {total:,} for {words}{label} alone; "
                f"the largest: {told}; merge categories, use fewer bins, leave a column out, or raise model_cells."
            )


def _joined(variables: Variables, clique: Clique) -> Clique:
    """A clique as it stands in a model: with the label."""
    label = variables.label
    return clique if not clique or label is None or label in clique else (*clique, label)


def fit(variables: Variables, tables: Mapping[Clique, Counts], model: Sequence[Clique], *, steps: int) -> list[Drawing]:
    """The model of these cliques that is nearest to the tables, each by its noise, as steps to draw from."""
    kept = {c: t for c, t in tables.items() if any(set(c) <= set(m) for m in model) or len(c) == 1}
    total = total_of(kept.values())
    order, parents = Graph(variables.sizes, model).drawn_in()
    wanted = [tuple(sorted((*given, column))) for column, given in zip(order, parents)]
    marginals = _fitted(variables.sizes, kept, wanted, total=total, steps=steps)
    out = []
    for column, given, clique in zip(order, parents, wanted):
        table = torch.from_numpy(marginals[clique]).permute(*(clique.index(k) for k in (*given, column)))
        rows = table.reshape(-1, variables.sizes[column]).clamp(min=0.0)
        sums = rows.sum(1, keepdim=True)
        plain = rows.sum(0) / rows.sum().clamp(min=LEAST)
        # What the model calls impossible is asked for only where rounding led to it: then the column as a whole serves.
        out.append(Drawing(column, given, torch.where(sums > LEAST * total, rows / sums.clamp(min=LEAST), plain)))
    return out


def draw(steps: Iterable[Drawing], sizes: Sequence[int], count: int, generator: torch.Generator) -> torch.Tensor:
    """(count, variables): places drawn column by column."""
    codes = torch.zeros(count, len(sizes), dtype=torch.int64)
    for step in steps:
        row = torch.zeros(count, dtype=torch.int64)
        for k in step.given:
            row = row * sizes[k] + codes[:, k]
        edges = step.chances.double().cumsum(1)
        at = torch.rand(count, generator=generator, dtype=torch.float64) * edges[row, -1]
        codes[:, step.column] = (at[:, None] >= edges[row]).sum(1).clamp(max=sizes[step.column] - 1)
    return codes


class Graph:
    """Which columns are tied to which, and what eliminating them one after the other takes."""

    def __init__(self, sizes: Sequence[int], cliques: Iterable[Clique] = ()) -> None:
        self.sizes = sizes
        self.near: list[set[int]] = [set() for _ in sizes]
        for clique in cliques:
            self.add(clique)

    def add(self, clique: Clique) -> None:
        """Tie all columns of a clique to each other."""
        for k in clique:
            self.near[k] |= set(clique) - {k}

    def cells_with(self, clique: Clique) -> int:
        """The cells of the whole model if this clique were in it."""
        other = Graph(self.sizes)
        other.near = [set(near) for near in self.near]
        other.add(clique)
        return sum(cells(self.sizes, (k, *rest)) for k, rest in other._eliminated())

    def drawn_in(self) -> tuple[list[int], list[Clique]]:
        """An order to draw the columns in, and for each the columns before it that it hangs on."""
        found = self._eliminated()[::-1]
        return [k for k, _ in found], [rest for _, rest in found]

    def _eliminated(self) -> list[tuple[int, Clique]]:
        near, out = [set(one) for one in self.near], []
        size = {k: cells(self.sizes, (k, *rest)) for k, rest in enumerate(near)}
        while size:
            k = min(size, key=lambda one: (size[one], one))
            rest = near[k]
            out.append((k, tuple(sorted(rest))))
            del size[k]
            for other in rest:
                near[other] = (near[other] | rest) - {k, other}
                size[other] = cells(self.sizes, (other, *near[other]))
        return out


def _gain(table: Counts, guess: torch.Tensor) -> float:
    """What a table tells beyond a guess of it, less what its noise would add: AIM's score, of released numbers.

    The distance that is seen holds the noise as well, which is taken off it first.
    """
    noise = math.sqrt(2.0 / math.pi) * table.noise * table.counts.numel()
    seen = float((table.counts - guess).abs().sum())
    return math.sqrt(max(0.0, seen**2 - noise**2)) - noise


def given_label(variables: Variables, tables: Mapping[Clique, Counts]) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
    """Each column's shares given the label (one row a label), and the label's counts, from the released tables."""
    label = variables.label
    found: dict[int, torch.Tensor] = {}
    for k in range(len(variables.columns)):
        pair = (k,) if label is None else (k, label)
        found[k] = tables[pair].counts.reshape(variables.sizes[k], -1).T.clamp(min=0.0)
    counts = torch.stack([one.sum(1) for one in found.values()]).mean(0)
    return {k: one / one.sum(1, keepdim=True).clamp(min=LEAST) for k, one in found.items()}, counts


def expected(clique: Clique, known: tuple[dict[int, torch.Tensor], torch.Tensor], variables: Variables) -> torch.Tensor:
    """A table as it would be if its columns had nothing to do with each other, given the label."""
    shares, counts = known
    out = counts[:, None]
    for k in clique:
        if k != variables.label:
            out = (out[:, :, None] * shares[k][:, None, :]).flatten(1)
    return out.T.flatten() if variables.label in clique else out.sum(0)


def total_of(tables: Iterable[Counts]) -> float:
    """How many records there are, from all tables, each by its noise."""
    known = list(tables)
    weights = [1.0 / (table.counts.numel() * max(table.noise, LEAST) ** 2) for table in known]
    found = math.fsum(w * float(table.counts.sum()) for w, table in zip(weights, known)) / math.fsum(weights)
    return max(found, 1.0)


def _fitted(
    sizes: Sequence[int],
    tables: Mapping[Clique, Counts],
    wanted: Sequence[Clique],
    *,
    total: float,
    steps: int,
) -> dict[Clique, np.ndarray[Any, Any]]:
    """The tables `wanted` of the model that fits best, from a process of its own."""
    noise = max(min(table.noise for table in tables.values()), LEAST)
    asked: dict[str, np.ndarray[Any, Any]] = {
        "sizes": np.array(sizes),
        "noise": np.array([max(table.noise / noise, LEAST) for table in tables.values()]),
        "total": np.array(total),
        "steps": np.array(steps),
        "tables": np.array(len(wanted)),
    }
    for i, (clique, table) in enumerate(tables.items()):
        asked |= {f"clique.{i}": np.array(clique), f"counts.{i}": table.counts.numpy()}
    asked |= {f"wanted.{i}": np.array(clique) for i, clique in enumerate(wanted)}
    try:
        found = fitting.ask(asked)
    except fitting.FitError as error:
        raise UserError(f"The graphical model was not fitted ({error}); try a smaller model_cells.") from None
    return {clique: found[f"wanted.{i}"] for i, clique in enumerate(wanted)}
