"""Rounds with secure sums: the same result as without, one engine like the other, and a server that sees sums alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.runs import result

pytest.importorskip("flwr")
from flwr.app import Context, Message

from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.method import DPSettings, Items, Method, Shapes, Site, State, Summed
from prismfl.core.payloads import Statistics, encode
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.core.rounds import Host, site_step
from prismfl.core.task import Task
from prismfl.errors import BoundaryError, UserError
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.shares import Secrecy, noise_in
from prismfl.rng import Key
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.description import declared, describe, job_of
from prismfl.runs.directory import RunDirectory
from prismfl.secure import protocol as secure
from prismfl.server import serving
from prismfl.site.keys import make_site_keys
from prismfl.site.office import Office
from prismfl.transport import in_process as local
from prismfl.transport.conductor import QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.flower import adapter as flower
from prismfl.transport.post import Answer, Request, RoundRules
from tests.site.folders import NAMES, introduced, make_run, make_site, run_config
from tests.transport.grid import OneProcessGrid

RULES = RoundRules(2, deadline=4.0, join=2.0, poll=0.01, ask_again=0.05)
CLASSES = 40


# A method of one noisy histogram, in the local engine


def _client(cfg: DPSettings, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    return {"counts": Statistics({"counts": site.records.noisy_histogram(sigma=cfg.noise)})}, {}


def _server(cfg: DPSettings, task: Task, state: State, inbox: Any, key: Key) -> Items:
    return {"counts": Statistics({"counts": sum(inbox[s]["counts"].tensors["counts"] for s in sorted(inbox))})}


def _shapes(cfg: DPSettings, task: Task) -> Shapes:
    return {"counts": {"counts": ("float32", (len(task.classes),))}}


HISTOGRAM = Method(
    name="histogram",
    summary="",
    paper="",
    settings=DPSettings,
    leaves={"counts": Statistics},
    guarantee="site",
    init=lambda cfg, task, key: {},
    client=_client,
    server=_server,
    plan=lambda cfg, task: task.gaussian(cfg.noise),
    shapes=_shapes,
    summed=lambda cfg, task: Summed("counts", bound=1.0, sigma=cfg.noise),
)


def histogram_job(sigma: float, secrecy: Secrecy | None, **changes: Any) -> Job:
    values = {"sites": ("a", "b", "c", "d"), "records": 500, "classes": tuple(map(str, range(CLASSES)))}
    task = Task(data="x", shape=(1, 2, 2), **{**values, **changes})
    return Job("run", HISTOGRAM, DPSettings(sigma=sigma), task, 0, secrecy)


def records_of(name: str) -> Records:
    y = Key.seed(3).child(name).numpy().integers(0, CLASSES, 500)
    return Records(torch.zeros(500, 1, 2, 2), torch.from_numpy(y))


def run_locally(job: Job, folder: Path) -> tuple[State, list[Host]]:
    hosts = []
    for name in job.task.sites:
        ledger = Ledger.open(folder / f"{name}.sqlite")
        dataset = ledger.dataset(name, records=[name.encode()])
        ledger.reserve(job.run, dataset, job.site_plan())
        hosts.append(Host(name, partial(records_of, name), ledger, dataset, folder / "memory" / name))
    directory = RunDirectory.create(folder / "run", {}, {})
    return local.run(job, hosts, directory=directory, keep="full").state, hosts


def counts(state: State) -> np.ndarray:
    return state.items["counts"].tensors["counts"].double().numpy()


def test_the_secure_sum_is_the_plain_sum_up_to_rounding(tmp_path: Path) -> None:
    plain, _ = run_locally(histogram_job(0.0, None), tmp_path / "plain")
    summed, _ = run_locally(histogram_job(0.0, Secrecy(3)), tmp_path / "secure")
    exact = sum(np.bincount(records_of(s).y.numpy(), minlength=CLASSES) for s in "abcd")
    assert np.allclose(counts(plain), exact, rtol=1e-5)
    grid = histogram_job(0.0, Secrecy(3)).sum_rules(0).grid
    assert np.abs(counts(summed) - counts(plain)).max() <= 4 * grid


@pytest.mark.parametrize("secrecy", [Secrecy(3), Secrecy(4, colluding=2)])
def test_the_sum_holds_one_noise_and_every_site_pays_for_it(tmp_path: Path, secrecy: Secrecy) -> None:
    job = histogram_job(50.0, secrecy, classes=tuple(map(str, range(2000))))
    state, hosts = run_locally(job, tmp_path)
    exact = sum(np.bincount(records_of(s).y.numpy(), minlength=2000) for s in "abcd")
    held = noise_in(job.sum_rules(0), 4)
    assert held >= 50.0 * np.sqrt(4 / (secrecy.quorum - secrecy.colluding))
    # 2,000 coordinates: the standard deviation is known to 1.6 %, four of them are 6.4 %.
    assert abs((counts(state) - exact).std() / held - 1) < 0.065
    for host in hosts:
        (charge,) = host.ledger.charges(run=job.run)
        assert charge.cost == job.plan() == Cost.gaussian(50.0)
        assert not (host.folder / "secure").exists()


def traces(job: Job, site: str) -> list[bytes]:
    """Four numbers of a site's own statistic, in every form in which they could lie in a file."""
    rules = job.sum_rules(0)
    doors = [
        PrivateRecords(records_of(site), declared=500, classes=CLASSES, noise=Key.seed(0).noise(), shared=shared)
        for shared in (None, rules)
    ]
    plain, shared = (door.noisy_histogram(sigma=0.0)[8:12].numpy() for door in doors)
    steps = np.rint(shared / rules.grid)
    return [plain.astype("<f4").tobytes(), shared.astype("<f8").tobytes(), steps.astype("<i8").tobytes()]


def found(folder: Path, needles: list[bytes]) -> bool:
    files = [p.read_bytes() for p in folder.rglob("*") if p.is_file()]
    return any(needle in raw for raw in files for needle in needles)


def test_what_the_server_keeps_holds_no_single_statistic(tmp_path: Path) -> None:
    job = histogram_job(0.0, Secrecy(3))
    run_locally(histogram_job(0.0, None), tmp_path / "plain")
    run_locally(job, tmp_path / "secure")
    for site in job.task.sites:
        assert found(tmp_path / "plain" / "run", traces(job, site))  # the search works
        assert not found(tmp_path / "secure" / "run", traces(job, site))


def test_a_site_lets_nothing_out_unmasked_and_answers_one_question(tmp_path: Path) -> None:
    job = histogram_job(1.0, Secrecy(3))
    ledger = Ledger.open(tmp_path / "a.sqlite")
    host = Host("a", lambda: records_of("a"), ledger, "a", tmp_path / "memory")
    with pytest.raises(BoundaryError, match="nothing leaves unmasked"):
        site_step(job, State(0, {}), host)
    door = PrivateRecords(
        records_of("a"), declared=500, classes=CLASSES, noise=Key.seed(0).noise(), shared=job.sum_rules(0)
    )
    with pytest.raises(BoundaryError, match="one Gaussian answer"):
        door.noisy_histogram(sigma=0.5)
    door.noisy_histogram(sigma=1.0)
    with pytest.raises(BoundaryError, match="one Gaussian answer"):
        door.noisy_histogram(sigma=1.0)
    assert door.meter.cost == Cost.gaussian(1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secure": {"quorum": 1}}, "quorum"),
        ({"secure": {"quorum": 4}}, "quorum above half of 3 sites, got 4"),
        ({"secure": {"quorum": 2, "colluding": 2}}, "colluding"),
        ({"participation": 0.5, "secure": {"quorum": 2}}, "participation 1"),
        ({"method": "dp-fedavg", "secure": {"quorum": 2}}, "has no secure sum"),
        ({"settings": {"rounds": 2}, "secure": {"quorum": 2}}, "expected rounds = 1"),
    ],
)
def test_requests_that_cannot_be_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    values = {"method": "prism-head", **changes}
    settings = {} if values["method"] == "dp-fedavg" else METHODS["prism-head"].tiny
    values["settings"] = {**settings, "sigma": 1.0, **changes.get("settings", {})}
    with pytest.raises(UserError, match=words):
        _described({"data": "digits", "public_count": 60, **values})


def _described(values: dict[str, Any]) -> Job:
    config = validate(RunConfig, values, "run.toml")
    return job_of(describe(config, declared(config)[0], NAMES))


# Real methods over Flower's Grid

METHOD_NAMES = ("prism-head", "prism-client", "dp-fedavg-client")


def secure_config(method: str, quorum: int = 2, **changes: Any) -> Any:
    settings = {**METHODS[method].tiny, "sigma": 0.7}
    asked = run_config(method=method, model="logreg", secure={"quorum": quorum}, public_count=60, **changes)
    return asked.model_copy(update={"settings": settings})


def offices(root: Path, method: str, **changes: Any) -> list[Office]:
    allowed = {"methods": [method], "releases": ["statistics"], "honest": len(NAMES), "cap": 500.0}
    return introduced([make_site(root, name, **{**allowed, **changes}) for name in NAMES])


def answers_of(office: Office) -> Callable[[Request, Context], Answer]:
    return lambda request, context: office.answer(request)


def grid_of(sites: list[Office]) -> OneProcessGrid:
    apps = {i + 10: flower.client_app(answers_of(o)) for i, o in enumerate(sites)}
    return OneProcessGrid(apps, keys={i + 10: f"key of {o.config.name}".encode() for i, o in enumerate(sites)})


def serve(directory: RunDirectory, grid: OneProcessGrid, say: Callable[[str], None] | None = None) -> list[str]:
    lines: list[str] = []
    names = {f"key of {name}".encode(): name for name in NAMES}
    serving.serve(directory.path, flower.GridPost(grid, names, refresh=0.0), say=say or lines.append)
    return lines


def silent(place: int, turn: str) -> Callable[[int, Message, Message], list[Message]]:
    return lambda at, request, reply: [] if at == place and flower.read_request(request).turn == turn else [reply]


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_both_engines_give_the_same_digest_and_charges(tmp_path: Path, method: str) -> None:
    sites = offices(tmp_path / "sites", method)
    directory = make_run(tmp_path / "run", RULES, secure_config(method))
    lines = serve(directory, grid_of(sites))
    assert faults(directory) == []
    assert any("the sum of 3 of 3 sites holds noise" in line for line in lines)
    description = directory.read_json("federation.json")["description"]
    job = job_of(description)
    hosts = [o._host(job, description) for o in offices(tmp_path / "local", method)]
    hub = serving._hub(job, tmp_path / "hub")
    outcome = local.run(job, hosts, directory=RunDirectory.create(tmp_path / "there", {}, {}), hub=hub)
    assert directory.read_json("result.json")["digest"] == result.state_digest(outcome.state)
    for office in sites:
        ledger = office._host(job, description).ledger
        total = sum((c.cost for c in ledger.charges(run=job.run)), start=Cost.zero())
        assert total == job.site_plan()
        assert account.epsilon(total, 1e-5) < float("inf")
        assert not list(office.folder.glob("runs/*/memory/secure"))
    if hub is not None:
        charges = hub.ledger.charges(run=job.run)
        assert sum((c.cost for c in charges), start=Cost.zero("client")) == job.plan()
    up = [Release.decode(p.read_bytes()) for p in directory.path.glob("transcript/*-up-*.safetensors")]
    assert {tuple(release.items) for release in up} == {("masked",)}


@pytest.mark.parametrize("turn", ["keys", "letters", "numbers", "sent", "shares"])
def test_a_site_that_drops_out_costs_only_its_part(tmp_path: Path, turn: str) -> None:
    sites = offices(tmp_path / "sites", "prism-head")
    directory = make_run(tmp_path / "run", RULES, secure_config("prism-head"))
    grid = grid_of(sites)
    grid.tamper = silent(12, turn)
    lines = serve(directory, grid)
    assert {(fault.site, fault.code) for fault in faults(directory)} == {("west", "late")}
    (row,) = [json.loads(line) for line in (directory.path / "secure.jsonl").read_text().splitlines()]
    there = ["north", "south", "west"] if turn in ("sent", "shares") else ["north", "south"]
    assert row["sites"] == there
    assert row["held"] >= row["promised"] == 0.7
    lacking = 1 - np.sqrt(len(there) / 3)
    assert row["shortfall_if_shared_by_all"] == pytest.approx(lacking)
    assert any(f"would lack {100 * lacking:.0f} %" in line for line in lines)


def test_below_its_quorum_a_sum_stays_closed(tmp_path: Path) -> None:
    sites = offices(tmp_path / "sites", "prism-head")
    directory = make_run(tmp_path / "run", RULES, secure_config("prism-head", quorum=3))
    grid = grid_of(sites)
    grid.tamper = silent(12, "shares")
    with pytest.raises(QuorumError, match="2 of 3 shares of the secure sum"):
        serve(directory, grid)
    assert not (directory.path / "secure.jsonl").exists()


def test_a_malformed_answer_drops_only_its_sender(tmp_path: Path) -> None:
    for turn in secure.TURNS:
        sites = offices(tmp_path / turn / "sites", "prism-head")
        directory = make_run(tmp_path / turn / "run", RULES, secure_config("prism-head"))
        grid = grid_of(sites)

        def tamper(place: int, request: Message, reply: Message, turn: str = turn) -> list[Message]:
            asked = flower.read_request(request).turn
            bad = flower.pack({"kind": "release", "code": "", "site": "west"}, b'{"a": [1]}')
            return [Message(bad, reply_to=request)] if (place, asked) == (12, turn) else [reply]

        grid.tamper = tamper
        serve(directory, grid)
        assert {(fault.site, fault.code) for fault in faults(directory)} == {("west", "malformed")}


def test_a_site_with_another_list_of_keys_is_named_and_left_out(tmp_path: Path) -> None:
    sites = offices(tmp_path / "sites", "prism-head")
    make_site_keys(tmp_path / "old")
    (sites[2].folder / "peers" / "north.pub").write_bytes((tmp_path / "old" / "sign.pub").read_bytes())
    directory = make_run(tmp_path / "run", RULES, secure_config("prism-head"))
    serve(directory, grid_of(sites))
    assert {(fault.site, fault.code) for fault in faults(directory)} == {("west", "roster-mismatch")}
    (row,) = [json.loads(line) for line in (directory.path / "secure.jsonl").read_text().splitlines()]
    assert row["sites"] == ["north", "south"]


def test_a_site_that_signs_nothing_good_is_left_out(tmp_path: Path) -> None:
    """One site cannot keep the others from their sum by a signature that they would all refuse."""
    for turn in ("keys", "sent"):
        sites = offices(tmp_path / turn / "sites", "prism-head")
        directory = make_run(tmp_path / turn / "run", RULES, secure_config("prism-head"))
        grid = grid_of(sites)

        def tamper(place: int, request: Message, reply: Message, turn: str = turn) -> list[Message]:
            if (place, flower.read_request(request).turn) != (12, turn):
                return [reply]
            words = {**json.loads(flower.read_answer(reply).body), "signature": "00" * 64}
            bad = flower.pack({"kind": "release", "code": "", "site": "west"}, json.dumps(words).encode())
            return [Message(bad, reply_to=request)]

        grid.tamper = tamper
        serve(directory, grid)
        (row,) = [json.loads(line) for line in (directory.path / "secure.jsonl").read_text().splitlines()]
        assert row["sites"] == (["north", "south"] if turn == "keys" else list(NAMES))


class Killed(BaseException):
    """The server, cut off."""


def test_a_killed_server_asks_the_same_again_and_nobody_pays_twice(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", RULES, secure_config("prism-head"))
    serve(whole, grid_of(offices(tmp_path / "first", "prism-head")))
    sites = offices(tmp_path / "sites", "prism-head")
    directory = make_run(tmp_path / "run", RULES, secure_config("prism-head"))
    for stop_at in (3, 4, 6, 6, 6, 5):
        said = 0

        def say(line: str, stop_at: int = stop_at) -> None:
            nonlocal said
            said += 1
            if said == stop_at:
                raise Killed

        with pytest.raises(Killed):
            serve(directory, grid_of(sites), say)
    serve(directory, grid_of(sites))
    assert faults(directory) == []
    assert directory.read_json("result.json")["digest"] == whole.read_json("result.json")["digest"]
    description = directory.read_json("federation.json")["description"]
    job = job_of(description)
    for office in sites:
        assert len(office._host(job, description).ledger.charges(run=job.run)) == 1


def test_the_site_decides_about_secure_sums_too(tmp_path: Path) -> None:
    description = describe(secure_config("prism-head"), declared(secure_config("prism-head"))[0], NAMES)
    state = encode({}, {"round": 0})
    careful = offices(tmp_path, "prism-head", honest=1)[0]
    assert careful.answer(Request("hello", description)).code == "sum-refused"
    assert "each site adds 1/2 of the noise" in (careful.folder / "site.log").read_text()
    (office, *_) = offices(tmp_path / "b", "prism-head")
    assert office.answer(Request("hello", description)).kind == "ready"
    assert office.answer(Request("round", description, 0, 1.0, state)).code == "refused"
    assert office.answer(Request("round", description, 0, 1.0, state, "open")).code == "refused"
    keys = [
        o.answer(Request("round", description, 0, 1.0, state, "keys")) for o in offices(tmp_path / "b", "prism-head")
    ]
    assert all(isinstance(answer, Answer) and answer.kind == "release" for answer in keys)
    told = secure.told(job_of(description), "letters", {"keys": {n: a.body for n, a in zip(NAMES, keys)}})["north"]
    letters = office.answer(Request("round", description, 0, 1.0, state, "letters", told))
    again = office.answer(Request("round", description, 0, 1.0, state, "letters", told))
    assert letters.body == again.body
    fewer = json.dumps({name: entry for name, entry in json.loads(told).items() if name != "west"})
    assert office.answer(Request("round", description, 0, 1.0, state, "letters", fewer)).kind == "code"
