"""A finished run's models: they score as the run said, and whatever does not fit is one clear line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prismfl
from prismfl.core.payloads import Payload, Statistics, Weights
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.runs.directory import RunDirectory
from prismfl.runs.fitted import as_records, probabilities
from prismfl.runs.opened import open_run
from prismfl.runs.result import state_digest
from tests.runs.usable import prism_run, table_run

DIGITS = load("digits")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prism_run(tmp_path_factory.mktemp("fitted") / "run")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm")))


def change(path: Path, file: str, **values: Any) -> None:
    stored = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**stored, **values}))


def put(path: Path, **items: Payload) -> None:
    """Other items in the checkpoint, with the digest that they have."""
    directory = RunDirectory.open(path)
    state = directory.load_state()
    assert state is not None
    other = type(state)(state.round, {**state.items, **items})
    directory.save_state(other)
    change(path, "result.json", digest=state_digest(other))


def test_each_model_scores_as_the_run_said(finished: Path) -> None:
    run = open_run(finished)
    result = run.result
    assert result is not None
    assert set(run.models) == set(result.models) == {"network", "head", "linear"}
    names = np.asarray(DIGITS.spec.classes)[DIGITS.y_test.numpy()]
    for name, model in run.models.items():
        right = 100 * float((model.predict(DIGITS.x_test.numpy()) == names).mean())
        assert right == pytest.approx(result.models[name]["accuracy"], abs=1e-3), name
    assert run.model.name == result.recommended == "linear"
    assert run.model_named("head").name == "head"


def test_it_speaks_scikit_learn(finished: Path) -> None:
    model, x = open_run(finished).model_named("network"), DIGITS.x_test.numpy()[:7]
    chances = model.predict_proba(x)
    assert chances.shape == (7, 10)
    assert chances.sum(1) == pytest.approx(np.ones(7))
    assert (model.classes_[chances.argmax(1)] == model.predict(x)).all()
    assert model.classes_.tolist() == list("0123456789")
    assert probabilities(model.decision_function(x)) == pytest.approx(chances)
    assert model.predict(x[:0]).shape == (0,)


def test_bytes_grey_tensors_and_lists_are_the_same_images(finished: Path) -> None:
    model = open_run(finished).model_named("network")
    raw = (DIGITS.x_test[:5] * 255).round().to(torch.uint8).numpy()
    wanted = model.predict_proba(raw)
    for same in (raw[:, 0], torch.from_numpy(raw), raw / 255.0, (raw / 255.0).tolist()):
        assert model.predict_proba(same) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((8, 8)), "one record is X[None]"),
        (np.zeros((1, 8, 8, 1)), "Expected records as (n, 8, 8) or (n, 1, 8, 8)"),
        (np.zeros((2, 3, 8, 8)), "(2, 3, 8, 8)"),
        (np.zeros((2, 64)), "(2, 64)"),
        (np.full((2, 8, 8), np.nan), "NaN or infinity in record 0"),
        (np.full((2, 8, 8), 200.0), "from 200 to 200"),
        (np.zeros((2, 8, 8), dtype=np.int64), "int64"),
        (np.array([["a"]]), "array of numbers"),
        ({"x": [1.0]}, "no columns by name"),
    ],
)
def test_what_is_no_record_is_said_so(X: Any, words: str) -> None:
    with pytest.raises(UserError, match="Expected") as error:
        as_records(X, (1, 8, 8))
    assert words in str(error.value)


def test_a_table_is_encoded_rows_or_its_own_columns(tmp_path: Path) -> None:
    model = open_run(table_run(tmp_path / "run")).model
    data = load("wine-cultivar")
    assert data.schema is not None
    rows = data.x_test
    columns = data.schema.decode(rows)
    assert model.predict_proba(columns) == pytest.approx(model.predict_proba(rows.numpy()), abs=1e-4)
    with pytest.raises(UserError, match="Expected column 'alcohol'"):
        model.predict({"ash": [1.0]})
    with pytest.raises(UserError, match="encoded rows"):
        model.predict(np.zeros((2, 3)))


def test_the_network_needs_no_public_images(copy: Path) -> None:
    change(copy, "config.json", public="gone")
    assert len(open_run(copy).model_named("network").predict(DIGITS.x_test[:3])) == 3
    with pytest.raises(UserError, match="public images \\('gone'\\), which are gone"):
        open_run(copy).model_named("head")


def test_other_public_images_are_noticed(copy: Path) -> None:
    change(copy, "config.json", public_count=59)
    with pytest.raises(UserError, match=r"not the ones .* another digest"):
        open_run(copy).model_named("head")


@pytest.mark.parametrize(
    ("encoder", "facts", "words"),
    [
        ("os:getcwd", {}, "not one of prismfl's own"),
        ("/tmp/x.onnx", {}, "not one of prismfl's own"),
        ("none", {"encoder": "efficientnet-lite0"}, "not installed"),
        (None, {"encoder_digest": "00"}, "another digest"),
    ],
)
def test_another_encoder_is_noticed_and_no_code_is_loaded(
    copy: Path, encoder: str | None, facts: dict[str, Any], words: str
) -> None:
    change(copy, "config.json", encoder=encoder)
    change(copy, "task.json", **facts)
    with pytest.raises(UserError, match=words):
        open_run(copy).model_named("head")


def test_own_images_need_not_be_there_any_more(tmp_path: Path) -> None:
    from prismfl.data.pictures import save_sheet

    for i, (image, label) in enumerate(zip(DIGITS.x_train[:120], DIGITS.y_train[:120].tolist())):
        save_sheet(image, tmp_path / "own" / f"class {label % 2}" / f"{i}.png", scale=1)
    path = prism_run(tmp_path / "run", data=str(tmp_path / "own"), subset=None, records=60, seed=1)
    shutil.rmtree(tmp_path / "own")
    model = open_run(path).model
    assert model.classes == ("class 0", "class 1")
    assert set(model.predict(DIGITS.x_test[:9])) <= {"class 0", "class 1"}


def other_model(path: Path) -> None:
    put(path, model=Weights({"0.weight": torch.zeros(2, 2)}))


def other_head(path: Path) -> None:
    put(path, head=Statistics({"weight": torch.zeros(3, 10), "bias": torch.zeros(10)}))


def no_bias(path: Path) -> None:
    put(path, head=Statistics({"weight": torch.zeros(12, 10)}))


def fewer_classes(path: Path) -> None:
    put(path, head=Statistics({"weight": torch.zeros(12, 9), "bias": torch.zeros(9)}))


@pytest.mark.parametrize("spoil", [other_model, other_head, no_bias, fewer_classes])
def test_weights_that_do_not_fit_are_refused(copy: Path, spoil: Callable[[Path], None]) -> None:
    spoil(copy)
    with pytest.raises(UserError, match="does not fit its config"):
        open_run(copy).models  # noqa: B018


def test_a_checkpoint_that_is_not_the_runs_own_is_refused(copy: Path) -> None:
    change(copy, "result.json", digest=hashlib.sha256(b"").hexdigest())
    with pytest.raises(UserError, match="not what the run ended with"):
        open_run(copy).model  # noqa: B018


@pytest.mark.parametrize(
    ("file", "values", "words"),
    [
        ("config.json", {"model": "convnet:999999"}, "larger than a run can hold"),
        ("config.json", {"model": "convnet:" + "9" * 5000}, "at most nine digits"),
        ("config.json", {"public_count": 10**12}, "more than are read here"),
        ("config.json", {"method": "os:system"}, "not one of prismfl's own"),
        ("task.json", {"shape": [1, 10**6, 10**6]}, "shape of an image"),
        ("task.json", {"classes": ["a", "a"]}, "distinct classes"),
        ("task.json", {"shape": "x"}, "Bad value for 'shape'"),
        ("run.json", {"status": "running"}, "prismfl resume"),
    ],
)
def test_a_directory_from_anybody_cannot_ask_for_more(
    copy: Path, file: str, values: dict[str, Any], words: str
) -> None:
    change(copy, file, **values)
    with pytest.raises(UserError, match=words):
        open_run(copy).model_named("head")


def test_a_setting_beyond_memory_is_refused(copy: Path) -> None:
    settings = json.loads((copy / "config.json").read_text())["settings"]
    change(copy, "config.json", settings={**settings, "atoms": 10**9})
    with pytest.raises(UserError, match="atoms = 1,000,000,000"):
        open_run(copy).model  # noqa: B018


def test_a_name_that_is_none(finished: Path) -> None:
    with pytest.raises(UserError, match="no model 'tree'; it has network, head, linear"):
        open_run(finished).model_named("tree")


def test_models_that_stay_at_the_sites(tmp_path: Path) -> None:
    prismfl.run("local-only", data="digits", sites=2, model="logreg", subset=100, out=str(tmp_path / "run"))
    with pytest.raises(UserError, match="each site keeps its own model"):
        open_run(tmp_path / "run").model  # noqa: B018
