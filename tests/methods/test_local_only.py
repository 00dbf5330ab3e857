"""Local training: nothing leaves, nothing is charged, every site has a model of its own."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import OwnSite, State
from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import KEY, RECORDS, TASK, WEIGHT, ask, settings

METHOD = METHODS["local-only"]


def adopted(records: Records, **changes: float) -> dict[str, torch.Tensor]:
    assert METHOD.adopt is not None
    site = OwnSite("site-0", records, {}, TASK)
    return dict(METHOD.adopt(settings("local-only", **changes), State(1, {}), site, KEY)["model"].tensors)


def test_nothing_leaves_and_nothing_is_charged() -> None:
    told = ask("local-only", {})
    assert (told.leaves, told.stays) == ({}, {})
    assert told.cost == Cost.zero() == METHOD.plan(settings("local-only"), TASK)
    assert METHOD.shapes(settings("local-only"), TASK) == {} == METHOD.leaves


def test_the_server_has_nothing_before_and_after() -> None:
    assert METHOD.init(settings("local-only"), TASK, KEY) == {}
    assert METHOD.server(settings("local-only"), TASK, State(0, {}), {"site-0": {}}, KEY) == {}
    assert METHOD.model_at == "sites"


def test_one_batch_and_epoch_is_one_step_from_the_sites_own_start() -> None:
    """Momentum has nothing to add to a first step."""
    start = METHODS["fedavg"].init(settings("fedavg"), TASK, KEY)["model"].tensors
    scores = RECORDS.x @ start[WEIGHT].T + start["1.bias"]
    wrong = torch.softmax(scores, 1) - torch.eye(2)[RECORDS.y]
    after = adopted(RECORDS, epochs=1, batch=2, lr=0.5)
    assert torch.allclose(after[WEIGHT], start[WEIGHT] - 0.5 * wrong.T @ RECORDS.x / 2, atol=1e-6)


def test_it_learns_its_own_records() -> None:
    after = adopted(RECORDS, epochs=100, batch=2, lr=0.3)
    scores = RECORDS.x @ after[WEIGHT].T + after["1.bias"]
    assert torch.equal(scores.argmax(1), RECORDS.y)


def test_a_site_without_records_keeps_its_start() -> None:
    none = Records(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    start = METHODS["fedavg"].init(settings("fedavg"), TASK, KEY)["model"].tensors
    assert torch.equal(adopted(none, epochs=3)[WEIGHT], start[WEIGHT])


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"sigma": 1.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("local-only", **bad)
