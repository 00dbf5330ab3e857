"""A run that starts from another's model: simulated or over sites, to the same digest, and at the price of both."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")
from prismfl.core.payloads import Weights
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.runs.starting import started_from, total_of, whole_cost, whole_noise
from prismfl.site.bundle import Peer
from prismfl.sources import DEPLOYMENT, SIMULATION
from prismfl.transport import in_process as local
from tests.site.folders import NAMES, introduced, make_run, make_site, run_config
from tests.transport.test_flower import PATIENT, grid_of, serve

HEAD = {**METHODS["prism-head"].tiny, "sigma": 2.0}


def finished(root: Path, **changes: object) -> RunDirectory:
    """A federation's run to its end."""
    offices = [make_site(root / "sites", name) for name in NAMES]
    directory = make_run(root / "run", PATIENT, run_config(**changes))
    serve(directory, grid_of(offices))
    return directory


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return finished(tmp_path_factory.mktemp("first"))


def test_a_federation_starts_where_another_ended(first: RunDirectory, tmp_path: Path) -> None:
    """The bug: `start` is no word that travels, and the run began with a fresh model without saying so."""
    again = finished(tmp_path, start=str(first.path))
    description = again.read_json("federation.json")["description"]
    job = job_of(description)
    hosts = [make_site(tmp_path / "local", name)._host(job, description) for name in NAMES]
    there = RunDirectory.create(tmp_path / "there", {}, {})
    lines: list[str] = []
    there.save_state(started_from(str(first.path), job, lines.append))
    outcome = local.run(job, hosts, directory=there)
    told, alone = again.read_json("result.json"), first.read_json("result.json")
    assert told["digest"] == state_digest(outcome.state)
    fresh = local.run(job, [make_site(tmp_path / "fresh", name)._host(job, description) for name in NAMES],
                      directory=RunDirectory.create(tmp_path / "afresh", {}, {}))  # fmt: skip
    assert told["digest"] != state_digest(fresh.state)
    assert "the result states both together" in lines[0]
    assert total_of(again) == total_of(first).beside(job.plan())
    assert told["epsilon"] == alone["epsilon"] < told["epsilon_total"]


def test_what_cannot_start_is_one_line_before_there_is_a_run(first: RunDirectory, tmp_path: Path) -> None:
    offices = [make_site(tmp_path / "sites", name) for name in NAMES]
    head = {"method": "prism-head", "tuning": "fixed"}
    for config, words in (
        (run_config(start=str(tmp_path / "nowhere")), "nowhere"),
        (run_config(start=str(first.path), model="mlp:8"), "is not a mlp:8"),
        (run_config(start=str(first.path)).model_copy(update={**head, "settings": HEAD}), "no finished model"),
    ):
        with pytest.raises(UserError, match=words):
            make_run(tmp_path / "run", PATIENT, config)
    assert not (tmp_path / "run").exists()
    for office in introduced(offices)[:1]:
        with pytest.raises(UserError, match="leave out `start`"):
            Peer.open(office.folder, run_config(start=str(first.path)))
        assert not (office.folder / "ledger.sqlite").exists(), "nothing is charged for it"


def test_the_price_of_both(first: RunDirectory, tmp_path: Path) -> None:
    other = Cost.gaussian(3.0, unit="patient")
    assert not whole_cost(other, str(first.path)).private, "unlike units never add"
    assert whole_cost(other, None) == other
    cost = Cost.gaussian(3.0)
    assert account.epsilon(whole_cost(cost, str(first.path)), 1e-5) > account.epsilon(cost, 1e-5)
    assert whole_noise(DEPLOYMENT, None) == DEPLOYMENT
    assert whole_noise(SIMULATION, str(first.path)) == SIMULATION
    assert whole_noise(DEPLOYMENT, str(first.path)) == DEPLOYMENT, "named data are public"
    told = first.read_json("result.json")
    copy = RunDirectory.create(tmp_path / "own", {}, {})
    copy.write_json("result.json", {**told, "own_data": True})
    assert whole_noise(DEPLOYMENT, str(copy.path)) == SIMULATION, "a seed anywhere in the chain"


def test_sites_pay_for_both_on_one_ledger(tmp_path: Path) -> None:
    offices = [make_site(tmp_path / "sites", name) for name in NAMES]
    before = make_run(tmp_path / "before", PATIENT, run_config())
    serve(before, grid_of(offices))
    after = make_run(tmp_path / "after", PATIENT, run_config(start=str(before.path)))
    begun = after.load_state()
    ended = before.load_state()
    assert begun is not None
    assert ended is not None
    assert isinstance(begun.items["model"], Weights)
    assert begun.items["model"].digest == ended.items["model"].digest
    serve(after, grid_of(offices))
    for office in offices:
        with Ledger.open(office.folder / "ledger.sqlite") as ledger:
            assert len(ledger.charges()) == 4


def test_the_same_config_in_the_same_second_is_another_run(tmp_path: Path) -> None:
    """The bug: two servers of one site began at once, and the second was refused for ever as an impostor."""
    made = [make_run(tmp_path / name, PATIENT) for name in ("one", "two", "three")]
    names = [run.read_json("federation.json")["description"]["run"] for run in made]
    assert len(set(names)) == 3
    assert len({run.read_json("federation.json")["description"]["digest"] for run in made}) == 1
