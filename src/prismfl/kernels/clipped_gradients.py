"""Sums of clipped gradients: the fast kernels where they fit, and the plain reference that they must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch

from prismfl.kernels import per_record, row_by_row
from prismfl.kernels.parts import MEMORY, WRITTEN, within
from prismfl.privacy.mechanisms import NORM_ORDER, Params, clip_factors

RecordLoss = Callable[..., torch.Tensor]  # (params, x, y, *extra) of ONE record -> scalar


# Per-record gradients held at once: enough for speed on small networks, little memory on large ones.
MIN_CHUNK, MAX_CHUNK, CHUNK_NUMBERS = 32, 512, 8_000_000


# Bounds far from what float32 can square and add up: there only double precision is used.
SMALL, LARGE = 1e-10, 1e30


# Weights beyond this are nobody's training; products of them may be finite or not by the order of adding alone.
WILD = 1e3


# What `chosen` says: one record at a time, many under vmap, layer by layer, layer by layer with wide convolutions.
REFERENCE, BATCHED, PER_RECORD, WIDE = "reference", "batched", "per record", "wide layers"


def clipped_gradient_sum(
    loss: RecordLoss,
    params: Params,
    *,
    batch: tuple[torch.Tensor, ...],
    clip: float,
    unit: torch.Tensor | None = None,
    chunk: int | None = None,
    kind: str = "gaussian",
    reference: bool = False,
    expected: float | None = None,
    memory: int = MEMORY,
) -> dict[str, torch.Tensor]:
    """Sum in double over records (or units) of clipped gradients, in chunks: memory does not grow with the batch, and
    stays within so many bytes.

    `batch` holds x, y and any further per-record inputs of `loss`. With `unit` (sorted unit numbers), the mean
    gradient of each unit is clipped instead of each record's. With `reference`, no fast kernel is used: every gradient
    is computed by itself and written out, and measured and added up in double precision.

    What a record adds must not depend on who else is there, and the rounding of a batched product may depend on the
    number of its rows and on the place of a row. So a chunk always has the same number of rows, from public numbers
    alone (`expected` records in a batch), filled up with nothing; each row of a linear layer is a product of its own;
    and where weights are so large that rounding decides what is finite, each record is computed alone.
    """
    how = chosen(loss, params, batch[0], clip=clip, by_unit=unit is not None, kind=kind, reference=reference)
    usual = max(float(len(batch[0])) if expected is None else expected, 1.0)
    numbers = sum(p.numel() for p in params.values())
    if how in (PER_RECORD, WIDE) and isinstance(loss, per_record.ModelLoss):
        layers = per_record.layers_of(loss.module)
        seen = torch.func.vmap(loss.inputs)(*(part.new_zeros(1, *part.shape[1:]) for part in batch))[0]
        block = chunk or per_record.block_of(layers, params, seen, usual, memory=memory)
        factors = partial(clip_factors, bound=clip)
        return per_record.clipped_sum(
            layers, loss.criterion, inputs=loss.inputs, params=params, batch=batch, factors=factors, block=block
        )
    if chunk is None:
        most = max(MIN_CHUNK, min(MAX_CHUNK, CHUNK_NUMBERS // numbers))
        most = min(most, within(memory, numbers, WRITTEN * numbers))
        chunk = 1 if how == REFERENCE else per_record.equal_blocks(usual, most)
    with nullcontext() if how == REFERENCE else row_by_row.RowByRow():
        return _written_out(loss, params, batch=batch, clip=clip, unit=unit, chunk=chunk, kind=kind)


def chosen(
    loss: RecordLoss,
    params: Params,
    x: torch.Tensor,
    *,
    clip: float,
    by_unit: bool = False,
    kind: str = "gaussian",
    reference: bool = False,
) -> str:
    """The name of the kernel that these gradients are computed by; from public facts and weights, never from records.

    All but the reference take many records at once; `BATCHED` writes their gradients out as the reference does.
    """
    if reference or not (SMALL <= clip <= LARGE or math.isinf(clip)) or not tame(params):
        return REFERENCE
    if kind == "gaussian" and not by_unit and isinstance(loss, per_record.ModelLoss):
        layers = per_record.sequence_of(loss.module, params, x)
        if layers is not None:
            return WIDE if per_record.is_wide(layers) else PER_RECORD
    return BATCHED


def _written_out(
    loss: RecordLoss,
    params: Params,
    *,
    batch: tuple[torch.Tensor, ...],
    clip: float,
    unit: torch.Tensor | None,
    chunk: int,
    kind: str,
) -> dict[str, torch.Tensor]:
    """Autograd's gradients of a chunk of records, written out. With one record at a time it is the reference."""
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *(0 for _ in batch)))
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in params.items()}
    for rows, groups in _blocks(len(batch[0]), unit, chunk):
        if groups is None:
            filled = per_record.filled_up(tuple(part[rows] for part in batch), chunk)
            grads = {name: g[: len(rows)] for name, g in gradients(dict(params), *filled).items()}
        else:
            grads = _unit_gradients(gradients, params, batch=batch, rows=rows, groups=groups, chunk=chunk)
        _add_clipped(total, grads, clip=clip, kind=kind)
    return total


def tame(params: Params) -> bool:
    """Whether no weight is beyond what training makes of it: then rounding stays far below the clip."""
    return all(bool((p.detach().abs() <= WILD).all()) for p in params.values())


def _add_clipped(total: dict[str, torch.Tensor], grads: Params, *, clip: float, kind: str) -> None:
    """Adds gradients, a row a record: what is measured is what is added, the same doubles."""
    flat = {name: g.flatten(1).double() for name, g in grads.items()}
    order = NORM_ORDER[kind]
    parts = torch.stack([torch.linalg.vector_norm(g, ord=order, dim=1) for g in flat.values()])
    norms = torch.linalg.vector_norm(parts, ord=order, dim=0)
    factors = clip_factors(norms, clip)
    keep = torch.isfinite(norms)
    everything = bool(keep.all())
    for name, g in flat.items():
        used, weight = (g, factors) if everything else (g[keep], factors[keep])
        total[name] += (weight @ used).reshape(total[name].shape)


def _unit_gradients(
    gradients: Callable[..., dict[str, torch.Tensor]],
    params: Params,
    *,
    batch: tuple[torch.Tensor, ...],
    rows: torch.Tensor,
    groups: torch.Tensor,
    chunk: int,
) -> dict[str, torch.Tensor]:
    local = groups - groups[0]
    units = int(local[-1]) + 1
    sums = {name: torch.zeros(units, *p.shape, dtype=torch.float64, device=p.device) for name, p in params.items()}
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        grads = gradients(dict(params), *per_record.filled_up(tuple(b[part] for b in batch), chunk))
        for name, g in grads.items():
            sums[name].index_add_(0, local[start : start + chunk], g[: len(part)].double())
    sizes = torch.bincount(local, minlength=units).clamp(min=1)
    return {name: s / sizes.to(s.dtype).reshape(-1, *[1] * (s.dim() - 1)) for name, s in sums.items()}


def _blocks(count: int, unit: torch.Tensor | None, chunk: int) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """Row numbers of at most `chunk` records a block; with units, whole units (a big one is a block of its own)."""
    if unit is None or not count:  # a batch of nobody is computed as well: what would fail fails without a record
        for start in range(0, max(1, count), chunk):
            yield torch.arange(start, min(start + chunk, count)), None
        return
    _, sizes = torch.unique_consecutive(unit, return_counts=True)
    start, size, position = 0, 0, 0
    for n in sizes.tolist():
        if size and size + n > chunk:
            yield torch.arange(start, position), _renumber(unit[start:position])
            start, size = position, 0
        size += n
        position += n
    if size:
        yield torch.arange(start, position), _renumber(unit[start:position])


def _renumber(unit: torch.Tensor) -> torch.Tensor:
    _, inverse = torch.unique_consecutive(unit, return_inverse=True)
    renumbered: torch.Tensor = inverse
    return renumbered
