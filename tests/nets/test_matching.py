"""Synthesis by matching: images near their seeds without steps, nearer the targets with them, in range always."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.matching import BLUR, match_images, moment_gap
from prismfl.rng import Key

SEEDS = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 0, 1, 1])


def brightness(x: torch.Tensor) -> torch.Tensor:
    return x.mean((1, 2, 3))[:, None]


def matched(steps: int, *, closeness: float = 0.0, targets: tuple[float, float] = (0.9, 0.1)) -> torch.Tensor:
    return match_images(
        [brightness],
        torch.tensor(targets)[:, None, None],
        seeds=SEEDS,
        labels=LABELS,
        steps=steps,
        per_step=1,
        lr=0.3,
        closeness=closeness,
        key=Key.seed(0),
    )


def test_the_blur_keeps_brightness() -> None:
    assert float(BLUR.sum()) == pytest.approx(1.0)


def test_without_steps_images_are_blurred_seeds_in_range() -> None:
    found = matched(0)
    assert found.shape == SEEDS.shape
    assert 0.0 < float(found.min()) < float(found.max()) < 1.0
    assert float((found - SEEDS).abs().mean()) < 0.25


def test_means_over_a_class_meet_their_targets() -> None:
    found = brightness(matched(300))[:, 0]
    assert float(found[:2].mean()) == pytest.approx(0.9, abs=0.03)
    assert float(found[2:].mean()) == pytest.approx(0.1, abs=0.03)


def test_closeness_keeps_images_at_home() -> None:
    free, held = (float((matched(60, closeness=c) - SEEDS).norm()) for c in (0.0, 1.0))
    assert held < 0.7 * free


def test_the_key_decides_which_looks_are_asked() -> None:
    def run(seed: int) -> torch.Tensor:
        return match_images(
            [brightness, lambda x: 2 * brightness(x)],
            torch.rand(2, 2, 1, generator=torch.Generator().manual_seed(1)),
            seeds=SEEDS,
            labels=LABELS,
            steps=3,
            per_step=1,
            lr=0.3,
            closeness=0.0,
            key=Key.seed(seed),
        )

    assert torch.equal(run(0), run(0))
    assert any(not torch.equal(run(0), run(s)) for s in range(1, 6))


def test_a_further_number_is_brought_down_as_well() -> None:
    asked: list[int] = []

    def spread(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return x.square().mean()

    match_images(
        [brightness],
        torch.full((2, 1, 1), 0.5),
        seeds=SEEDS,
        labels=LABELS,
        steps=9,
        per_step=1,
        lr=0.1,
        closeness=0.0,
        key=Key.seed(0),
        spread=spread,
        spread_every=4,
    )
    assert asked == [4, 4, 4]  # steps 0, 4 and 8


def test_the_gap_of_whitened_vectors_is_zero() -> None:
    z = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert float(moment_gap(z, torch.tensor([0, 0, 1, 1]), classes=2)) == pytest.approx(0.0)


def test_the_gap_of_a_shift_by_hand() -> None:
    """Everything at (1, 0): each mean has length 1; the covariance is (1, 0; 0, 0), off by one in one place of two."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert float(moment_gap(z, torch.tensor([0, 1]), classes=2)) == pytest.approx(1.0 + 0.5)
