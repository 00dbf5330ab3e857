import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from prismfl.adversary.view import kept, look
from prismfl.cli.main import app
from prismfl.core.method import State
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.rng import Key
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.reopen import reopen


def made(path: Path, method: str, *, sites: int = 2, rounds: int = 2, **settings: Any) -> Path:
    """A small run; run-wide options that are not the method's settings are taken out of `settings`."""
    options = {k: settings.pop(k) for k in ("epsilon", "transcript", "model") if k in settings}
    config = RunConfig(
        method=method,
        data="digits",
        subset=80,
        sites=sites,
        out=str(path),
        settings={"rounds": rounds, **settings},
        **{"model": "sigmoid-lenet", "transcript": "full", **options},
    )
    simulate.run(config)
    return path


def attack(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["attack", str(path), *options], catch_exceptions=False)


@pytest.fixture(scope="module")
def fedsgd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("runs") / "fedsgd", "fedsgd", batch=1)


def test_dlg_on_a_run_of_fedsgd_writes_table_and_picture(fedsgd: Path) -> None:
    result = attack(fedsgd, "--attack", "dlg", "--iterations", "150", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [row["site"] for row in report["rows"]] == ["site-0", "site-1"]
    assert sum(row["recovered"] for row in report["rows"]) == 2
    assert report["words"].startswith("2 of 2 attacked records found by the server, mean SSIM ")
    assert json.loads((fedsgd / "attacks/dlg-server.json").read_text())["rows"] == report["rows"]
    assert (fedsgd / "attacks/dlg-server.png").read_bytes().startswith(b"\x89PNG")


def test_dlg_on_an_accounted_run_recovers_nothing(tmp_path: Path) -> None:
    run = made(tmp_path / "dp", "dp-fedavg", steps=1, batch=2, epsilon=8.0)
    report = json.loads(attack(run, "--iterations", "60", "--format", "json").stdout)
    assert all(row["gradient"] == "from weights" for row in report["rows"])
    assert all(row.get("recovered", 0) == 0 for row in report["rows"])


def test_a_peer_of_two_sees_the_others_gradient(tmp_path: Path, fedsgd: Path) -> None:
    adam = made(tmp_path / "fedem", "fedem", batch=2)
    for path in (fedsgd, adam):
        run = reopen(path)
        (server,) = [t for t in look(run.directory, run.job, adversary="server").targets if t.sites == ("site-1",)]
        (peer,) = look(run.directory, run.job, adversary="peer").targets
        assert peer.sites == ("site-1",)
        for name, expected in server.gradient.items():
            torch.testing.assert_close(peer.gradient[name], expected, rtol=1e-2, atol=2e-3)


def test_an_outsider_and_a_run_without_gradients_are_said_not_to_apply(tmp_path: Path, fedsgd: Path) -> None:
    outside = attack(fedsgd, "--adversary", "outsider")
    assert outside.stdout.strip() == "does not apply: an outsider sees the finished model only, no gradient"
    alone = made(tmp_path / "alone", "local-only", rounds=1, epochs=1, model="logreg")
    result = attack(alone, "--attack", "idlg")
    assert (result.exit_code, result.stdout.strip()) == (0, "does not apply: no gradient leaves")
    assert json.loads(attack(alone, "--format", "json").stdout)["why_not"] == "no gradient leaves"


def test_truth_is_the_batch_behind_the_exact_gradient(tmp_path: Path, fedsgd: Path) -> None:
    unperturbed = made(tmp_path / "fedem", "fedem", batch=3, iterations=0, rho_max=0.0)
    for path in (fedsgd, unperturbed):
        run = reopen(path)
        states, releases = kept(run.directory)
        classifier, _ = build(run.job.task.model, run.job.task.shape, 10, key=Key.seed(0))
        for round in (0, 1):
            state = State(round, states[round])
            batch = run.batch_behind("site-1", state)
            again = classifier.gradient(states[round]["model"].to("cpu"), batch.x, batch.y)
            sent = releases[round]["site-1"]["gradient"].tensors
            assert all(torch.equal(again[k], sent[k]) for k in sent)


def test_truth_is_the_poisson_sample_behind_a_noisy_gradient(tmp_path: Path) -> None:
    path = made(tmp_path / "ldp", "ldp-fedsgd", batch=5, clip=1e6, sigma=1e-9, rounds=1)
    run = reopen(path)
    states, releases = kept(run.directory)
    batch = run.batch_behind("site-0", State(0, states[0]))
    assert 0 < len(batch) < len(run.records["site-0"])
    classifier, _ = build(run.job.task.model, run.job.task.shape, 10, key=Key.seed(0))
    mean = classifier.gradient(states[0]["model"].to("cpu"), batch.x, batch.y)
    for name, sent in releases[0]["site-0"]["gradient"].tensors.items():
        torch.testing.assert_close(sent, mean[name] * len(batch) / 5, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"epochs": 1, "batch": 8}),
        ("scaffold", {"epochs": 1, "batch": 8}),
        ("dp-fedavg-client", {"epochs": 1, "batch": 8, "sigma": 1.0}),
        ("fedsgd-clip", {"batch": 2}),
        ("fedem-dp", {"batch": 4, "sigma": 1.0, "iterations": 1}),
    ],
)
def test_every_way_of_sharing_can_be_attacked(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    path = made(tmp_path / "run", method, **settings)
    for adversary in ("server", "peer"):
        options = ["--attack", "inverting", "--adversary", adversary, "--iterations", "2", "--restarts", "1"]
        report = json.loads(attack(path, *options, "--format", "json").stdout)
        assert len(report["rows"]) == (2 if adversary == "server" else 1)


def test_mistakes_are_told_in_one_line(tmp_path: Path, fedsgd: Path) -> None:
    def refused(path: Path, *options: str) -> str:
        with pytest.raises(UserError) as caught:
            attack(path, *options)
        return str(caught.value)

    assert "choose one of dlg, idlg, inverting" in refused(fedsgd, "--attack", "magic")
    assert "server, peer, outsider" in refused(fedsgd, "--adversary", "ghost")
    assert "kept: 0, 1" in refused(fedsgd, "--round", "7")
    assert "--adaptive is for runs of fedem" in refused(fedsgd, "--adaptive")
    assert "victims >= 1" in refused(fedsgd, "--victims", "0")
    bare = made(tmp_path / "bare", "fedsgd", batch=1, transcript="digests")
    assert "transcript=full" in refused(bare)
