"""Which tables are asked: public numbers decide, places are right, weights are as long as the bound."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.errors import UserError
from prismfl.methods.generators import questions
from prismfl.methods.generators.questions import BOUND, check_size, design, worth_asking
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables

COLUMNS = Columns.parse(["n", "c3", "b"])
FOUND = Variables.of(COLUMNS, bins=4, labels=2)


def test_singles_pairs_with_the_label_and_small_pairs() -> None:
    asked = design(FOUND, finer=2, given=None, pair_cells=8)
    assert asked.cliques == ((0, 3), (1, 3), (2, 3), (0, 2), (1, 2))
    assert asked.sizes == (16, 8, 6, 4, 8, 6), "choices are told by their pair with the label"
    length = math.sqrt(sum(w * w for w in asked.weights))
    assert 1 - 1e-9 < length <= BOUND
    assert design(FOUND, finer=1, given=[(2, 1, 0), (0, 1, 2), (1, 3)], pair_cells=8).cliques[3:] == ((0, 1, 2),)


def test_the_cell_of_a_record_in_every_table() -> None:
    asked = design(FOUND, finer=2, given=[(0, 1, 2)], pair_cells=0)
    x = torch.tensor([[0.3, 0, 0, 1, 1.0]])
    places = asked.places(x, torch.tensor([1]))
    # fine bin 5 of 8 by label; (bin 2, label 1), (2, 1), (1, 1); bin 2, choice 2, yes of 4 x 3 x 2
    assert places.tolist() == [[11, 5, 5, 3, 2 * 6 + 2 * 2 + 1]]


def test_released_numbers_come_back_as_tables() -> None:
    asked = design(FOUND, finer=2, given=None, pair_cells=100)
    places = asked.places(torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64))[0].long()
    flat = torch.zeros(sum(asked.sizes)).double()
    flat[places + torch.tensor(asked.sizes).cumsum(0) - torch.tensor(asked.sizes)] = (
        3 * torch.tensor(asked.weights).double()
    )
    singles, tables = asked.tables(flat, 2.0)
    assert all(abs(float(t.counts.sum()) - 3) < 1e-6 for t in (*singles.values(), *tables.values()))
    assert tables[(0, 3)].noise == pytest.approx(2.0 * BOUND / asked.weights[1])


def test_less_noise_buys_finer_bins_and_larger_tables() -> None:
    columns = Columns.parse(["n"] * 6 + ["c10", "c12"])
    found = [worth_asking(columns, labels=2, noise=noise, records=10_000) for noise in (0.1, 3.0, 30.0, 300.0, 1e9)]
    assert found[:3] == sorted(found[:3], reverse=True)
    assert found[0] == (32, 1024)
    assert found[3:] == [(8, 0), (8, 0)], "pairs drown, bins by label do not: their noise is that of a cell"
    assert worth_asking(columns, labels=0, noise=1e9, records=10_000) == (2, 0)
    assert worth_asking(Columns.parse(["b", "b"]), labels=2, noise=1.0, records=1000)[1] == 4


def test_too_many_cells_are_named_with_the_columns_to_coarsen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_CELLS", 30)
    with pytest.raises(UserError, match=r"age \(4\) x job \(3\) x sick \(2\); use fewer bins"):
        check_size(design(FOUND, finer=1, given=[(0, 1, 2)], pair_cells=0), ["age", "job", "sick", "label"])


def test_more_pairs_than_a_release_may_have_are_refused_before_they_are_written_down() -> None:
    """A server names the columns and how large a pair may be; a site does not count 50 million pairs for it."""
    wide = Variables.of(Columns.parse(["b"] * 10_000), bins=4, labels=2)
    with pytest.raises(UserError, match="49,995,000 pairs of 10,000 columns with pair_cells 400") as error:
        design(wide, finer=2, given=None, pair_cells=400)
    assert "\n" not in str(error.value)
    mixed = Variables.of(Columns.parse(["c7", "c3", "b", "n", "c9"]), bins=4, labels=2)
    for most in (0, 5, 6, 12, 13, 27, 28, 63, 100):
        asked = sum(1 for clique in design(mixed, finer=1, given=None, pair_cells=most).cliques if 5 not in clique)
        assert questions.pairs_up_to(mixed, most) == asked
