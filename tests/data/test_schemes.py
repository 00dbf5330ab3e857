"""How a split is written, and who holds which class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data.schemes import FEDLAP, Split, check_natural, generator, holders_of, natural_column, parse_split
from prismfl.errors import UserError


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("iid", Split("iid")),
        (" iid ( ) ", Split("iid")),
        ("dirichlet", Split("dirichlet", alpha=0.5)),
        ("dirichlet(0.1)", Split("dirichlet", alpha=0.1)),
        ("dirichlet(alpha=0.1, min_size=5)", Split("dirichlet", alpha=0.1, min_size=5)),
        ("dirichlet(min_partition_size=3)", Split("dirichlet", min_size=3)),
        ("pathological(3)", Split("pathological", classes_per_site=3)),
        ("pathological(num_classes_per_partition=3)", Split("pathological", classes_per_site=3)),
        ("shards(num_shards_per_partition=4)", Split("shards", shards_per_site=4)),
        ("natural(hospital)", Split("natural", column="hospital")),
        ("natural(partition_by=ward)", Split("natural", column="ward")),
        ("fedlap", Split("fedlap")),
    ],
)
def test_splits_as_people_write_them(text: str, split: Split) -> None:
    assert parse_split(text) == split


@pytest.mark.parametrize(
    "text", ["iid", "dirichlet(alpha=0.3)", "pathological(classes_per_site=2)", "natural(ward)", "natural", "fedlap"]
)
def test_the_written_form_reads_back(text: str) -> None:
    assert str(parse_split(text)) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "Expected a split such as dirichlet(alpha=0.3), got ''."),
        ("dirichlet(0.3", "Expected a split such as dirichlet(alpha=0.3), got 'dirichlet(0.3'."),
        ("dirichlt", "Unknown split 'dirichlt'; did you mean 'dirichlet'?"),
        ("x", "Unknown split 'x'; known: iid, dirichlet, pathological, shards, natural, fedlap."),
        ("iid(3)", "Unknown argument '3' in split 'iid(3)'; it takes none."),
        ("dirichlet(beta=1)", "Unknown argument 'beta' in split 'dirichlet(beta=1)'; it takes alpha, min_size."),
        ("dirichlet(much)", "Expected a number as alpha in split 'dirichlet(much)', got 'much'."),
        ("shards(2.5)", "Expected a whole number as shards_per_site in split 'shards(2.5)', got '2.5'."),
    ],
)
def test_mistakes_are_named(text: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        parse_split(text)
    assert str(error.value) == line


def test_fedlap_pairs_are_the_papers() -> None:
    holders = holders_of(Split("fedlap"), 5, 10, generator(0))
    assert all(holders[c] == [site] for site, pair in enumerate(FEDLAP) for c in pair)


@given(st.integers(1, 8), st.integers(2, 10), st.integers(1, 10), st.integers(0, 50))
def test_classes_are_dealt_evenly_and_every_site_gets_its_number(
    sites: int, classes: int, each: int, seed: int
) -> None:
    if each > classes or sites * each < classes:
        return
    holders = holders_of(Split("pathological", classes_per_site=each), sites, classes, generator(seed))
    counts = [len(who) for who in holders]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == sites * each
    for site in range(sites):
        assert sum(site in who for who in holders) == each


@pytest.mark.parametrize(
    ("split", "sites", "classes", "line"),
    [
        (Split("fedlap"), 4, 10, "Expected 5 sites and 10 classes for split fedlap, got 4 sites and 10 classes."),
        (
            Split("pathological", classes_per_site=4),
            3,
            3,
            "Expected 1 <= classes_per_site <= 3 in split pathological, got 4.",
        ),
        (
            Split("pathological", classes_per_site=1),
            2,
            3,
            "Expected sites x classes_per_site >= 3 classes so that every record has a site, got 2 x 1.",
        ),
    ],
)
def test_what_cannot_be_dealt(split: Split, sites: int, classes: int, line: str) -> None:
    with pytest.raises(UserError) as error:
        holders_of(split, sites, classes, generator(0))
    assert str(error.value) == line


def test_natural_ids_must_fit() -> None:
    split = Split("natural", column="ward")
    assert natural_column(["a", "b"], 2, split).tolist() == ["a", "b"]
    with pytest.raises(UserError, match=r"^Expected 3 ids for split natural\(ward\), got 2\.$"):
        natural_column(["a", "b"], 3, split)
    with pytest.raises(UserError, match=r"^Expected at most 2 sites for split natural\(ward\) \(one id each\), got 3"):
        check_natural(2, 3, split)


def test_the_stream_of_a_split_is_the_seeds_own() -> None:
    assert generator(1).integers(1000, size=5).tolist() == generator(1).integers(1000, size=5).tolist()
    plain = np.random.default_rng(1).integers(1000, size=5).tolist()
    assert generator(1).integers(1000, size=5).tolist() != plain
