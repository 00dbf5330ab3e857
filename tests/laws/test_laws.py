"""The laws that every method keeps. A new method is covered by being in METHODS."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from prismfl.core.records import Records
from prismfl.errors import BoundaryError, BudgetError
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from tests.laws.world import (
    AT_SITE,
    NAMES,
    PRIVATE,
    RECORDS,
    UNPROTECTED,
    fingerprint,
    make_job,
    make_world,
    some_records,
)


@pytest.mark.parametrize("name", NAMES)
def test_1_same_inputs_same_run_whatever_the_global_seed(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = fingerprint(*make_world(make_job(name), tmp_path / "a").run())
    torch.manual_seed(2)
    torch.rand(100)
    assert fingerprint(*make_world(make_job(name), tmp_path / "b").run()) == first
    assert first, "a method must leave something to compare"


@pytest.mark.parametrize("name", NAMES)
def test_2_inputs_are_left_alone(name: str, tmp_path: Path) -> None:
    job = make_job(name)
    table = len(job.task.shape) == 1
    owned = {n: some_records(job.task.records, seed=i, table=table) for i, n in enumerate(job.task.sites)}
    public = job.task.public

    def digest() -> str:
        tensors = [t for r in owned.values() for t in (r.x, r.y)] + ([] if public is None else [public])
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()

    before = digest()
    make_world(job, tmp_path, records=owned).run()
    assert digest() == before


@pytest.mark.parametrize("name", NAMES)
def test_3_what_leaves_is_the_manifest_detached_and_finite(name: str, tmp_path: Path) -> None:
    world = make_world(make_job(name), tmp_path)
    world.run()
    shapes = world.job.shapes
    for release in world.releases:
        assert {k: type(p) for k, p in release.items.items()} == dict(METHODS[name].leaves)
        for item, payload in release.items.items():
            assert payload.shapes() == shapes[item]
            for tensor in payload.tensors.values():
                assert not tensor.requires_grad
                assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


@pytest.mark.parametrize("name", [n for n in PRIVATE if METHODS[n].guarantee == "site"])
def test_4_a_guarantee_at_the_site_never_opens_the_exact_records(name: str, tmp_path: Path) -> None:
    make_world(make_job(name), tmp_path, allow_exact=False).run()


@pytest.mark.parametrize("name", UNPROTECTED)
def test_4_the_refusing_door_does_refuse(name: str, tmp_path: Path) -> None:
    if "sigma" in METHODS[name].settings.model_fields:
        pytest.skip("adds noise of its own without a guarantee")
    with pytest.raises(BoundaryError):
        make_world(make_job(name), tmp_path, allow_exact=False).run()


@pytest.mark.parametrize("name", NAMES)
def test_5_ledger_equals_plan(name: str, tmp_path: Path) -> None:
    world = make_world(make_job(name), tmp_path)
    world.run()
    plan = world.job.plan()
    if world.hub is not None:
        assert world.charged(world.hub.ledger, "client") == plan
        assert not world.charged(world.hosts[0].ledger).private
    else:
        for host in world.hosts:
            assert world.charged(host.ledger) == plan
    if METHODS[name].guarantee is None:
        assert account.epsilon(plan, 1e-5) == float("inf")
    else:
        assert account.epsilon(plan, 1e-5) < float("inf")


@pytest.mark.parametrize("name", [n for n in PRIVATE if METHODS[n].leaves])
def test_6_over_budget_is_refused_before_anything_leaves(name: str, tmp_path: Path) -> None:
    job = make_job(name)
    cap = 0.9 * account.epsilon(job.plan(), 1e-5)
    with pytest.raises(BudgetError):
        make_world(job, tmp_path, cap=cap)
    file = tmp_path / ("hub.sqlite" if METHODS[name].guarantee == "client" else "site-0.sqlite")
    from prismfl.privacy.ledger.book import Ledger

    ledger = Ledger.open(file)
    assert ledger.charges() == []
    assert all(not status.open_runs for status in ledger.status())
    make_world(job, tmp_path / "enough", cap=1.01 * account.epsilon_rdp(job.plan(), 1e-5)).run()


def public_face(name: str, tmp_path: Path, owned: dict[str, Records]) -> list[object]:
    """Everything about the releases that an observer sees besides the numbers themselves."""
    world = make_world(make_job(name), tmp_path, records=owned)
    world.run()
    return [
        (
            r.site,
            r.round,
            len(r.encode()),
            [(k, p.kind, p.spec, p.shapes()) for k, p in sorted(r.items.items())],
            r.cost if world.method.guarantee else None,
        )
        for r in world.releases
    ]


@pytest.mark.parametrize("name", AT_SITE)
def test_7_the_shape_of_a_release_does_not_depend_on_the_data(name: str, tmp_path: Path) -> None:
    job = make_job(name)
    table = len(job.task.shape) == 1
    sizes = {"as declared": RECORDS, "one more": RECORDS + 1, "one": 1, "many": 3 * RECORDS}
    faces = []
    for what, n in sizes.items():
        owned = {s: some_records(n, seed=i, table=table) for i, s in enumerate(job.task.sites)}
        faces.append(public_face(name, tmp_path / what, owned))
    one_class = {s: some_records(RECORDS, seed=i, classes=(1,), table=table) for i, s in enumerate(job.task.sites)}
    faces.append(public_face(name, tmp_path / "a class only", one_class))
    empty = {s: some_records(2, seed=i, table=table).take(torch.arange(0)) for i, s in enumerate(job.task.sites)}
    faces.append(public_face(name, tmp_path / "empty", empty))
    assert all(face == faces[0] for face in faces)


@pytest.mark.parametrize("name", NAMES)
def test_8_bytes_and_another_order_of_sites_change_nothing(name: str, tmp_path: Path) -> None:
    plain = fingerprint(*make_world(make_job(name), tmp_path / "a").run())
    assert fingerprint(*make_world(make_job(name), tmp_path / "b").run(reverse=True, recode=True)) == plain


@pytest.mark.parametrize("name", AT_SITE)
def test_9_huge_noise_hides_the_data(name: str, tmp_path: Path) -> None:
    """With sigma beyond measure, two different data sets give the same answers up to a relative 1e-3."""
    faces: list[torch.Tensor | None] = []
    for seed, classes in ((0, (0, 1, 2)), (50, (2,))):
        job = make_job(name, sigma=1e9)
        table = len(job.task.shape) == 1
        owned = {
            s: some_records(RECORDS, seed=seed + i, classes=classes, table=table) for i, s in enumerate(job.task.sites)
        }
        world = make_world(job, tmp_path / str(seed), records=owned)
        try:
            world.run()
        except BoundaryError:  # a model blown up by noise may not leave: that too is the same for both
            faces.append(None)
            continue
        first = world.releases[0]
        faces.append(torch.cat([t.flatten().double() for p in first.items.values() for t in p.tensors.values()]))
    if faces[0] is None or faces[1] is None:
        assert faces[0] is None
        assert faces[1] is None
        return
    scale = faces[0].norm().clamp(min=1e-12)
    assert float((faces[0] - faces[1]).norm() / scale) < 1e-3


@pytest.mark.parametrize("name", AT_SITE)
def test_9_without_noise_the_data_shows_and_the_guarantee_is_gone(name: str, tmp_path: Path) -> None:
    job = make_job(name, sigma=0.0)
    assert job.plan() == Cost.non_private()
    outputs = []
    for seed, classes in ((0, (0, 1, 2)), (50, (2,))):
        table = len(job.task.shape) == 1
        owned = {
            s: some_records(RECORDS, seed=seed + i, classes=classes, table=table) for i, s in enumerate(job.task.sites)
        }
        world = make_world(job, tmp_path / str(seed), records=owned)
        world.run()
        outputs.append([p.digest for p in world.releases[0].items.values()])
    assert outputs[0] != outputs[1]


def test_9_dp_fedavg_without_noise_and_clip_is_gradient_descent(tmp_path: Path) -> None:
    """Sigma 0 and no clip: the same as plain full-batch descent on the exact records."""
    from prismfl.core.rounds import initial_state
    from prismfl.nets.classifier import build
    from prismfl.nets.training import descend
    from prismfl.rng import Key

    job = make_job("dp-fedavg", sigma=0.0, settings={"clip": float("inf"), "batch": RECORDS, "lr": 0.1, "rounds": 1})
    world = make_world(job, tmp_path)
    start = initial_state(job).items["model"].to("cpu")
    world.run()
    records = world.hosts[0].records()
    classifier, _ = build(job.task.model, job.task.shape, 3, key=Key.seed(0))
    expected = descend(start, lambda p, i: classifier.gradient(p, records.x, records.y), steps=2, lr=0.1)
    for key, value in world.releases[0].items["model"].tensors.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-4, atol=1e-6)
