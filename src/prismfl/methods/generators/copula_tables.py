"""A copula from noisy tables: for servers without the fitter of graphical models.

Tables of two columns tell the products of their positions, and tables of one their marginals, which is what the copula
of `latent.py` is built from. Pairs that were not asked are taken as independent, given the label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from prismfl.kernels.loss import Params
from prismfl.methods.generators import latent
from prismfl.methods.generators.copula import CHOICE, Layout, merge, places
from prismfl.methods.generators.graphical import expected, given_label, total_of
from prismfl.methods.generators.latent import Copula
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Clique, Variables


def layout_of(variables: Variables) -> Layout:
    """Every variable as a choice of its places, in their order."""
    return Layout.of(Columns.parse([f"c{size}" for size in variables.sizes]))


def fit(variables: Variables, tables: Mapping[Clique, Counts]) -> Params:
    """The copula of the tables, ready to be drawn."""
    layout = layout_of(variables)
    found = latent.build(layout, latent.clean(layout, [merge(layout, [_sums(variables, tables)])])[0])
    return {"quantiles": found.quantiles.to(torch.float32), "root": found.root.to(torch.float32)}


def draw(variables: Variables, tensors: Params, count: int, generator: torch.Generator) -> torch.Tensor:
    """(count, variables): places drawn from the copula."""
    made = Copula(tensors["quantiles"].double(), tensors["root"].double())
    parts = torch.split(latent.draw(layout_of(variables), made, count, generator), list(variables.sizes), dim=1)
    return torch.stack([part.argmax(1) for part in parts], 1)


def _sums(variables: Variables, tables: Mapping[Clique, Counts]) -> Params:
    """The sums that a copula is made of: counts of all places, and products of positions."""
    sizes, label = variables.sizes, variables.label
    known = given_label(variables, tables)
    alone = [tables[(k,)].counts for k in range(len(variables.columns))]
    alone += [] if label is None else [known[1]]
    total = total_of(tables.values())
    at = [places(size) for size in sizes]
    products, errors = [], []
    for i in range(len(sizes)):
        for j in range(i, len(sizes)):
            table = tables.get((i, j))
            if i == j:
                products.append((alone[i] * at[i].square()).sum())
                continue
            counts = expected((i, j), known, variables) if table is None else table.counts
            products.append(at[i] @ counts.reshape(sizes[i], sizes[j]) @ at[j])
            spread = float(at[i].square().sum() * at[j].square().sum())
            errors.append(0.0 if table is None else table.noise * math.sqrt(spread))
    noise = max(one.noise for one in tables.values())
    rough = math.sqrt(math.fsum(e * e for e in errors) / max(1, len(errors)))
    return {
        "count": torch.tensor([total]),
        "sums": torch.cat(alone),
        "weight": torch.tensor([total]),
        "centre": torch.zeros(len(sizes)),
        "products": torch.stack(products) / CHOICE**2,
        "noise": torch.tensor([noise / CHOICE, rough / CHOICE**2]),
    }
