"""How a split is written, what it may be asked for, and who holds which class."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError

Indices = npt.NDArray[np.int64]


FEDLAP = ((5, 6), (1, 2), (0, 8), (9, 3), (4, 7))


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


def generator(seed: int) -> np.random.Generator:
    """The split's own stream of the run's seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, 0x5B117]))


def check_alpha(split: Split) -> None:
    """Refuse a Dirichlet split whose alpha is not positive and finite."""
    if not 0 < split.alpha < np.inf:
        raise UserError(f"Expected alpha > 0 in split dirichlet, got {split.alpha}.")


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


def natural_column(ids: npt.ArrayLike | None, count: int, split: Split) -> npt.NDArray[Any]:
    """The ids by which a natural split divides, one for each of `count` records."""
    if ids is None:
        raise UserError(f"Split {split} needs an id column (say natural(hospital)), but this data has none.")
    column = np.asarray(ids)
    if len(column) != count:
        raise UserError(f"Expected {count} ids for split {split}, got {len(column)}.")
    return column


def check_natural(names: int, sites: int, split: Split) -> None:
    """Refuse a natural split that has fewer ids than sites."""
    if names < sites:
        raise UserError(f"Expected at most {names} sites for split {split} (one id each), got {sites}.")
