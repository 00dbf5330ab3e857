"""Linear layers whose every row is computed in the same way, wherever it stands in a batch.

A product of matrices rounds a row by its place: by how its numbers are aligned in memory, by the tile it falls into.
Weights chosen so that sums cancel leave nothing but that rounding, and what follows makes it as large as one likes. A
record that is taken away moves the others up a place, and with them what they add. Here all rows have one alignment,
and each is a product of its own, unless one product for all was seen to round them alike on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

ALIGNED = 16  # float32 numbers in a line of the cache, to which every row is filled up with zeros


def linear(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A linear layer, row by row."""
    out, padded = len(weight), _aligned(weight)
    rows = _filled(value).reshape(-1, 1, padded.shape[1])
    made = torch.bmm(rows, padded.T.expand(len(rows), -1, -1))[..., :out].reshape(*value.shape[:-1], out)
    return made if bias is None else made + bias


def batched(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A linear layer as one product, if that rounds all rows alike; otherwise row by row."""
    padded, rows = _aligned(weight), math.prod(value.shape[:-1])
    if not (value.device.type == "cpu" and rounds_alike(rows, *padded.shape, value.dtype)):
        return linear(value, weight, bias)
    made = F.linear(_filled(value).reshape(rows, -1), padded)[:, : len(weight)].reshape(*value.shape[:-1], -1)
    return made if bias is None else made + bias


@cache
def rounds_alike(rows: int, out: int, inputs: int, dtype: torch.dtype) -> bool:
    """Whether equal rows in a product of this shape, and equal cotangents, give equal numbers in all places."""
    draw = torch.Generator().manual_seed(0)
    row, cotangent = (torch.randn(1, n, generator=draw).to(dtype).repeat(rows, 1) for n in (inputs, out))
    weight = torch.randn(out, inputs, generator=draw).to(dtype)
    made = F.linear(row, weight), cotangent @ weight
    return all(torch.equal(m, m[:1].expand_as(m)) for m in made)


def _aligned(weight: torch.Tensor) -> torch.Tensor:
    out, inputs = weight.shape
    return F.pad(weight, (0, -inputs % ALIGNED, 0, -out % ALIGNED))


def _filled(value: torch.Tensor) -> torch.Tensor:
    """A copy, so that the first row is aligned as well."""
    missing = -value.shape[-1] % ALIGNED
    return F.pad(value, (0, missing)) if missing else value.clone()


def reference(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The same as one product."""
    return F.linear(value, weight, bias)


class RowByRow(TorchFunctionMode):
    """While this is on, the linear layers of every network go row by row."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return (linear if func is F.linear else func)(*args, **(kwargs or {}))
