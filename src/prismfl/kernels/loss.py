"""The loss of one record under a network, and the networks that a per-record loss makes sense for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from prismfl.errors import BoundaryError, UserError
from prismfl.privacy.mechanisms import Params as Params

CROSS_RECORD_LAYERS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LazyBatchNorm2d")


def refuse_cross_record_layers(module: torch.nn.Module) -> None:
    """Layers that mix records make per-record gradients meaningless: refused by name."""
    for name, layer in module.named_modules():
        tracked = bool(getattr(layer, "track_running_stats", False))
        if type(layer).__name__ in CROSS_RECORD_LAYERS or tracked:
            raise UserError(
                f"Layer '{name}' ({type(layer).__name__}) mixes records, so no record-level guarantee can hold; "
                "use GroupNorm or LayerNorm."
            )


def refuse_other_shapes(module: torch.nn.Module, params: Params) -> None:
    """Weights are the network's own, to the shape and type: broadcast, one record would count in many places."""
    own = {name: (p.shape, p.dtype) for name, p in module.named_parameters()}
    wrong = [name for name, p in params.items() if own.get(name, (p.shape, p.dtype)) != (p.shape, p.dtype)]
    if wrong:
        raise BoundaryError(f"Weight '{wrong[0]}' does not have the shape and type of the network's own.")


@dataclass(frozen=True)
class Loss:
    """The loss of one record under a model: `criterion(output of a batch of one, y, *extra) -> scalar`.

    What the model sees and what its output is compared with may be made of the record first (`inputs`).
    """

    module: torch.nn.Module
    criterion: Callable[..., torch.Tensor]

    def inputs(self, x: torch.Tensor, y: torch.Tensor, *extra: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the model sees of one record, then what the criterion compares its output with; knows no weights."""
        return (x, y, *extra)

    def __call__(self, params: Params, x: torch.Tensor, y: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """The loss of one record under these weights."""
        seen, *rest = self.inputs(x, y, *extra)
        output = torch.func.functional_call(self.module, dict(params), (seen.unsqueeze(0),))
        return self.criterion(output, *rest)
