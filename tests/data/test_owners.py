"""Which site a record of own data goes to: by itself alone, so that one more or less moves no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data.owners import Indices, owners
from prismfl.data.schemes import Split, parse_split
from prismfl.errors import UserError

SPLITS = ["iid", "dirichlet(alpha=0.3)", "pathological(2)", "shards(2)"]
LABELS = np.arange(60) % 4
WHO = [f"record {i}".encode() for i in range(60)]


def dealt(split: str, y: Indices = LABELS, who: list[bytes] = WHO, *, seed: int = 1, sites: int = 3) -> list[int]:
    return [int(site) for site in owners(y, who, sites, split=parse_split(split), classes=4, seed=seed)]


@pytest.mark.parametrize("split", SPLITS)
@given(gone=st.sets(st.integers(0, 59), max_size=59))
def test_taking_records_out_moves_no_other(split: str, gone: set[int]) -> None:
    kept = [i for i in range(60) if i not in gone]
    alone = dealt(split, LABELS[kept], [WHO[i] for i in kept])
    whole = dealt(split)
    assert alone == [whole[i] for i in kept]


@pytest.mark.parametrize("split", SPLITS)
def test_the_order_of_the_records_does_not_matter(split: str) -> None:
    back = list(reversed(range(60)))
    assert dealt(split, LABELS[back], [WHO[i] for i in back]) == list(reversed(dealt(split)))


@pytest.mark.parametrize("split", SPLITS)
def test_the_seed_decides_and_every_site_is_a_site(split: str) -> None:
    assert dealt(split) == dealt(split)
    assert dealt(split) != dealt(split, seed=2)
    assert set(dealt(split)) <= {0, 1, 2}


def test_records_of_one_person_lie_at_one_site() -> None:
    who = [f"person {i // 6}".encode() for i in range(60)]
    for split in SPLITS:
        sites = dealt(split, who=who)
        assert all(len(set(sites[i : i + 6])) == 1 for i in range(0, 60, 6))


def test_a_person_goes_by_the_most_frequent_label() -> None:
    """Under fedlap-like splits a class belongs to given sites: two of label 1 against one of label 0."""
    split = Split("pathological", classes_per_site=1)
    y, who = np.array([0, 1, 1, 1]), [b"a", b"a", b"a", b"b"]
    found = owners(y, who, 4, split=split, classes=4, seed=0)
    assert found[0] == found[3]


def test_iid_is_about_even() -> None:
    many = [str(i).encode() for i in range(3000)]
    sizes = np.bincount(dealt("iid", np.zeros(3000, dtype=np.int64), many))
    assert sizes.tolist() == pytest.approx([1000] * 3, abs=120)


def test_pathological_sites_hold_only_their_classes() -> None:
    many = [str(i).encode() for i in range(2000)]
    y = np.arange(2000) % 4
    sites = np.array(dealt("pathological(2)", y, many, sites=4))
    assert all(len(set(y[sites == s].tolist())) == 2 for s in range(4))


def test_a_small_alpha_is_a_strong_skew() -> None:
    many = [str(i).encode() for i in range(4000)]
    y = np.arange(4000) % 4

    def largest(alpha: float) -> float:
        sites = np.array(dealt(f"dirichlet({alpha})", y, many))
        return float(np.mean([np.bincount(sites[y == c], minlength=3).max() / 1000 for c in range(4)]))

    assert largest(0.05) > largest(100.0)
    assert largest(100.0) < 0.45


def test_natural_ids_are_dealt_in_turn_by_name() -> None:
    names = ["Rome", "Bonn", "Oslo", "Bonn"]
    found = owners(np.zeros(4, dtype=np.int64), [b"x"] * 4, 2, split=Split("natural"), classes=4, seed=0, natural=names)
    assert found.tolist() == [0, 0, 1, 0]  # Bonn, Oslo, Rome: 0, 1, 0


def test_no_records_are_no_error() -> None:
    for split in SPLITS:
        assert dealt(split, np.zeros(0, dtype=np.int64), []) == []


@pytest.mark.parametrize(
    ("split", "line"),
    [
        (
            Split("dirichlet", min_size=5),
            "Expected no min_size in split dirichlet of your own data, got 5: to enforce it, the split would have to "
            "follow from the number of records.",
        ),
        (Split("dirichlet", alpha=0.0), "Expected alpha > 0 in split dirichlet, got 0.0."),
        (Split("shards", shards_per_site=0), "Expected shards_per_site >= 1 in split shards, got 0."),
        (
            Split("natural"),
            "Split natural needs an id column (say natural(hospital)), but this data has none.",
        ),
    ],
)
def test_what_is_refused(split: Split, line: str) -> None:
    with pytest.raises(UserError) as error:
        owners(LABELS, WHO, 3, split=split, classes=4, seed=0)
    assert str(error.value) == line
