"""Was this record used to make the synthetic set? Attacks that see only synthetic records, or a generator.

- `nearest_scores`: Chen et al. 2020 (GAN-Leaks): members lie closer to the synthetic set.
- `calibrated_scores`: the same, measured against the distance to a reference set, so that odd records do not mislead.
- `density_scores`: van Breugel et al. 2023 (DOMIAS): the density of the synthetic set over that of the reference set.
- `decoder_scores`: white box: how well a generator can reproduce the record at all.

Every function returns one number a record; larger means "member".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from prismfl.adversary.attacks.inversion import Predict, Scores
from prismfl.adversary.attacks.membership_model import as_scores
from prismfl.errors import UserError
from prismfl.rng import Key

CHUNK = 500
COPY = 1e-3  # root-mean-square difference below which two records count as the same


@dataclass(frozen=True)
class SeenSet:
    """A synthetic set, candidate records, and records of the same kind that are not in question."""

    x: torch.Tensor = field(repr=False)
    made: torch.Tensor = field(repr=False)
    reference: torch.Tensor = field(repr=False)


@dataclass(frozen=True)
class OpenDecoder:
    """A decoder that left a site: of one class or of all, from codes of a length, and where a search in it begins."""

    label: int | None
    latent: int
    decode: Predict
    key: Key


@dataclass(frozen=True)
class SeenDecoders:
    """Decoders that left the sites, and candidate records."""

    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    decoders: tuple[OpenDecoder, ...]
    progress: Callable[[str, int, int], None] = lambda *_: None


def by_nearest(seen: SeenSet) -> Scores:
    """The candidates' `nearest_scores` from what was seen."""
    return nearest_scores(seen.x, seen.made)


def by_calibrated(seen: SeenSet) -> Scores:
    """The candidates' `calibrated_scores` from what was seen."""
    return calibrated_scores(seen.x, seen.made, seen.reference)


def by_density(seen: SeenSet) -> Scores:
    """The candidates' `density_scores` from what was seen."""
    return density_scores(seen.x, seen.made, seen.reference)


def copies(seen: SeenSet) -> torch.Tensor:
    """The `exact_copies` of candidates in the synthetic set."""
    return exact_copies(seen.x, seen.made)


def by_decoders(seen: SeenDecoders) -> Scores:
    """The best over all decoders that a record can have come from; a record that none can gets the worst score."""
    best = np.full(len(seen.x), -np.inf)
    for i, one in enumerate(seen.decoders):
        seen.progress("searching the decoders", i, len(seen.decoders))
        rows = torch.arange(len(seen.x)) if one.label is None else torch.nonzero(seen.y == one.label).flatten()
        if len(rows):
            scores = decoder_scores(seen.x[rows], one.decode, latent=one.latent, key=one.key)
            best[rows.numpy()] = np.maximum(best[rows.numpy()], scores)
    return np.where(np.isfinite(best), best, best[np.isfinite(best)].min(initial=0.0))


def nearest_scores(x: torch.Tensor, made: torch.Tensor) -> Scores:
    """Minus the distance to the nearest synthetic record."""
    _check(x, made, "synthetic")
    return as_scores(-_nearest(x, made))


def calibrated_scores(x: torch.Tensor, made: torch.Tensor, reference: torch.Tensor) -> Scores:
    """Minus the ratio of the distances to the nearest synthetic and the nearest reference record."""
    _check(x, made, "synthetic")
    _check(x, reference, "reference")
    return as_scores(-_nearest(x, made) / _nearest(x, reference).clamp(min=1e-9))


def density_scores(x: torch.Tensor, made: torch.Tensor, reference: torch.Tensor, *, directions: int = 8) -> Scores:
    """Log ratio of two kernel densities in the leading directions of the reference set.

    The bandwidth is Silverman's for each direction, shrunk so that a copied record still stands out.
    """
    _check(x, made, "synthetic")
    _check(x, reference, "reference")
    base = reference.flatten(1).double()
    centre = base.mean(0)
    _, _, axes = torch.linalg.svd(base - centre, full_matrices=False)
    axes = axes[:directions]
    spread = ((base - centre) @ axes.T).std(0).clamp(min=1e-9)

    def project(rows: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = ((rows.flatten(1).double() - centre) @ axes.T) / spread
        return projected

    points = project(x)
    return as_scores(_log_density(points, project(made)) - _log_density(points, project(reference)))


def exact_copies(x: torch.Tensor, made: torch.Tensor, *, tolerance: float = COPY) -> torch.Tensor:
    """Pairs of rows (synthetic record, candidate) that are the same record, up to rounding."""
    _check(x, made, "synthetic")
    flat, width, found = x.flatten(1).float(), x[0].numel() ** 0.5, []
    for i in range(0, len(made), CHUNK):
        pairs = torch.nonzero(_distances(made[i : i + CHUNK], flat) / width < tolerance)
        found.append(pairs + torch.tensor([i, 0]))
    return torch.cat(found)


def decoder_scores(
    x: torch.Tensor,
    decode: Predict,
    *,
    latent: int,
    key: Key,
    pool: int = 1024,
    starts: int = 2,
    steps: int = 100,
    lr: float = 0.05,
) -> Scores:
    """Minus the error of the best reproduction of each record that a search over the latent code finds.

    The search starts from the codes whose outputs, out of a random pool, are nearest to the record.
    """
    codes = torch.randn(pool, latent, generator=key.torch())
    with torch.no_grad():
        shown = torch.cat([decode(codes[i : i + CHUNK]).flatten(1) for i in range(0, pool, CHUNK)])
    if shown.shape[1] != x[0].numel():
        raise UserError(f"The generator makes records of {shown.shape[1]} numbers, the candidates have {x[0].numel()}.")
    gaps, near = torch.cdist(x.flatten(1), shown).topk(starts, dim=1, largest=False)
    best = gaps[:, 0] / x[0].numel() ** 0.5
    for k in range(starts):
        best = torch.minimum(best, _reproduce(x.flatten(1), decode, codes[near[:, k]], steps=steps, lr=lr))
    return as_scores(-best)


def _reproduce(rows: torch.Tensor, decode: Predict, start: torch.Tensor, *, steps: int, lr: float) -> torch.Tensor:
    z = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=lr)
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        error = ((decode(z).flatten(1) - rows) ** 2).mean(1)
        # The prior keeps the search where the generator was trained.
        (error + 1e-4 * (z**2).mean(1)).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        found: torch.Tensor = ((decode(z).flatten(1) - rows) ** 2).mean(1).sqrt()
    return found


def _nearest(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    flat = made.flatten(1).float()
    return torch.cat([_distances(x[i : i + CHUNK], flat).min(1).values for i in range(0, len(x), CHUNK)])


def _distances(x: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    # The exact form of the distance: the fast one cannot tell a copy from a neighbour.
    return torch.cdist(x.flatten(1).float(), flat, compute_mode="donot_use_mm_for_euclid_dist")


def _log_density(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    width = 0.25 * len(centres) ** (-1.0 / (centres.shape[1] + 4))
    parts = []
    for i in range(0, len(points), CHUNK):
        squares = torch.cdist(points[i : i + CHUNK], centres) ** 2
        parts.append((-0.5 * squares / width**2).logsumexp(1) - np.log(len(centres)) - centres.shape[1] * np.log(width))
    return torch.cat(parts)


def _check(x: torch.Tensor, others: torch.Tensor, what: str) -> None:
    if not len(others):
        raise UserError(f"The {what} set is empty.")
    if x.shape[1:] != others.shape[1:]:
        mine, theirs = "x".join(map(str, x.shape[1:])), "x".join(map(str, others.shape[1:]))
        raise UserError(f"The {what} records have shape {theirs}, the candidates {mine}; they must be alike.")
