"""One hostile site of five: it is named, the round ends without it or with little of it, and nothing is poisoned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core.job import Job
from prismfl.core.method import Items, State
from prismfl.core.payloads import Payload, SyntheticSet, encode
from prismfl.core.release import Release
from prismfl.core.rounds import initial_state, receive, server_step, site_step
from prismfl.errors import UserError, WireError
from prismfl.methods import METHODS, robust
from prismfl.methods.generators import dp_feta
from prismfl.methods.generators import images as generators
from prismfl.methods.landscape import image_exchange
from prismfl.methods.prism import statistics
from prismfl.runs.directory import RunDirectory
from prismfl.transport import in_process as local
from prismfl.transport.faults import faults
from tests.laws.world import CLASSES, RECORDS, make_job, make_world, some_records

SITES = tuple(f"site-{i}" for i in range(5))
BAD = "site-2"
Attack = Callable[[Items], Items]
Tensors = Mapping[str, torch.Tensor]


def times(factor: float) -> Attack:
    """Every number that is not a label or a picture, times a factor; at most what float32 holds."""

    def forge(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or name == "spent":
            return tensor
        return (factor * tensor.double()).clamp(-3e38, 3e38).to(tensor.dtype)

    return lambda items: {k: same(p, {n: forge(n, t) for n, t in p.tensors.items()}) for k, p in items.items()}


def filled(value: float) -> Attack:
    def forge(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.full_like(tensor, value) if tensor.is_floating_point() and name != "spent" else tensor

    return lambda items: {k: same(p, {n: forge(n, t) for n, t in p.tensors.items()}) for k, p in items.items()}


def same(payload: Payload, tensors: Tensors, spec: dict[str, Any] | None = None) -> Payload:
    return type(payload)(tensors, payload.spec if spec is None else spec)


def put(item: str, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Attack:
    """One tensor of one item changed."""
    return lambda items: {
        **items,
        item: same(items[item], {**items[item].tensors, name: change(items[item].tensors[name])}),
    }


def rolled(factor: float = 1.0) -> Attack:
    """Statistics by class, each under the name of the next class."""
    return put("statistics", "sums", lambda sums: factor * sums.roll(1, 0))


def hostile(job: Job, attack: Attack) -> Job:
    """The same run, in which one site runs other code than the method's."""
    honest = job.method.client

    def client(cfg: Any, state: State, site: Any, key: Any) -> tuple[Items, Items]:
        items, memory = honest(cfg, state, site, key)
        return (attack(items) if site.name == BAD else items), memory

    return replace(job, method=replace(job.method, client=client))


def five(name: str, **changes: Any) -> Job:
    return make_job(name, sites=SITES, **changes)


def run(job: Job, folder: Path) -> tuple[State, RunDirectory]:
    directory = RunDirectory.create(folder / "run", {}, {})
    return local.run(job, make_world(job, folder).hosts, directory=directory).state, directory


def four(job: Job, folder: Path) -> State:
    """What the others make of it when the site is not heard: its release says another round."""
    state, hosts = initial_state(job), make_world(job, folder).hosts
    for _ in range(job.settings.rounds):
        raw = {h.name: site_step(job, state, h) for h in hosts}
        inbox = {n: receive(job, state, n, r).items for n, r in raw.items() if n != BAD}
        state = server_step(job, state, inbox)
    return state


def digests(state: State) -> dict[str, str]:
    return {name: payload.digest for name, payload in state.items.items()}


def release_of(job: Job, folder: Path, site: str = BAD) -> Release:
    state = initial_state(job)
    host = next(h for h in make_world(job, folder).hosts if h.name == site)
    return receive(job, state, site, site_step(job, state, host))


def refused(job: Job, release: Release, items: Items) -> str:
    with pytest.raises(WireError) as caught:
        receive(job, initial_state(job), release.site, replace(release, items=items).encode())
    return str(caught.value)


BOUNDED = ("dp-fedavg", "dp-fedprox", "ldp-fedsgd", "fedem-dp", "fedsgd-clip", "prism-head", "prism", "3dgl", "dp-merf")


@pytest.mark.parametrize("name", [*BOUNDED, "dp-feta", "dp-gan"])
@pytest.mark.parametrize("attack", [times(-100.0), filled(3e38)], ids=["-100x", "3e38"])
def test_what_no_honest_site_can_send_counts_for_nothing(name: str, attack: Attack, tmp_path: Path) -> None:
    job = five(name, records=200, settings={"rounds": 1})
    state, directory = run(hostile(job, attack), tmp_path / "five")
    assert {(f.round, f.site, f.code) for f in faults(directory)} == {(0, BAD, "malformed")}
    assert digests(state) == digests(four(job, tmp_path / "four"))


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fedsgd", "fedem", "fedsgd-gauss"])
@pytest.mark.parametrize("attack", [times(-100.0), filled(3e38), filled(-1e30)], ids=["-100x", "3e38", "-1e30"])
def test_an_update_without_a_bound_counts_for_two_sites_at_most(name: str, attack: Attack, tmp_path: Path) -> None:
    sgd = {"optimiser": "sgd"} if "optimiser" in METHODS[name].settings.model_fields else {}
    job = five(name, settings={"rounds": 1, **sgd})
    begin = initial_state(job).items["model"].tensors
    moved = robust.length(four(job, tmp_path / "four").items["model"].tensors, begin)
    state, _ = run(hostile(job, attack), tmp_path / "five")
    assert robust.length(state.items["model"].tensors, begin) < 2.0 * moved


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "clipped-mean"])
@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "scaffold", "dp-fedavg"])
def test_every_rule_but_the_mean_holds_one_site(name: str, rule: str, tmp_path: Path) -> None:
    job = five(name, settings={"rounds": 1, "aggregate": rule})
    job = replace(job, method=replace(job.method, possible=None))
    begin = initial_state(job).items["model"].tensors
    moved = robust.length(four(job, tmp_path / "four").items["model"].tensors, begin)
    state, _ = run(hostile(job, filled(1e9)), tmp_path / "five")
    assert robust.length(state.items["model"].tensors, begin) < 3.0 * moved
    plain = replace(job, settings=job.settings.model_copy(update={"aggregate": "mean"}))
    state, _ = run(hostile(plain, filled(1e9)), tmp_path / "mean")
    assert robust.length(state.items["model"].tensors, begin) > 1e6 * moved


@pytest.mark.parametrize("name", ["fedavg", "dp-fedavg", "fedem", "prism-head", "prism-local"])
def test_among_honest_sites_the_default_is_the_mean_bit_for_bit(name: str, tmp_path: Path) -> None:
    job = five(name)
    assert job.settings.aggregate == "clipped-mean"  # type: ignore[attr-defined]
    inbox = {}
    state = initial_state(job)
    for host in make_world(job, tmp_path).hosts:
        inbox[host.name] = receive(job, state, host.name, site_step(job, state, host)).items
    plain = replace(job, settings=job.settings.model_copy(update={"aggregate": "mean"}))
    assert digests(server_step(job, state, inbox)) == digests(server_step(plain, state, inbox))


# Words


WORDS: dict[str, dict[str, Any]] = {
    "megabytes": {"a": "b" * 50_000},
    "words": {"stopped": "Site lost, call the police."},
    "nan": {"a": [0]},
}


@pytest.mark.parametrize("name", ["dp-fedavg", "fedsgd", "prism-head", "prism-local", "3dgl", "dp-feta", "dp-gan"])
@pytest.mark.parametrize("words", WORDS)
def test_a_spec_is_what_was_declared(name: str, words: str, tmp_path: Path) -> None:
    job = five(name)
    release = release_of(job, tmp_path)
    for item, payload in release.items.items():
        spec = {**payload.spec, **WORDS[words]}
        why = refused(job, release, {**release.items, item: same(payload, payload.tensors, spec)})
        assert "police" not in why
        assert len(why) < 200


@pytest.mark.parametrize("name", ["dp-fedavg", "prism-head", "dp-feta"])
def test_a_header_is_what_was_planned(name: str, tmp_path: Path) -> None:
    job = five(name)
    release = release_of(job, tmp_path)
    header = {"run": release.run, "site": release.site, "round": 0, "cost": release.cost.to_json()}
    for changed in ({"noise": "x" * 900_000}, {"noise": "magic"}, {"noise": release.noise, "more": "y" * 900_000}):
        with pytest.raises(WireError):
            receive(job, initial_state(job), BAD, encode(release.items, {**header, **changed}))
    cheap = replace(release, cost=job.task.gaussian(1e6))
    with pytest.raises(WireError, match="planned"):
        receive(job, initial_state(job), BAD, cheap.encode())


@pytest.mark.parametrize("name", ["dp-feta", "dpdm", "dp-gan"])
def test_a_training_that_stopped_costs_only_its_site(name: str, tmp_path: Path) -> None:
    """It says so by class sizes of nothing: no word of a site reaches the others, and its release looks like any."""
    job = five(name)
    release = release_of(job, tmp_path)
    empty = generators.said(release.items["generator"].tensors[generators.COUNTS], "why")
    attack = put("generator", generators.COUNTS, lambda counts: empty)
    why = refused(job, release, attack(release.items))
    assert "stopped" in why
    assert "lr" in why


# Numbers


def counts(item: str, name: str, value: float) -> Attack:
    return put(item, name, lambda t: torch.full_like(t, value))


def head_counts(value: float) -> Attack:
    def change(sums: torch.Tensor) -> torch.Tensor:
        out = sums.clone()
        out[:, -1] = value
        return out

    return put("statistics", "sums", change)


NUMBERS: dict[str, tuple[str, Attack]] = {
    "prism-head: 1e9 records": ("prism-head", head_counts(1e9)),
    "prism-head: -1e4 records": ("prism-head", head_counts(-1e4)),
    "prism-head: labels rolled x10": ("prism-head", rolled(10.0)),
    "prism-head: long sums": (
        "prism-head", put("statistics", "sums", lambda s: torch.cat([50.0 * s[:, :-1], s[:, -1:]], 1))
    ),
    "prism-head: large moments": ("prism-head", put("statistics", "moment", lambda m: 100.0 * m)),
    "prism-head: negative moments": ("prism-head", put("statistics", "moment", lambda m: -3.0 * m)),
    "prism-head: next to nothing spent": ("prism-head", put("statistics", "spent", lambda s: torch.full_like(s, 1e-9))),
    "prism-head: all spent in advance": ("prism-head", put("statistics", "spent", lambda s: torch.full_like(s, 7.0))),
    "prism-local: labels rolled": ("prism-local", put("synthetic", "y", lambda y: y.roll(1, 1))),
    "prism-local: labels x10": ("prism-local", put("synthetic", "y", lambda y: 10.0 * y)),
    "prism-local: full trust": ("prism-local", put("synthetic", "y", lambda y: y / y.sum(1, keepdim=True))),
    "prism-local: negative labels": ("prism-local", put("synthetic", "y", lambda y: -y)),
    "fedlap-dp: labels rolled": ("fedlap-dp", put("images", "y", lambda y: y.roll(1))),
    "fedlap-dp: pixels of 1e30": ("fedlap-dp", put("images", "x", lambda x: 1e30 * x.sign())),
    "fedlap: radius of 1e30": ("fedlap", put("quality", "radius", lambda r: torch.full_like(r, 1e30))),
    "fedlap: negative radius": ("fedlap", put("quality", "radius", lambda r: -r)),
    "feddm-dp: labels out of range": ("feddm-dp", put("images", "y", lambda y: y + 9)),
    "3dgl: 1e9 records": ("3dgl", counts("generator", "counts", 1e9)),
    "3dgl: -1e4 records": ("3dgl", counts("generator", "counts", -1e4)),
    "3dgl: sign flipped": ("3dgl", times(-1.0)),
    "dp-merf: 1e9 records": ("dp-merf", counts("embedding", "counts", 1e9)),
    "dp-merf: negative records": ("dp-merf", counts("embedding", "counts", -1e5)),
    "dp-feta: 1e9 records": ("dp-feta", counts("generator", "counts", 1e9)),
    "dp-feta: weights x1000": ("dp-feta", times(1000.0)),
    "dp-gan: 1e9 records": ("dp-gan", counts("generator", "counts", 1e9)),
}  # fmt: skip


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_that_cannot_be_honest_are_refused(what: str, tmp_path: Path) -> None:
    name, attack = NUMBERS[what]
    job = five(name, records=200, sigma=1.3)
    release = release_of(job, tmp_path)
    assert len(refused(job, release, attack(release.items))) < 200


def test_more_records_than_declared_weigh_no_more_than_twice(tmp_path: Path) -> None:
    """Below what is refused a site can still exaggerate; then its weight is cut, and its class is not its own."""
    job = five("prism-head", records=200, sigma=0.3)
    form = statistics.row_layout(job.settings, job.task)  # type: ignore[arg-type]
    state, inbox = initial_state(job), {}
    bad = hostile(job, rolled(4.0))
    for host in make_world(bad, tmp_path).hosts:
        inbox[host.name] = receive(job, state, host.name, site_step(bad, state, host)).items
    found = torch.stack([inbox[s]["statistics"].tensors["sums"][:, -1] for s in SITES]) / form.count
    weights = robust.capped(found, records=200, noise=0.3 / form.count)
    share = (found * weights)[2] / (found * weights).sum(0)
    assert float((found[2] / found.sum(0)).min()) > 0.45
    assert float(share.max()) < 0.36


def test_one_class_is_not_one_sites_where_others_hold_it() -> None:
    held = torch.tensor([[40.0, 5.0], [40.0, 0.0], [40.0, 0.0], [400.0, 0.0]])
    weights = robust.class_weights(held, records=20, noise=0.0)
    assert float((held * weights)[3, 0]) == pytest.approx(120.0)
    assert torch.equal(weights[:3], torch.ones(3, 2))
    alone = robust.class_weights(torch.tensor([[400.0, 0.0], [0.0, 3.0]]), records=20, noise=1.0)
    assert torch.equal(alone, torch.ones(2, 2))


def test_a_flipped_release_within_noise_does_not_count_in_the_pool() -> None:
    counts = torch.tensor([[30.0, 30.0, 30.0], [-40.0, -40.0, -40.0]])
    weights = robust.site_weights(counts, records=90, noise=10.0)
    assert weights.tolist() == [1.0, 0.0]


def test_images_that_are_too_long_are_shortened() -> None:
    y = torch.zeros(4, dtype=torch.int64)
    sets = {s: {"images": SyntheticSet.of(torch.ones(4, 1, 2, 2), y)} for s in SITES}
    sets[BAD] = {"images": SyntheticSet.of(torch.full((4, 1, 2, 2), -1e5), y)}
    x, _ = image_exchange.pool(sets, five("fedlap-dp").task)
    assert float(x.abs().max()) == pytest.approx(2.0)
    assert torch.equal(x[:8], torch.ones(8, 1, 2, 2))


# Steps that fail, and runs that go on


def picky(cfg: Any, task: Any, state: State, inbox: Mapping[str, Items], key: Any) -> Items:
    """A method's step that cannot cope with a site that sends sevens."""
    found = {s: float(next(iter(inbox[s]["model"].tensors.values())).flatten()[0]) for s in sorted(inbox)}
    if 7.0 in found.values():
        raise ZeroDivisionError("float division by zero")
    return METHODS["fedavg"].server(cfg, task, state, inbox, key)


def test_a_step_that_fails_names_the_sender_and_goes_on(tmp_path: Path) -> None:
    job = five("fedavg")
    job = replace(job, method=replace(job.method, server=picky))
    state, directory = run(hostile(job, filled(7.0)), tmp_path / "five")
    assert {(f.round, f.site, f.code) for f in faults(directory)} == {(r, BAD, "spoils-the-step") for r in (0, 1)}
    assert digests(state) == digests(four(job, tmp_path / "four"))


def test_a_generator_that_cannot_be_drawn_from_is_left_out(tmp_path: Path) -> None:
    """3DGL's own step, with its check taken off: a negative scale has no logarithm."""
    job = five("3dgl")
    job = replace(job, method=replace(job.method, possible=None, kinds=("table",)))
    job = replace(job, task=replace(job.task, shape=(12,)))
    state, directory = run(hostile(job, times(-1.0)), tmp_path)
    assert {(f.site, f.code) for f in faults(directory)} == {(BAD, "spoils-the-step")}
    assert f"generator-{BAD}" not in state.items


def test_a_step_that_fails_for_everybody_is_nobodys_fault(tmp_path: Path) -> None:
    job = five("fedlap-dp", settings={"radius": 1e-9})
    with pytest.raises(UserError, match="radius"):
        run(job, tmp_path)
    assert faults(RunDirectory(tmp_path / "run")) == []


def test_a_run_goes_on_from_its_checkpoint_without_the_site(tmp_path: Path) -> None:
    job = five("dp-fedavg", settings={"rounds": 3})
    bad = hostile(job, times(-100.0))
    directory = RunDirectory.create(tmp_path / "run", {}, {})
    hosts = make_world(bad, tmp_path).hosts

    def killed(state: State, traffic: dict[str, int]) -> None:
        if state.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local.run(bad, hosts, directory=directory, after_round=killed)
    state = local.run(bad, hosts, directory=directory).state
    assert digests(state) == digests(four(job, tmp_path / "four"))


# Honest sites are never refused


SENDING = [n for n, m in sorted(METHODS.items()) if m.leaves and not m.pooled and m.guarantee != "client"]


@pytest.mark.parametrize("name", SENDING)
def test_honest_releases_are_never_refused(name: str, tmp_path: Path) -> None:
    """Whatever the noise, the number of records (up to everybody's) and the classes a site holds."""
    seen = 0
    cases: list[tuple[float, int, tuple[int, ...]]] = [
        (0.0, RECORDS, (0, 1, 2)),
        (0.05, 3 * RECORDS, (1,)),
        (1.3, 3 * RECORDS, (0, 2)),
        (8.0, 2, (0, 1, 2)),
        (1e3, 5, (2,)),
    ]
    for i, (sigma, n, classes) in enumerate(cases):
        job = make_job(name, sigma=sigma)
        table = len(job.task.shape) == 1
        own = [some_records(n, seed=10 * i + j, classes=classes, table=table) for j in range(len(job.task.sites))]
        world = make_world(job, tmp_path / str(i), records=dict(zip(job.task.sites, own)))
        state = initial_state(job)
        for host in world.hosts:
            receive(job, state, host.name, site_step(job, state, host))
            seen += 1
    assert seen == 15


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_stays_within_its_limit_and_the_limit_is_near(kind: str) -> None:
    g = torch.Generator().manual_seed(5)
    for size in (1, 10, 1000):
        if kind == "gaussian":
            drawn = torch.randn(4000, size, generator=g)
        else:
            u = torch.rand(4000, size, generator=g, dtype=torch.float64) - 0.5
            drawn = -u.sign() * torch.log1p(-2.0 * u.abs().clamp(max=0.5 - 1e-12))
        limit = robust.noise_norm(size, 1.0, kind)
        norms = torch.linalg.vector_norm(drawn, dim=1)
        assert float(norms.max()) < limit
        assert limit < float(norms.max()) + (8.0 if kind == "gaussian" else 62.0)


def test_a_poisson_sample_stays_within_its_limit() -> None:
    g = torch.Generator().manual_seed(6)
    for expected in (0.5, 8.0, 500.0):
        drawn = torch.poisson(torch.full((20000,), expected), generator=g)
        assert float(drawn.max()) < robust.most_drawn(expected)
        assert robust.most_drawn(expected) < expected + 8.0 * math.sqrt(expected) + 30.0


def test_central_sums_of_all_sites_are_checked(tmp_path: Path) -> None:
    job = five("dp-feta", settings={"easy": "pooled", "rounds": 2})
    release = release_of(job, tmp_path)
    assert CLASSES == 3
    why = refused(job, release, put("central", dp_feta.SUMS, lambda s: 1e4 * s)(release.items))
    assert "central" in why
