"""A copula from tables: without noise its marginals and correlations are those of the tables."""

from __future__ import annotations

import torch

from prismfl.methods.generators import copula_tables
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables


def test_marginals_and_correlations_come_back() -> None:
    g = torch.Generator().manual_seed(0)
    found = Variables.of(Columns.parse(["n", "c3"]), bins=5, labels=2)
    normal = torch.randn(20_000, generator=g)
    first = (torch.special.ndtr(normal) * 5).long()
    label = (normal + 0.5 * torch.randn(20_000, generator=g) > 0.5).long()
    codes = torch.stack([first, torch.tensor([0.6, 0.3, 0.1]).multinomial(20_000, True, generator=g), label], 1)

    def table(*columns: int) -> Counts:
        place = torch.zeros(20_000, dtype=torch.int64)
        size = 1
        for k in columns:
            place, size = place * found.sizes[k] + codes[:, k], size * found.sizes[k]
        return Counts(torch.bincount(place, minlength=size).double(), 1e-6)

    for pairs in ([(0, 1)], []):
        tables: dict[tuple[int, ...], Counts] = {pair: table(*pair) for pair in [(0, 2), (1, 2), *pairs]}
        made = copula_tables.fit(found, {(0,): table(0), (1,): table(1), **tables})
        drawn = copula_tables.draw(found, made, 20_000, g)
        for k, size in enumerate(found.sizes):
            mine, real = (torch.bincount(part[:, k], minlength=size) / 20_000 for part in (drawn, codes))
            assert float((mine - real).abs().sum()) < 0.05
        mine, real = (torch.corrcoef(part.double().T) for part in (drawn, codes))
        assert float((mine - real).abs().max()) < 0.08
