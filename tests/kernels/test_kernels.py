"""Each fast kernel against its reference: gradients written out for each record, measured and added in double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.core.rounds import initial_state, site_step
from prismfl.kernels import clipped_gradients, per_record
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.rng import Key
from prismfl.runs.description import job_of
from tests.kernels.networks import CLASSES, NETWORKS
from tests.laws.world import make_job, make_world
from tests.site.folders import make_site
from tests.site.test_office import description

FAST = {name for name in NETWORKS if name.endswith(("convnet", "lenet", "mlp", "logreg", "discriminator"))}


def flat(sums: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for g in sums.values()])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_kernel_gives_what_its_reference_gives(name: str) -> None:
    network = NETWORKS[name]()
    batch = network.batch(9)
    for clip in (0.05, 1e6):
        fast = flat(clipped_gradient_sum(network.loss, network.params, batch=batch, clip=clip))
        plain = flat(clipped_gradient_sum(network.loss, network.params, batch=batch, clip=clip, reference=True))
        assert fast.dtype == plain.dtype == torch.float64
        # In float32 rounding turns a few ReLUs over, hence the norm and not each number.
        assert float((fast - plain).norm()) <= 2e-4 * float(plain.norm())


@pytest.mark.parametrize("name", sorted(FAST))
def test_the_reference_uses_no_fast_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, asked = NETWORKS[name](), []
    real = per_record.clipped_sum

    def noted(*a: Any, **k: Any) -> Any:
        asked.append(name)
        return real(*a, **k)

    monkeypatch.setattr(per_record, "clipped_sum", noted)
    for reference, expected in ((False, [name]), (True, [])):
        asked.clear()
        clipped_gradient_sum(network.loss, network.params, batch=network.batch(2), clip=1.0, reference=reference)
        assert asked == expected


@pytest.mark.parametrize("clip", [1e-30, 1e35])
def test_bounds_that_float32_cannot_hold_go_by_the_reference(clip: float) -> None:
    network = NETWORKS["mlp"]()
    got = flat(clipped_gradient_sum(network.loss, network.params, batch=network.batch(4), clip=clip))
    plain = flat(clipped_gradient_sum(network.loss, network.params, batch=network.batch(4), clip=clip, reference=True))
    assert torch.equal(got, plain)
    assert not torch.equal(got, torch.zeros_like(got))
    assert clip < clipped_gradients.SMALL or clip > clipped_gradients.LARGE


def no_kernel_behind_a_door_that_demands_the_reference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, asked = NETWORKS["lenet"](), []
    real = per_record.clipped_sum

    def noted(*a: Any, **k: Any) -> Any:
        asked.append(1)
        return real(*a, **k)

    monkeypatch.setattr(per_record, "clipped_sum", noted)
    x, y, *_ = network.batch(9)
    for reference in (False, True):
        asked.clear()
        records, noise = Records(x, y), Key.seed(0).noise()
        door = PrivateRecords(records, declared=9, classes=CLASSES, noise=noise, reference=reference)
        door.noisy_gradient(network.loss, network.params, batch=9, clip=1.0, sigma=1.0)
        with door.by_class([3, 3, 3]) as doors:
            doors[0].noisy_gradient(network.loss, network.params, batch=3, clip=1.0, sigma=1.0)
        assert bool(asked) is not reference


def test_a_door_that_demands_the_reference_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_kernel_behind_a_door_that_demands_the_reference(tmp_path, monkeypatch)


def test_a_site_demands_the_reference_for_every_method_that_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = description()
    for said in (False, True):
        office = make_site(tmp_path / str(said), "north", reference=said)
        assert office._host(job_of(told), told).reference is said
    job = make_job("dp-fedavg")
    world = make_world(job, tmp_path)
    seen: list[bool] = []
    real = PrivateRecords.noisy_gradient

    def noted(self: PrivateRecords, *a: Any, **k: Any) -> Any:
        seen.append(self.reference)
        return real(self, *a, **k)

    monkeypatch.setattr(PrivateRecords, "noisy_gradient", noted)
    site_step(job, initial_state(job), replace(world.hosts[0], reference=True))
    assert seen
    assert all(seen)
