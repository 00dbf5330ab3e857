import math

import pytest
import torch

from prismfl.metrics.leakage import feature_mse, label_recovery, leakage, match, mse, psnr, ssim
from prismfl.nets.classifier import build
from prismfl.rng import Key


def pictures(n: int, seed: int, shape: tuple[int, ...] = (1, 14, 13)) -> torch.Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def ssim_by_loops(a: torch.Tensor, b: torch.Tensor) -> float:
    """Structural similarity of one plane, window by window, straight from its definition."""
    weights = [[math.exp(-((i - 5) ** 2 + (j - 5) ** 2) / (2 * 1.5**2)) for j in range(11)] for i in range(11)]
    norm = sum(map(sum, weights))
    found = []
    for top in range(a.shape[0] - 10):
        for left in range(a.shape[1] - 10):
            cells = [(weights[i][j] / norm, float(a[top + i, left + j]), float(b[top + i, left + j]))
                     for i in range(11) for j in range(11)]  # fmt: skip
            ma, mb = sum(w * p for w, p, _ in cells), sum(w * q for w, _, q in cells)
            va, vb = sum(w * (p - ma) ** 2 for w, p, _ in cells), sum(w * (q - mb) ** 2 for w, _, q in cells)
            cov = sum(w * (p - ma) * (q - mb) for w, p, q in cells)
            found.append((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4)))
    return sum(found) / len(found)


def test_ssim_equals_its_definition() -> None:
    a = pictures(2, 0, (2, 14, 13))
    b = (a + 0.3 * pictures(2, 1, (2, 14, 13))).clamp(0, 1)
    for i in range(2):
        expected = sum(ssim_by_loops(a[i, c], b[i, c]) for c in range(2)) / 2
        assert float(ssim(a, b)[i]) == pytest.approx(expected, abs=1e-9)


def test_ssim_knows_the_same_from_the_unlike() -> None:
    a = pictures(3, 0)
    assert torch.allclose(ssim(a, a), torch.ones(3, dtype=torch.float64))
    assert float(ssim(a, 1 - a).max()) < 0
    assert ssim(pictures(1, 0, (1, 8, 8)), pictures(1, 1, (1, 8, 8))).shape == (1,)


def test_mse_and_psnr_by_hand() -> None:
    a, b = torch.zeros(1, 2, 1, 2), torch.tensor([[[[0.3, 0.3]], [[0.1, 0.1]]]])
    assert float(mse(a, b)) == pytest.approx((0.09 + 0.01) / 2)
    assert float(mse(a, b, contrast=(0.3, 0.5))) == pytest.approx((1.0 + 0.04) / 2)
    assert float(psnr(a, b)) == pytest.approx(-10 * math.log10(0.05))
    assert float(psnr(a, a)) == pytest.approx(100.0)


def test_matching_undoes_a_shuffle() -> None:
    truth = pictures(6, 2)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    rows, partners = match(truth[order] + 0.01, truth)
    assert partners[rows.argsort()].tolist() == order.tolist()
    some, of_many = match(truth[order][:2], truth)
    assert (some.tolist(), of_many.tolist()) == ([0, 1], [3, 0])


def test_labels_are_compared_as_multisets() -> None:
    assert label_recovery(torch.tensor([1, 1, 2]), torch.tensor([2, 1, 1])) == 1.0
    assert label_recovery(torch.tensor([1, 1, 1]), torch.tensor([2, 1, 3])) == pytest.approx(1 / 3)


def test_whole_score() -> None:
    truth, y = pictures(4, 0, (1, 28, 28)), torch.tensor([0, 1, 2, 3])
    classifier, params = build("sigmoid-lenet", (1, 28, 28), 10, key=Key.seed(0))
    same = leakage((truth.flip(0), y.flip(0)), (truth, y), data="mnist", features=(classifier, params))
    assert (same.recovered, same.records, same.labels) == (4, 4, 1.0)
    assert same.mse == same.mse_normalised == 0.0
    other = leakage((1 - truth, y + 1), (truth, y), data="mnist", features=(classifier, params))
    assert other.recovered == 0
    assert other.mse_normalised == pytest.approx(other.mse / 0.3081**2, rel=1e-5)
    assert other.feature_mse is not None
    assert other.feature_mse > 0
    assert leakage((truth, y), (truth, y), data="own").mse_normalised is None


def test_feature_mse_is_of_the_last_layers_input() -> None:
    classifier, params = build("logreg", (1, 2, 2), 3, key=Key.seed(0))
    a, b = torch.zeros(1, 1, 2, 2), torch.full((1, 1, 2, 2), 0.5)
    assert float(feature_mse(a, b, classifier, params)) == pytest.approx(0.25)


def test_tables_have_no_ssim_and_nothing_to_score_is_an_error() -> None:
    rows = torch.rand(3, 5)
    assert leakage((rows, torch.zeros(3).long()), (rows, torch.zeros(3).long())).ssim is None
    with pytest.raises(ValueError, match="at least one record"):
        leakage((rows, torch.zeros(3).long()), (rows[:0], torch.zeros(0).long()))
