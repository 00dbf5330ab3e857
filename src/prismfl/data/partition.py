"""Splitting records over sites, with the names and arguments that federated benchmarks use.

Every scheme gives each record to exactly one site. A split of a benchmark is part of the experiment's design, so it may
look at the labels; in a deployment the sites hold what they hold and nothing here is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.data.schemes import (
    Indices,
    Split,
    check_alpha,
    check_natural,
    generator,
    holders_of,
    natural_column,
    parse_split,
)
from prismfl.errors import UserError

Labels = npt.NDArray[np.int64]

_TRIES = 1000


def partition(
    y: npt.ArrayLike,
    sites: int,
    *,
    split: str | Split,
    seed: int,
    alpha: float | None = None,
    classes_per_site: int | None = None,
    shards_per_site: int | None = None,
    natural: npt.ArrayLike | None = None,
    classes: int | None = None,
    identity: Sequence[bytes] | None = None,
) -> list[Indices]:
    """Sorted record indices of each site: disjoint, together all records, the same for the same seed.

    `natural` is the id column that `split="natural"` groups by (each id goes to one site whole). `classes` is the
    declared number of classes (default: the largest label plus one). Arguments given here win over the split's own.
    With `identity`, what a record (or its unit) is decides its site, whoever else there is: own data are split so.
    Without it the records are dealt by their positions: benchmarks are split so.
    """
    labels = np.asarray(y, dtype=np.int64)
    chosen = parse_split(split) if isinstance(split, str) else split
    own = {"alpha": alpha, "classes_per_site": classes_per_site, "shards_per_site": shards_per_site}
    chosen = Split(**{**chosen.__dict__, **{key: value for key, value in own.items() if value is not None}})
    if seed < 0:
        raise UserError(f"Expected seed >= 0, got {seed}.")
    if sites < 1:
        raise UserError(f"Expected sites >= 1, got {sites}.")
    if identity is not None:
        from prismfl.data.owners import owners

        if classes is None or len(identity) != len(labels):
            raise UserError("Expected the declared number of classes and an identity for each record of own data.")
        owner = owners(labels, identity, sites, split=chosen, classes=classes, seed=seed, natural=natural)
        return [np.flatnonzero(owner == site) for site in range(sites)]
    if sites > len(labels):
        raise UserError(f"Expected at most {len(labels)} sites for {len(labels)} records, got {sites}.")
    total = classes if classes is not None else int(labels.max()) + 1
    rng = generator(seed)
    if chosen.name == "natural":
        parts = _natural(natural, labels, sites, split=chosen)
    else:
        parts = _SCHEMES[chosen.name](labels, sites, split=chosen, classes=total, rng=rng)
    for site, part in enumerate(parts):
        if len(part) == 0:
            raise UserError(f"Split {chosen} leaves site {site} of {sites} without records; use fewer sites.")
    return [np.sort(part).astype(np.int64) for part in parts]


def _iid(y: Labels, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> list[Indices]:
    return list(np.array_split(rng.permutation(len(y)), sites))


def _dirichlet(y: Labels, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> list[Indices]:
    check_alpha(split)
    if split.min_size * sites > len(y):
        raise UserError(
            f"Expected min_size <= {len(y) // sites} for {sites} sites and {len(y)} records, got {split.min_size}."
        )
    for _ in range(_TRIES):
        parts: list[list[Indices]] = [[] for _ in range(sites)]
        for label in range(classes):
            members = rng.permutation(np.flatnonzero(y == label))
            shares = rng.dirichlet(np.full(sites, split.alpha))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            for part, piece in zip(parts, np.split(members, cuts)):
                part.append(piece)
        joined = [np.concatenate(part) for part in parts]
        if min(len(part) for part in joined) >= split.min_size:
            return joined
    raise UserError(
        f"Split {split} left a site with fewer than {split.min_size} records in {_TRIES} draws; use a larger alpha or "
        f"fewer sites than {sites}."
    )


def _held_by_class(y: Labels, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> list[Indices]:
    return _by_class(y, holders_of(split, sites, classes, rng), classes, rng)


def _by_class(y: Labels, holders: list[list[int]], classes: int, rng: np.random.Generator) -> list[Indices]:
    """Each class cut evenly among the sites that hold it."""
    parts: list[list[Indices]] = [[] for _ in range(1 + max(site for sites in holders for site in sites))]
    for label in range(classes):
        members = rng.permutation(np.flatnonzero(y == label))
        for site, piece in zip(holders[label], np.array_split(members, len(holders[label]))):
            parts[site].append(piece)
    return [np.concatenate(part) for part in parts]


def _shards(y: Labels, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> list[Indices]:
    each = split.shards_per_site
    if each < 1 or each * sites > len(y):
        raise UserError(f"Expected 1 <= shards_per_site <= {len(y) // sites} in split shards, got {each}.")
    shuffled = rng.permutation(len(y))
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    pieces = np.array_split(by_label, sites * each)
    order = rng.permutation(sites * each).reshape(sites, each)
    return [np.concatenate([pieces[i] for i in row]) for row in order]


def _natural(ids: npt.ArrayLike | None, y: Labels, sites: int, *, split: Split) -> list[Indices]:
    column = natural_column(ids, len(y), split)
    names, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    check_natural(len(names), sites, split)
    # Largest ids first, each to the site with the fewest records so far: with one id a site this is the id itself.
    owner = np.empty(len(names), dtype=np.int64)
    if len(names) == sites:
        owner[:] = np.arange(sites)
    else:
        sizes = np.zeros(sites, dtype=np.int64)
        for name in np.argsort(-counts, kind="stable"):
            owner[name] = int(sizes.argmin())
            sizes[owner[name]] += counts[name]
    return [np.flatnonzero(owner[codes] == site) for site in range(sites)]


def summary(parts: Sequence[Indices], y: npt.ArrayLike, classes: int | Sequence[str]) -> Indices:
    """Records of each class (columns) at each site (rows)."""
    labels = np.asarray(y, dtype=np.int64)
    total = classes if isinstance(classes, int) else len(classes)
    return np.stack([np.bincount(labels[part], minlength=total) for part in parts])


def plot(parts: Sequence[Indices], y: npt.ArrayLike, classes: Sequence[str], path: str | Path) -> Path:
    """Stacked bars: one bar a site, one colour a class. Returns the path of the written picture."""
    from prismfl.data.partition_plot import draw

    return draw(summary(parts, y, classes), tuple(classes), Path(path))


_Scheme = Callable[..., list[Indices]]
_SCHEMES: dict[str, _Scheme] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "pathological": _held_by_class,
    "shards": _shards,
    "fedlap": _held_by_class,
}
