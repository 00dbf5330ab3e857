"""Splitting records over sites, with the names and arguments that federated benchmarks use.

Every scheme gives each record to exactly one site. A split of a benchmark is part of the experiment's design, so it may
look at the labels; in a deployment the sites hold what they hold and nothing here is called.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64]

FEDLAP = ((5, 6), (1, 2), (0, 8), (9, 3), (4, 7))
_TRIES = 1000


@dataclass(frozen=True)
class Split:
    """A scheme and its arguments. Only the argument of the named scheme is used."""

    name: str
    alpha: float = 0.5
    classes_per_site: int = 2
    shards_per_site: int = 2
    column: str | None = None
    min_size: int = 1

    def __str__(self) -> str:
        shown = {key: getattr(self, key) for key in _ARGUMENTS[self.name] if key != "min_size"}
        if self.name == "natural":
            return f"natural({self.column})" if self.column else "natural"
        inside = ", ".join(f"{key}={value}" for key, value in shown.items())
        return f"{self.name}({inside})" if inside else self.name


_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "iid": (),
    "dirichlet": ("alpha", "min_size"),
    "pathological": ("classes_per_site",),
    "shards": ("shards_per_site",),
    "natural": ("column",),
    "fedlap": (),
}
# The names that flwr-datasets gives to the same arguments.
_ALIASES = {
    "num_classes_per_partition": "classes_per_site",
    "num_shards_per_partition": "shards_per_site",
    "min_partition_size": "min_size",
    "partition_by": "column",
}
_DEFAULT_ARGUMENT = {
    "dirichlet": "alpha",
    "pathological": "classes_per_site",
    "shards": "shards_per_site",
    "natural": "column",
}


def parse_split(text: str) -> Split:
    """A split as people write it: `iid`, `dirichlet(alpha=0.3)`, `pathological(2)`, `natural(hospital)`, `fedlap`."""
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        raise UserError(f"Expected a split such as dirichlet(alpha=0.3), got '{text}'.")
    name, inside = match[1], match[2] or ""
    if name not in _ARGUMENTS:
        near = difflib.get_close_matches(name, _ARGUMENTS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(_ARGUMENTS)}."
        raise UserError(f"Unknown split '{name}'; {hint}")
    given: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in inside.split(","))):
        key, value = _argument(name, part, text)
        given[key] = value
    return Split(name, **given)


def _argument(name: str, part: str, text: str) -> tuple[str, float | int | str]:
    key, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        key, value = _DEFAULT_ARGUMENT.get(name, ""), key
    key = _ALIASES.get(key, key)
    known = _ARGUMENTS[name]
    if key not in known:
        takes = f"it takes {', '.join(known)}." if known else "it takes none."
        raise UserError(f"Unknown argument '{key or part}' in split '{text}'; {takes}")
    if key == "column":
        return key, value
    try:
        return key, float(value) if key == "alpha" else int(value)
    except ValueError:
        kind = "a number" if key == "alpha" else "a whole number"
        raise UserError(f"Expected {kind} as {key} in split '{text}', got '{value}'.") from None


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


def generator(seed: int) -> np.random.Generator:
    """The split's own stream of the run's seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, 0x5B117]))


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


def check_alpha(split: Split) -> None:
    if not 0 < split.alpha < np.inf:
        raise UserError(f"Expected alpha > 0 in split dirichlet, got {split.alpha}.")


def _held_by_class(y: Labels, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> list[Indices]:
    return _by_class(y, holders_of(split, sites, classes, rng), classes, rng)


def holders_of(split: Split, sites: int, classes: int, rng: np.random.Generator) -> list[list[int]]:
    """The sites that hold each class, in the splits that say so. No record has a part in it."""
    if split.name == "fedlap":
        if sites != len(FEDLAP) or classes != 10:
            raise UserError(
                f"Expected 5 sites and 10 classes for split fedlap, got {sites} sites and {classes} classes."
            )
        return [[site for site, pair in enumerate(FEDLAP) if label in pair] for label in range(classes)]
    each = split.classes_per_site
    if not 1 <= each <= classes:
        raise UserError(f"Expected 1 <= classes_per_site <= {classes} in split pathological, got {each}.")
    if sites * each < classes:
        raise UserError(
            f"Expected sites x classes_per_site >= {classes} classes so that every record has a site, got "
            f"{sites} x {each}."
        )
    return _deal(sites, each, classes, rng)


def _deal(sites: int, each: int, classes: int, rng: np.random.Generator) -> list[list[int]]:
    """`each` distinct classes to every site, each class to as equal a number of sites as can be."""
    left = np.full(classes, sites * each // classes)
    left[rng.permutation(classes)[: sites * each % classes]] += 1
    holders: list[list[int]] = [[] for _ in range(classes)]
    for site in range(sites):
        # Always taking the classes with the most places left keeps the last sites from running out of distinct ones.
        order = rng.permutation(classes)
        for label in order[np.argsort(-left[order], kind="stable")][:each]:
            left[label] -= 1
            holders[label].append(site)
    return holders


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


def natural_column(ids: npt.ArrayLike | None, count: int, split: Split) -> npt.NDArray[Any]:
    if ids is None:
        raise UserError(f"Split {split} needs an id column (say natural(hospital)), but this data has none.")
    column = np.asarray(ids)
    if len(column) != count:
        raise UserError(f"Expected {count} ids for split {split}, got {len(column)}.")
    return column


def check_natural(names: int, sites: int, split: Split) -> None:
    if names < sites:
        raise UserError(f"Expected at most {names} sites for split {split} (one id each), got {sites}.")


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
