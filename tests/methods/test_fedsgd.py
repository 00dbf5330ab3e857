"""FedSGD by hand: one exact gradient of one batch, averaged and stepped along by the server."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.payloads import Gradient, Items
from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import BIAS, MEAN_GRADIENT, RECORDS, TASK, WEIGHT, ask, model, same, serve, settings


def gradient(value: float) -> Items:
    return {"gradient": Gradient({WEIGHT: torch.full((2, 2), value), BIAS: torch.zeros(2)})}


def test_a_site_sends_the_mean_gradient_of_its_batch() -> None:
    told = ask("fedsgd", {"model": model()}, batch=2)
    assert same(told.leaves["gradient"].tensors, {WEIGHT: MEAN_GRADIENT, BIAS: torch.zeros(2)})
    assert told.stays == {}


def test_a_batch_of_one_is_one_of_the_records() -> None:
    told = ask("fedsgd", {"model": model()}, batch=1).leaves["gradient"].tensors[WEIGHT]
    each = [torch.tensor([[-0.5, 0.0], [0.5, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, -1.0]])]
    assert any(torch.allclose(told, one) for one in each)


def test_a_batch_holds_no_record_twice() -> None:
    """A batch larger than the site is the site."""
    big, whole = (ask("fedsgd", {"model": model()}, batch=b).leaves["gradient"] for b in (50, 2))
    assert same(big.tensors, whole.tensors)


def test_the_server_steps_along_the_mean() -> None:
    inbox = {f"site-{i}": gradient(v) for i, v in enumerate((1.0, 2.0, 3.0))}
    after = serve("fedsgd", {"model": model(1.0)}, inbox, lr=0.5, rounds=10)["model"].tensors
    assert torch.allclose(after[WEIGHT], torch.full((2, 2), 1.0 - 0.5 * 2.0))


@pytest.mark.parametrize(("round", "rate"), [(0, 0.4), (5, 0.2), (10, 0.0)])
def test_the_rate_falls_along_half_a_cosine(round: int, rate: float) -> None:
    after = serve("fedsgd", {"model": model()}, {"site-0": gradient(1.0)}, lr=0.4, rounds=10, round=round)
    assert torch.allclose(after["model"].tensors[WEIGHT], torch.full((2, 2), -rate), atol=1e-7)


def test_a_long_gradient_is_shortened_to_twice_the_median() -> None:
    inbox = {f"site-{i}": gradient(v) for i, v in enumerate((1.0, 1.0, 100.0))}
    after = serve("fedsgd", {"model": model()}, inbox, lr=1.0, rounds=10)["model"].tensors
    assert torch.allclose(after[WEIGHT], torch.full((2, 2), -4.0 / 3))


def test_one_record_is_written_in_its_gradient() -> None:
    """Why it has no guarantee: a row of the weights' gradient over its bias's is the record itself."""
    one = Records(RECORDS.x[1:], RECORDS.y[1:])
    sent = ask("fedsgd", {"model": model()}, records=one).leaves["gradient"].tensors
    assert torch.allclose(sent[WEIGHT][0] / sent[BIAS][0], one.x[0])


def test_it_has_no_guarantee_and_declares_its_shape() -> None:
    assert METHODS["fedsgd"].plan(settings("fedsgd"), TASK) == Cost.non_private()
    told = ask("fedsgd", {"model": model()})
    assert told.cost == Cost.non_private()
    assert {k: p.shapes() for k, p in told.leaves.items()} == METHODS["fedsgd"].shapes(settings("fedsgd"), TASK)


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"batch": 0}, {"lr": 0.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("fedsgd", **bad)
