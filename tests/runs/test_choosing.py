"""Which method a user's own command means: ours by name, anybody's by its place, or an object."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prismfl
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs import choosing, simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.directory import RunDirectory
from prismfl.runs.reopen import reopen
from tests.cli.command import invoke, run_json
from tests.nets.encoders.tiny import scripted
from tests.runs import foreign_method

THEIRS = "tests.runs.foreign_method"
QUICK: dict[str, Any] = {"data": "digits", "model": "logreg", "sites": 2, "epochs": 1}


def test_a_name_is_ours() -> None:
    assert choosing.choose("fedavg") == ("fedavg", METHODS["fedavg"])
    assert choosing.choose(METHODS["fedavg"]) == ("fedavg", METHODS["fedavg"])
    assert choosing.choose(f"{THEIRS}:OURS") == ("fedavg", METHODS["fedavg"]), "one run, whatever led to the method"


def test_a_place_and_an_object_are_theirs() -> None:
    assert choosing.choose(f"{THEIRS}:METHOD") == (f"{THEIRS}:METHOD", foreign_method.METHOD)
    assert choosing.choose(foreign_method.METHOD) == (":their-average", foreign_method.METHOD)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nowhere_at_all:METHOD", "no module 'nowhere_at_all' on Python's path"),
        ("tests.nowhere.deep:METHOD", "no module 'tests.nowhere' on Python's path"),
        (f"{THEIRS}:NOTHING", "has no 'NOTHING'"),
        (f"{THEIRS}:NUMBER", "is a int, not a prismfl.Method"),
        (f"{THEIRS}:CLASH", "called 'fedavg' like one of ours"),
        (f"{THEIRS}:ODD", "lower-case letters, digits and dashes"),
        (":their-average", "was given as a Python object"),
        ("a:b:c", "Expected a method's name or pkg.mod:METHOD"),
        ("../x:METHOD", "Expected a method's name or pkg.mod:METHOD"),
        ("x:", "Expected a method's name or pkg.mod:METHOD"),
        ("fedavgg", "did you mean 'fedavg'"),
        (3, "got int"),
        (replace(METHODS["fedavg"], summary="mine"), "like one of ours"),
    ],
)
def test_a_mistake_is_one_clear_line(given: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        choosing.choose(given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("import not_there", "No module named 'not_there'"), ("def f(:", "invalid syntax")],
)
def test_a_module_that_fails_says_why(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_method.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=words):
        choosing.choose("broken_method:METHOD")


ENCODERS = "tests.nets.encoders.tiny"
FAST: dict[str, Any] = {
    **{"data": "digits", "sites": 2, "epsilon": 3.0, "public_count": 60, "subset": 200, "tuning": "fixed"},
    **{"networks": 2, "network_features": 8, "rank": 6, "covariance": 6},
}


def chosen(words: str | None, method: str = "prism-head") -> Any:
    return choosing.choose_encoder(RunConfig(encoder=words), METHODS[method])


def test_an_encoder_is_a_name_a_place_or_a_file(tmp_path: Path) -> None:
    assert chosen(None) is None
    assert chosen("scattering").name == "scattering"
    assert chosen(f"{ENCODERS}:build").name == f"{ENCODERS}:build"
    assert chosen(f"{ENCODERS}:build_own").name == "own"
    path = scripted(tmp_path / "net.pt")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert chosen(f"{path}={digest}").digest == digest
    assert chosen(f"scattering+{path}").prefixes == ("scattering", "net.pt")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nowhere_at_all:build", "no module 'nowhere_at_all' on Python's path"),
        (f"{ENCODERS}:nothing", "has no 'nothing'"),
        (f"{ENCODERS}:NUMBER", "not a function that makes an encoder"),
        (f"{ENCODERS}:build_text", "gave a str, not a torch.nn.Module"),
        ("os:system", "'os:system()' failed"),
        (f"{ENCODERS}:build={'0' * 64}", "not 0000000000000000... as was said"),
        ("../x:build", "Expected an encoder's name or pkg.mod:build"),
        ("none.pt", "There is no encoder's file 'none.pt'"),
        ("resnet", "Unknown encoder 'resnet'; known: scattering"),
        ("net.h5", "Unknown encoder 'net.h5'"),
    ],
)
def test_an_encoder_that_cannot_be_is_one_clear_line(words: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        chosen(words)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_through_ones_own_encoder_goes_on_with_the_same(tmp_path: Path) -> None:
    asked = {**FAST, "encoder": f"{ENCODERS}:build", "out": str(tmp_path / "run")}
    found = prismfl.run("prism-head", **asked)
    assert (found.encoder, found.pretrained_on) == (f"{ENCODERS}:build", "a leaflet")
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["encoder"] == f"{ENCODERS}:build={chosen(f'{ENCODERS}:build').digest}"
    assert kept["settings"]["layers"] == ["maps", "rows"]
    cut_off(tmp_path / "run")
    assert simulate.resume(tmp_path / "run").digest == found.digest
    cut_off(tmp_path / "run")
    kept["encoder"] = f"{ENCODERS}:build={'0' * 64}"
    (tmp_path / "run" / "config.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match="as was said"):
        simulate.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (f"{ENCODERS}:build_nan", "NaN or infinite"),
        (f"{ENCODERS}:build_deep", "cannot look at images of 1 x 8 x 8"),
        ("none.onnx", "encoder"),
        ("scaterring", "Unknown encoder"),
    ],
)
def test_an_encoder_that_fails_is_found_before_anything_is_made(tmp_path: Path, words: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        prismfl.run("prism-head", **FAST, encoder=words, out=str(tmp_path / "run"))
    with pytest.raises(UserError, match=told):
        prismfl.plan("prism-head", **FAST, encoder=words)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_an_encoder_is_what_the_run_sends(tmp_path: Path) -> None:
    asked = {**FAST, "rank": 300, "covariance": 6, "atoms": 2, "pool": 1}
    planned = [prismfl.plan("prism-head", **asked, encoder=words).bytes_up for words in ("none", "scattering")]
    assert planned[1] - planned[0] == 2 * 10 * (300 - 4) * 4 + 2 * 4 * (6 * 7 - 4 * 5) // 2
    assert chosen("scattering").layers == ("order0", "order1", "order2")


def test_a_folder_that_somebody_sent_loads_nothing_that_it_names(tmp_path: Path) -> None:
    prismfl.run("prism-head", **FAST, encoder=f"{ENCODERS}:build", out=str(tmp_path / "run"))
    with pytest.raises(UserError, match="only run, plan, resume and synth load others"):
        _ = reopen(tmp_path / "run").whole_job


def test_python_takes_an_object(tmp_path: Path) -> None:
    own = prismfl.run(method=foreign_method.METHOD, **QUICK, out=str(tmp_path / "own"))
    assert (own.method, prismfl.open_run(tmp_path / "own").config.method) == ("their-average", ":their-average")
    ours = prismfl.run("fedavg", **QUICK, out=str(tmp_path / "ours"))
    assert own.digest == ours.digest, "the same functions give the same run"
    assert prismfl.plan(foreign_method.METHOD, **QUICK).method == "their-average"


def cut_off(path: Path) -> None:
    RunDirectory.open(path).set_status("running")


def test_the_command_line_takes_a_place_and_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(f'method = "{THEIRS}:METHOD"\ndata = "digits"\nmodel = "logreg"\nsites = 2\n')
    found = run_json("c.toml", "--set", "epochs=1", "-o", "run", cwd=tmp_path)
    assert found["method"] == "their-average"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["method"] == f"{THEIRS}:METHOD"
    planned = invoke("plan", "-m", f"{THEIRS}:METHOD", "-d", "digits", "--format", "json", cwd=tmp_path)
    assert json.loads(planned.stdout)["method"] == "their-average"
    cut_off(tmp_path / "run")
    again = invoke("resume", "run", "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["digest"] == found["digest"]


def test_a_run_of_an_object_cannot_go_on(tmp_path: Path) -> None:
    prismfl.run(foreign_method.METHOD, **QUICK, out=str(tmp_path / "run"))
    assert simulate.resume(tmp_path / "run").method == "their-average", "a finished one just reports"
    cut_off(tmp_path / "run")
    done = invoke("resume", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "run it as pkg.mod:METHOD" in done.stderr


def test_a_default_place_has_the_methods_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(prismfl.run(foreign_method.METHOD, **QUICK).run_dir).parent == Path("runs/their-average")
