"""The bugs of published code, and the check that sees each: a test of the suite, a law, or the audit."""

# ruff: noqa: E501  (a planted line is quoted as it stands)

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from prismfl.adversary.audits.one_run import audit_method
from prismfl.adversary.audits.steps import audit_steps
from prismfl.core import release, rounds
from prismfl.core.door import PrivateRecords
from prismfl.core.hub import PrivateSum
from prismfl.core.rounds import initial_state, site_step
from prismfl.data import Column
from prismfl.errors import UserError
from prismfl.kernels import loss
from prismfl.methods import METHODS
from prismfl.methods.averaging import dp_fedavg
from prismfl.privacy import account, mechanisms
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.balances import Balances
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.chain import Chain
from prismfl.rng import Key, NoiseStream
from prismfl.runs import planning, simulate
from prismfl.runs.config import RunConfig
from prismfl.site.office import Office
from tests.core import test_door as door_tests
from tests.data import test_schema as schema_tests
from tests.laws import test_laws as laws
from tests.laws.world import make_job, make_world
from tests.mutations.planting import Bug, Check
from tests.privacy import test_account as account_tests
from tests.privacy import test_ledger as ledger_tests
from tests.privacy import test_mechanisms as mechanism_tests
from tests.site import test_office as office_tests

SMALL = ("dp-fedavg",)


def plain(test: object, *arguments: object) -> Check:
    """A test that needs no fixture."""
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


def law(test: object) -> Check:
    return lambda folder, monkeypatch: test("dp-fedavg", folder)  # type: ignore[operator]


def record_play(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, one, other in door_tests.neighbours():
        door_tests.test_record_play(monkeypatch, what, one, other)


def step_audit(mechanism: str) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        [step] = audit_steps(repeats=300, only=mechanism)
        assert step.passed, step

    return check


def canary_audit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audit_method(METHODS["dp-fedavg"], canaries=200, control=False)
    assert found.passed, found.words


def total_epsilon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run reports is the plan of all its rounds, and within what was asked for."""
    config = RunConfig(
        method="dp-fedavg",
        data="digits",
        model="logreg",
        sites=2,
        epsilon=3.0,
        subset=200,
        out=str(folder / "run"),
        settings={"rounds": 3, "steps": 2, "batch": 32},
    )
    planned, done = planning.plan(config), simulate.run(config)
    assert planned.epsilon is not None
    assert done.epsilon is not None
    assert 0.9 * 3.0 <= planned.epsilon <= 3.0
    assert math.isclose(done.epsilon, planned.epsilon, rel_tol=1e-9)
    job_cost = Cost.gaussian(planned.sigma or 0.0, rate=32 / 100, times=6)
    assert math.isclose(account.epsilon(job_cost, 1e-5), done.epsilon, rel_tol=1e-6)


def resend_is_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again after a crash, a site sends the same bytes and is charged once."""
    world = make_world(make_job("dp-fedavg"), folder)
    state, host = initial_state(world.job), world.hosts[0]
    first = site_step(world.job, state, host)
    host.deployed = True  # fresh noise, were it drawn again
    assert site_step(world.job, state, host) == first
    assert len(host.ledger.charges()) == 1


def reopening_keeps_the_balance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_tests.filled(folder / "a.sqlite")
    with Ledger.open(folder / "a.sqlite") as ledger:
        assert len(ledger.charges()) >= 1
        assert not ledger.spent(ledger.status()[0].dataset).is_zero


def ledger_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_tests.test_a_deleted_ledger_is_no_fresh_budget(folder / "ledger.sqlite")


def exception_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office_tests.test_of_an_exception_only_a_code_leaves(folder, monkeypatch)


def histogram_shape(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = door_tests.some_records(30).take(torch.tensor([0, 3, 6]))  # class 0 only
    assert door_tests.open_door(records).noisy_histogram(sigma=1.0).shape == (3,)


def hub_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door_tests.test_the_hub_bounds_each_client_and_charges_its_own_unit()


def patient(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door_tests.test_a_patient_counts_once(monkeypatch)


def batch_norm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="mixes records"):
        loss.refuse_cross_record_layers(torch.nn.Sequential(torch.nn.BatchNorm1d(4)))


BUGS = [
    Bug(
        "noise halved",
        mechanisms,
        "add_noise",
        "scale = sigma * bound",
        "scale = 0.5 * sigma * bound",
        plain(mechanism_tests.test_noise_has_the_stated_sigma, 1.0, True),
    ),
    Bug(
        "noise halved, seen from outside",
        mechanisms,
        "add_noise",
        "scale = sigma * bound",
        "scale = 0.5 * sigma * bound",
        step_audit("noisy_sum"),
    ),
    Bug(
        "noise divided by the batch",
        PrivateRecords,
        "noisy_gradient",
        "add_noise(flat, bound=clip,",
        "add_noise(flat, bound=clip / (rate * self.declared),",
        step_audit("noisy_gradient"),
    ),
    Bug(
        "clip after the sum",
        PrivateRecords,
        "noisy_gradient",
        "        clip=clip,\n",
        "        clip=1e30,\n",
        record_play,
    ),
    Bug(
        "no clip, seen by canaries",
        PrivateRecords,
        "noisy_gradient",
        "        clip=clip,\n",
        "        clip=1e30,\n",
        canary_audit,
    ),
    Bug(
        "one layer without noise",
        PrivateRecords,
        "noisy_gradient",
        "    self._charge(sigma, rate=rate, kind=kind)\n    parts",
        "    self._charge(sigma, rate=rate, kind=kind)\n    k = params[names[0]].numel()\n    noisy[:k] = flat[:k]\n    parts",
        plain(door_tests.test_none_or_one_record_still_answers_noised_and_charged, 0),
    ),
    Bug(
        "shuffled batches of a fixed size",
        mechanisms,
        "poisson_indices",
        "return torch.nonzero(drawn < rate).flatten()",
        "return drawn.argsort()[: round(len(units) * rate)]",
        plain(mechanism_tests.test_sampling_is_poisson_and_shuffled_batches_fail_the_same_test, False),
    ),
    Bug(
        "steps not charged",
        PrivateRecords,
        "noisy_gradient",
        "self._charge(sigma, rate=rate, kind=kind)",
        "pass",
        law(laws.test_5_ledger_equals_plan),
    ),
    Bug(
        "moments not charged",
        PrivateRecords,
        "noisy_moments",
        'self._charge(sigma, rate=1.0, kind="gaussian")',
        "pass",
        plain(door_tests.test_every_answer_is_charged),
    ),
    Bug(
        "tables not charged",
        PrivateRecords,
        "noisy_tables",
        'self._charge(sigma, rate=rate, kind="gaussian")',
        "pass",
        plain(door_tests.test_every_answer_is_charged),
    ),
    Bug(
        "tables heavier than their bound",
        PrivateRecords,
        "noisy_tables",
        "if not math.sqrt(math.fsum(w * w for w in weights)) <= bound:",
        "if False:",
        plain(door_tests.test_tables_whose_weights_are_longer_than_their_bound_are_refused),
    ),
    Bug(
        "account reset every round",
        Balances,
        "_apply_charge",
        "run.charged_on(part) + cost",
        "cost",
        total_epsilon,
    ),
    Bug(
        "calibrated for one round only",
        planning,
        "resolve",
        'settings.model_copy(update={"sigma": sigma})',
        'settings.model_copy(update={"sigma": sigma, "rounds": 1})',
        total_epsilon,
    ),
    Bug("noised again on resume", rounds, "site_step", "if kept is not None:", "if False:", resend_is_free),
    Bug(
        "a lost ledger is a fresh budget",
        Chain,
        "open",
        "if anchored and not path.exists():",
        "if False:",
        ledger_gone,
    ),
    Bug(
        "noise re-used",
        NoiseStream,
        "uniform",
        "self._stream.update(",
        "Cipher(algorithms.ChaCha20(b'k' * 32, b'n' * 16), mode=None).encryptor().update(",
        plain(mechanism_tests.test_streams_do_not_repeat_or_correlate),
    ),
    Bug(
        "the global seed draws the noise",
        NoiseStream,
        "normal",
        "half = (count + 1) // 2",
        "return torch.randn(count, dtype=torch.float64)",
        law(laws.test_1_same_inputs_same_run_whatever_the_global_seed),
    ),
    Bug(
        "seeded noise called real",
        Key,
        "seed",
        ".digest())",
        ".digest(), DEPLOYMENT)",
        plain(mechanism_tests.test_deployment_noise_comes_from_the_operating_system),
    ),
    Bug(
        "rate from the true number of records",
        PrivateRecords,
        "rate",
        "batch / self.declared",
        "batch / max(1, len(self._records))",
        plain(door_tests.test_every_answer_is_charged),
    ),
    Bug(
        "divided by the realised batch",
        PrivateRecords,
        "noisy_gradient",
        "noisy / (rate * self.declared)",
        "noisy / max(1, len(sample))",
        plain(door_tests.test_gradient_is_divided_by_the_expected_batch),
    ),
    Bug(
        "empty batches skipped",
        PrivateRecords,
        "noisy_gradient",
        "    names = list(params)\n",
        "    names = list(params)\n    if not len(sample):\n        return {n: torch.zeros_like(p) for n, p in params.items()}\n",
        plain(door_tests.test_none_or_one_record_still_answers_noised_and_charged, 0),
    ),
    Bug(
        "scaler fitted on the data",
        Column,
        "scaled",
        "low, high = bounds or self.bounds()",
        "low, high = float(values.min()), float(values.max()) + 1e-9",
        plain(schema_tests.test_encoding_does_not_depend_on_the_other_records),
    ),
    Bug(
        "count in the message",
        dp_fedavg,
        "client",
        "Weights(descend(dict(start), gradient, steps=cfg.steps, lr=cfg.lr))",
        "Weights(descend(dict(start), gradient, steps=cfg.steps, lr=cfg.lr), {'n': len(site.records._records)})",
        law(laws.test_7_the_shape_of_a_release_does_not_depend_on_the_data),
    ),
    Bug(
        "start from real records",
        dp_fedavg,
        "client",
        'start = state.items["model"].to(task.device)',
        'start = {k: v + 1e9 * site.records._records.x.mean() for k, v in state.items["model"].to(task.device).items()}',
        law(laws.test_9_huge_noise_hides_the_data),
    ),
    Bug(
        "exception text forwarded",
        Office,
        "answer",
        'Answer("code", code=told,',
        'Answer("code", code=words,',
        exception_text,
    ),
    Bug(
        "bad numbers spread",
        mechanisms,
        "clip_rows",
        "clean = torch.where(torch.isfinite(norms)[:, None], rows, torch.zeros_like(rows))",
        "clean = rows",
        plain(mechanism_tests.test_clipping_survives_bad_numbers, math.nan),
    ),
    Bug(
        "full float precision released",
        mechanisms,
        "add_noise",
        "torch.round((total + scale * draws.reshape(total.shape).to(total.device)) / grid) * grid",
        "total + scale * draws.reshape(total.shape)",
        plain(mechanism_tests.test_answers_lie_on_a_public_grid_whatever_the_sum),
    ),
    Bug(
        "raw access not marked",
        PrivateRecords,
        "exact",
        "self.meter.add(Cost.non_private(unit=self.unit, relation=self.relation))",
        "pass",
        plain(door_tests.test_exact_marks_everything_after_it_non_private),
    ),
    Bug(
        "batch norm let through",
        loss,
        "refuse_cross_record_layers",
        "if type(layer).__name__ in CROSS_RECORD_LAYERS or tracked:",
        "if False:",
        batch_norm,
    ),
    Bug(
        "steps not composed",
        account,
        "_pld",
        'return one.self_compose(times)\n    if mechanism.kind == "laplace"',
        'return one\n    if mechanism.kind == "laplace"',
        plain(account_tests.test_golden_values_and_the_wrong_sigma_is_seen, *account_tests.GOLDEN[1]),
    ),
    Bug(
        "rate counted twice",
        account,
        "_pld",
        "            sampling_prob=mechanism.rate,\n",
        "            sampling_prob=mechanism.rate**2,\n",
        plain(account_tests.test_golden_values_and_the_wrong_sigma_is_seen, *account_tests.GOLDEN[1]),
    ),
    Bug(
        "budget never refused",
        Ledger,
        "reserve",
        "rule, order = self._admit(run, target, plan)",
        "rule, order = 'uncapped', None",
        law(laws.test_6_over_budget_is_refused_before_anything_leaves),
    ),
    Bug(
        "early stop lowers the charge",
        PrivateRecords,
        "forfeit",
        "if times > 0:",
        "if False:",
        plain(door_tests.test_stopping_early_never_lowers_the_charge),
    ),
    Bug(
        "classes of a site tell themselves",
        PrivateRecords,
        "_one_hot",
        "torch.arange(self.classes, device=y.device)",
        "self._records.y.unique()",
        histogram_shape,
    ),
    Bug(
        "clients not bounded at the hub",
        PrivateSum,
        "noisy",
        "mechanisms.clip_rows(row[None], bound)[0]",
        "row",
        hub_step,
    ),
    Bug(
        "undeclared items leave",
        release,
        "make_release",
        "if set(items) != set(leaves):",
        "if False:",
        plain(door_tests.test_a_release_carries_exactly_what_was_declared),
    ),
    Bug(
        "a person counts once a record",
        PrivateRecords,
        "__init__",
        'self._records = records if unit != "record" or records.unit is None else Records(records.x, records.y)',
        "self._records = Records(records.x, records.y)",
        patient,
    ),
]
