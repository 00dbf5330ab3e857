"""Clipped gradient sums of plain feed-forward networks from one forward and one backward pass.

A layer's gradient for one record follows from the layer's activation and the cotangent of its output. An ordinary
pass leaves both for the whole batch, so most of the price of `vmap(grad(...))` falls away: a linear layer's gradient
is an outer product whose norm is known without writing it out; the gradients of all convolutions (or norm layers) of
a batch are those of one wide layer that holds the records side by side, in groups.

A batched pass is sound only where no layer looks at a record's neighbours. Therefore nothing but known layers in a
plain sequence is taken here (`sequence_of`); every other network keeps to one record at a time under `vmap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from prismfl.kernels import row_by_row, wide_layers
from prismfl.kernels.layer_gradients import LayerGradients, Outer, Outers, Params, Rows, Tap, tapped
from prismfl.kernels.parts import HELD, MEMORY, within

Criterion = Callable[..., torch.Tensor]
Factors = Callable[[torch.Tensor], torch.Tensor]  # norms of the records -> what to multiply each gradient by
Inputs = Callable[..., tuple[torch.Tensor, ...]]  # of ONE record: what the network sees, then what is compared with
Layers = Sequence[tuple[str, nn.Module]]

IMAGE_LAYERS = {nn.Conv2d, nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d}
POINTWISE = {nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Identity}
# Numbers held at once (activations and gradients of a block of records), and the sizes of a block.
HELD_NUMBERS, MIN_BLOCK, MAX_BLOCK = 48_000_000, 16, 128


@runtime_checkable
class ModelLoss(Protocol):
    """A loss that is nothing but `criterion(module(batch of one), *rest)` of what `inputs` makes of a record."""

    @property
    def module(self) -> nn.Module:
        """The network that the loss is of."""

    @property
    def criterion(self) -> Criterion:
        """What compares the network's output with the label."""

    @property
    def inputs(self) -> Inputs:
        """What the network sees of one record, then what the criterion gets beside the output."""


def sequence_of(module: nn.Module, params: Params, x: torch.Tensor) -> Layers | None:
    """The layers in order if each is known not to mix records, is used once and has no hooks; otherwise None."""
    layers = layers_of(module)
    plain = (
        all(_known(layer) for _, layer in layers)
        and len({id(layer) for _, layer in layers}) == len(layers)
        and set(params) == {f"{prefix}{name}" for prefix, layer in layers for name in _names(layer)}
        and all(not m._forward_hooks and not m._forward_pre_hooks for m in module.modules())
    )
    # Torch would take the batch of pictures without a channel axis for channels.
    images = x.dim() == 4 or not any(type(layer) in IMAGE_LAYERS for _, layer in layers)
    return layers if plain and images and params else None


def layers_of(module: nn.Module, prefix: str = "") -> Layers:
    """The layers of sequences inside sequences, in order, with the prefix of their parameters."""
    if type(module) is not nn.Sequential:
        return [(prefix, module)]
    children = ((name, child) for name, child in module._modules.items() if child is not None)
    return [pair for name, child in children for pair in layers_of(child, f"{prefix}{name}.")]


def is_wide(layers: Layers) -> bool:
    """Whether some convolution is so wide that the layers of `wide_layers` are worth it."""
    return any(type(layer) is nn.Conv2d and wide_layers.wide(layer) for _, layer in layers)


def reference(
    criterion: Callable[..., torch.Tensor], *, params: Params, batch: tuple[torch.Tensor, ...], factors: Factors
) -> dict[str, torch.Tensor]:
    """What `clipped_sum` gives, one record after the other by autograd. `criterion(params, *record)` is a loss."""
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in params.items()}
    for record in zip(*batch):
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        grads = torch.autograd.grad(criterion(leaves, *record), list(leaves.values()))
        norm = torch.cat([g.flatten() for g in grads]).double().norm()
        if bool(torch.isfinite(norm)):
            for name, g in zip(leaves, grads):
                total[name] += factors(norm[None]) * g.double()
    return total


def clipped_sum(
    layers: Layers,
    criterion: Criterion,
    *,
    inputs: Inputs = lambda *record: record,
    params: Params,
    batch: tuple[torch.Tensor, ...],
    factors: Factors,
    block: int,
) -> dict[str, torch.Tensor]:
    """Sum in double over the records of `batch` of their gradients, each times its factor, in blocks of records.

    Records whose norm is not finite are left out.
    """
    count = len(batch[0])
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in params.items()}
    # A batch of nobody is computed as well: what would fail for a record fails without one.
    for part in zip(*(torch.split(b, block) for b in batch)) if count else (batch,):
        seen = torch.func.vmap(inputs)(*filled_up(part, block))
        gradients = _gradients(layers, criterion, params=params, batch=seen)
        norms = torch.stack([g.squared_norms() for g in gradients]).sum(0).sqrt()
        finite = torch.isfinite(norms)
        keep = None if bool(finite.all()) else finite
        each = factors(norms)
        each[len(part[0]) :] = 0.0  # what only fills the block up
        weights = each if keep is None else each[keep]
        for g in gradients:
            for name, value in g.weighted_sum(weights, keep).items():
                if value.shape != total[name].shape:
                    raise ValueError(f"Expected a gradient of shape {tuple(total[name].shape)} for '{name}'.")
                total[name] += value
    return total


def filled_up(part: tuple[torch.Tensor, ...], block: int) -> tuple[torch.Tensor, ...]:
    """So many rows, the last ones nothing: a record's own numbers then do not depend on how many others there are."""
    missing = block - len(part[0])
    return part if missing <= 0 else tuple(torch.cat([t, t.new_zeros(missing, *t.shape[1:])]) for t in part)


def equal_blocks(expected: float, most: int) -> int:
    """Rows of a block, at most about `most`: a usual batch, a little more than expected, fills equal blocks."""
    if most < MIN_BLOCK:
        return most
    usual = expected + math.sqrt(expected)
    each = usual / max(1, math.ceil(usual / most))
    return max(MIN_BLOCK, MIN_BLOCK * math.ceil(each / MIN_BLOCK))


def block_of(layers: Layers, params: Params, x: torch.Tensor, expected: float, *, memory: int = MEMORY) -> int:
    """Records in a block: as many as memory allows; from public numbers alone, never from the records' number."""
    held = sum(params[f"{prefix}weight"].numel() for prefix, m in layers if type(m) is nn.Conv2d)
    value = x.new_zeros(1, *x.shape[1:])
    with torch.no_grad():
        for _, layer in layers:
            value = layer(value)
            held += value.numel()
    most = max(MIN_BLOCK, min(MAX_BLOCK, HELD_NUMBERS // held))
    return equal_blocks(expected, min(most, within(memory, sum(p.numel() for p in params.values()), HELD * held)))


def _gradients(
    layers: Layers, criterion: Criterion, *, params: Params, batch: tuple[torch.Tensor, ...]
) -> list[LayerGradients]:
    value, *others = batch
    taps: list[Tap] = []
    wide = is_wide(layers)
    done: set[int] = set()  # layers that went together with one before
    with torch.enable_grad():
        for i, (prefix, layer) in enumerate(layers):
            if i in done:
                continue
            if wide and wide_layers.starts([m for _, m in layers[i : i + 4]], value):
                value, tap = wide_layers.start(layers[i : i + 4], params=params, value=value)
                taps.append(tap)
                done |= {i + 1, i + 2, i + 3}
                continue
            own = {name: params[prefix + name].detach() for name in _names(layer)}
            if not own:
                value = layer(value)
                continue
            if isinstance(layer, nn.Conv2d):
                if wide and wide_layers.is_block([m for _, m in layers[i : i + 4]]):
                    own.pop("bias", None)  # the norm takes it away again, so that its gradient is zero
                convolution = wide_layers.convolution if wide and wide_layers.simple(layer) else _convolution
                value, tap = convolution(layer, prefix, own=own, value=value)
            elif isinstance(layer, nn.GroupNorm):
                if wide and i and wide_layers.is_block([m for _, m in layers[i - 1 : i + 3]]):
                    value, tap = wide_layers.block(layer, prefix, own=own, value=value)
                    done |= {i + 1, i + 2}
                else:
                    value, tap = _group_norm(layer, prefix, own=own, value=value)
            else:
                value, tap = _linear(prefix, own, value)
            taps.append(tap)
        losses = torch.func.vmap(lambda out, *rest: criterion(out.unsqueeze(0), *rest))(value, *others)
        found = iter(torch.autograd.grad(losses.sum(), [tensor for tensors, _ in taps for tensor in tensors]))
    return [make(*(next(found) for _ in tensors)) for tensors, make in taps]


def _linear(prefix: str, own: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    bias = own.get("bias")
    out, activation = tapped(row_by_row.batched(value, own["weight"], bias)), value.detach()

    def make(cotangent: torch.Tensor) -> LayerGradients:
        if cotangent.dim() == 2:
            return Outer(prefix, cotangent, activation, bias is not None)
        return Outers(prefix, cotangent.flatten(1, -2), activation.flatten(1, -2), bias is not None)

    return out, ([out], make)


def _convolution(layer: nn.Conv2d, prefix: str, *, own: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    weight, bias = own["weight"], own.get("bias")
    out = tapped(F.conv2d(value, weight, bias, layer.stride, layer.padding, layer.dilation))
    activation = value.detach()

    def make(cotangent: torch.Tensor) -> LayerGradients:
        rows: torch.Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
            _side_by_side(activation),
            (len(cotangent) * len(weight), *weight.shape[1:]),
            _side_by_side(cotangent),
            layer.stride,
            layer.padding,
            layer.dilation,
            groups=len(cotangent),
        )
        found = {prefix + "weight": rows.reshape(-1, *weight.shape)}
        return Rows(found | ({prefix + "bias": cotangent.sum((2, 3))} if bias is not None else {}))

    return out, ([out], make)


def _group_norm(layer: nn.GroupNorm, prefix: str, *, own: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    count = len(value)
    scales, shifts = (own[name].repeat(count).requires_grad_() for name in ("weight", "bias"))
    out = F.group_norm(_side_by_side(value), count * layer.num_groups, scales, shifts, layer.eps).reshape(value.shape)

    def make(by_scale: torch.Tensor, by_shift: torch.Tensor) -> LayerGradients:
        return Rows({prefix + "weight": by_scale.reshape(count, -1), prefix + "bias": by_shift.reshape(count, -1)})

    return out, ([scales, shifts], make)


def _side_by_side(value: torch.Tensor) -> torch.Tensor:
    """A batch as one wide record whose channels are those of all records."""
    return value.reshape(1, -1, *value.shape[2:])


def _names(layer: nn.Module) -> list[str]:
    return [name for name, _ in layer.named_parameters()]


def _known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.GroupNorm:
        return (layer.weight is None) == (layer.bias is None)
    if type(layer) in POINTWISE:
        return not getattr(layer, "inplace", False)
    return type(layer) is nn.Linear or type(layer) in IMAGE_LAYERS
