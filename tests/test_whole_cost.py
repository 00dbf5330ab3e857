"""The stated epsilon is the whole cost: what is charged, when, on which ledger, and what is said of it."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prismfl
from prismfl.core.job import Job
from prismfl.core.payloads import Statistics
from prismfl.core.release import Release
from prismfl.core.rounds import Host, initial_state, site_step
from prismfl.errors import BudgetError, UserError
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.balances import DatasetStatus
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.description import declared, describe
from prismfl.site import data as site_data
from prismfl.site.approvals import Approvals
from prismfl.sources import NO_PROTECTION
from prismfl.synth.synthesizer import Synthesizer
from prismfl.synth.tables import synth_table
from tests.laws.world import make_job, make_world
from tests.site.folders import NAMES, make_site, run_config
from tests.site.test_office import ask, description


def only(ledger: Ledger) -> DatasetStatus:
    """The one data set of a ledger."""
    found = ledger.status()
    assert len(found) == 1
    return found[0]


# Charge, then compute


def counting(job: Job, asked: list[int]) -> Job:
    """The same job, whose method notes each time that it is asked."""
    client = job.method.client

    def noted(*args: Any) -> Any:
        asked.append(args[1].round)
        return client(*args)

    return replace(job, method=replace(job.method, client=noted))


def test_a_round_outside_the_plan_computes_nothing_and_leaves_no_memory(tmp_path: Path) -> None:
    asked: list[int] = []
    world = make_world(counting(make_job("prism", settings={"rounds": 2}), asked), tmp_path)
    host, state = world.hosts[0], initial_state(world.job)
    for round in range(2):
        site_step(world.job, replace(state, round=round), host)
    before = host.ledger.history()
    for round in (2, 3, 1000):
        with pytest.raises(BudgetError):
            site_step(world.job, replace(state, round=round), host)
    assert asked == [0, 1]
    assert host.ledger.history() == before
    assert host.memory(world.job, 1000)["statistics"].tensors["spent"].item() == pytest.approx(1.0)


def failing(job: Job, error: BaseException) -> Job:
    """The same job, whose method fails after it has looked at the records."""
    client = job.method.client

    def broken(*args: Any) -> Any:
        client(*args)
        raise error

    return replace(job, method=replace(job.method, client=broken))


def test_what_fails_after_the_charge_is_charged_final_and_forgotten(tmp_path: Path) -> None:
    job = make_job("prism", settings={"rounds": 2})
    host = make_world(job, tmp_path).hosts[0]
    host.final = True
    state = initial_state(job)
    with pytest.raises(ValueError, match="lost"):
        site_step(failing(job, ValueError("lost")), state, host)
    assert [charge.status for charge in host.ledger.charges()] == ["charged"]
    assert host.memory(job, 10) == {}
    for _ in range(2):
        with pytest.raises(BudgetError, match="final"):
            site_step(job, state, host)
    site_step(job, replace(state, round=1), host)
    assert host.memory(job, 10)["statistics"].tensors["spent"].item() == pytest.approx(0.5), "only round 1 is in it"


def test_a_simulation_that_was_broken_off_is_computed_again_for_the_same_charge(tmp_path: Path) -> None:
    job = make_job("prism")
    host, state = make_world(job, tmp_path / "a").hosts[0], initial_state(job)
    with pytest.raises(KeyboardInterrupt):
        site_step(failing(job, KeyboardInterrupt()), state, host)
    assert site_step(job, state, host) == site_step(job, state, make_world(job, tmp_path / "b").hosts[0])
    assert len(host.ledger.charges()) == 1


def _killed_in_the_middle(folder: Path) -> None:
    job = make_job("prism")

    def die(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    host = make_world(job, folder).hosts[0]
    site_step(replace(job, method=replace(job.method, client=die)), initial_state(job), host)


def test_a_kill_between_charge_and_release_is_charged(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_killed_in_the_middle, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    job = make_job("prism")
    with Ledger.open(tmp_path / "site-0.sqlite") as ledger:
        (charge,) = ledger.charges()
        assert charge.cost == job.plan()
        host = Host("site-0", lambda: pytest.fail("records"), ledger, charge.dataset, tmp_path / "x", final=True)
        with pytest.raises(BudgetError, match="final"):
            site_step(job, initial_state(job), host)


def test_two_who_compute_one_round_send_the_same_bytes_and_remember_the_same(tmp_path: Path) -> None:
    job, made = make_job("prism"), []
    make_world(job, tmp_path)

    def compute() -> None:
        host = make_world(job, tmp_path).hosts[0]
        host.deployed = True  # noise of one's own, so that two computations would differ
        made.append((site_step(job, initial_state(job), host), host.memory(job, 1)["statistics"].digest))

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    assert len(set(made)) == 1
    with Ledger.open(tmp_path / "site-0.sqlite") as ledger:
        assert len(ledger.charges()) == 1


def test_a_method_that_asks_more_than_its_plan_is_stopped_and_nothing_leaves(tmp_path: Path) -> None:
    job = make_job("dp-fedavg")
    client = job.method.client

    def greedy(cfg: Any, state: Any, site: Any, key: Any) -> Any:
        site.records.noisy_histogram(sigma=5.0)
        return client(cfg, state, site, key)

    host = make_world(job, tmp_path).hosts[0]
    with pytest.raises(prismfl.PrismError, match="metered"):
        site_step(replace(job, method=replace(job.method, client=greedy)), initial_state(job), host)
    assert host.ledger.outbox("law/site-0/0") is None


@pytest.mark.parametrize("pair", [("x-0", "x:0"), ("x.0", "x_0")])
def test_runs_of_like_names_share_nothing(tmp_path: Path, pair: tuple[str, str]) -> None:
    office = make_site(tmp_path, "north")
    told = [{**description(settings={"rounds": 2 + i}), "run": run} for i, run in enumerate(pair)]
    assert [ask(office, one).kind for one in told] == ["release", "release"]
    assert len({office._run_folder(one) for one in told}) == 2
    assert len(list((office.folder / "runs").glob("*/job.json"))) == 2


# A veto that holds


def test_a_denied_release_enters_nothing_later(tmp_path: Path) -> None:
    """PRISM joins its exchanges: what was denied must not come out in the next one."""
    settings = {**METHODS["prism"].tiny, "rounds": 2, "sigma": 1.0}
    office = make_site(tmp_path, "north", approval=True, methods=["prism"], releases=["statistics"])
    config = run_config(method="prism", public_count=100).model_copy(update={"settings": settings})
    told = describe(config, declared(config)[0], NAMES)

    def told_round(round: int, decision: Any) -> Statistics | None:
        assert ask(office, told, round).code == "refused"
        approvals = Approvals(office.folder)
        (held,) = [held for held in approvals.all() if held.decision == "waiting"]
        approvals.decide(held.id, decision, by="Ann", reason="looked")
        answer = ask(office, told, round)
        if decision == "denied":
            assert answer.code == "refused"
            return None
        found = Release.decode(answer.body).items["statistics"]
        assert isinstance(found, Statistics)
        return found

    told_round(0, "denied")
    later = told_round(1, "approved")
    assert later is not None
    assert float(later.tensors["spent"]) == pytest.approx(0.5), "round 1 alone"
    ledger = Ledger.open(office.folder / "ledger.sqlite")
    assert [charge.status for charge in ledger.charges()] == ["denied", "made"]
    assert ledger.outbox(f"{told['run']}/north/0") is None


# Seeds


def test_no_two_runs_share_noise() -> None:
    job = make_job("prism")
    others = [
        make_job("prism", sigma=1.4),
        make_job("prism-head"),
        make_job("prism", settings={"images": 4}),
        replace(job, task=replace(job.task, records=25)),
    ]
    keys = [other.simulated_noise("site-0", 0).entropy for other in [job, *others]]
    keys += [job.simulated_noise("site-1", 0).entropy, job.simulated_noise("site-0", 1).entropy]
    assert len(set(keys)) == len(keys)
    assert replace(job, run="later").simulated_noise("site-0", 0).entropy == keys[0], "the same run again"


def own_table(folder: Path, rows: int = 120, *, seed: int = 0, name: str = "own.csv", unit: bool = False) -> Path:
    g = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "age", "dose", "outcome"] if unit else ["age", "dose", "outcome"])
        for i in range(rows):
            row: list[Any] = [round(float(g.uniform(0, 100)), 3), round(float(g.uniform(0, 9)), 3), "ab"[i % 2]]
            writer.writerow([f"p{i // 3}", *row] if unit else row)
    words = [
        'label = "outcome"\nclasses = ["a", "b"]\n' + ('unit = "patient"\n' if unit else ""),
        '[[columns]]\nname = "age"\nmin = 0\nmax = 100\n',
        '[[columns]]\nname = "dose"\nmin = 0\nmax = 9\n',
    ]
    (folder / "schema.toml").write_text("\n".join(words))
    return path


def own_run(path: Path, out: Path, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "method": "dp-fedavg",
        "data": str(path),
        "schema_file": str(path.parent / "schema.toml"),
        "model": "logreg",
        "sites": 2,
        "records": 50,
        "epsilon": 1.0,
        "out": str(out),
        "settings": {"rounds": 2, "steps": 2, "batch": 16},
    }
    return RunConfig(**{**values, **changes})


def test_own_data_are_not_seeded_unless_asked_and_a_seed_is_called_by_its_name(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    real = [simulate.run(own_run(path, tmp_path / name)) for name in ("a", "b")]
    assert [r.noise for r in real] == ["operating system"] * 2
    assert real[0].digest != real[1].digest
    assert {r.guarantee for r in real} == {"differential privacy"}
    seeded = [simulate.run(own_run(path, tmp_path / name, seed=3)) for name in ("c", "d")]
    assert seeded[0].digest == seeded[1].digest
    assert {r.guarantee for r in seeded} == {NO_PROTECTION}
    values: dict[str, Any] = {"method": "prism-head", "data": "digits", "epsilon": 3.0, "subset": 200, "sites": 2}
    tiny = dict(METHODS["prism-head"].tiny)
    benchmark = simulate.run(RunConfig(**values, out=str(tmp_path / "e"), settings=tiny))
    assert benchmark.guarantee == NO_PROTECTION


# One ledger


def test_own_data_have_one_ledger_whatever_command_or_name(tmp_path: Path) -> None:
    """A run, `synth` on a renamed copy, and Python on the same rows: one data set, one budget."""
    path = own_table(tmp_path / "one")
    done = simulate.run(own_run(path, tmp_path / "run"))
    copy = own_table(tmp_path / "two", name="renamed.csv")
    assert copy.read_bytes() == path.read_bytes()
    fast = ["queries=4", "start=4", "rate=1.0", "hidden=[4]", "latent=2"]
    found = synth_table(
        str(copy), schema=tmp_path / "two" / "schema.toml", epsilon=1.0, delta=1e-5, out=tmp_path / "out.csv",
        records=100, sets=fast,
    )  # fmt: skip
    with Ledger.open(ledger_path()) as ledger:
        status = only(ledger)
        assert len(status.names) == 2
        ledger.set_cap(status.dataset, Cap(1.7, 1e-5))
    assert found["total_so_far"]["epsilon"] > found["epsilon"]
    assert found["total_so_far"]["epsilon"] <= (done.epsilon or 0) + found["epsilon"] + 1e-6
    with pytest.raises(BudgetError):
        simulate.run(own_run(copy, tmp_path / "again"))


def test_the_sites_of_a_simulation_cost_a_record_what_one_site_costs(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    done = simulate.run(own_run(path, tmp_path / "run", sites=3, seed=None))
    with Ledger.open(ledger_path()) as ledger:
        status = only(ledger)
        (spent,) = status.spent
    assert account.epsilon(spent, 1e-5) == pytest.approx(done.epsilon)


def test_python_fits_add_up_and_a_cap_ends_them() -> None:
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def fit(data: torch.Tensor, **more: Any) -> Synthesizer:
        quick: dict[str, Any] = {"queries": 4, "start": 4, "rate": 1.0, "hidden": (4,)}
        return Synthesizer(1.0, records=60, columns=["n"] * 3, **quick, **more).fit(data)

    totals = [fit(x[i:]).certificate()["total_so_far"]["epsilon"] for i in range(3)]
    assert totals[0] < totals[1] < totals[2]
    with Ledger.open(ledger_path()) as ledger:
        status = only(ledger)
        ledger.set_cap(status.dataset, Cap(totals[2], 1e-5))
    with pytest.raises(BudgetError):
        fit(x.flip(0))
    with pytest.raises(UserError, match="seeded noise protects nobody"):
        fit(x, seed=1)


def test_the_same_patients_in_another_file_are_the_same_budget(tmp_path: Path) -> None:
    """Two yearly files share no row, only people."""
    first = own_table(tmp_path / "2024", seed=1, unit=True)
    second = own_table(tmp_path / "2025", seed=2, unit=True)
    for path in (first, second):
        simulate.run(own_run(path, tmp_path / path.parent.name / "run", records=20))
    with Ledger.open(ledger_path()) as ledger:
        status = only(ledger)
        (spent,) = status.spent
    assert spent.unit == "patient"
    assert account.epsilon(spent, 1e-5) > 1.2


def test_data_replaced_on_the_way_are_fingerprinted(tmp_path: Path) -> None:
    """A site's file is exchanged between two rounds for one that is on the ledger under another name."""
    one, two = own_table(tmp_path / "a", seed=1), own_table(tmp_path / "b", seed=2)
    settings = {"rounds": 2, "steps": 2, "batch": 16, "sigma": 4.0}
    config = own_run(one, tmp_path / "unused", settings=settings, epsilon=None).model_copy(update={"out": None})
    spec, schema = declared(config)
    told = describe(config, spec, ["north", "south"], schema=schema)
    common = {"part": None, "parts": 1, "noise": "operating-system", "schema_file": str(one.parent / "schema.toml")}
    office = make_site(tmp_path, "north", data=str(one), cap=3.0, **common)
    other = make_site(tmp_path, "south", data=str(two), cap=3.0, **common)
    assert ask(office, told).kind == "release"
    assert ask(other, {**told, "run": "another"}).kind == "release"
    with Ledger.open(ledger_path()) as ledger:
        assert len(ledger.status()) == 2
    one.write_bytes(two.read_bytes())
    assert site_data.stale(office.folder, office.config) is not None
    site_data.prepare(office.folder, office.config)  # what `site check` and `site join` do
    ask(office, told, 1)
    with Ledger.open(ledger_path()) as ledger:
        status = only(ledger)
        assert status.releases == 3


# Figures


def test_who_takes_part_lowers_no_charge() -> None:
    for name in ("dp-fedavg-client", "prism-client"):
        job = make_job(name)
        some = replace(job, task=replace(job.task, participation=0.3))
        assert some.plan() == job.plan()


def test_a_run_that_starts_from_another_states_both(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    first = simulate.run(own_run(path, tmp_path / "a"))
    second = simulate.run(own_run(path, tmp_path / "b", start=str(tmp_path / "a")))
    assert first.epsilon is not None
    assert first.epsilon_total == pytest.approx(first.epsilon)
    assert second.epsilon == pytest.approx(first.epsilon)
    assert second.epsilon_total is not None
    assert second.epsilon_total > 1.3 * first.epsilon
    unprotected = own_run(path, tmp_path / "c", method="fedavg", epsilon=None, settings={"rounds": 1})
    simulate.run(unprotected)
    third = simulate.run(own_run(path, tmp_path / "d", start=str(tmp_path / "c")))
    assert third.epsilon_total is None
    assert third.guarantee == "none"


def test_the_size_of_a_synthetic_table_never_comes_from_the_data(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    with pytest.raises(UserError, match="--records"):
        synth_table(
            str(path), schema=tmp_path / "schema.toml", epsilon=1.0, delta=1e-5, out=tmp_path / "out.csv", sets=[]
        )
    assert not ledger_path().exists()


def test_a_certificate_of_a_seeded_fit_says_so(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    fast = ["queries=4", "start=4", "rate=1.0", "hidden=[4]", "latent=2"]
    found = synth_table(
        str(path), schema=tmp_path / "schema.toml", epsilon=1.0, delta=1e-5, out=tmp_path / "out.csv", records=100,
        sets=fast, seed=3,
    )  # fmt: skip
    assert found["guarantee"] == NO_PROTECTION
    assert found["statement"].startswith(NO_PROTECTION)
    assert "differentially private" not in json.dumps(found)
    assert str(tmp_path) not in (tmp_path / "out.certificate.json").read_text()


# What the second review found


def test_a_seed_in_the_chain_of_starts_is_said(tmp_path: Path) -> None:
    path = own_table(tmp_path)
    simulate.run(own_run(path, tmp_path / "a", seed=5))
    second = simulate.run(own_run(path, tmp_path / "b", start=str(tmp_path / "a")))
    third = simulate.run(own_run(path, tmp_path / "c", start=str(tmp_path / "b")))
    assert {second.guarantee, third.guarantee} == {NO_PROTECTION}


def test_another_label_another_format_and_arrays_are_the_same_data(tmp_path: Path) -> None:
    path = own_table(tmp_path / "one")
    fast = ["queries=4", "start=4", "rate=1.0", "hidden=[4]", "latent=2"]
    common: dict[str, Any] = {"epsilon": 0.9, "delta": 1e-5, "records": 100, "sets": fast, "cap": 1.0}
    synth_table(str(path), schema=tmp_path / "one" / "schema.toml", out=tmp_path / "a.csv", **common)
    other = tmp_path / "two"
    other.mkdir()
    (other / "renamed.csv").write_bytes(path.read_bytes())
    columns = '[[columns]]\nname = "age"\nmin = 0\nmax = 100\n[[columns]]\nname = "dose"\nmin = 0\nmax = 9\n'
    label = '[[columns]]\nname = "outcome"\ntype = "binary"\ncategories = ["a", "b"]\n'
    (other / "schema.toml").write_text(columns + label)  # no label at all
    with pytest.raises(BudgetError):
        synth_table(str(other / "renamed.csv"), schema=other / "schema.toml", out=tmp_path / "b.csv", **common)
    with path.open() as file:
        raw = torch.tensor([[float(row["age"]), float(row["dose"])] for row in csv.DictReader(file)])
    quick: dict[str, Any] = {"queries": 4, "start": 4, "rate": 1.0, "hidden": (4,)}
    with pytest.raises(BudgetError):
        Synthesizer(0.9, records=100, columns=["n"] * 2, **quick).fit(raw)


def test_what_was_spent_for_records_does_not_count_as_spent_for_patients(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        data = ledger.dataset("a", records=[b"1"])
        ledger.reserve("records", data, Cost.gaussian(4.0))
        ledger.release("records", data, "r/a/0", Cost.gaussian(4.0), b"x")
        ledger.dataset("b", records=[b"2"], cap=Cap(1.5, 1e-5, "patient"))
        both = ledger.dataset("c", records=[b"1", b"2"])
        with pytest.raises(BudgetError, match="per record"):
            ledger.reserve("patients", both, Cost.gaussian(9.0, unit="patient"))


def test_a_run_goes_on_with_its_own_records_and_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_table(tmp_path)
    config = own_run(path, tmp_path / "run", ledger=str(tmp_path / "led"))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(simulate, "accuracy", stop)
        with pytest.raises(KeyboardInterrupt):
            simulate.run(config)
    before = path.read_bytes()
    path.write_bytes(before.replace(b",a", b",b", 3))
    with pytest.raises(UserError, match="data changed"):
        simulate.resume(tmp_path / "run")
    path.write_bytes(before)
    (tmp_path / "led").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="No ledger"):
        simulate.resume(tmp_path / "run")
    (tmp_path / "elsewhere").rename(tmp_path / "led")
    assert simulate.resume(tmp_path / "run").status == "finished"
