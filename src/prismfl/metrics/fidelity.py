"""How close made images are to real ones: a Frechet distance, precision and recall, density and coverage.

The features come from a small network that is trained, for the purpose, on the benchmark's own real training images;
nothing is downloaded. A distance under one such network is comparable within a table, and with no published FID. All of
this sees real images: it measures a benchmark and never leaves a site that has private ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import nn

from prismfl.core.payloads import SyntheticSet
from prismfl.errors import UserError
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import fit
from prismfl.rng import Key

CHUNK = 500
NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Features:
    """All but the last layer of a classifier, and how well the whole of it knows its training images (percent)."""

    module: nn.Module
    name: str
    accuracy: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The features of pictures, in double precision."""
        with torch.no_grad():
            return torch.cat([self.module(part).flatten(1).double() for part in torch.split(x, CHUNK)])


def learn_features(
    x: torch.Tensor, y: torch.Tensor, *, classes: int, key: Key, model: str = "convnet:16", epochs: int = 2
) -> Features:
    """Features from labelled real images of the benchmark."""
    shape = tuple(x.shape[1:])
    classifier, fresh = build(model, shape, classes, key=key.child("network"))
    params = fit(classifier, fresh, x=x, y=y, epochs=epochs, batch=64, lr=2e-3, key=key.child("fit"), optimiser="adam")
    module = classifier.module
    assert isinstance(module, nn.Sequential)
    module.load_state_dict(params)
    right = sum(int((classifier.logits(params, a).argmax(1) == b).sum()) for a, b in _chunks(x, y))
    return Features(module[:-1].eval(), f"{model} on {len(x)} real training images", 100.0 * right / max(1, len(x)))


@dataclass(frozen=True)
class Fidelity:
    """Smaller distance is better; the rest are parts of 1, larger is better (density may exceed 1)."""

    frechet: float
    precision: float
    recall: float
    density: float
    coverage: float

    def as_dict(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)


def fidelity(features: Features, *, real: torch.Tensor, made: torch.Tensor, neighbours: int = NEIGHBOURS) -> Fidelity:
    """Made images against real ones, preferably held-out ones. Both sets need more than `neighbours` images."""
    if min(len(real), len(made)) <= neighbours:
        raise UserError(f"Expected more than {neighbours} images on both sides, got {len(real)} and {len(made)}.")
    a, b = features(real), features(made)
    between = torch.cdist(a, b)
    reach_real, reach_made = _reach(a, neighbours), _reach(b, neighbours)
    inside = between < reach_real[:, None]
    return Fidelity(
        frechet=frechet(a, b),
        precision=float(inside.any(0).double().mean()),
        recall=float((between < reach_made[None]).any(1).double().mean()),
        density=float(inside.double().sum(0).mean() / neighbours),
        coverage=float(inside.any(1).double().mean()),
    )


def frechet(a: torch.Tensor, b: torch.Tensor) -> float:
    """Squared Frechet distance of two sets of features, each taken as a Gaussian."""
    gap = (a.mean(0) - b.mean(0)).square().sum()
    one, other = torch.cov(a.T), torch.cov(b.T)
    root = _root(one)
    cross = torch.linalg.eigvalsh(root @ other @ root).clamp(min=0.0).sqrt().sum()
    return float((gap + one.trace() + other.trace() - 2.0 * cross).clamp(min=0.0))


def choose_by_synthetic(classifier: Classifier, candidates: Sequence[Params], held: SyntheticSet) -> Params:
    """Of several trained classifiers the one that does best on synthetic images none of them was trained on.

    The rule of DPImageBench: test images have no say in what is reported on them.
    """
    if not candidates:
        raise UserError("Expected classifiers to choose from, got none.")

    def right(params: Params) -> int:
        with torch.no_grad():
            return sum(
                int((classifier.logits(params, x).argmax(1) == y).sum()) for x, y in _chunks(held.x, held.hard_y)
            )

    return max(candidates, key=right)


def _reach(points: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Distance of each point to its k-th neighbour among the others."""
    return torch.cdist(points, points).kthvalue(neighbours + 1, dim=1).values


def _root(matrix: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: torch.Tensor = (vectors * values.clamp(min=0.0).sqrt()) @ vectors.T
    return root


def _chunks(x: torch.Tensor, y: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(torch.split(x, CHUNK), torch.split(y, CHUNK)))
