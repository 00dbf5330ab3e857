"""The auditor audited: right on known Gaussians, silent below the claim, loud when the noise is off or too small."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from prismfl.adversary.audits import bounds, own_files, trial
from prismfl.adversary.audits.one_run import audit_method, judge
from prismfl.adversary.audits.steps import audit_steps
from prismfl.adversary.audits.two_worlds import audit_two_worlds
from prismfl.adversary.scores.membership import gaussian_epsilon
from prismfl.cli.main import app
from prismfl.data import files as data_files
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig

DELTA = 1e-5


def gaussian_canaries(mu: float, m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of independent canaries behind a mechanism that is exactly mu-GDP, centred between the worlds."""
    rng = np.random.default_rng(seed)
    truth = rng.random(m) < 0.5
    return mu * (truth - 0.5) + rng.normal(size=m), truth


def test_one_run_p_value_by_hand() -> None:
    """Ten right guesses of ten under epsilon 0 and delta 0 have probability 2^-10."""
    g = bounds.Guesses(canaries=10, made=10, right=10)
    assert bounds.one_run_p_value(g, 0.0, 0.0) == pytest.approx(2.0**-10)
    # All right: p = (e^eps / (1 + e^eps))^r = alpha gives the bound in closed form.
    chance = 0.05 ** (1 / 1000)
    perfect = bounds.Guesses(1000, 1000, 1000)
    assert bounds.one_run_epsilon(perfect, 0.0, alpha=0.05) == pytest.approx(math.log(chance / (1 - chance)), abs=1e-3)
    assert bounds.one_run_epsilon(perfect, 1e-5, alpha=0.05) < bounds.one_run_epsilon(perfect, 0.0, alpha=0.05)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_one_run_bounds_hold_on_known_gaussians(mu: float) -> None:
    """Forty runs of a mechanism whose mu is known: no bound exceeds it, and they are not empty."""
    claimed, best = gaussian_epsilon(mu, DELTA), 0.0
    for seed in range(40):
        found = bounds.one_run(*gaussian_canaries(mu, 500, seed), delta=DELTA)
        assert found.epsilon <= claimed
        assert found.mu <= mu
        best = max(best, found.epsilon)
    assert best > 0.15 * claimed


def test_the_claimed_curve_is_rejected_only_when_it_is_wrong() -> None:
    scores, truth = gaussian_canaries(4.0, 500, 0)
    assert bounds.curve_rejected(scores, truth, Cost.gaussian(4.0))
    assert not bounds.curve_rejected(scores, truth, Cost.gaussian(0.25))
    assert not bounds.curve_rejected(scores, truth, Cost.non_private())


def test_two_worlds_on_known_gaussians() -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(2.0, 1, 800), rng.normal(0, 1, 800)
    lower = bounds.two_worlds_epsilon(inside, outside, DELTA)
    assert 1.5 < lower < gaussian_epsilon(2.0, DELTA)
    low, high = bounds.mu_interval(inside, outside)
    assert low < 2.0 < high
    assert high - low < 0.6
    assert bounds.two_worlds_epsilon(outside[:400], outside[400:], DELTA) < 0.5


def test_mu_of_a_mechanism_without_noise_is_infinite() -> None:
    assert bounds.mu_interval(np.ones(5), np.zeros(5)) == (math.inf, math.inf)
    assert bounds.mu_interval(np.ones(5), np.ones(5)) == (0.0, 0.0)


def test_every_mechanism_has_the_mu_it_claims() -> None:
    steps = audit_steps(repeats=250)
    assert len(steps) == 6
    assert all(step.passed for step in steps), steps


@pytest.mark.parametrize("name", ["dp-fedavg", "dp-fedavg-client", "3dgl", "fedem-dp", "prism-head"])
def test_one_run_audit_end_to_end(name: str) -> None:
    """Below the claim with noise; caught without it. The control of 200 canaries can reach 4.2 at most."""
    found = audit_method(METHODS[name], canaries=200)
    assert found.passed, found.words
    assert found.claimed is not None
    assert found.lower <= found.claimed <= 4.0
    assert found.control is not None
    assert found.control > 3.0
    assert found.answers >= 1


def test_no_guarantee_claims_infinity_and_leaks() -> None:
    found = audit_method(METHODS["fedsgd"], canaries=200)
    assert found.claimed is None
    assert found.passed
    assert found.lower > 3.0


def test_a_thousand_canaries_without_noise_are_caught_at_five() -> None:
    method = METHODS["ldp-fedsgd"]
    task, key = trial.tiny_task(method, 1000, delta=DELTA), Key.seed(0)
    settings = trial.tiny_settings(method, task, epsilon=4.0, noiseless=True, rounds=1)
    inside = trial.coins(1000, key)
    watched = trial.run(method, settings, task, canaries=trial.make_canaries(task, 1000, key), inside=inside, key=key)
    found = bounds.one_run(watched.scores, watched.truth, delta=DELTA)
    assert found.guesses.right >= 998
    assert found.epsilon >= 4.8
    assert max(found.epsilon, found.epsilon_of_mu) >= 5.0


def test_a_claim_that_is_too_small_fails() -> None:
    """The same run under a cost that claims three times the noise that was added."""
    method = METHODS["ldp-fedsgd"]
    task, key = trial.tiny_task(method, 300, delta=DELTA), Key.seed(1)
    settings = trial.tiny_settings(method, task, epsilon=8.0)
    watched = trial.run(
        method, settings, task, canaries=trial.make_canaries(task, 300, key), inside=trial.coins(300, key), key=key
    )
    assert judge("x", "ldp-fedsgd", watched, DELTA, control=None).passed
    lie = trial.Trial(watched.scores, watched.truth, Cost.gaussian(3 * settings.sigma, times=2), watched.answers)  # type: ignore[attr-defined]
    found = judge("x", "ldp-fedsgd", lie, DELTA, control=None)
    assert not found.passed
    assert "claimed" in found.words


def test_two_world_audit_of_a_tiny_run() -> None:
    found = audit_two_worlds(METHODS["ldp-fedsgd"], runs=60, rounds=1)
    assert found.passed
    assert found.estimate_mu is not None
    assert found.claimed_mu is not None
    assert found.estimate_mu[0] <= found.claimed_mu <= found.estimate_mu[1] * 1.6


def test_what_cannot_be_audited_says_why() -> None:
    with pytest.raises(UserError, match="nothing leaves a site"):
        audit_method(METHODS["local-only"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ldp"
    settings = {"rounds": 3, "batch": 64}
    simulate.run(
        RunConfig(
            method="ldp-fedsgd", data="digits", model="logreg", sites=2, epsilon=3.0, out=str(folder), settings=settings
        )
    )
    return folder


def test_audit_of_a_run_is_kept_beside_it_and_exits_by_its_verdict(run: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(run), "--canaries", "100", "--format", "json"])
    assert done.exit_code == 0, done.output
    [found] = json.loads(done.stdout)
    assert found["claimed"] == json.loads((run / "result.json").read_text())["epsilon"]
    assert json.loads((run / "audits" / "one-run.json").read_text())["passed"]


def test_audit_exits_with_one_when_the_measurement_exceeds_the_claim(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prismfl.privacy import mechanisms
    from tests.mutations.bugs import plain
    from tests.mutations.planting import Bug

    quiet = Bug(
        "quiet", mechanisms, "add_noise", "scale = sigma * bound", "scale = 0.05 * sigma * bound", plain(len, "")
    )
    with pytest.MonkeyPatch.context() as patch:
        quiet.plant(patch)
        done = CliRunner().invoke(app, ["audit", "ldp-fedsgd", "--canaries", "300"])
    assert done.exit_code == 1, done.output


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("kind", own_files.KINDS)
def test_a_record_of_an_own_file_counts_for_what_is_claimed(kind: str, place: str) -> None:
    found = own_files.audit_file(kind, place, repeats=120, seed=1)
    assert found.passed, found


def test_a_hold_out_by_position_is_seen_by_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake of earlier versions, made again: removing the first row deals all others anew."""

    def by_position(records: Any, fraction: float) -> Any:
        return np.random.default_rng(0x7E57).random(len(records.y)) < fraction

    monkeypatch.setattr(data_files, "_held_out", by_position)
    found = own_files.audit_file("table", "first", repeats=120, seed=1)
    assert not found.passed
    assert found.low > 2 * found.claimed
