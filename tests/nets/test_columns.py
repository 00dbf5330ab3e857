"""How features are grouped into columns: parsing, a typical norm, hardening to valid records."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.errors import UserError
from prismfl.nets.columns import Columns

WORDS = st.lists(st.sampled_from(["n", "b", "p", "c1", "c2", "c5"]), min_size=1, max_size=8)


@given(WORDS)
def test_every_feature_belongs_to_one_column(words: list[str]) -> None:
    columns = Columns.parse(words)
    places = [*columns.numeric, *columns.binary, *columns.pixels]
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
    assert torch.equal(columns.harden(made), made)  # a valid record stays what it is


def test_the_typical_squared_norm_by_hand() -> None:
    """A choice and a binary have norm 1, a number 0.35, a pixel 0.12."""
    assert Columns.parse(["c3", "b", "n", "n", "p"]).squared_norm() == pytest.approx(1 + 1 + 0.7 + 0.12)


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
    assert str(error.value) == (f"Expected a column as n, b, p or c with a number of places (c5), got '{word}'.")


def test_no_column_is_refused() -> None:
    with pytest.raises(UserError, match=r"^Expected at least one column, got none\.$"):
        Columns.parse([])
