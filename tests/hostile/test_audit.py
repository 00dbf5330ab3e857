"""`prismfl audit --hostile`: what holds is called held, with questions asked; a site with a hole is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prismfl.adversary.audits import hostile
from prismfl.adversary.audits.hostile import PROBES, audit_hostile, audited
from prismfl.adversary.audits.hostile_site import Bench
from prismfl.cli.main import app
from prismfl.methods import METHODS
from prismfl.site import policy

QUICK = ("rounds", "limits")


def held(method: str, *attacks: str, kind: str = "image") -> None:
    row = audit_hostile(METHODS[method], attacks, kind=kind)
    broke = {name: cell.broke for name, cell in row.cells.items() if not cell.held}
    assert broke == {}
    assert tuple(row.cells) == attacks
    assert all(cell.questions > 0 for cell in row.cells.values())


@pytest.mark.parametrize("attack", list(PROBES))
def test_a_server_gets_nothing_from_dp_fedavg_but_its_plan(attack: str) -> None:
    held("dp-fedavg", attack)


@pytest.mark.parametrize("attack", ["rounds", "rosters", "influence"])
def test_nor_from_statistics_and_their_secure_sum(attack: str) -> None:
    held("prism-head", attack)


@pytest.mark.parametrize("attack", ["facts", "influence"])
def test_nor_from_the_updates_of_clients(attack: str) -> None:
    """A request under another unit was once answered, and locked honest runs out."""
    held("dp-fedavg-client", attack)


@pytest.mark.parametrize("attack", ["facts", "codes"])
def test_nor_from_a_table(attack: str) -> None:
    held("3dgl", attack, kind="table")


@pytest.mark.parametrize("attack", ["facts", "codes", "influence"])
@pytest.mark.parametrize("kind", ["text", "patient"])
def test_nor_from_texts_and_patients(attack: str, kind: str) -> None:
    """Every run on parts was once refused, and the audit could not even ask for one."""
    held("prism-head", attack, kind=kind)


@pytest.mark.parametrize("attack", ["rounds", "influence"])
def test_nor_from_the_secure_sum_of_patients(attack: str) -> None:
    held("prism-client", attack, kind="patient")


@pytest.mark.parametrize("method", ["dp-fedavg", "ldp-fedsgd"])
def test_no_record_moves_what_another_adds(method: str) -> None:
    """Under weights of 3.4e38 a record that adds nothing itself once moved the sum by twice the bound: whether others
    were finite hung on the number of rows in a product."""
    held(method, "influence", kind="table")


def test_no_weights_make_one_record_of_a_client_a_refusal(tmp_path: Path) -> None:
    """Under weights of 3e38 the old client failed if one record was there, and did not if it was not: an exact bit."""
    assert list(hostile.codes(Bench(METHODS["dp-fedavg-client"], tmp_path), ("all", "without"))) == []


def test_the_audit_asks_about_every_method_with_a_guarantee_at_the_sites() -> None:
    names = {name for name, method in METHODS.items() if audited(method)}
    assert {"dp-fedavg", "prism", "prism-head", "3dgl", "dp-fedavg-client"} <= names
    assert not {"fedavg", "dp-central", "local-only"} & names


def test_the_command_writes_the_table_and_fails_where_something_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "PROBES", {name: PROBES[name] for name in QUICK})
    asked = ["audit", "--hostile", "-m", "dp-fedavg", "--out", str(tmp_path / "table.json")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["method"] for row in rows] == ["dp-fedavg", "dp-fedavg (table)"]
    for row in rows:
        assert row["passed"]
        assert set(row["cells"]) == set(QUICK)
        assert row["cells"]["rounds"]["charges"] == 1
    monkeypatch.setattr(policy, "check_ranges", lambda *_: None)
    broken = CliRunner().invoke(app, asked)
    assert broken.exit_code == 1
    assert "dp-fedavg, limits: " in broken.output
    for row in json.loads((tmp_path / "table.json").read_text()):
        assert not row["passed"]
        assert row["cells"]["rounds"]["broke"] == []


@pytest.mark.parametrize("arguments", [[], ["steps", "--hostile"], ["--hostile", "-m", "fedavg"]])
def test_what_to_audit_is_said_once(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["audit", *arguments]).exit_code != 0
