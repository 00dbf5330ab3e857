"""Which site each record of own data goes to: by the record (or its unit) itself, whoever else there is.

A hash of the seed and the identity gives each record a number u in [0, 1); the scheme turns u and the label into a
site by shares that the seed alone draws. So one record more or less moves no other. Sites differ in size by chance,
and a site may stay empty: an error would tell how many records there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prismfl.data.schemes import Split, check_alpha, check_natural, generator, holders_of, natural_column
from prismfl.data.split import place_of
from prismfl.errors import UserError

Indices = npt.NDArray[np.int64]
Places = npt.NDArray[np.float64]


def owners(
    y: Indices,
    identity: Sequence[bytes],
    sites: int,
    *,
    split: Split,
    classes: int,
    seed: int,
    natural: npt.ArrayLike | None = None,
) -> Indices:
    """The site of each record. Records of one identity (a patient's) lie at one site, by their most frequent label."""
    if split.name == "natural":
        return _natural(natural, len(y), sites, split)
    if split.min_size > 1:
        raise UserError(
            f"Expected no min_size in split {split.name} of your own data, got {split.min_size}: to enforce it, the "
            "split would have to follow from the number of records."
        )
    u = np.array([place_of(f"prismfl site {seed}", one) for one in identity], dtype=np.float64)
    label = _common_labels(y, identity, classes)
    rng = generator(seed)
    if split.name == "iid":
        return _cut(u, sites)
    if split.name == "dirichlet":
        check_alpha(split)
        shares = rng.dirichlet(np.full(sites, split.alpha), size=classes)
        return np.asarray((u[:, None] >= np.cumsum(shares, axis=1)[label, :-1]).sum(1), dtype=np.int64)
    if split.name == "shards":
        return _shards(u, label, sites, split=split, classes=classes, rng=rng)
    holders = holders_of(split, sites, classes, rng)
    return np.array([holders[c][int(place * len(holders[c]))] for c, place in zip(label, u)], dtype=np.int64)


def _cut(places: Places, pieces: int) -> Indices:
    """The piece of [0, 1) that each place lies in, of so many equal ones."""
    return np.minimum((places * pieces).astype(np.int64), pieces - 1)


def _shards(u: Places, label: Indices, sites: int, *, split: Split, classes: int, rng: np.random.Generator) -> Indices:
    """[0, 1) is the classes one after the other; the seed deals its equal pieces to the sites."""
    each = split.shards_per_site
    if each < 1:
        raise UserError(f"Expected shards_per_site >= 1 in split shards, got {each}.")
    order = rng.permutation(sites * each)
    return np.asarray(order[_cut((label + u) / classes, sites * each)] // each, dtype=np.int64)


def _natural(ids: npt.ArrayLike | None, count: int, sites: int, split: Split) -> Indices:
    """Ids in turn, in the order of their names. Which ids there are (hospitals, say) counts as public; sizes do not."""
    names, codes = np.unique(natural_column(ids, count, split), return_inverse=True)
    check_natural(len(names), sites, split)
    return np.asarray(codes % sites, dtype=np.int64)


def _common_labels(y: Indices, identity: Sequence[bytes], classes: int) -> Indices:
    """The most frequent label among the records of one identity; the lowest of several."""
    numbers: dict[bytes, int] = {}
    group = np.array([numbers.setdefault(one, len(numbers)) for one in identity], dtype=np.int64)
    pairs, counts = np.unique(group * classes + y, return_counts=True)
    best = np.zeros(len(numbers), dtype=np.int64)
    order = np.lexsort((-pairs, counts))  # the best comes last and stays
    best[pairs[order] // classes] = pairs[order] % classes
    return best[group] if len(group) else group
