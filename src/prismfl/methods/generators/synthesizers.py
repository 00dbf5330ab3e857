"""Generators that may join a pool: how each kind is fitted behind the door, what it releases, how it is sampled.

Every kind asks the door the same number of questions at the same noise and rate, so a mixed pool has one plan. To add
a kind: a fit, a draw, its tensors' shapes, and a line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from prismfl.core.door import PrivateRecords
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.generators import copula, latent, moments, pooled_tables
from prismfl.methods.generators.copula import Layout, Look
from prismfl.methods.generators.images import ADAM, START
from prismfl.methods.generators.moments import Queries
from prismfl.methods.generators.questions import Questions
from prismfl.nets import beta_vae
from prismfl.nets.beta_vae import RecordBound, Shape, build_vae
from prismfl.nets.columns import Columns
from prismfl.rng import Key

KINDS = ("ddp-vae", "dp-gaussian", "dp-copula", "dp-marginals")
MOST_FEATURES = 256  # a covariance has a square of them (dp-copula: of columns)
Described = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Training:
    """Public settings of a fit. `start` of the queries go to noisy moments, the rest to gradients."""

    queries: Queries
    start: int
    beta: float
    clip: float
    lr: float


@dataclass(frozen=True)
class Recipe:
    """The public structure of a generator: one network per class, or one for all with the label as a column."""

    kind: str
    shape: Shape
    classes: int
    joint: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"Unknown synthesizer '{self.kind}'; choose one of {', '.join(KINDS)}.")
        sizes = {"dp-gaussian": (self.shape.columns.width, "features"), "dp-copula": (len(self.layout()), "columns")}
        size, what = sizes.get(self.kind, (0, ""))
        if size > MOST_FEATURES:
            raise UserError(f"Synthesizer '{self.kind}' serves up to {MOST_FEATURES} {what}, got {size}.")
        if self.kind == "dp-marginals":
            self.asked()  # refuses a domain that is too large

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the networks: one per class, or one for all."""
        return ("all",) if self.joint else tuple(str(c) for c in range(self.classes))

    @property
    def labels(self) -> int:
        """Places of the label's block inside a record; 0 where each class has its own network, or there is no label."""
        return self.classes if self.joint and self.classes > 1 else 0

    def full(self) -> Shape:
        """The structure of one network, with the label's block where it has one."""
        columns = self.shape.columns
        if not self.labels:
            return self.shape
        block = (columns.width, self.labels)
        grown = replace(columns, width=columns.width + self.labels, blocks=(*columns.blocks, block))
        return replace(self.shape, columns=grown, image=None)

    def layout(self) -> Layout:
        """The copula's view of the columns."""
        return Layout.of(self.full().columns)

    def asked(self) -> Questions:
        """The tables of dp-marginals."""
        return pooled_tables.asked_of(self.shape.columns, self.labels)

    def shapes(self) -> Described:
        """Names, types and shapes of what leaves; from public numbers only."""
        shape = self.full()
        one: Mapping[str, tuple[int, ...]]
        if self.kind == "ddp-vae":
            one = {k: tuple(v.shape) for k, v in beta_vae.Decoder(shape).state_dict().items()}
        elif self.kind == "dp-copula":
            one = self.layout().shapes()
        elif self.kind == "dp-marginals":
            one = pooled_tables.shapes(self.asked())
        else:
            one = {"mean": (shape.columns.width,), "root": (shape.columns.width, shape.columns.width)}
        return {f"{self.kind}.{part}.{name}": ("float32", size) for part in self.parts for name, size in one.items()}


def fit(door: PrivateRecords, recipe: Recipe, training: Training, *, key: Key, seen: Look | None = None) -> Params:
    """One network behind one door: exactly `training.queries.times` questions. `seen` is an earlier noisy look."""
    shape = recipe.full()
    if recipe.kind == "dp-copula":
        return copula.fit(
            door, recipe.layout(), queries=training.queries, start=training.start, seen=seen, labels=recipe.labels
        )
    if recipe.kind == "dp-marginals":
        return pooled_tables.fit(door, recipe.asked(), queries=training.queries)
    if recipe.kind == "dp-gaussian":
        return moments.fit_gaussian(door, shape.columns, queries=training.queries, labels=recipe.labels)
    vae = build_vae(shape, beta=training.beta, key=key.child("network"))
    first = min(training.start, training.queries.times)
    if first:
        queries = replace(training.queries, times=first)
        begin = moments.start(door, shape.columns, queries=queries, labels=recipe.labels)
        vae.set_start(begin.loc(shape.columns), begin.scale, mean=begin.mean)
    steps = replace(training.queries, times=training.queries.times - first)
    descend(door, RecordBound(vae, _unused, labels=recipe.labels), training, queries=steps)
    return {k: v.detach().clone() for k, v in vae.decoder.state_dict().items()}


def descend(door: PrivateRecords, loss: RecordBound, training: Training, *, queries: Queries) -> None:
    """DP-Adam: Adam on the door's noisy gradients, which is post-processing. The module's parameters are updated."""
    vae = loss.module
    assert isinstance(vae, beta_vae.BetaVAE)
    leaves = list(vae.parameters())
    optimiser = torch.optim.Adam(leaves, lr=training.lr)
    for i in range(queries.times):
        gradient = door.noisy_gradient(
            loss,
            {k: p.detach() for k, p in vae.named_parameters()},
            batch=queries.batch(door),
            clip=training.clip,
            sigma=queries.sigma,
            normals=vae.shape.latent,
        )
        for name, p in vae.named_parameters():
            p.grad = gradient[name]
        optimiser.param_groups[0]["lr"] = training.lr * (1 - i / queries.times)
        optimiser.step()


def draw(recipe: Recipe, tensors: Params, counts: torch.Tensor, *, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
    """Records and labels from a release: `counts[c]` of class c, or as many in all from a joint network.

    The structure comes from the recipe, never from what was sent.
    """
    xs, ys = [], []
    numbers = [int(counts.sum())] if recipe.joint else [int(n) for n in counts]
    drawn = _records(recipe, parts_of(recipe, tensors), numbers, key.child("draw"))
    for c, (number, x) in enumerate(zip(numbers, drawn)):
        width = recipe.shape.columns.width
        xs.append(x[:, :width])
        ys.append(x[:, width:].argmax(1) if recipe.labels else torch.full((number,), c))
    return torch.cat(xs), torch.cat(ys)


def merge(recipe: Recipe, released: Sequence[Params], factors: torch.Tensor | None = None) -> Params:
    """One release from those of several sites, where releases are sums, each class by its factor."""
    parts = [parts_of(recipe, tensors) for tensors in released]
    if factors is not None and bool((factors != 1.0).any()):
        scaled = {"count", "counts", "sums", "weight", "products", "noise"}
        parts = [
            [{k: float(f) * v if k in scaled else v for k, v in part.items()} for part, f in zip(site, row)]
            for site, row in zip(parts, factors)
        ]
    joined = pooled_tables.merge if recipe.kind == "dp-marginals" else partial(copula.merge, recipe.layout())
    merged = [joined(sites) for sites in zip(*parts)]
    return {f"{recipe.kind}.{p}.{k}": v for p, one in zip(recipe.parts, merged) for k, v in one.items()}


def fault(recipe: Recipe, tensors: Params, training: Training, held: float) -> str | None:
    """Why a fit on at most `held` records cannot have made these tensors, if so."""
    for part in parts_of(recipe, tensors):
        if recipe.kind == "ddp-vae":
            if not bool(((part["scale"] > 0) & (part["scale"] <= 1.001)).all()):
                return "the scale of a decoder's start is not in (0, 1]"
            # A start is the logit or the logarithm of a clamped mean; Adam moves a number by 10 rates a step at most.
            why = robust.beyond(part, START + ADAM * training.lr * training.queries.times)
        elif recipe.kind == "dp-gaussian":
            rows = torch.linalg.vector_norm(part["root"].double(), dim=1)
            why = robust.beyond({"mean": part["mean"], "rows of the root": rows}, 1.01)
        elif recipe.kind == "dp-marginals":
            why = pooled_tables.fault(recipe.asked(), part, training.queries, held)
        else:
            why = _sums_fault(recipe.layout(), part, training.queries, held)
        if why is not None:
            return why
    return None


def _sums_fault(layout: Layout, part: Params, queries: Queries, held: float) -> str | None:
    """Sums of a copula: counts above zero, and no number beyond that of all records at the ends of their range."""
    if any(bool((part[name] < 0).any()) for name in ("count", "weight", "noise")):
        return "counts or noise below zero"
    size = float(len(layout) + layout.columns.width)
    noise = size**2 / min(copula.NUMBER, copula.CHOICE) * queries.sigma / queries.rate
    return robust.beyond(part, 100.0 * size * (held + robust.noise_norm(1, noise) + 10.0))


def parts_of(recipe: Recipe, tensors: Params) -> list[Params]:
    """The tensors of each network, under their own names."""
    prefixes = [f"{recipe.kind}.{part}." for part in recipe.parts]
    return [{k.removeprefix(p): v for k, v in tensors.items() if k.startswith(p)} for p in prefixes]


def _records(recipe: Recipe, parts: Sequence[Params], numbers: Sequence[int], key: Key) -> list[torch.Tensor]:
    shape, streams = recipe.full(), [key.child(part).torch() for part in recipe.parts]
    if recipe.kind == "dp-copula":
        layout = recipe.layout()
        classes = latent.clean(layout, [copula.merge(layout, [part]) for part in parts])
        return [latent.draw(layout, latent.build(layout, c), n, g) for c, n, g in zip(classes, numbers, streams)]
    if recipe.kind == "dp-marginals":
        return [pooled_tables.draw(recipe.asked(), part, n, g) for part, n, g in zip(parts, numbers, streams)]
    made = beta_vae.draw if recipe.kind == "ddp-vae" else _gaussian
    return [made(shape, part, n, g) for part, n, g in zip(parts, numbers, streams)]


def _gaussian(shape: Shape, tensors: Params, count: int, generator: torch.Generator) -> torch.Tensor:
    return moments.draw_gaussian(shape.columns, tensors, count, generator)


def _unused(*_: torch.Tensor) -> torch.Tensor:
    raise AssertionError("RecordBound computes its own loss.")


__all__ = ["KINDS", "Columns", "Queries", "Recipe", "Shape", "Training", "draw", "fit", "merge"]
