"""Records from clean sums: quantiles of each column and the correlations between them."""

from __future__ import annotations

import pytest
import torch

from prismfl.methods.generators import latent
from prismfl.methods.generators.copula import Layout
from prismfl.methods.generators.latent import Clean
from prismfl.nets.columns import Columns

LAYOUT = Layout.of(Columns.parse(["n", "b", "c3"]))
MEAN = torch.tensor([0.2, 0.6, 0.5, 0.3, 0.2], dtype=torch.float64)


def part(correlation: float) -> Clean:
    """A number and a binary with this correlation; the choice stands alone."""
    variance = torch.tensor([0.5, 1.0, 0.5], dtype=torch.float64)
    covariance = torch.diag(variance)
    covariance[0, 1] = covariance[1, 0] = correlation * float(variance[0] * variance[1]) ** 0.5
    return Clean(MEAN, variance, covariance)


def drawn(correlation: float, count: int = 4000) -> torch.Tensor:
    return latent.draw(LAYOUT, latent.build(LAYOUT, part(correlation)), count, torch.Generator().manual_seed(0))


def test_records_are_valid_ones() -> None:
    made = drawn(0.0, 300)
    assert bool((made[:, 0].abs() <= 1).all())
    assert set(made[:, 1].tolist()) == {-1.0, 1.0}
    assert torch.equal(made[:, 2:].sum(1), torch.ones(300))
    assert set(made[:, 2:].flatten().tolist()) == {0.0, 1.0}


def test_means_and_shares_are_those_that_were_told() -> None:
    made = drawn(0.0)
    assert float(made[:, 0].mean()) == pytest.approx(0.2, abs=0.05)
    assert float((made[:, 1] > 0).float().mean()) == pytest.approx(0.8, abs=0.03)
    assert made[:, 2:].mean(0).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.04)


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.5])
def test_correlations_are_those_that_were_told(correlation: float) -> None:
    made = drawn(correlation)
    assert float(torch.corrcoef(made[:, :2].T)[0, 1]) == pytest.approx(correlation, abs=0.08)


def test_no_records_are_an_empty_table() -> None:
    assert drawn(0.0, 0).shape == (0, 5)


def test_quantiles_rise_with_the_score() -> None:
    copula = latent.build(LAYOUT, part(0.0))
    assert copula.quantiles.shape[0] == 3
    assert bool((copula.quantiles.diff(dim=1) >= -1e-9).all())


def test_the_root_has_unit_rows() -> None:
    root = latent.build(LAYOUT, part(0.5)).root
    assert torch.linalg.vector_norm(root, dim=1).tolist() == pytest.approx([1.0, 1.0, 1.0])


def sums(mean: float, noise: float, count: float = 100.0) -> dict[str, torch.Tensor]:
    """The release of a class whose number has this mean; `noise` is that of sums and of products."""
    products = torch.zeros(LAYOUT.shapes()["products"])
    row = MEAN.clone()
    row[0] = mean
    return {
        "count": torch.tensor([count]),
        "weight": torch.tensor([count]),
        "sums": (count * row).float(),
        "products": products,
        "noise": torch.tensor([noise, noise]),
    }


def test_classes_that_differ_by_more_than_noise_stay_apart() -> None:
    one, two = latent.clean(LAYOUT, [sums(0.4, 1e-6), sums(-0.4, 1e-6)])
    assert float(one.mean[0]) == pytest.approx(0.4, abs=1e-4)
    assert float(two.mean[0]) == pytest.approx(-0.4, abs=1e-4)


def test_classes_that_differ_by_noise_alone_become_one() -> None:
    one, two = latent.clean(LAYOUT, [sums(0.4, 1e4), sums(-0.4, 1e4)])
    assert float(one.mean[0]) == pytest.approx(0.0, abs=1e-4)
    assert float(two.mean[0]) == pytest.approx(0.0, abs=1e-4)
