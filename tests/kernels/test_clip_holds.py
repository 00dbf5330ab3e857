"""No weights, inputs or cotangents make one record count for more than the clip.

An adversary chooses the network's numbers, and knows how floats round. The worst cases found are kept by name; around
them numbers are drawn over all magnitudes. A record is tried alone, and as first, middle and last of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import cast

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from prismfl.kernels import clipped_gradients, per_record
from prismfl.kernels.layer_gradients import squared_norms
from prismfl.kernels.loss import Loss
from prismfl.nets.classifier import build
from prismfl.privacy import mechanisms as m
from prismfl.rng import Key
from tests.kernels.cancelling import INPUTS, MOST, WEIGHTS, made
from tests.kernels.networks import NETWORKS, SLOW, Batch, Network, Params

LAW = 1.0 + 1e-5
OTHERS = 6


def flat(sums: Params) -> torch.Tensor:
    return torch.cat([g.flatten().double() for g in sums.values()])


def clipped(network: Network, params: Params, batch: Batch, clip: float, *, reference: bool = False) -> torch.Tensor:
    sums = clipped_gradients.clipped_gradient_sum(
        network.loss, params, batch=batch, clip=clip, expected=20.0, reference=reference
    )
    return flat(sums)


def influence(network: Network, params: Params, x: torch.Tensor, clip: float, places: tuple[int, ...]) -> float:
    """The most that a record `x` counts for, in clips: alone, and at these places among ordinary records."""
    ordinary, found = network.batch(OTHERS + 1), []
    for place in places:
        among = (torch.cat([ordinary[0][:place], x[None], ordinary[0][place + 1 :]]), *ordinary[1:])
        rest = torch.arange(OTHERS + 1) != place
        without = clipped(network, params, tuple(b[rest] for b in among), clip)
        found += [
            clipped(network, params, tuple(b[~rest] for b in among), clip),
            clipped(network, params, among, clip) - without,
        ]
    moved = torch.stack(found)
    return float(moved.norm(dim=1).max()) / clip if bool(torch.isfinite(moved).all()) else math.inf


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_that_cancel_at_ordinary_sizes(name: str, weights: str) -> None:
    """Nothing here is beyond 1e3, so that the fast kernels take it; what is left of the sums is rounding."""
    network, count = NETWORKS[name](), 7
    for inputs in INPUTS if name not in SLOW else ("even",):
        params, batch = made(network, weights, inputs, count)
        assert max(float(p.abs().max()) for p in params.values()) <= MOST
        assert clipped_gradients.chosen(network.loss, params, batch[0], clip=0.1) != clipped_gradients.REFERENCE
        rest = torch.arange(count) != 0
        for reference in (False, True) if name not in SLOW else (False,):
            whole, others, alone = (
                clipped(network, params, tuple(b[r] for b in batch), 0.1, reference=reference)
                for r in (rest | ~rest, rest, ~rest)
            )
            assert float(alone.norm()) <= 0.1 * LAW
            assert float((whole - others).norm()) <= 0.1 * LAW


# One layer whose input and cotangent are free: the layer, then scores whose weights are the cotangent.


def score(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return output.sum()


def one_layer(layer: nn.Module, shape: tuple[int, ...], cotangent: torch.Tensor) -> Network:
    """A gradient by this layer alone, of this cotangent: the layer gives zero, so the scores have none."""
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(cotangent.numel(), 1, bias=False))
    params = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    params["2.weight"] = cotangent.reshape(1, -1).clone()
    return Network(Loss(module, score), params, shape)


def spot(shape: tuple[int, ...], place: tuple[int, ...], value: float) -> torch.Tensor:
    made = torch.zeros(shape)
    made[place] = value
    return made


def convolution(side: int, x: torch.Tensor, cotangent: torch.Tensor) -> tuple[Network, torch.Tensor]:
    return one_layer(nn.Conv2d(64, 64, 3, padding=1, bias=False), (64, side, side), cotangent), x


def hot_pixel(side: int) -> tuple[Network, torch.Tensor]:
    """A huge activation that no patch of the cotangent touches, in the same tile: the true gradient is zero."""
    shape = (64, side, side)
    return convolution(side, spot(shape, (0, 0, 0), 1e10), spot(shape, (0, 3, 3), 1.0))


def cancelling(side: int) -> tuple[Network, torch.Tensor]:
    """Equal activations, a cotangent that sums to zero: the gradient is what the border leaves, and rounding."""
    cotangent = torch.full((64, side, side), 1.0)
    cotangent[:, ::2] = -1.0
    return convolution(side, torch.full((64, side, side), 1e9 / 3), cotangent)


def linear(inputs: float, cotangent: float, width: int = 7, outputs: int = 5) -> tuple[Network, torch.Tensor]:
    network = one_layer(nn.Linear(width, outputs, bias=width == 7), (width,), torch.full((outputs,), cotangent))
    return network, torch.full((width,), inputs)


def kernels(inputs: float, cotangent: float) -> tuple[Network, torch.Tensor]:
    network = one_layer(nn.Conv2d(1, 5, 3), (1, 6, 6), torch.full((5, 4, 4), cotangent))
    return network, torch.full((1, 6, 6), inputs)


def gain(name: str, layer: str, value: float) -> tuple[Network, torch.Tensor]:
    network = NETWORKS[name]()
    params = {k: torch.full_like(p, value) if k == layer else p for k, p in network.params.items()}
    return Network(network.loss, params, network.shape), network.batch(1)[0][0]


WORST: dict[str, Callable[[], tuple[Network, torch.Tensor]]] = {
    "hot pixel, small picture": lambda: hot_pixel(8),
    "hot pixel, large picture": lambda: hot_pixel(16),
    "cancelling, small picture": lambda: cancelling(8),
    "cancelling, large picture": lambda: cancelling(16),
    "inputs without a float32 square": lambda: linear(2.5e-23, 3e18, width=1024),
    "cotangent without a float32 square": lambda: linear(3e17, 2.5e-23, width=1024, outputs=256),
    "subnormal inputs": lambda: linear(3e-45, 1e38, width=1024),
    "factor below float32": lambda: linear(4e18, 4e18),
    "factor far below float32": lambda: linear(3e14, 7.5e29),
    "largest numbers": lambda: linear(3e38, 3e38),
    "kernel factor below float32": lambda: kernels(1.1e9, 1e29),
    "kernel of largest numbers": lambda: kernels(1e19, 1e18),
    "kernel of subnormal numbers": lambda: kernels(1e-40, 1e38),
    "wide gain of 1e30": lambda: gain("wide convnet", "5.weight", 1e30),
    "wide gain of 1e-40": lambda: gain("wide convnet", "5.weight", 1e-40),
    "dead wide layer": lambda: gain("wide convnet", "4.weight", 0.0),
    "NaN weights": lambda: gain("wide convnet", "8.weight", math.nan),
    "infinite weights": lambda: gain("lenet", "3.weight", math.inf),
}


@pytest.mark.parametrize("case", WORST)
def test_the_worst_cases_count_for_the_clip_and_no_more(case: str) -> None:
    network, x = WORST[case]()
    for clip in (1e-7, 1e-3, 1.0):
        assert influence(network, network.params, x, clip, (0, 3, 6)) <= LAW


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize(("model", "shape"), [("lenet:3", (1, 12, 12)), ("convnet:64", (1, 32, 32))])
def test_a_bad_record_is_left_out_and_spoils_no_other(model: str, shape: tuple[int, ...], value: float) -> None:
    classifier, params = build(model, shape, 3, key=Key.seed(0))
    x, y = torch.randn(21, *shape, generator=torch.Generator().manual_seed(1)), torch.arange(21) % 3
    x[3] = value
    rest, loss, factors = torch.arange(len(x)) != 3, classifier.record_loss, partial(m.clip_factors, bound=1.0)
    with_bad = flat(clipped_gradients.clipped_gradient_sum(loss, params, batch=(x, y), clip=1.0))
    without = flat(per_record.reference(loss, params=params, batch=(x[rest], y[rest]), factors=factors))
    assert bool(torch.isfinite(with_bad).all())
    assert float((with_bad - without).norm()) <= 1.0 + 1e-4
    if not math.isfinite(value):
        torch.testing.assert_close(with_bad, without, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["black", "white", "loud", "faint", "noise", "spot", "board"])
def test_an_odd_record_alone_counts_for_the_bound_and_no_more(kind: str) -> None:
    """What is measured and what is added up are computed in different ways where layers are wide."""
    classifier, params = build("convnet:64", (1, 32, 32), 3, key=Key.seed(0))
    x = torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    x = {"black": 0.0 * x, "white": 0.0 * x + 1.0, "loud": 0.0 * x + 1e6, "faint": 1e-8 * x, "noise": 1e4 * x}.get(
        kind, x
    )
    if kind == "spot":
        x = torch.zeros_like(x).index_fill_(3, torch.tensor([5]), 1e6)
    if kind == "board":
        x = 1e3 * (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).float().expand(1, 1, 32, 32)
    sums = clipped_gradients.clipped_gradient_sum(
        classifier.record_loss, params, batch=(x, torch.tensor([2])), clip=1e-3
    )
    assert 1.0 - 1e-5 < float(flat(sums).norm()) / 1e-3 <= 1.0


@pytest.mark.parametrize("clip", [1e-30, 1e-28])
def test_a_clip_below_what_float32_can_square(clip: float) -> None:
    for network, x in (linear(1.0, 1e-26), kernels(1.0, 1e-26)):
        assert 0.5 < influence(network, network.params, x, clip, (3,)) <= LAW


def test_a_norm_of_very_many_equal_numbers() -> None:
    """Added one by one in float32, a million equal squares lose more than the clip may."""
    for value in (0.1, 1 / 3, 1e-3):
        rows = torch.full((1, 3_000_001), value)
        assert abs(float(squared_norms(rows) / rows.double().square().sum()) - 1.0) < 1e-6


def test_sums_of_many_equal_records_stay_exact() -> None:
    """In float32 a long sum stops counting in parts of the clip: the last record would count for more or less."""
    network, x = linear(1.0, 1.0)
    many = x.expand(3001, -1), torch.zeros(3001, dtype=torch.int64)
    moved = clipped(network, network.params, many, 0.1) - clipped(
        network, network.params, tuple(b[1:] for b in many), 0.1
    )
    assert abs(float(moved.norm()) / 0.1 - 1.0) <= 1e-5


POWERS = st.floats(-44.0, 38.0)


@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_of_all_magnitudes(name: str) -> None:
    network = NETWORKS[name]()
    examples = 3 if "wide" in name or name in ("U-Net", "Siamese view") else 12

    @hypothesis.settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @hypothesis.given(
        st.lists(st.tuples(st.sampled_from(list(network.params)), POWERS), min_size=1, max_size=3),
        st.sampled_from(["record", "spot", "board"]),
        POWERS,
        st.floats(-6.0, 2.0),
        st.sampled_from([0, OTHERS // 2, OTHERS]),
    )
    def holds(scales: list[tuple[str, float]], kind: str, power: float, clip: float, place: int) -> None:
        params = dict(network.params)
        for layer, by in scales:
            params[layer] = (network.params[layer].double() * 10.0**by).float()
        x = network.batch(1)[0][0]
        if kind == "spot":
            x = torch.zeros_like(x).flatten().index_fill_(0, torch.tensor([1]), 1.0).reshape(x.shape)
        if kind == "board":
            x = (torch.arange(x.numel()) % 2 * 2.0 - 1.0).reshape(x.shape)
        assert influence(network, params, (x.double() * 10.0**power).float(), 10.0**clip, (place,)) <= LAW

    cast(Callable[[], None], holds)()


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
@hypothesis.given(POWERS, POWERS, st.floats(-40.0, 40.0), st.floats(-6.0, 2.0), st.booleans())
@hypothesis.example(21.9, 0.0, 0.0, 0.0, False)
@hypothesis.example(22.2, 22.2, 0.0, 0.0, False)
def test_moments_count_for_the_bound_and_no_more(
    first: float, second: float, scale: float, bound: float, double: bool
) -> None:
    row = torch.tensor([[1.0, -0.7, 0.3, 0.9]], dtype=torch.float64)
    row = row * 10.0 ** torch.tensor([first, first, second, second], dtype=torch.float64)
    sums, moment = m.clipped_moments(
        row if double else row.float(),
        torch.tensor([1]),
        classes=2,
        second=2,
        scale=10.0**scale,
        bound=10.0**bound,
        share=torch.ones(1),
    )
    moved = torch.cat([sums.flatten(), moment.flatten()])
    assert bool(torch.isfinite(moved).all())
    assert float(moved.norm()) <= 10.0**bound * LAW


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_rows_of_all_magnitudes(kind: str) -> None:
    for power in (-320, -200, -45, -30, 0, 30, 38, 150, 300):
        rows = torch.tensor([[1.0, -3.0, 0.5, 2.0]], dtype=torch.float64) * 10.0**power
        for bound in (1e-30, 1.0, 1e30):
            got = m.clip_rows(rows, bound, kind=kind)
            norm = float(torch.linalg.vector_norm(got, ord=m.NORM_ORDER[kind]))
            assert norm <= bound * LAW


def test_a_unit_whose_sum_leaves_float32_still_counts_for_the_clip() -> None:
    network, x = linear(3e38, 1.0)
    batch = x.expand(6, -1), torch.zeros(6, dtype=torch.int64)
    unit = torch.tensor([0, 0, 0, 0, 1, 1])
    sums = clipped_gradients.clipped_gradient_sum(network.loss, network.params, batch=batch, clip=0.5, unit=unit)
    assert 0.9 < float(flat(sums).norm()) <= LAW
