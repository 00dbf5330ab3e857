"""dp-fedavg on a frozen public encoder: a run, its ledger, its model, and what takes no encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.adversary.view import kept
from prismfl.core.method import State
from prismfl.core.records import Records
from prismfl.core.trial import Watch, ask_once
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.nets.encoders.rows import WIDTH
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs import encoded, planning, records, simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.encoders import encoder_of
from prismfl.runs.models import models_of
from prismfl.runs.reopen import reopen

SETTINGS = {"rounds": 2, "steps": 4, "batch": 40, "clip": 0.1, "lr": 50.0}


def config_of(out: Path, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "method": "dp-fedavg", "data": "digits", "subset": 100, "sites": 2, "epsilon": 8.0, "seed": 1,
        "encoder": "scattering", "public_count": 60, "settings": SETTINGS, "out": str(out),
    }  # fmt: skip
    return RunConfig(**{**values, **changes})


def test_only_the_linear_layer_travels_and_the_plan_knows_it(tmp_path: Path) -> None:
    result = simulate.run(config_of(tmp_path / "run"))
    planned = planning.plan(config_of(tmp_path / "other"))
    numbers = 10 * (WIDTH + 1)
    assert result.model == "logreg"
    assert result.encoder == "scattering"
    assert planned.bytes_up == 4 * numbers * 2 * 2
    assert planned.bytes_up <= result.bytes_up <= 1.2 * planned.bytes_up
    assert (result.epsilon, result.sigma) == (planned.epsilon, planned.sigma)
    assert result.accuracy is not None
    assert result.accuracy > 15.0


def test_the_model_of_the_run_takes_pictures(tmp_path: Path) -> None:
    result = simulate.run(config_of(tmp_path / "run"))
    run = reopen(tmp_path / "run")
    (model,) = models_of(run.whole_job, run.state.items).values()
    data = load("digits", subset=100)
    found = 100.0 * float((model(data.x_test).argmax(1) == data.y_test).double().mean())
    assert found == pytest.approx(result.accuracy, abs=0.5)
    assert result.models["network"]["accuracy"] == pytest.approx(result.accuracy, abs=1e-3)


def test_the_ledger_knows_the_pictures(tmp_path: Path) -> None:
    """One picture of a site, under another name, is that site's data: it has paid already."""
    simulate.run(config_of(tmp_path / "run"))
    plain = records.shown_records(load("digits", subset=100), reopen(tmp_path / "run").parts[0])
    with Ledger.open(tmp_path / "run" / "ledger" / "ledger.sqlite", create=False) as ledger:
        known = ledger.charges()[0].dataset
        assert ledger.dataset("elsewhere", records=records.raw_records(plain)[:1]) == known


def test_the_names_of_records_follow_from_their_pictures(tmp_path: Path) -> None:
    simulate.run(config_of(tmp_path / "run"))
    run = reopen(tmp_path / "run")
    plain = records.records_of(load("digits", subset=100), run.parts[0])()
    seen = run.records["site-0"]
    assert seen.x.shape == (len(plain), WIDTH)
    assert bool((seen.identities == plain.identities).all())


class Seen(Watch):
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def sampled(self, sample: Records) -> None:
        self.seen.append(sample.x)


def test_what_judges_attacks_replays_the_run_itself(tmp_path: Path) -> None:
    """With the encoder, from whose digest its noise follows as well, and from the same rows, bit for bit."""
    simulate.run(config_of(tmp_path / "run", transcript="full"))
    run = reopen(tmp_path / "run")
    states, releases = kept(run.directory)
    job, first, watch = run.whole_job, State(0, states[0]), Seen()
    again = ask_once(
        job,
        first,
        run.records["site-0"],
        job.simulated_noise("site-0", 0).noise(),
        key=job.key.child("client", "site-0", 0),
        site="site-0",
        watch=watch,
    )
    assert again.answer[0]["model"].digest == releases[0]["site-0"]["model"].digest
    assert torch.equal(run.batch_behind("site-0", first).x, torch.cat(watch.seen))


def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = simulate.run(config_of(tmp_path / "whole"))

    class Killed(Exception):
        pass

    def kill(what: str, done: int, total: int) -> None:
        if "round 2" in what or (done, total) == (2, 4):
            raise Killed

    with pytest.raises(Killed):
        simulate.run(config_of(tmp_path / "part"), progress=kill)
    assert simulate.resume(tmp_path / "part").digest == whole.digest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "adult"}, "looks at images, 'adult' is table"),
        ({"method": "fedlap"}, "Method 'fedlap' looks through no public encoder"),
        ({"method": "feddm", "settings": {}}, "Method 'feddm' looks through no public encoder"),
        ({"encoder": "efficientnet"}, "Unknown encoder 'efficientnet'; did you mean 'efficientnet-lite0'"),
    ],
)
def test_what_cannot_be_is_one_clear_line_and_no_folder(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        simulate.run(config_of(tmp_path / "run", **{"settings": {}, **changes}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["dp-fedprox", "dp-central", "fedavg", "local-only", "fedsgd"])
def test_the_kin_runs_on_it_too(method: str, tmp_path: Path) -> None:
    private = METHODS[method].guarantee is not None
    changes = {"settings": dict(METHODS[method].tiny), "epsilon": 8.0 if private else None}
    assert simulate.run(config_of(tmp_path / "run", method=method, **changes)).accuracy is not None


def test_auto_leaves_a_baseline_as_it_is() -> None:
    config = RunConfig(encoder="auto")
    assert not encoded.wanted(config, METHODS["dp-fedavg"])
    assert encoder_of(config, METHODS["dp-fedavg"]) is None


def test_another_model_on_the_rows_is_the_users_to_choose(tmp_path: Path) -> None:
    spec = planning.declared_spec(config_of(tmp_path))
    method = METHODS["dp-fedavg"]
    assert planning.task_of(config_of(tmp_path, model="mlp:8"), spec, method).model == "mlp:8"
    assert planning.task_of(config_of(tmp_path), spec, method).model == "logreg"
    assert torch.Size(planning.task_of(config_of(tmp_path), spec, method).shape) == (WIDTH,)
