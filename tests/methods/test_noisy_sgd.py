"""The four noisy FedSGDs by hand: three whose noise bounds nothing, one whose noise is accounted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.core.payloads import Gradient
from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import BIAS, MEAN_GRADIENT, RECORDS, TASK, WEIGHT, ZERO, ask, model, same, settings

UNPROTECTED = ["fedsgd-gauss", "fedsgd-laplace", "fedsgd-clip"]
WIDE = replace(TASK, shape=(400,))
NOTHING = Records(torch.zeros(2, 400), torch.tensor([0, 1]))  # its gradient is zero


def start(width: int) -> dict[str, Gradient]:
    return {"model": Gradient({WEIGHT: torch.zeros(2, width), BIAS: torch.zeros(2)})}


@pytest.mark.parametrize("name", UNPROTECTED)
def test_without_noise_and_clip_the_batchs_gradient_leaves(name: str) -> None:
    free: dict[str, Any] = {"clip": 1e9} if name == "fedsgd-clip" else {}
    told = ask(name, {"model": model()}, batch=2, scale=0.0, **free)
    assert same(told.leaves["gradient"].tensors, {WEIGHT: MEAN_GRADIENT, BIAS: torch.zeros(2)})


def test_a_batchs_gradient_is_clipped_as_a_whole() -> None:
    """Its norm is sqrt(2 (1/16 + 1/4)); a clip of 0.1 keeps the direction."""
    norm = math.sqrt(2 * (0.25**2 + 0.5**2))
    told = ask("fedsgd-clip", {"model": model()}, batch=2, scale=0.0, clip=0.1)
    assert torch.allclose(told.leaves["gradient"].tensors[WEIGHT], MEAN_GRADIENT * 0.1 / norm)


@pytest.mark.parametrize(("name", "spread"), [("fedsgd-gauss", 1.0), ("fedsgd-laplace", math.sqrt(2.0))])
def test_the_noise_has_the_scale_that_it_is_told(name: str, spread: float) -> None:
    """A Laplace number of scale b has the standard deviation b sqrt 2."""
    told = ask(name, start(400), task=WIDE, records=NOTHING, batch=2, scale=0.3)
    noise = told.leaves["gradient"].tensors[WEIGHT]
    assert float(noise.std()) == pytest.approx(0.3 * spread, rel=0.15)
    assert abs(float(noise.mean())) < 0.3 * spread * 5 / math.sqrt(800)


def test_laplace_noise_has_heavier_tails_than_gaussian() -> None:
    def tail(name: str) -> float:
        noise = ask(name, start(400), task=WIDE, records=NOTHING, batch=2, scale=1.0).leaves["gradient"].tensors[WEIGHT]
        return float((noise / noise.std()).abs().max())

    assert tail("fedsgd-laplace") > 4.0 > tail("fedsgd-gauss") > 2.5


@pytest.mark.parametrize("name", UNPROTECTED)
def test_noise_of_a_fixed_scale_is_no_guarantee(name: str) -> None:
    assert METHODS[name].guarantee is None
    assert METHODS[name].plan(settings(name, scale=1e6), TASK) == Cost.non_private()
    assert ask(name, {"model": model()}, scale=1e6).cost == Cost.non_private()


@pytest.mark.parametrize("name", UNPROTECTED)
def test_a_larger_record_leaves_a_larger_gradient_but_for_the_clip(name: str) -> None:
    """Why there is none: nothing bounds what one record adds, or the bound is on the batch alone."""
    huge = Records(1000 * RECORDS.x, RECORDS.y)
    sent = ask(name, {"model": model()}, records=huge, batch=2, scale=0.0).leaves["gradient"].tensors[WEIGHT]
    norm = float(sent.norm())
    assert norm == pytest.approx(1.0, rel=1e-4) if name == "fedsgd-clip" else norm > 100


def test_the_accounted_one_clips_each_record_and_divides_by_the_expected_batch() -> None:
    told = ask("ldp-fedsgd", {"model": model()}, batch=2.0, clip=1.0, sigma=0.0)
    first = torch.tensor([[-0.5, 0.0], [0.5, 0.0]])
    second = torch.tensor([[0.0, 1.0], [0.0, -1.0]]) / math.sqrt(2.5)
    assert torch.allclose(told.leaves["gradient"].tensors[WEIGHT], (first + second) / 2, atol=1e-5)


def test_under_laplace_noise_the_clip_is_of_the_l1_norm() -> None:
    """The second record's gradient is (1, -1) and (1/2, -1/2): 3 in all."""
    one = Records(RECORDS.x[1:], RECORDS.y[1:])
    told = ask("ldp-fedsgd", {"model": model()}, records=one, batch=2.0, clip=1.5, sigma=0.0, kind="laplace")
    sent = told.leaves["gradient"].tensors
    assert sum(float(g.abs().sum()) for g in sent.values()) == pytest.approx(1.5 / 2, rel=1e-4)


@pytest.mark.parametrize(("kind", "make"), [("gaussian", Cost.gaussian), ("laplace", Cost.laplace)])
def test_the_plan_is_one_answer_a_round_of_the_kind_of_the_noise(kind: str, make: Callable[..., Cost]) -> None:
    cfg = settings("ldp-fedsgd", sigma=1.4, batch=1.0, rounds=6, kind=kind)
    assert METHODS["ldp-fedsgd"].plan(cfg, TASK) == make(1.4, 0.5, times=6)
    told = ask("ldp-fedsgd", {"model": model()}, sigma=1.4, batch=1.0, kind=kind)
    assert told.cost == make(1.4, 0.5)


@pytest.mark.parametrize(("kind", "spread"), [("gaussian", 1.0), ("laplace", math.sqrt(2.0))])
def test_the_accounted_noise_is_sigma_clip_over_batch(kind: str, spread: float) -> None:
    none = Records(torch.zeros(0, 400), torch.zeros(0, dtype=torch.int64))
    told = ask("ldp-fedsgd", start(400), task=WIDE, records=none, batch=2.0, clip=0.5, sigma=2.0, kind=kind)
    assert float(told.leaves["gradient"].tensors[WEIGHT].std()) == pytest.approx(2.0 * 0.5 / 2 * spread, rel=0.15)


@pytest.mark.parametrize("name", ["fedsgd-clip", "ldp-fedsgd"])
def test_a_gradient_longer_than_any_clipped_one_is_told(name: str) -> None:
    possible = METHODS[name].possible
    cfg = settings(name, clip=0.5, **({"sigma": 1.0} if name == "ldp-fedsgd" else {}))
    assert possible is not None
    state = State(0, {"model": model()})
    assert possible(cfg, TASK, state, "site-0", {"gradient": Gradient(ZERO)}) is None
    long = {"gradient": Gradient({WEIGHT: torch.full((2, 2), 1e6), BIAS: torch.zeros(2)})}
    why = possible(cfg, TASK, state, "site-0", long)
    assert why is not None
    assert why.startswith("its gradient is 2e+06 long, and clipped ones are ")


def test_what_leaves_has_the_declared_shape() -> None:
    for name in [*UNPROTECTED, "ldp-fedsgd"]:
        more: dict[str, Any] = {"sigma": 1.0} if name == "ldp-fedsgd" else {}
        told = ask(name, {"model": model()}, **more)
        assert {k: p.shapes() for k, p in told.leaves.items()} == METHODS[name].shapes(settings(name), TASK)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("fedsgd-gauss", {"scale": -0.1}),
        ("fedsgd-gauss", {"sigma": 1.0}),
        ("fedsgd-laplace", {"batch": 0}),
        ("fedsgd-clip", {"clip": 0.0}),
        ("ldp-fedsgd", {"kind": "uniform"}),
        ("ldp-fedsgd", {"clip": -1.0}),
    ],
)
def test_impossible_settings_are_refused(name: str, bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(name, **bad)
