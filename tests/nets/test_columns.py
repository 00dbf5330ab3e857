"""How features are grouped into columns: parsing, a typical norm, hardening to valid records."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.errors import UserError
from prismfl.nets.columns import Columns

WORDS = st.lists(st.sampled_from(["n", "m", "b", "p", "c1", "c2", "c5"]), min_size=1, max_size=8)


@given(WORDS)
def test_every_feature_belongs_to_one_column(words: list[str]) -> None:
    columns = Columns.parse(words)
    places = [*columns.numeric, *columns.binary, *columns.pixels, *columns.flags]
    places += [first + i for first, width in columns.blocks for i in range(width)]
    assert sorted(places) == list(range(columns.width))


@given(WORDS, st.integers(0, 100), st.booleans())
def test_hardened_numbers_are_valid_records(words: list[str], seed: int, drawn: bool) -> None:
    columns, g = Columns.parse(words), torch.Generator().manual_seed(seed)
    made = columns.harden(3 * torch.randn(6, columns.width, generator=g), g if drawn else None)
    assert bool((made[:, list(columns.numeric)].abs() <= 1).all())
    assert bool((made[:, list(columns.binary)].abs() == 1).all())
    assert bool(((made[:, list(columns.pixels)] >= 0) & (made[:, list(columns.pixels)] <= 1)).all())
    for first, width in columns.blocks:
        block = made[:, first : first + width]
        assert bool((block.sum(1) == 1).all())
        assert bool(((block == 0) | (block == 1)).all())
    for number, flag in columns.missing:
        assert flag == number + 1
        assert number in columns.numeric
        assert set(made[:, flag].tolist()) <= {0.0, 1.0}
        assert bool((made[made[:, flag] == 1, number] == 0).all())
    assert torch.equal(columns.harden(made), made)  # a valid record stays what it is


def test_the_typical_squared_norm_by_hand() -> None:
    """A choice and a binary have norm 1, a number 0.35, a pixel 0.12, a flag 0.12."""
    assert Columns.parse(["c3", "b", "n", "n", "p"]).squared_norm() == pytest.approx(1 + 1 + 0.7 + 0.12)
    assert Columns.parse(["m"]).squared_norm() == pytest.approx(0.35 + 0.12)


def test_a_mean_over_the_records_that_have_the_number_by_hand() -> None:
    """Half of the records have it, and theirs are 0.4 and 0.8: 0.6, though the feature's own mean is 0.3."""
    columns = Columns.parse(["n", "m"])
    x = torch.tensor([[0.1, 0.4, 0.0], [0.1, 0.8, 0.0], [0.1, 0.0, 1.0], [0.1, 0.0, 1.0]])
    assert columns.given_present(x.mean(0)).tolist() == pytest.approx([0.1, 0.6, 0.5])
    assert columns.present(x)[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_drawn_flag_has_its_share() -> None:
    columns = Columns.parse(["m"])
    made = columns.harden(torch.tensor([[0.5, 0.3]]).repeat(4000, 1), torch.Generator().manual_seed(0))
    assert float(made[:, 1].mean()) == pytest.approx(0.3, abs=0.03)
    assert set(made[:, 0].tolist()) == {0.0, 0.5}


def test_a_choice_without_a_generator_is_its_largest_weight() -> None:
    columns = Columns.parse(["c3", "b"])
    assert columns.harden(torch.tensor([[0.1, 0.7, 0.2, -0.1]]))[0].tolist() == [0.0, 1.0, 0.0, -1.0]


def test_negative_weights_are_never_drawn() -> None:
    columns = Columns.parse(["c3"])
    made = columns.harden(torch.tensor([[-5.0, 1.0, -1.0]]).repeat(200, 1), torch.Generator().manual_seed(0))
    assert made.sum(0).tolist() == [0.0, 200.0, 0.0]


@pytest.mark.parametrize("word", ["x", "c", "c0", "cx", "N", ""])
def test_unknown_words_are_refused(word: str) -> None:
    with pytest.raises(UserError) as error:
        Columns.parse(["n", word])
    assert str(error.value) == (f"Expected a column as n, m, b, p or c with a number of places (c5), got '{word}'.")


def test_no_column_is_refused() -> None:
    with pytest.raises(UserError, match=r"^Expected at least one column, got none\.$"):
        Columns.parse([])
