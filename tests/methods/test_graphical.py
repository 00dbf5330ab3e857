"""The graphical model: which tables it takes, what it gives back, how records are drawn from it."""

from __future__ import annotations

import time

import pytest
import torch

from prismfl.methods.generators import graphical
from prismfl.methods.generators.graphical import Drawing, Graph
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables

FOUND = Variables.of(Columns.parse(["b", "b", "b"]), bins=2, labels=2)


def some_codes(n: int = 4000) -> torch.Tensor:
    """The second column follows the first, the third nothing; the label is the exclusive or of the first two."""
    g = torch.Generator().manual_seed(0)
    first, third = (torch.rand(2, n, generator=g) < 0.4).long()
    second = torch.where(torch.rand(n, generator=g) < 0.8, first, 1 - first)
    return torch.stack([first, second, third, first ^ second], 1)


def tables_of(
    codes: torch.Tensor, cliques: list[tuple[int, ...]], noise: float = 1e-3
) -> dict[tuple[int, ...], Counts]:
    out = {}
    for clique in cliques:
        place = sum(codes[:, k] * 2 ** (len(clique) - 1 - i) for i, k in enumerate(clique))
        out[clique] = Counts(torch.bincount(torch.as_tensor(place), minlength=2 ** len(clique)).double(), noise)
    return out


CLIQUES: list[tuple[int, ...]] = [(0, 3), (1, 3), (2, 3), (0, 1), (0, 2), (1, 2)]


def test_tables_that_tell_more_than_noise_are_taken() -> None:
    codes = some_codes()
    tables = tables_of(codes, CLIQUES, noise=60.0)
    assert graphical.chosen(FOUND, tables, limit=1000) == [(0, 3), (1, 3), (2, 3), (0, 1, 3)]
    assert graphical.chosen(FOUND, tables, limit=12) == [(0, 3), (1, 3), (2, 3)], "a model that is too large"
    loud = tables_of(codes, CLIQUES, noise=1e6)
    assert graphical.chosen(FOUND, loud, limit=1000) == [(0, 3), (1, 3), (2, 3)]


def test_every_column_is_drawn_after_those_it_hangs_on() -> None:
    order, given = Graph((2, 3, 4, 2), [(0, 1, 3), (1, 2)]).drawn_in()
    for i, known in enumerate(given):
        assert set(known) <= set(order[:i])
    assert sorted(order) == [0, 1, 2, 3]
    graph = Graph((2, 3, 4, 2), [(0, 1), (1, 2)])
    assert graph.cells_with((0, 2)) == 24 + 12 + 4 + 2
    assert graph.cells_with((0, 1)) == 6 + 12 + 4 + 2, "asking ties nothing"


def test_drawing_looks_probabilities_up() -> None:
    steps = [
        Drawing(1, (), torch.tensor([[0.25, 0.75]])),
        Drawing(0, (1,), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])),
    ]
    codes = graphical.draw(steps, (3, 2), 20_000, torch.Generator().manual_seed(0))
    assert abs(float(codes[:, 1].double().mean()) - 0.75) < 0.02
    assert bool((codes[codes[:, 1] == 0, 0] == 0).all())
    assert abs(float((codes[codes[:, 1] == 1, 0] == 2).double().mean()) - 0.5) < 0.02


def test_a_hundred_thousand_records_of_many_columns_are_drawn_by_looking_up() -> None:
    chances = torch.rand(16 * 40, 40)
    steps = [Drawing(0, (), torch.ones(1, 40)), Drawing(1, (0,), torch.ones(40, 16))]
    steps += [Drawing(k, (1, k - 1 if k > 2 else 0), chances) for k in range(2, 20)]
    start = time.process_time()
    graphical.draw(steps, (40, 16, *[40] * 18), 100_000, torch.Generator().manual_seed(0))
    assert time.process_time() - start < 10


def test_the_fit_gives_the_tables_back() -> None:
    if not graphical.installed():
        pytest.skip("needs mbi")
    codes = some_codes()
    cliques = [*CLIQUES, (0, 1, 3)]
    tables = tables_of(codes, cliques)
    steps = graphical.fit(FOUND, tables, [(2, 3), (0, 1, 3)], steps=1000)
    drawn = graphical.draw(steps, FOUND.sizes, 40_000, torch.Generator().manual_seed(0))
    for clique, table in tables_of(drawn, [(2, 3), (0, 1, 3)]).items():
        torch.testing.assert_close(table.counts / 10, tables[clique].counts, atol=60.0, rtol=0.0)
