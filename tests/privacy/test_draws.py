"""Random numbers that belong to records: uniform, independent of each other, and a function of the record alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from prismfl.core.records import Records
from prismfl.rng import Key, identities
from tests.statistics import ALPHA, accepts

N = 20_000
MANY = identities(np.arange(N))
EQUAL = identities(np.zeros(N, dtype=np.int64))


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return abs(float(torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1]))


@pytest.mark.parametrize("names", [MANY, EQUAL], ids=["all different", "all equal"])
def test_coins_are_uniform(names: np.ndarray) -> None:
    def by_shape(seed: int) -> float:
        return float(stats.kstest(Key.seed(seed).noise().by_record().uniform(names).numpy(), "uniform").pvalue)

    def by_bins(seed: int) -> float:
        drawn = Key.seed(seed).noise().by_record().uniform(names)
        return float(stats.chisquare(torch.histc(drawn, 100, 0.0, 1.0).numpy()).pvalue)

    assert accepts(by_shape)
    assert accepts(by_bins)


def test_normals_are_normal_far_into_the_tails() -> None:
    drawn = Key.seed(1).noise().by_record().normal(MANY, 51)
    assert drawn.shape == (N, 51)
    assert drawn.dtype == torch.float32
    assert abs(float(drawn.std()) - 1.0) < 0.005
    assert stats.kstest(drawn[:, 7].double().numpy(), "norm").pvalue > ALPHA
    beyond = int((drawn.abs() > 4.0).sum())
    assert stats.binomtest(beyond, drawn.numel(), 2 * stats.norm.sf(4.0)).pvalue > ALPHA


def test_numbers_of_records_steps_and_equal_records_are_uncorrelated() -> None:
    stream, limit = Key.seed(2).noise(), 4.5 / math.sqrt(N)
    one, two = stream.by_record(), stream.by_record()
    coins, equal, z = one.uniform(MANY), one.uniform(EQUAL), one.normal(MANY, 8)
    assert correlation(coins[:-1], coins[1:]) < 4.5 / math.sqrt(N - 1), "neighbours"
    assert correlation(equal[:-1], equal[1:]) < 4.5 / math.sqrt(N - 1), "equal records"
    assert correlation(coins, two.uniform(MANY)) < limit, "steps"
    assert correlation(z[:, 0], two.normal(MANY, 8)[:, 0]) < limit, "steps"
    assert max(correlation(coins, column) for column in z.T) < limit, "a coin and the numbers of its record"
    within = torch.corrcoef(z.double().T) - torch.eye(8)
    assert float(within.abs().max()) < limit, "numbers of one record"
    assert len(torch.unique(z[:, 0])) > 0.99 * N


def test_a_record_has_the_same_numbers_whoever_else_is_there() -> None:
    draws = Key.seed(3).noise().by_record()
    rows = np.array([17, 3, 4, 19_999])
    assert torch.equal(draws.uniform(MANY[rows]), draws.uniform(MANY)[rows])
    for width in (1, 2, 5, 8):
        assert torch.equal(draws.normal(MANY[rows], width), draws.normal(MANY, width)[rows])
    assert draws.uniform(MANY[:0]).shape == (0,)
    assert draws.normal(MANY[:0], 3).shape == (0, 3)


def test_the_stream_moves_alike_for_any_number_of_records() -> None:
    after = []
    for n in (0, 1, N):
        stream = Key.seed(4).noise()
        draws = stream.by_record()
        draws.uniform(MANY[:n])
        draws.normal(MANY[:n], 3)
        after.append(stream.normal(5))
    assert torch.equal(after[0], after[1])
    assert torch.equal(after[0], after[2])


def names_of(records: Records) -> list[bytes]:
    return [name.tobytes() for name in records.identities]


def test_a_name_follows_from_the_content_and_equal_records_have_their_own() -> None:
    x = torch.rand(6, 1, 3, 3, generator=Key.seed(5).torch())
    x[4], y = x[1], torch.tensor([0, 1, 2, 0, 1, 1])
    records = Records(x, y)
    names = names_of(records)
    assert len(set(names)) == 6, "equal records are told apart"
    assert names_of(Records(x[:1], y[:1] + 1)) != names[:1], "the label is part of a record"
    for gone in range(6):
        fewer = names_of(records.take(torch.tensor([i for i in range(6) if i != gone])))
        stays = torch.arange(6) != gone
        afresh = names_of(Records(x[stays], y[stays]))
        assert fewer == [name for i, name in enumerate(names) if i != gone], "a record keeps its name"
        # Of two equal records it does not matter which is gone: the one that stays is the first.
        assert set(afresh) == set(names) - ({names[4]} if gone in (1, 4) else {names[gone]})
    order = torch.tensor([3, 0, 5, 2, 1, 4])
    assert names_of(Records(x[order], y[order])) == [names[i] for i in order]


def test_the_same_content_of_two_patients_has_two_names() -> None:
    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    names = names_of(Records(x, y, torch.tensor([7, 7, 9, 9])))
    assert len(set(names)) == 4
    assert names_of(Records(x[:2], y[:2], torch.tensor([9, 9]))) == names[2:]
