"""FedDM, DSC and PSG: the baselines that FedLAP is measured against."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site, State
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.methods.averaging import fedavg
from prismfl.methods.landscape import dsc, feddm, feddm_dp, psg
from prismfl.nets.classifier import build
from prismfl.rng import Key
from prismfl.runs.planning import configure
from tests.laws.world import make_job, make_world, some_records

KEY = Key.seed(6)
TASK = Task("tiny", (1, 8, 8), tuple("abc"), ("site-0",), 24, "mlp:8")


def door(records: Records | None = None) -> PrivateRecords:
    records = some_records(24, seed=0) if records is None else records
    return PrivateRecords(records, declared=24, classes=3, noise=Key.seed(9).noise())


def score(state: State) -> float:
    classifier, _ = build("mlp:8", (1, 8, 8), 3, key=KEY)
    test = some_records(60, seed=77)
    found = classifier.logits(state.items["model"].to("cpu"), test.x).argmax(1)
    return float((found == test.y).float().mean())


def test_bounded_features_have_norm_one() -> None:
    for name in ("mlp:8", "convnet:4"):
        classifier, params = build(name, (1, 8, 8), 3, key=KEY)
        norms = feddm_dp.bounded(classifier, params, torch.rand(5, 1, 8, 8)).norm(dim=1)
        torch.testing.assert_close(norms, torch.ones(5))


def test_near_is_as_far_as_said() -> None:
    _, params = build("convnet:8", (1, 8, 8), 3, key=KEY)
    moved = feddm.near(params, 2.0, KEY)
    distance = math.sqrt(sum(float((moved[k] - params[k]).square().sum()) for k in params))
    assert distance == pytest.approx(2.0, rel=0.1)
    assert all(torch.equal(p, params[k]) for k, p in feddm.near(params, 0.0, KEY).items())


def test_without_noise_the_private_means_are_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms hand the same class means to the matching when the batch is everything and sigma is 0."""
    records = some_records(24, seed=0)
    state = State(0, dict(fedavg.init(feddm.Config(), TASK, KEY)))
    classifier, _ = build("mlp:8", (1, 8, 8), 3, key=KEY)
    seen: list[torch.Tensor] = []

    def catch(cfg, state, site, key, *, look, means):  # type: ignore[no-untyped-def]
        seen.append(means(state.items["model"].to("cpu")))
        return {}

    monkeypatch.setattr(feddm, "matched", catch)
    feddm_dp.client(feddm_dp.Config(sigma=0.0, batch=24), state, Site("site-0", door(records), {}, TASK), KEY)
    params = state.items["model"].to("cpu")
    for c in range(3):
        exact = feddm_dp.bounded(classifier, params, records.x[records.y == c]).mean(0)
        torch.testing.assert_close(seen[0][c], exact, rtol=1e-4, atol=1e-5)


def test_a_row_of_the_private_form_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """If rows were longer than 1 they would be cut, and the means would be wrong."""
    opened = door()
    found: list[torch.Tensor] = []
    ask = opened.noisy_sum

    def look(rows, **kwargs):  # type: ignore[no-untyped-def]
        found.append(rows(torch.rand(7, 1, 8, 8), torch.arange(7) % 3).norm(dim=1))
        return ask(rows, **kwargs)

    monkeypatch.setattr(opened, "noisy_sum", look)
    cfg = feddm_dp.Config(sigma=1.0, rounds=1, networks=1, updates=1, images=1, batch=8)
    state = State(0, dict(fedavg.init(cfg, TASK, KEY)))
    feddm_dp.client(cfg, state, Site("site-0", opened, {}, TASK), KEY)
    torch.testing.assert_close(found[0], torch.ones(7), rtol=1e-5, atol=1e-5)


def test_feddm_learns_where_each_site_has_one_class(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "rounds": 3,
        "images": 3,
        "networks": 20,
        "image_lr": 1.0,
        "rho": 1.0,
        "lr": 0.5,
        "server_steps": 100,
    }
    settings["public_classes"] = ((0,), (1,), (2,))
    owned = {f"site-{i}": some_records(24, seed=i, classes=(i,)) for i in range(3)}
    state, _ = make_world(make_job("feddm", settings=settings), tmp_path, records=owned).run()
    assert score(state) > 0.8


def test_dsc_learns(tmp_path: Path) -> None:
    settings = {"networks": 8, "stops": 4, "model_steps": 2, "updates": 3, "image_lr": 1.0, "epochs": 60}
    state, _ = make_world(make_job("dsc", settings=settings), tmp_path).run()
    assert score(state) > 0.8


def test_psg_without_noise_learns(tmp_path: Path) -> None:
    settings = {
        "networks": 8, "stops": 4, "model_steps": 2, "updates": 3, "image_lr": 1.0, "epochs": 60, "clip": 10.0,
        "batch": 72, "sigma": 0.0,
    }  # fmt: skip
    state, _ = make_world(make_job("psg", settings=settings), tmp_path).run()
    assert score(state) > 0.8


def test_psg_is_central_or_at_the_sites() -> None:
    assert METHODS["psg"].pooled
    assert not METHODS["psg-sites"].pooled
    cfg = psg.Config(sigma=1.0, networks=3, stops=4)
    assert psg.plan(cfg, TASK) == TASK.gaussian(1.0, batch=256, times=12)


@pytest.mark.parametrize("method", ["feddm", "dsc"])
def test_a_site_without_records_is_said(method: str) -> None:
    cfg = METHODS[method].settings()
    state = State(0, dict(fedavg.init(cfg, TASK, KEY)))
    empty = some_records(2, seed=0).take(torch.arange(0))
    with pytest.raises(UserError, match="site-0 has no records; nothing was sent"):
        METHODS[method].client(cfg, state, Site("site-0", door(empty), {}, TASK), KEY)


@pytest.mark.parametrize("method", ["feddm", "feddm-dp", "dsc", "psg", "psg-sites"])
def test_no_images_is_refused(method: str) -> None:
    with pytest.raises(UserError, match=r"Bad value for 'images'.*got 0"):
        configure({"method": method, "images": 0})


def test_dsc_fits_class_by_class() -> None:
    """Images of a class that nobody holds stay what they were."""
    cfg = dsc.Config(images=2, networks=1, stops=1, model_steps=0, image_lr=1.0, batch=8)
    state = State(0, dict(fedavg.init(cfg, TASK, KEY)))
    only = some_records(24, seed=0, classes=(1,))
    sent, _ = dsc.client(cfg, state, Site("site-0", door(only), {}, replace(TASK)), KEY)
    start = torch.randn(6, 1, 8, 8, generator=KEY.child("images").torch())
    x = sent["images"].tensors["x"]
    assert torch.equal(x[:2], start[:2])
    assert torch.equal(x[4:], start[4:])
    assert not torch.equal(x[2:4], start[2:4])


def test_feddm_leaves_images_of_a_class_it_does_not_hold_alone() -> None:
    cfg = feddm.Config(rounds=1, images=2, networks=2, updates=1, batch=8)
    state = State(0, dict(fedavg.init(cfg, TASK, KEY)))
    only = some_records(24, seed=0, classes=(1,))
    sent, _ = feddm.client(cfg, state, Site("site-0", door(only), {}, TASK), KEY)
    start = torch.randn(6, 1, 8, 8, generator=KEY.child("images").torch())
    assert torch.equal(sent["images"].tensors["x"][[0, 1, 4, 5]], start[[0, 1, 4, 5]])
    assert not torch.equal(sent["images"].tensors["x"][2:4], start[2:4])
