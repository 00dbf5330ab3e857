"""The table of attacks: each succeeds where it must, on its control, and says so where there is nothing to attack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from prismfl.adversary.attack import ATTACKS, COPIES
from prismfl.adversary.attacks.gradient_inversion import Effort, Problem, SeenGradients, stack
from prismfl.adversary.cases import Asked, Case, Scene
from prismfl.adversary.cases.foreign import read_rows
from prismfl.adversary.cases.membership import Candidates, copies_of
from prismfl.adversary.on_run import attack_set, offered
from prismfl.adversary.scores.membership import copied, judged
from prismfl.adversary.scores.reconstruction import Behind
from prismfl.adversary.view import Target
from prismfl.cli.main import app
from prismfl.core.method import State
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.nets.classifier import build
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.reopen import reopen

DELTA = 1e-5
MODEL = ("loss", "gradient-norm", "lira", "lira-offline", "rmia")
SET = ("nearest", "calibrated", "domias", "copies")


def made(path: Path, method: str, **options: object) -> Path:
    config = {"data": "digits", "model": "logreg", "sites": 2, "epsilon": 3.0, "out": str(path), **options}
    simulate.run(RunConfig(method=method, **config))
    return path


@pytest.fixture(scope="module")
def of_a_model(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    path = made(tmp_path_factory.mktemp("runs") / "ldp", "ldp-fedsgd", settings={"rounds": 3, "batch": 64})
    return Scene(reopen(path), Asked(records=150, shadows=4, epochs=4))


@pytest.fixture(scope="module")
def of_decoders(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    path = tmp_path_factory.mktemp("runs") / "3dgl"
    made(path, "3dgl", subset=300, sites=1, settings=dict(METHODS["3dgl"].tiny))
    return Scene(reopen(path), Asked(records=20))


@pytest.mark.parametrize("name", MODEL)
def test_what_a_noisy_model_tells_of_members_is_within_the_bound(of_a_model: Scene, name: str) -> None:
    found = ATTACKS[name].on(of_a_model).found
    assert found["attack"] == name
    assert found["within_bound"], found
    assert found["auc"] <= found["allowed_auc"] + 0.1
    assert found["control"]["auc"] >= 0.9, "on a model that knows its records by heart the attack must succeed"


@pytest.mark.parametrize("name", [*SET[:3], "decoder"])
def test_what_noisy_decoders_tell_of_members_is_within_the_bound(of_decoders: Scene, name: str) -> None:
    found = ATTACKS[name].on(of_decoders).found
    assert found["within_bound"], found
    assert found["control"]["auc"] >= 0.8, "on a set or decoder that knows the members by heart it must succeed"


def test_no_synthetic_record_of_noisy_decoders_is_a_member(of_decoders: Scene) -> None:
    found = ATTACKS["copies"].on(of_decoders).found
    assert found["copies_of_members"] == 0
    assert found["control"] == {"copies": 20, "of": 20}


@pytest.mark.parametrize("name", ["dlg", "idlg", "inverting"])
def test_an_exact_gradient_of_one_record_shows_it(name: str) -> None:
    data = load("digits")
    classifier, params = build("sigmoid-lenet", (1, 8, 8), 10, key=Key.seed(0))
    x, y = data.x_train[:1], data.y_train[:1]
    gradient = classifier.gradient(params, x, y)
    problem = Problem(classifier, params, stack([gradient]), 1, (1, 8, 8), 10)
    target = Target(("site-0",), 0, params, gradient, 1, exact=True, rescaled=False)
    view = SeenGradients(problem, Effort(restarts=1, iterations=90), Key.seed(0))
    scored = ATTACKS[name].tried(Case(view, Behind((target,), ((x, y),), "digits", classifier, "server")))
    assert scored.found["rows"][0]["labels"] == 1.0
    assert scored.found["rows"][0]["ssim"] > 0.8
    assert scored.found["words"].endswith(f"by the server, mean SSIM {scored.found['rows'][0]['ssim']:.2f}")
    assert scored.sheet is not None
    assert torch.equal(scored.sheet.images[0], x[0])


def test_where_there_is_nothing_to_see_an_attack_says_so(of_a_model: Scene, tmp_path: Path) -> None:
    words = {name: ATTACKS[name].on(of_a_model).found["words"] for name in (*SET, "decoder")}
    assert set(words.values()) == {
        "does not apply: no synthetic set leaves the sites",
        "does not apply: no decoder leaves the sites",
    }
    alone = Scene(reopen(made(tmp_path / "alone", "local-only", epsilon=None, subset=60, settings={"epochs": 1})))
    for name, attack in ATTACKS.items():
        found = attack.on(alone).found
        assert found["applies"] is False, name
        assert found["words"].startswith("does not apply: no"), name


def test_what_several_attacks_need_is_made_once(of_a_model: Scene) -> None:
    case = of_a_model.once(ATTACKS["lira"].needs.look)
    assert of_a_model.once(ATTACKS["rmia"].needs.look) is case
    assert not isinstance(case, str)
    assert case.view.shadows is case.view.shadows


def test_the_command_names_every_attack() -> None:
    assert set(offered()) == {*ATTACKS, "membership"}
    asked = CliRunner().invoke(app, ["attack", "--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    text = " ".join(asked.output.split())
    assert not [name for name in offered() if f"{name}" not in text]


def test_an_attack_above_the_bound_is_said_to_be() -> None:
    rng = np.random.default_rng(0)
    good, others = rng.normal(3, 1, 500), rng.normal(0, 1, 500)
    assert judged(good, others, Cost.gaussian(2.0), delta=DELTA, control=None)["within_bound"] is False
    assert judged(others, rng.normal(0, 1, 500), Cost.gaussian(2.0), delta=DELTA, control=None)["within_bound"]
    assert judged(good, others, None, delta=DELTA, control=None)["within_bound"] is None


def test_a_synthetic_record_counts_once_however_many_members_it_copies() -> None:
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    made_of = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    case = copies_of(Candidates(x, torch.zeros(4), 3, x), made_of)
    found = copied(COPIES.run(case.view), None, case.truth).found
    assert (found["copies_of_members"], found["copies_of_others"], found["synthetic"]) == (2, 1, 3)


def test_batches_of_noise_that_nobody_can_draw_again_are_refused(of_a_model: Scene) -> None:
    run = of_a_model.run
    deployed = replace(run, config=run.config.model_copy(update={"noise": "operating-system"}))
    with pytest.raises(UserError, match="came from the operating system"):
        deployed.batch_behind("site-0", State(0, run.state.items))


# Synthetic data of any tool


def test_foreign_synthetic_data_can_be_attacked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(80, 5)), rng.normal(size=(120, 5))
    np.savez(tmp_path / "gen.npz", x=np.concatenate([members[:3], members + 0.02 * rng.normal(size=(80, 5))]))
    header = ",".join("abcde")
    np.savetxt(tmp_path / "members.csv", members, delimiter=",", header=header, comments="", fmt="%.17g")
    np.save(tmp_path / "others.npy", others)
    asked = ["attack", "--synthetic", str(tmp_path / "gen.npz"), "--members", str(tmp_path / "members.csv")]
    done = CliRunner().invoke(app, [*asked, "--non-members", str(tmp_path / "others.npy"), "--format", "json"])
    assert done.exit_code == 0, done.output
    found = {row["attack"]: row for row in json.loads(done.stdout)["results"]}
    assert tuple(found) == SET
    assert found["nearest"]["auc"] > 0.95
    assert all(found[name]["control"]["auc"] > 0.9 for name in SET[:3])
    assert found["copies"]["copies_of_members"] == 3
    np.save(tmp_path / "narrow.npy", others[:, :4])
    wrong = CliRunner().invoke(app, [*asked, "--non-members", str(tmp_path / "narrow.npy")])
    assert isinstance(wrong.exception, UserError)
    assert "non-members have shape 4, the synthetic records 5" in str(wrong.exception)


def test_too_few_foreign_records_are_refused() -> None:
    with pytest.raises(UserError, match="at least 4 non-members"):
        attack_set(torch.zeros(5, 2), torch.zeros(5, 2), torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "u,v\n1,x\n", "Column 'v' of '.*' is not numeric"),
        ("b.csv", "u,v\n", "no rows below its header"),
        ("c.csv", "u,v\n1,\n", "not finite"),
        ("d.npy", "rubbish", "cannot be read as records"),
    ],
)
def test_files_that_hold_no_records_are_refused_by_name(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=words):
        read_rows(tmp_path / name)


def test_arrays_need_an_x_and_two_dimensions(tmp_path: Path) -> None:
    np.savez(tmp_path / "no.npz", z=np.zeros(3))
    np.save(tmp_path / "flat.npy", np.zeros(3))
    for path, words in ((tmp_path / "no.npz", "no array 'x'; it has z"), (tmp_path / "flat.npy", "holds no records")):
        with pytest.raises(UserError, match=words):
            read_rows(path)
    with pytest.raises(UserError, match="No file"):
        read_rows(tmp_path / "none.npy")
