from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data import parse_split, partition, plot, summary
from prismfl.data.schemes import FEDLAP
from prismfl.errors import UserError

Y = np.random.default_rng(0).integers(0, 10, 1000)
ALL = ["iid", "dirichlet(alpha=0.3)", "pathological(classes_per_site=2)", "shards(shards_per_site=2)", "fedlap"]


@pytest.mark.parametrize("split", ALL)
def test_every_record_has_exactly_one_site(split: str) -> None:
    parts = partition(Y, 5, split=split, seed=1)
    assert len(parts) == 5
    assert sorted(np.concatenate(parts)) == list(range(1000))


@pytest.mark.parametrize("split", ALL)
def test_the_seed_decides(split: str) -> None:
    first, again, other = (partition(Y, 5, split=split, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    if split != "fedlap":  # there the classes alone decide
        assert any(not np.array_equal(a, b) for a, b in zip(first, other))


def test_the_global_seed_does_not_matter() -> None:
    np.random.seed(1)
    first = partition(Y, 5, split="dirichlet", seed=1)
    np.random.seed(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, partition(Y, 5, split="dirichlet", seed=1)))


def test_iid_is_even() -> None:
    assert [len(p) for p in partition(Y, 3, split="iid", seed=0)] == [334, 333, 333]


def test_dirichlet_alpha_sets_the_skew() -> None:
    def skew(alpha: float) -> float:
        counts = summary(partition(Y, 5, split="dirichlet", seed=3, alpha=alpha), Y, 10)
        return float((counts.max(0) / counts.sum(0)).mean())

    assert skew(0.1) > 0.6 > 0.3 > skew(1000)
    # At alpha = 1000 every site has close to its fifth of every class.
    assert skew(1000) == pytest.approx(0.2, abs=0.03)


def test_pathological_gives_each_site_its_number_of_classes() -> None:
    for sites, each, seed in product((5, 7, 20), (2, 3, 10), (0, 1)):
        if sites * each < 10:
            continue
        counts = summary(partition(Y, sites, split=f"pathological({each})", seed=seed), Y, 10)
        assert ((counts > 0).sum(1) == each).all(), (sites, each)
        holders = (counts > 0).sum(0)
        assert holders.max() - holders.min() <= 1


def test_shards_bound_the_classes_of_a_site() -> None:
    y = np.repeat(np.arange(10), 100)
    counts = summary(partition(y, 5, split="shards(shards_per_site=2)", seed=0), y, 10)
    assert (counts.sum(1) == 200).all()
    assert ((counts > 0).sum(1) == 2).all()


def test_fedlap_pairs() -> None:
    counts = summary(partition(Y, 5, split="fedlap", seed=0), Y, 10)
    assert [tuple(np.flatnonzero(row).tolist()) for row in counts] == [(5, 6), (1, 2), (0, 8), (3, 9), (4, 7)]


def test_natural_keeps_ids_whole() -> None:
    ids = np.array(["b", "a", "c", "a", "b", "c", "c", "d"])
    y = np.zeros(8, dtype=int)
    parts = partition(y, 4, split="natural(hospital)", seed=0, natural=ids)
    assert [set(ids[p]) for p in parts] == [{"a"}, {"b"}, {"c"}, {"d"}]
    two = partition(y, 2, split="natural", seed=0, natural=ids)
    assert not set(ids[two[0]]) & set(ids[two[1]])
    assert sorted(len(p) for p in two) == [4, 4]


def test_forms_of_a_split() -> None:
    assert parse_split("dirichlet(alpha=0.3)").alpha == 0.3
    assert parse_split("dirichlet(0.3)") == parse_split(" dirichlet( alpha = 0.3 ) ")
    assert parse_split("pathological(num_classes_per_partition=3)").classes_per_site == 3
    assert parse_split("shards(4)").shards_per_site == 4
    assert parse_split("natural(hospital)").column == "hospital"
    for text in [*ALL, "natural(hospital)"]:
        assert str(parse_split(text)) == text


@pytest.mark.parametrize(
    ("split", "sites", "message"),
    [
        ("dirichlett", 5, r"Unknown split 'dirichlett'; did you mean 'dirichlet'\?"),
        ("dirichlet(beta=1)", 5, r"Unknown argument 'beta' in split 'dirichlet\(beta=1\)'; it takes alpha"),
        ("iid(3)", 5, r"Unknown argument '3' in split 'iid\(3\)'; it takes none"),
        ("dirichlet(alpha=x)", 5, r"Expected a number as alpha in split"),
        ("dirichlet(alpha=0)", 5, r"Expected alpha > 0 in split dirichlet, got 0.0"),
        ("dirichlet(alpha=nan)", 5, r"Expected alpha > 0"),
        ("pathological(11)", 5, r"Expected 1 <= classes_per_site <= 10 in split pathological, got 11"),
        ("pathological(1)", 5, r"Expected sites x classes_per_site >= 10 classes .*got 5 x 1"),
        ("shards(0)", 5, r"Expected 1 <= shards_per_site <= 200 in split shards, got 0"),
        ("fedlap", 4, r"Expected 5 sites and 10 classes for split fedlap, got 4 sites"),
        ("natural(clinic)", 5, r"Split natural\(clinic\) needs an id column"),
        ("dirichlet(", 5, r"Expected a split such as dirichlet\(alpha=0.3\)"),
        ("iid", 1001, r"Expected at most 1000 sites for 1000 records, got 1001"),
        ("iid", 0, r"Expected sites >= 1, got 0"),
        ("dirichlet(alpha=0.001)", 50, r"left a site with fewer than 1 records in 1000 draws"),
    ],
)
def test_bad_splits(split: str, sites: int, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        partition(Y, sites, split=split, seed=0)
    assert "\n" not in str(error.value)


def test_a_site_without_records_is_refused() -> None:
    y = np.array([0, 0, 0, 0, 1])
    with pytest.raises(UserError, match=r"leaves site \d of 4 without records; use fewer sites"):
        partition(y, 4, split="pathological(1)", seed=0)


def test_plot_writes_a_picture(tmp_path: Path) -> None:
    parts = partition(Y, 5, split="dirichlet", seed=0)
    path = plot(parts, Y, [str(c) for c in range(10)], tmp_path / "split.png")
    picture = np.asarray(Image.open(path).convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20  # bars of ten colours, not an empty frame
    with pytest.raises(UserError, match="Cannot write the picture"):
        plot(parts, Y, [str(c) for c in range(10)], tmp_path / "no" / "split.png")


IDENTITY = [i.to_bytes(4, "little") for i in range(len(Y))]


def own(split: str, *, sites: int = 5, seed: int = 0) -> list[np.ndarray]:
    return partition(Y, sites, split=split, seed=seed, classes=10, identity=IDENTITY)


@pytest.mark.parametrize("split", ["iid", "dirichlet(0.3)", "pathological(2)", "shards(2)", "fedlap"])
def test_own_data_are_dealt_whole_and_by_the_seed(split: str) -> None:
    parts = own(split)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(Y)))
    assert all(np.array_equal(a, b) for a, b in zip(parts, own(split)))
    same = all(np.array_equal(a, b) for a, b in zip(parts, own(split, seed=1)))
    assert same == (split == "fedlap")  # which gives each class to one site, whatever the seed


def test_own_data_have_the_shape_of_their_split() -> None:
    assert all(150 < len(part) < 250 for part in own("iid"))
    assert ((summary(own("pathological(2)"), Y, 10) > 0).sum(1) == 2).all()
    lap = summary(own("fedlap"), Y, 10)
    assert [tuple(sorted(np.flatnonzero(row))) for row in lap] == [tuple(sorted(pair)) for pair in FEDLAP]
    assert (summary(own("shards(2)"), Y, 10) > 0).sum(1).max() <= 4
    even, skewed = (summary(own(f"dirichlet({alpha})"), Y, 10).max(0).mean() for alpha in (1000, 0.05))
    assert skewed > 2 * even


def test_a_small_or_empty_site_of_own_data_is_no_error() -> None:
    parts = partition([0, 1], 5, split="iid", seed=0, classes=2, identity=[b"a", b"b"])
    assert sorted(len(part) for part in parts)[:3] == [0, 0, 0]
    assert [len(p) for p in partition([], 2, split="dirichlet", seed=0, classes=2, identity=[])] == [0, 0]


def test_own_data_refuse_what_would_look_at_their_number() -> None:
    with pytest.raises(UserError, match=r"no min_size in split dirichlet of your own data, got 3"):
        own("dirichlet(0.5, min_size=3)")
    with pytest.raises(UserError, match=r"declared number of classes and an identity for each record"):
        partition(Y, 5, split="iid", seed=0, identity=IDENTITY)
