"""3DGL: only decoders leave, one plan for every class and kind, noised sizes, mixed pools, peers, units, images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.door import PrivateRecords
from prismfl.core.method import OwnSite, Site, State
from prismfl.core.records import Records
from prismfl.core.release import Release, make_release
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods.generators import threedgl
from prismfl.methods.generators.threedgl import Config
from prismfl.nets.beta_vae import Decoder
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

TASK = Task("tiny", (4,), ("a", "b"), ("site-0", "site-1"), 120, "logreg")
COLUMNS = ("n", "b", "n", "n")
SMALL: dict[str, Any] = {"sigma": 0.5, "queries": 6, "start": 3, "hidden": (8,), "latent": 2, "columns": COLUMNS}


def some_records(n: int = 120, *, seed: int = 0, share: float = 0.3) -> Records:
    """Two classes that the first number and the binary tell apart."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < share).to(torch.int64)
    sign = (2.0 * y - 1)[:, None]
    x = 0.15 * torch.randn(n, 4, generator=g)
    x[:, :1] += 0.6 * sign
    x[:, 1:2] = torch.where(torch.rand(n, 1, generator=g) < 0.9, sign, -sign)
    return Records(x.clamp(-1, 1), y)


def door(records: Records, task: Task = TASK, seed: int = 1) -> PrivateRecords:
    return PrivateRecords(
        records,
        declared=task.records,
        classes=len(task.classes),
        noise=Key.seed(seed).noise(),
        unit=task.unit,
        relation=task.relation,
        allow_exact=False,
    )


def released(cfg: Config, task: Task = TASK, *, site: str = "site-0", records: Records | None = None) -> Release:
    at = door(records or some_records(task.records), task)
    items, memory = threedgl.client(cfg, State(0, {}), Site(site, at, {}, task), Key.seed(2))
    assert memory == {}
    return make_release(at, items, leaves=threedgl.METHOD.leaves, run="r", site=site, round=0)


def pooled(cfg: Config, task: Task = TASK) -> Mapping[str, Any]:
    inbox = {site: released(cfg, task, site=site).items for site in task.sites}
    return threedgl.server(cfg, task, State(0, {}), inbox, Key.seed(3))


def test_only_decoders_and_noisy_sizes_leave() -> None:
    cfg = Config(**SMALL)
    generator = released(cfg).items["generator"]
    one = Decoder(threedgl.recipe_of(cfg, TASK, "ddp-vae").shape).state_dict()
    expected = {f"ddp-vae.{c}.{name}": tuple(t.shape) for c in (0, 1) for name, t in one.items()}
    assert {k: tuple(t.shape) for k, t in generator.tensors.items()} == expected | {"counts": (2,)}
    assert not [name for name in generator.tensors if "encoder" in name or "centre" in name]
    assert generator.shapes() == threedgl.shapes(cfg, TASK)["generator"]


@pytest.mark.parametrize("sizes", [None, (80, 40), (1, 119)])
@pytest.mark.parametrize("rate", [1.0, 0.25, 2.0**-7])
@pytest.mark.parametrize("kind", ["ddp-vae", "dp-gaussian", "dp-copula"])
def test_the_meter_equals_the_plan_for_every_size_rate_and_kind(sizes: Any, rate: float, kind: str) -> None:
    cfg = Config(**{**SMALL, "class_sizes": sizes, "rate": rate, "synthesizers": (kind,)})
    assert released(cfg).cost == threedgl.plan(cfg, TASK)


def test_classes_compose_in_parallel_and_noisy_sizes_add_to_each() -> None:
    public, noised = (Config(**SMALL, class_sizes=s) for s in ((80, 40), None))
    one = Cost.gaussian(0.5, rate=0.125, times=6)
    assert threedgl.plan(public, TASK).branches == one.branches * 2
    assert account.epsilon(threedgl.plan(public, TASK), 1e-5) == account.epsilon(one, 1e-5)
    assert account.epsilon(threedgl.plan(noised, TASK), 1e-5) > account.epsilon(one, 1e-5)


def test_epsilon_falls_with_sigma_so_that_it_can_be_solved() -> None:
    plans = [threedgl.plan(Config(**{**SMALL, "sigma": s}), TASK) for s in (0.6, 0.9, 1.5, 4.0)]
    values = [account.epsilon(p, 1e-5) for p in plans]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 4


@pytest.mark.parametrize("rate", [0.3, 0.75, 1.5, 0.0])
def test_a_rate_that_is_no_power_of_two_is_refused(rate: float) -> None:
    with pytest.raises(ValidationError):
        Config(rate=rate)


def test_the_noised_sizes_have_the_planned_noise() -> None:
    cfg = Config(**SMALL)
    true = torch.bincount(some_records().y).to(torch.float32)
    found = torch.stack([threedgl.class_sizes(cfg, door(some_records(), seed=s)) for s in range(300)])
    assert float((found == true).to(torch.float32).mean()) < 0.01
    assert float((found - true).std()) == pytest.approx(cfg.count_noise, rel=0.15)


def test_a_missing_class_releases_the_same_names_and_sizes() -> None:
    cfg = Config(**SMALL)
    full = released(cfg).items["generator"].shapes()
    lone = replace(some_records(), y=torch.zeros(120, dtype=torch.int64))
    empty = Records(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    for records in (lone, empty):
        assert released(cfg, records=records).items["generator"].shapes() == full


def test_samples_tell_the_classes_apart() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "queries": 12, "start": 6, "samples": 600})
    made = pooled(cfg)["synthetic"]
    assert torch.bincount(made.y).tolist() == [300, 300]
    assert float(made.x[made.y == 1][:, 0].mean()) > 0.3
    assert float(made.x[made.y == 0][:, 0].mean()) < -0.3
    assert sorted(made.x[:, 1].unique().tolist()) == [-1.0, 1.0]


def test_the_noised_balance_is_an_option() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "samples": 1000, "balance": "noised"})
    assert float(pooled(cfg)["synthetic"].y.to(torch.float32).mean()) == pytest.approx(0.3, abs=0.1)


def test_a_pool_by_counts_hardly_asks_a_generator_of_an_empty_class() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "pool": "counts", "class_sizes": None})
    few = {
        site: released(cfg, site=site, records=some_records(share=s)).items
        for site, s in (("site-0", 0.0), ("site-1", 0.5))
    }
    pool = {f"generator-{s}": items["generator"] for s, items in few.items()}
    shares = threedgl._shares(cfg, TASK, {"site-0": pool["generator-site-0"], "site-1": pool["generator-site-1"]})
    assert float(shares[0, 1] / shares[:, 1].sum()) < 0.1
    assert float(shares.sum()) == pytest.approx(1.0, abs=1e-5)


def test_a_mixed_pool_has_one_plan_one_shape_and_samples_both_kinds() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "queries": 9, "synthesizers": ("ddp-vae", "dp-gaussian"), "samples": 400})
    first, second = (released(cfg, site=site) for site in TASK.sites)
    assert first.cost == second.cost == threedgl.plan(cfg, TASK)
    assert first.items["generator"].shapes() == second.items["generator"].shapes()
    assert first.items["generator"].spec["kind"] == "ddp-vae"
    assert second.items["generator"].spec["kind"] == "dp-gaussian"
    assert not bool(second.items["generator"].tensors["ddp-vae.0.net.0.weight"].any())
    made = pooled(cfg)["synthetic"]
    assert float(made.x[made.y == 1][:, 0].mean()) - float(made.x[made.y == 0][:, 0].mean()) > 0.6


def test_a_merged_pool_adds_up_sums_and_samples_other_kinds_apart() -> None:
    task = replace(TASK, sites=("site-0", "site-1", "site-2"))
    kinds = ("dp-copula", "ddp-vae", "dp-copula")
    cfg = Config(**{**SMALL, "sigma": 0.05, "queries": 9, "synthesizers": kinds, "pool": "merged", "samples": 600})
    found = {site: released(cfg, task, site=site) for site in task.sites}
    assert len({str(release.cost) for release in found.values()}) == 1
    assert len({str(release.items["generator"].shapes()) for release in found.values()}) == 1
    assert threedgl._groups(cfg, task, list(task.sites)) == [["site-0", "site-2"], ["site-1"]]
    made = pooled(cfg, task)["synthetic"]
    assert torch.bincount(made.y).tolist() == [300, 300]
    assert float(made.x[made.y == 1][:, 0].mean()) - float(made.x[made.y == 0][:, 0].mean()) > 0.6
    apart = cfg.model_copy(update={"pool": "uniform"})
    assert threedgl._groups(apart, task, list(task.sites)) == [[site] for site in task.sites]


def test_the_copula_notes_sizes_in_its_first_look_at_the_same_cost() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "synthesizers": ("dp-copula",)})
    counts = released(cfg).items["generator"].tensors["counts"]
    true = torch.bincount(some_records().y).to(torch.float32)
    assert torch.allclose(counts, true, rtol=0.25)
    assert not torch.equal(counts, true)


def test_peers_that_pass_the_releases_on_build_the_servers_pool() -> None:
    cfg = Config(**SMALL)
    raw = {site: released(cfg, site=site).encode() for site in TASK.sites}
    at_server = pooled(cfg)
    at_peer = threedgl.server(
        cfg, TASK, State(0, {}), {s: Release.decode(raw[s]).items for s in reversed(TASK.sites)}, Key.seed(3)
    )
    assert {k: p.digest for k, p in at_peer.items()} == {k: p.digest for k, p in at_server.items()}


def test_a_site_chooses_the_number_that_serves_its_own_records() -> None:
    cfg = Config(**{**SMALL, "sigma": 0.05, "queries": 12, "start": 6, "candidates": (2, 600)})
    state = State(1, dict(pooled(cfg)))
    own = some_records(200, seed=9)
    items = threedgl.adopt(cfg, state, OwnSite("site-0", own, {}, TASK), Key.seed(4))
    assert set(items) == {"model"}
    logits = own.x @ items["model"].tensors["1.weight"].T + items["model"].tensors["1.bias"]
    assert float((logits.argmax(1) == own.y).to(torch.float32).mean()) > 0.9


def test_units_get_one_generator_since_a_person_may_lie_in_several_classes() -> None:
    task = replace(TASK, unit="patient", records=40)
    records = some_records(120)
    grouped = Records(records.x, records.y, torch.arange(120) // 3)
    cfg = Config(**{**SMALL, "samples": 50})
    found = released(cfg, task, records=grouped)
    assert found.cost == threedgl.plan(cfg, task)
    assert found.cost.unit == "patient"
    assert all(name.startswith("ddp-vae.all.") for name in found.items["generator"].tensors)
    made = threedgl.server(cfg, task, State(0, {}), {"site-0": found.items}, Key.seed(0))["synthetic"]
    assert made.tensors["x"].shape == (50, 4)
    assert set(made.tensors["y"].tolist()) <= {0, 1}


def test_images_go_through_the_convolutional_network() -> None:
    task = Task("tiny", (1, 8, 8), ("a", "b"), ("site-0",), 30, "mlp")
    cfg = Config(sigma=1.0, queries=3, start=1, latent=2, conv=2, samples=6)
    records = Records(torch.rand(30, 1, 8, 8), torch.arange(30) % 2)
    found = released(cfg, task, records=records)
    assert "ddp-vae.0.net.3.weight" in found.items["generator"].tensors
    made = threedgl.server(cfg, task, State(0, {}), {"site-0": found.items}, Key.seed(0))["synthetic"]
    x = made.tensors["x"]
    assert x.shape == (6, 1, 8, 8)
    assert 0.0 <= float(x.min()) <= float(x.max()) <= 1.0


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="columns of 4 features in all, got 3"):
        threedgl.init(Config(columns=("n", "b", "n")), TASK, Key.seed(0))
    with pytest.raises(UserError, match="2 class_sizes, got 3"):
        threedgl.init(Config(columns=COLUMNS, class_sizes=(1, 2, 3)), TASK, Key.seed(0))
    with pytest.raises(UserError, match="Unknown synthesizer 'gan'"):
        threedgl.init(Config(columns=COLUMNS, synthesizers=("gan",)), TASK, Key.seed(0))
    with pytest.raises(ValidationError):
        Config(class_sizes=(0, 5))
