"""Fixed public splits, without randomness, and a `Dataset` from their parts."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.schema import Schema
from prismfl.data.spec import Dataset, Spec

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Part = tuple[npt.NDArray[Any], Labels]
_MOVED = 64


def place_of(*path: str | bytes) -> float:
    """A number in [0, 1) that follows from `path` alone: the same for a record wherever and beside whom it lies."""
    parts = [part.encode() if isinstance(part, str) else part for part in path]
    framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return (int.from_bytes(hashlib.sha256(framed).digest()[:8]) >> 11) / 2**53


def stratified(y: Labels, held: int) -> tuple[Indices, Indices]:
    """Indices (kept, held): `held` records spread evenly through each class in file order, classes in proportion."""
    classes, counts = np.unique(y, return_counts=True)
    quota = _shares(counts, held)
    mask = np.zeros(len(y), dtype=bool)
    for label, count, take in zip(classes, counts, quota):
        steps = np.arange(count + 1) * take // count
        mask[np.flatnonzero(y == label)] = np.diff(steps) > 0
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def take_out(x: npt.NDArray[Any], held: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The rows that are not `held`, and those that are. Pictures are moved up in place: their reader needs them no
    more, and there is no second copy of the larger part."""
    if not held.any():
        return x, x[:0]
    if x.ndim != 4 or not x.flags.writeable:
        return x[~held], x[held]
    out, rest = x[held], np.flatnonzero(~held)
    for start in range(0, len(rest), _MOVED):
        some = rest[start : start + _MOVED]
        x[start : start + len(some)] = x[some]  # from behind or from where they are: nothing is lost
    return x[: len(rest)], out


def divide(spec: Spec, x: npt.NDArray[Any], y: Labels) -> tuple[Part, Part]:
    """Training and test part of a set without an official test part."""
    train, test = stratified(y, len(y) - spec.train_size)
    return (x[train], y[train]), (x[test], y[test])


def assemble(
    spec: Spec, parts: tuple[Part, Part], *, subset: int | None, schema: Schema | None = None, top: float = 255.0
) -> Dataset:
    """A `Dataset` from its training and test part; image pixels are divided by their declared `top`."""
    import torch

    (x_train, y_train), (x_test, y_test) = parts
    assert len(x_train) == spec.train_size, f"{spec.name}: declared {spec.train_size} records, found {len(x_train)}"
    if subset is not None and subset < spec.train_size:
        _, keep = stratified(y_train, subset)
        x_train, y_train, spec = x_train[keep], y_train[keep], replace(spec, train_size=subset)

    def tensor(x: npt.NDArray[Any]) -> torch.Tensor:
        # Only what is kept becomes float32: CIFAR-10 grows from 150 to 600 MB on the way.
        floats = torch.from_numpy(x.astype(np.float32))
        return floats if spec.kind == "table" else floats.div_(top)

    labels = [torch.from_numpy(y.astype(np.int64)) for y in (y_train, y_test)]
    return Dataset(spec, tensor(x_train), labels[0], tensor(x_test), labels[1], schema=schema)


def _shares(counts: Indices, total: int) -> Indices:
    """Whole numbers in proportion to `counts` that sum to `total`: largest remainders first."""
    exact = counts * total / counts.sum()
    shares: Indices = np.floor(exact).astype(np.int64)
    order = np.argsort(shares - exact, kind="stable")
    shares[order[: total - shares.sum()]] += 1
    return shares
