"""Linear layers whose every row is computed in the same way, wherever it stands in a batch.

A product of matrices rounds a row by its place: by how its numbers are aligned in memory, by the tile it falls into.
Weights chosen so that sums cancel leave nothing but that rounding, and what follows makes it as large as one likes. A
record that is taken away moves the others up a place, and with them what they add. Here each row is a product of its
own, of one shape and one alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

ALIGNED = 16  # float32 numbers in a line of the cache, to which every row is filled up with zeros


def linear(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A linear layer, row by row."""
    out, inputs = weight.shape
    padded = F.pad(weight, (0, -inputs % ALIGNED, 0, -out % ALIGNED))
    rows = F.pad(value, (0, -inputs % ALIGNED)).reshape(-1, 1, padded.shape[1])
    made = torch.bmm(rows, padded.T.expand(len(rows), -1, -1))[..., :out].reshape(*value.shape[:-1], out)
    return made if bias is None else made + bias


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
