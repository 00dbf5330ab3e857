"""Laws cannot see a wrong scale inside a mechanism; these tests can."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.kernels.loss import Loss, Params
from prismfl.nets.classifier import build, cross_entropy_of_one
from prismfl.privacy import mechanisms as m
from prismfl.rng import Key, identities
from tests.statistics import accepts

NAMES = identities(np.arange(5))
Small = tuple[Loss, Params, torch.Tensor, torch.Tensor]


def noise_p_value(draws: torch.Tensor, std: float) -> float:
    """Two-sided p-value of the hypothesis that the draws have this standard deviation (chi-square)."""
    n = draws.numel()
    statistic = float((draws**2).sum()) / std**2
    return float(2 * min(stats.chi2.cdf(statistic, n), stats.chi2.sf(statistic, n)))


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.97, False), (1.03, False)])
def test_noise_has_the_stated_sigma(factor: float, passes: bool) -> None:
    def p(seed: int) -> float:
        stream = Key.seed(seed).noise()
        noisy = m.add_noise(torch.zeros(200_000), bound=0.5, sigma=3.0 * factor, stream=stream)
        return noise_p_value(noisy, 1.5)

    assert accepts(p) is passes


def test_noise_std_within_half_a_percent_over_a_million_draws() -> None:
    noisy = m.add_noise(torch.zeros(1_000_000), bound=1.0, sigma=2.0, stream=Key.seed(1).noise())
    assert abs(float(noisy.std()) / 2.0 - 1.0) < 0.005
    assert stats.kstest((noisy[:50_000] / 2.0).numpy(), "norm").pvalue > 1e-4


def test_laplace_scale() -> None:
    noisy = m.add_noise(torch.zeros(400_000), bound=1.0, sigma=2.0, stream=Key.seed(1).noise(), kind="laplace")
    assert abs(float(noisy.abs().mean()) / 2.0 - 1.0) < 0.01
    assert stats.kstest((noisy[:50_000] / 2.0).numpy(), "laplace").pvalue > 1e-4


def test_streams_do_not_repeat_or_correlate() -> None:
    key = Key.seed(5)
    stream = key.noise()
    first, second = stream.normal(50_000), stream.normal(50_000)
    other_site = key.child("site-1").noise().normal(50_000)
    torch.manual_seed(0)  # nothing reseeds the stream
    third = stream.normal(50_000)
    for a, b in ((first, second), (first, other_site), (second, third), (first, third)):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 4.5 / math.sqrt(50_000)
    again = Key.seed(5).noise().normal(50_000)
    assert torch.equal(again, first)


def test_deployment_noise_comes_from_the_operating_system() -> None:
    a, b = Key.from_os(), Key.from_os()
    assert a.noise().source == "operating system"
    assert Key.seed(0).noise().source == "seeded: simulation only"
    assert not torch.equal(a.noise().normal(8), b.noise().normal(8))


def test_answers_lie_on_a_public_grid_whatever_the_sum() -> None:
    """The low bits of the answer are the same for a sum of 0 and of 1: precision tells nothing."""
    grid = 2.0 ** (math.floor(math.log2(0.7)) - m.GRID_BITS)
    for total in (0.0, 1.0, 1 / 3, 1e-9):
        noisy = m.add_noise(torch.full((1000,), total), bound=0.7, sigma=1.0, stream=Key.seed(1).noise())
        assert torch.equal(noisy / grid, torch.round(noisy / grid))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e38])
def test_clipping_survives_bad_numbers(bad: float) -> None:
    rows = torch.tensor([[3.0, 4.0], [bad, 1.0], [0.1, 0.0], [0.0, 0.0]])
    clipped = m.clip_rows(rows, 1.0)
    assert bool(torch.isfinite(clipped).all())
    assert float(clipped.norm(dim=1).max()) <= 1.0
    torch.testing.assert_close(clipped[0], torch.tensor([0.6, 0.8], dtype=torch.float64), rtol=1e-5, atol=0)
    torch.testing.assert_close(clipped[2], rows[2].double())


def test_laplace_clips_the_l1_norm() -> None:
    assert float(m.clip_rows(torch.tensor([[3.0, 4.0]]), 1.0, kind="laplace").abs().sum()) <= 1.0


def poisson_p_value(sizes: list[int], n: int, rate: float) -> float:
    """Variance of the batch size against a binomial's; shuffled fixed-size batches have none."""
    t = torch.tensor(sizes, dtype=torch.float64)
    statistic = float(((t - n * rate) ** 2).sum()) / (n * rate * (1 - rate))
    return float(2 * min(stats.chi2.cdf(statistic, len(sizes)), stats.chi2.sf(statistic, len(sizes))))


@pytest.mark.parametrize("equal", [False, True], ids=["all different", "all equal"])
def test_sampling_is_poisson_and_shuffled_batches_fail_the_same_test(equal: bool) -> None:
    n, rate, rounds = 400, 0.1, 600
    units = identities(np.zeros(n, dtype=np.int64) if equal else np.arange(n))

    def poisson(seed: int) -> float:
        stream, sizes = Key.seed(seed).noise(), []
        for _ in range(rounds):
            sizes.append(len(m.poisson_indices(units, rate=rate, draws=stream.by_record())))
        return poisson_p_value(sizes, n, rate)

    def fixed(seed: int) -> float:
        return poisson_p_value([int(n * rate)] * rounds, n, rate)

    assert accepts(poisson)
    assert not accepts(fixed)


def test_every_record_is_drawn_equally_often() -> None:
    stream, counts, units = Key.seed(3).noise(), torch.zeros(200), identities(np.arange(200))
    for _ in range(1000):
        counts[m.poisson_indices(units, rate=0.2, draws=stream.by_record())] += 1
    assert stats.chisquare(counts.numpy() / counts.sum().item() * 40_000, [200.0] * 200).pvalue > 1e-4


@pytest.fixture(scope="module")
def small() -> Small:
    classifier, params = build("convnet:4", (1, 8, 8), 3, key=Key.seed(0))
    x = torch.rand(37, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return classifier.record_loss, params, x, torch.arange(37) % 3


def reference_sum(loss: Loss, params: Params, x: torch.Tensor, y: torch.Tensor, clip: float) -> torch.Tensor:
    """The same by a plain loop over records and autograd."""
    total = torch.zeros(sum(p.numel() for p in params.values()), dtype=torch.float64)
    for i in range(len(x)):
        leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
        grads = torch.autograd.grad(loss(leaves, x[i], y[i]), list(leaves.values()))
        flat = torch.cat([g.flatten() for g in grads]).double()
        total += flat * min(1.0, clip / float(flat.norm()))
    return total


@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_gradient_sum_equals_a_loop_over_records(small: Small, clip: float) -> None:
    loss, params, x, y = small
    got = clipped_gradient_sum(loss, params, batch=(x, y), clip=clip, chunk=16)
    flat = torch.cat([got[k].flatten() for k in params]).double()
    torch.testing.assert_close(flat, reference_sum(loss, params, x, y, clip), rtol=1e-4, atol=1e-5)


def test_one_record_moves_the_sum_by_at_most_the_clip(small: Small) -> None:
    loss, params, x, y = small
    clip = 0.05
    x = x.clone()
    x[5] *= 1e4

    def flat(keep: slice) -> torch.Tensor:
        got = clipped_gradient_sum(loss, params, batch=(x[keep], y[keep]), clip=clip)
        return torch.cat([got[k].flatten() for k in params]).double()

    for n in (1, 6, 33):
        assert float((flat(slice(0, n)) - flat(slice(0, n - 1))).norm()) <= clip * (1 + 1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_gradients_of_bad_records_are_dropped_not_spread(small: Small, value: float) -> None:
    loss, params, x, y = small
    x = x.clone()
    x[3] = value
    got = clipped_gradient_sum(loss, params, batch=(x, y), clip=1.0)
    assert all(bool(torch.isfinite(g).all()) for g in got.values())


def test_empty_batch_gives_zeros(small: Small) -> None:
    loss, params, x, y = small
    got = clipped_gradient_sum(loss, params, batch=(x[:0], y[:0]), clip=1.0)
    assert all(float(g.abs().sum()) == 0.0 for g in got.values())


def test_a_unit_counts_once_however_many_records_it_has() -> None:
    loss = Loss(nn.Linear(3, 2, bias=False), cross_entropy_of_one)
    params = {"weight": torch.zeros(2, 3)}
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 10
    y = torch.zeros(50, dtype=torch.int64)
    unit = torch.tensor([0] * 40 + [1] * 3 + [2] * 7)
    clip = 0.1

    def flat(keep: torch.Tensor, chunk: int) -> torch.Tensor:
        got = clipped_gradient_sum(loss, params, batch=(x[keep], y[keep]), clip=clip, unit=unit[keep], chunk=chunk)
        return got["weight"]

    everything = torch.arange(50)
    for chunk in (4, 8, 64):
        whole = flat(everything, chunk)
        for u in range(3):
            assert float((whole - flat(everything[unit != u], chunk)).norm()) <= clip * (1 + 1e-5)
        torch.testing.assert_close(whole, flat(everything, 50))
    assert float(flat(everything, 8).norm()) <= 3 * clip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.poisson_indices(NAMES, rate=0.0, draws=Key.seed(0).noise().by_record()), "rate"),
        (lambda: m.clip_rows(torch.ones(1, 2), 0.0), "bound"),
        (lambda: m.add_noise(torch.zeros(2), bound=1.0, sigma=-1.0, stream=Key.seed(0).noise()), "sigma"),
        (lambda: m.add_noise(torch.zeros(2), bound=1.0, sigma=math.nan, stream=Key.seed(0).noise()), "sigma"),
        (lambda: m.add_noise(torch.zeros(2), bound=math.inf, sigma=1.0, stream=Key.seed(0).noise()), "bound"),
    ],
)
def test_silly_values_are_refused_by_name(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
