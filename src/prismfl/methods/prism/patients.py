"""Synthetic records of several parts: picture, text and row drawn together from what was released about all of them.

A row is drawn from the Gaussian of its class over the coordinates of all parts, whose second moment holds how the parts
go together. Then each part is made to fit its block of the row: a public picture, moved towards it; a report that the
grammar writes with the concepts that the block says, or the public sentence nearest to it; the columns that the block
stands for. No private text has a part in that: every word comes from the grammar or from a public sentence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch

from prismfl.core.payloads import SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.data.grammar import write
from prismfl.data.parts import RecordPart, column_bytes
from prismfl.data.texts import text_bytes
from prismfl.methods.prism.encoder import Layers, PublicFeatures
from prismfl.methods.prism.head import HeadConfig, Pooled
from prismfl.methods.prism.spectrum import cleaned
from prismfl.nets.block_frame import BlockFrame
from prismfl.nets.encoders.parted import Parted
from prismfl.nets.encoders.text import concept_columns
from prismfl.nets.linear import fit_linear
from prismfl.nets.matching import match_images
from prismfl.rng import Key

ORIGINS = {"written": "written by the grammar from released concepts", "chosen": "a public sentence"}
ONCE = math.log(2.0)  # what a concept that is said once counts
Array = npt.NDArray[np.float32]


def covariance(pooled: Pooled, places: Sequence[slice]) -> torch.Tensor:
    """The released covariance within classes, without what is noise in it: across the parts, and as a whole."""
    within = pooled.within.double().clone()
    for one, other in combinations(places, 2):
        within[one, other] = across(within[one, other], noise=pooled.noise)
        within[other, one] = within[one, other].T
    values, vectors = torch.linalg.eigh(within)
    if pooled.noise and not bool(pooled.unreleased.any()):
        values = cleaned(values, noise=pooled.noise)
    found: torch.Tensor = (vectors * values.clamp_min(0.0)) @ vectors.T
    return found


def across(block: torch.Tensor, *, noise: float) -> torch.Tensor:
    """What two parts have in common: directions that stand out of the noise of their block, and only so far."""
    left, values, right = torch.linalg.svd(block, full_matrices=False)
    edge = noise * (math.sqrt(block.shape[0]) + math.sqrt(block.shape[1]))
    found: torch.Tensor = left * (values.square() - edge**2).clamp_min(0.0).sqrt() @ right
    return found


def drawn_rows(pooled: Pooled, count: int, key: Key, places: Sequence[slice] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` rows of every class over the coordinates of all parts, and their labels."""
    labels = torch.arange(len(pooled.means)).repeat_interleave(count)
    values, vectors = torch.linalg.eigh(covariance(pooled, places))
    root = vectors * values.clamp_min(0.0).sqrt()
    noise = torch.randn(len(labels), root.shape[1], generator=key.torch(), dtype=torch.float64)
    return (pooled.means.double()[labels] + noise @ root.T).float(), labels


def records_from(
    cfg: HeadConfig,
    task: Task,
    enc: PublicFeatures,
    pooled: Pooled,
    key: Key,
    *,
    count: int,
    texts: str = "written",
    steps: int = 0,
    lr: float = 0.3,
) -> SyntheticSet:
    """`count` synthetic records of every class, as rows of bytes."""
    assert task.parts is not None
    assert isinstance(enc.frame, BlockFrame)
    rows, labels = drawn_rows(pooled, count, key.child("rows"), enc.frame.places())
    maker = _Maker(task, enc, pooled, rows, labels, key)
    given: dict[str, npt.NDArray[np.uint8]] = {}
    for k, part in enumerate(task.parts):
        if part.kind == "image":
            given["image"] = maker.images(k, part, steps=steps, lr=lr)
        elif part.kind == "table":
            given["table"] = maker.columns(k)
        else:
            written = text_way(texts, task, cfg.layers) == "written"
            given["text"] = maker.written(k, part) if written else maker.chosen(k, part.kind)
    order = torch.argsort(torch.arange(len(labels)) % count, stable=True)  # classes in turn
    x = torch.from_numpy(task.parts.joined(given))[order]
    origin = text_origin(texts, task, cfg.layers)
    return SyntheticSet.of(x, labels[order], **({} if origin is None else {"text_origin": origin}))


def text_way(texts: str, task: Task, layers: Sequence[str] = ()) -> str:
    """How synthetic texts come about: written where declared concepts are looked at, else chosen."""
    part, encoder = None if task.parts is None else task.parts.find("text"), task.encoder
    names = layers or (() if encoder is None else encoder.layers)
    concepts = part is not None and bool(part.vocabulary) and f"{part.name}/concepts" in names
    return texts if concepts else "chosen"


def text_origin(texts: str, task: Task, layers: Sequence[str] = ()) -> str | None:
    """What a synthetic text says of itself, None where records have no text."""
    has_text = task.parts is not None and task.parts.find("text") is not None
    return ORIGINS[text_way(texts, task, layers)] if has_text else None


class _Maker:
    """The parts of records whose rows are drawn."""

    def __init__(
        self,
        task: Task,
        enc: PublicFeatures,
        pooled: Pooled,
        rows: torch.Tensor,
        labels: torch.Tensor,
        key: Key,
    ) -> None:
        assert task.public is not None
        assert isinstance(enc.frame, BlockFrame)
        self.task, self.enc, self.pooled, self.frame, self.public = task, enc, pooled, enc.frame, task.public
        self.rows, self.labels, self.key = rows, labels, key
        self.within = covariance(pooled, enc.frame.places())
        with torch.no_grad():
            self.seen = enc.coordinates(task.public.to(task.device)).cpu()

    def _metric(self, k: int) -> torch.Tensor:
        """The inverse root of a part's covariance within classes: distances as the head sees them."""
        place = self.frame.places()[k]
        values, vectors = torch.linalg.eigh(self.within[place, place])
        floor = 0.05 * float(values.clamp_min(0).mean()) + 1e-9
        root: torch.Tensor = vectors @ torch.diag((values.clamp_min(0) + floor).rsqrt()) @ vectors.T
        return root.float()

    def nearest(self, k: int, *, moved: bool) -> torch.Tensor:
        """For each row the public record whose part lies nearest; `moved`: both measured from where they lie."""
        place, root = self.frame.places()[k], self._metric(k)
        own, theirs = self.rows[:, place] @ root, self.seen[:, place] @ root
        if moved:
            whole = self.pooled.means[:, place].mean(0) @ root
            own, theirs = own - whole, theirs - theirs.mean(0)
        return torch.cdist(own, theirs).argmin(1)

    def chosen(self, k: int, kind: str) -> npt.NDArray[np.uint8]:
        """The bytes of the nearest public parts."""
        assert self.task.parts is not None
        cells = self.public[:, self.task.parts.place(kind)][self.nearest(k, moved=False)]  # type: ignore[arg-type]
        return (cells * 255).round().to(torch.uint8).numpy()

    def images(self, k: int, part: RecordPart, *, steps: int, lr: float) -> npt.NDArray[np.uint8]:
        """Public pictures, the nearest ones, moved until they lie where the rows say."""
        assert self.task.parts is not None
        cells = self.public[:, self.task.parts.place("image")][self.nearest(k, moved=True)]
        seeds = cells.reshape(-1, *part.shape)
        if steps:
            seeds = self._moved(k, seeds, steps=steps, lr=lr)
        return (seeds.clamp(1 / 255, 1) * 255).round().to(torch.uint8).numpy()

    def _moved(self, k: int, seeds: torch.Tensor, *, steps: int, lr: float) -> torch.Tensor:
        encoder = self.task.encoder
        assert isinstance(encoder, Parted)
        look, frame, root = encoder.places[k].encoder, self.frame.part(k), self._metric(k)
        target = self.rows[:, self.frame.places()[k]] / math.sqrt(self.frame.shares[k])

        def gap(images: torch.Tensor) -> torch.Tensor:
            seen = frame(torch.cat(list(look(images).values()), 1))
            far: torch.Tensor = ((seen - target) @ root).square().sum(1).mean()
            return far

        return match_images(
            (),
            torch.zeros(len(self.task.classes), 0),
            seeds=seeds,
            labels=self.labels,
            steps=steps,
            per_step=1,
            lr=lr,
            closeness=0.0,
            key=self.key.child("match"),
            spread=gap,
            spread_every=1,
        )

    def columns(self, k: int) -> npt.NDArray[np.uint8]:
        """Rows of the table that the blocks stand for, brought into the declared domain."""
        assert self.task.parts is not None
        schema = self.task.parts.schema
        assert schema is not None
        found = self.frame.back(k, self.rows[:, self.frame.places()[k]])
        return column_bytes(schema.encode(schema.decode(found)).numpy())

    def written(self, k: int, part: RecordPart) -> npt.NDArray[np.uint8]:
        """Reports of the concepts that the rows say: of each class as many say one as the release tells."""
        place, at = self.frame.places()[k], self._concepts(part)
        values = self.frame.back(k, self.rows[:, place])[:, at].numpy()
        often = self.frame.back(k, self.pooled.means[:, place])[:, at].numpy() / ONCE
        said = _said(values, often.clip(0, 1), self.labels.numpy(), concept_columns(part.vocabulary))
        draws = self.key.child("reports").numpy()
        return text_bytes([write(part.vocabulary, one, draws, most=part.width) for one in said], part.width)

    def _concepts(self, part: RecordPart) -> slice:
        """Where the concepts lie among the features of the text."""
        look, start = self.enc.look, 0
        assert isinstance(look, Layers)
        for name, width in zip(look.names, look.widths(self.public[:1])):
            if name.startswith(f"{part.name}/"):
                if name.endswith("/concepts"):
                    return slice(start, start + width)
                start += width
        raise KeyError(part.name)


def _said(
    values: Array, often: Array, labels: npt.NDArray[np.int64], columns: tuple[tuple[int, int], ...]
) -> npt.NDArray[np.int8]:
    """1 where a concept is said, -1 where it is denied: in each class the rows that say it most, as many as `often`."""
    marked = np.zeros(values.shape, dtype=bool)
    for c in range(len(often)):
        rows = np.flatnonzero(labels == c)
        rank = np.argsort(np.argsort(-values[rows], axis=0), axis=0)
        marked[rows] = rank < np.round(often[c] * len(rows))
    said = np.zeros((len(values), 1 + max(i for i, _ in columns)), dtype=np.int8)
    for j, (concept, denied) in enumerate(columns):
        said[marked[:, j], concept] = -1 if denied else 1
    return said


def model_on(enc: PublicFeatures, made: SyntheticSet) -> Weights:
    """A linear model that learns from the synthetic records alone."""
    return Weights(fit_linear(enc.coordinates(made.x), made.hard_y))
