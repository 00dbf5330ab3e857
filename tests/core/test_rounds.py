"""A round from both sides: what a server takes from a site, whom it leaves out, and what a site makes for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core.method import State
from prismfl.core.payloads import Gradient, Items, Payload, Statistics, SyntheticSet, Weights
from prismfl.core.release import Release
from prismfl.core.rounds import (
    adopt_step,
    check_state,
    initial_state,
    most_bytes,
    participants,
    receive,
    server_step,
    site_step,
    surviving_step,
)
from prismfl.errors import BoundaryError, BudgetError, WireError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import World, make_job, make_world

# What comes in


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(make_job("fedlap"), tmp_path_factory.mktemp("fedlap"))


@pytest.fixture(scope="module")
def honest(world: World) -> Release:
    return Release.decode(site_step(world.job, initial_state(world.job), world.hosts[0]))


def name_of(release: Release) -> str:
    return next(name for name, item in release.items.items() if isinstance(item, SyntheticSet))


def with_set(release: Release, change: Callable[[SyntheticSet], Payload]) -> Release:
    name = name_of(release)
    found = release.items[name]
    assert isinstance(found, SyntheticSet)
    return replace(release, items={**release.items, name: change(found)})


LIES: dict[str, tuple[Callable[[Release], Release], str]] = {
    "another run": (lambda r: replace(r, run="other"), "not from site"),
    "another site": (lambda r: replace(r, site="site-1"), "not from site"),
    "another round": (lambda r: replace(r, round=1), "not from site"),
    "another noise": (lambda r: replace(r, noise="a coin"), "planned"),
    "another cost": (lambda r: replace(r, cost=Cost.gaussian(1.0)), "planned"),
    "one item more": (lambda r: replace(r, items={**r.items, "more": Weights({})}), "exactly the items"),
    "another kind": (lambda r: with_set(r, lambda s: Statistics(s.tensors, s.spec)), "exactly the items"),
    "one record less": (lambda r: with_set(r, lambda s: SyntheticSet.of(s.x[1:], s.y[1:], **s.spec)), "shapes"),
    "other words": (lambda r: with_set(r, lambda s: SyntheticSet(s.tensors, {"a": 1})), "words"),
    "a class that is none": (lambda r: with_set(r, lambda s: SyntheticSet.of(s.x, s.y + 3, **s.spec)), "labels"),
    "pixels of 1e30": (lambda r: with_set(r, lambda s: SyntheticSet.of(s.x + 1e30, s.y, **s.spec)), "honest"),
}


def test_an_honest_release_is_taken_as_it_is(world: World, honest: Release) -> None:
    taken = receive(world.job, initial_state(world.job), "site-0", honest.encode())
    assert taken.items[name_of(taken)].digest == honest.items[name_of(honest)].digest


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_as_declared_is_refused(world: World, honest: Release, lie: str) -> None:
    change, why = LIES[lie]
    with pytest.raises(WireError, match=why):
        receive(world.job, initial_state(world.job), "site-0", change(honest).encode())


class Bare(Payload):
    kind = "synthetic-set"


def test_numbers_without_a_first_axis_are_no_records(world: World, honest: Release) -> None:
    bare = replace(honest, items={name_of(honest): Bare({"x": torch.tensor(1.0), "y": torch.tensor(1)})})
    with pytest.raises(WireError, match="not a release"):
        receive(world.job, initial_state(world.job), "site-0", bare.encode())


def test_a_message_longer_than_any_release_is_not_even_read(world: World, honest: Release) -> None:
    raw = honest.encode() + bytes(most_bytes(world.job, "site-0", 0))
    with pytest.raises(WireError, match="longer than"):
        receive(world.job, initial_state(world.job), "site-0", raw)


# What goes out


def test_a_release_is_made_once_and_sent_again_for_free(tmp_path: Path) -> None:
    job = make_job("dp-fedavg")
    host = make_world(job, tmp_path).hosts[0]
    first = site_step(job, initial_state(job), replace(host, deployed=True))
    assert site_step(job, initial_state(job), replace(host, deployed=True)) == first
    assert len(host.ledger.charges(run=job.run)) == 1


def test_what_was_made_with_the_systems_noise_is_always_kept(tmp_path: Path) -> None:
    host = make_world(make_job("dp-fedavg"), tmp_path).hosts[0]
    with pytest.raises(BoundaryError, match="drawn once"):
        replace(host, deployed=True, keep=False)


def test_a_method_that_asks_for_more_than_its_plan_releases_nothing_and_pays(tmp_path: Path) -> None:
    honest = make_job("dp-fedavg")
    client = honest.method.client

    def greedy(cfg: Any, state: State, site: Any, key: Any) -> tuple[Items, Items]:
        site.records.noisy_histogram(sigma=5.0)
        return client(cfg, state, site, key)

    job = replace(honest, method=replace(honest.method, client=greedy))
    host = make_world(honest, tmp_path).hosts[0]
    with pytest.raises(BoundaryError, match="was planned and charged"):
        site_step(job, initial_state(job), host)
    assert host.ledger.outbox(f"{job.run}/{host.name}/0") is None
    assert [charge.cost for charge in host.ledger.charges(run=job.run)] == [job.round_cost(0, first=True)]


# What comes down


def test_a_state_that_is_not_the_methods_own_is_refused_at_the_site() -> None:
    job = make_job("fedavg")
    own = initial_state(job)
    check_state(job, own)
    model = own.items["model"]
    wider = Weights({k: torch.cat([t, t]) for k, t in model.tensors.items()})
    for items in ({}, {"model": Gradient(model.tensors)}, {"model": wider}):
        with pytest.raises(WireError, match="'model'"):
            check_state(job, State(0, items))


def test_what_a_site_makes_for_itself(tmp_path: Path) -> None:
    job = make_job("local-only")
    host = make_world(job, tmp_path).hosts[0]
    own = adopt_step(job, initial_state(job), host)
    assert own
    assert not host.ledger.charges(run=job.run)
    assert METHODS["fedavg"].adopt is None
    assert adopt_step(make_job("fedavg"), initial_state(make_job("fedavg")), host) == {}


# The server's step


def sent(world: World) -> dict[str, Items]:
    state = initial_state(world.job)
    return {h.name: receive(world.job, state, h.name, site_step(world.job, state, h)).items for h in world.hosts}


@pytest.fixture(scope="module")
def averaging(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Items]]:
    made = make_world(make_job("fedavg"), tmp_path_factory.mktemp("fedavg"))
    return made, sent(made)


def spoiled(items: Items) -> Items:
    """Weights of a shape that nothing can be added to."""
    return {name: type(p)({k: torch.ones(7, 7, 7) for k in p.tensors}, p.spec) for name, p in items.items()}


def test_a_step_that_succeeds_leaves_nobody_out(averaging: tuple[World, dict[str, Items]]) -> None:
    world, inbox = averaging
    state, out = surviving_step(world.job, initial_state(world.job), inbox)
    assert (state.round, out) == (1, {})


def test_the_one_that_makes_the_step_fail_is_left_out_and_named(averaging: tuple[World, dict[str, Items]]) -> None:
    world, inbox = averaging
    start = initial_state(world.job)
    bad = {**inbox, "site-1": spoiled(inbox["site-1"])}
    state, out = surviving_step(world.job, start, bad)
    assert set(out) == {"site-1"}
    rest = {name: inbox[name] for name in ("site-0", "site-2")}
    without = server_step(world.job, start, rest)
    assert state.items["model"].digest == without.items["model"].digest


def test_where_no_single_one_is_at_fault_the_failure_stands(averaging: tuple[World, dict[str, Items]]) -> None:
    world, inbox = averaging
    two = {**inbox, "site-0": spoiled(inbox["site-0"]), "site-1": spoiled(inbox["site-1"])}
    with pytest.raises(RuntimeError):
        surviving_step(world.job, initial_state(world.job), two)


def test_below_the_quorum_nobody_is_left_out(averaging: tuple[World, dict[str, Items]]) -> None:
    world, inbox = averaging
    bad = {**inbox, "site-1": spoiled(inbox["site-1"])}
    with pytest.raises(RuntimeError):
        surviving_step(world.job, initial_state(world.job), bad, quorum=3)


def test_a_hub_whose_budget_is_spent_tries_no_smaller_inbox(tmp_path: Path) -> None:
    """Leaving sites out would ask the ledger again and again."""
    job = make_job("dp-fedavg-client")
    world = make_world(job, tmp_path)
    inbox = sent(world)
    assert world.hub is not None
    world.hub.ledger.close(job.run)
    with pytest.raises(BudgetError):
        surviving_step(job, initial_state(job), inbox, hub=world.hub)
    with pytest.raises(BoundaryError, match="ledger at the hub"):
        server_step(job, initial_state(job), inbox)


def test_the_ledger_refuses_in_the_second_try_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try fails before it reaches the ledger, at a site's update; the second would be charged."""
    job = make_job("dp-fedavg-client")
    world = make_world(job, tmp_path)
    inbox = sent(world)
    assert world.hub is not None
    world.hub.ledger.close(job.run)
    with pytest.raises(BudgetError):
        surviving_step(job, initial_state(job), {**inbox, "site-0": spoiled(inbox["site-0"])}, hub=world.hub)


# Who takes part


def test_a_share_of_the_sites_takes_part_another_one_each_round() -> None:
    job = make_job("fedavg", participation=0.6)
    chosen = [participants(job, round) for round in range(20)]
    assert all(len(set(some)) == 2 and some == sorted(some) for some in chosen)
    assert {site for some in chosen for site in some} == set(job.task.sites)
    assert [participants(job, round) for round in range(20)] == chosen
    assert participants(make_job("fedavg"), 0) == list(job.task.sites)
