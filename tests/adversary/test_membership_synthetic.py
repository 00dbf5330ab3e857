"""A generator that memorises must be caught; one that never saw the members must not be accused."""

from __future__ import annotations

import pytest
import torch

from prismfl.adversary.attacks.membership_synthetic import (
    calibrated_scores,
    decoder_scores,
    density_scores,
    exact_copies,
    nearest_scores,
)
from prismfl.adversary.scores.membership import auc
from prismfl.errors import UserError
from prismfl.rng import Key

N = 150


def population(seed: int, n: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 12, generator=g) * torch.linspace(2, 0.5, 12)


MEMBERS, OTHERS, REFERENCE = population(1, N), population(2, N), population(3, 4 * N)


def areas(made: torch.Tensor) -> list[float]:
    both = torch.cat([MEMBERS, OTHERS])
    found = (
        nearest_scores(both, made),
        calibrated_scores(both, made, REFERENCE),
        density_scores(both, made, REFERENCE),
    )
    return [auc(scores[:N], scores[N:]) for scores in found]


def test_a_memorising_generator_is_caught() -> None:
    noisy = MEMBERS + 0.1 * torch.randn(MEMBERS.shape, generator=torch.Generator().manual_seed(4))
    assert all(area >= 0.9 for area in areas(noisy)), areas(noisy)


def test_a_generator_that_never_saw_the_members_is_not_accused() -> None:
    assert all(abs(area - 0.5) < 0.1 for area in areas(population(9, N)))


def test_exact_copies_are_counted_and_neighbours_are_not() -> None:
    made = torch.cat([MEMBERS[:7], OTHERS[:20], MEMBERS[20:30] + 0.05])
    assert exact_copies(MEMBERS, made).tolist() == [[i, i] for i in range(7)]
    assert len(exact_copies(MEMBERS, population(9, N))) == 0
    # A synthetic set of several chunks: rows are those of the whole set.
    assert exact_copies(MEMBERS, torch.cat([population(9, 1200), MEMBERS[3:4]])).tolist() == [[1200, 3]]


def test_a_decoder_that_memorised_reproduces_its_members_best() -> None:
    table = MEMBERS[:40]
    places = torch.randn(40, 3, generator=torch.Generator().manual_seed(5))

    def decode(z: torch.Tensor) -> torch.Tensor:
        return torch.softmax(-20 * torch.cdist(z, places) ** 2, dim=1) @ table

    both = torch.cat([MEMBERS[:40], OTHERS[:40]])
    scores = decoder_scores(both, decode, latent=3, key=Key.seed(0), steps=50)
    assert auc(scores[:40], scores[40:]) >= 0.85


def test_mismatched_shapes_and_empty_sets_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="shape 11, the candidates 12"):
        nearest_scores(MEMBERS, torch.zeros(3, 11))
    with pytest.raises(UserError, match="reference set is empty"):
        calibrated_scores(MEMBERS, OTHERS, OTHERS[:0])
