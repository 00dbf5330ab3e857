"""`prismfl.open_run`: a run directory is read, left as it is, and every fault in it is one clear line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prismfl
from prismfl.core.payloads import SyntheticSet
from prismfl.errors import PrismError, UserError
from prismfl.methods import METHODS
from prismfl.sources import SIMULATION

VALUES: dict[str, Any] = {"data": "digits", "model": "logreg", "sites": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, prismfl.Result]:
    path = tmp_path_factory.mktemp("opened") / "run"
    result = prismfl.run("dp-fedavg", **VALUES, epsilon=4.0, rounds=3, steps=2, out=str(path))
    return path, result


@pytest.fixture
def copy(finished: tuple[Path, prismfl.Result], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm")))


def contents(path: Path) -> dict[str, str]:
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in path.rglob("*") if p.is_file()
    }


def test_a_finished_run_is_read_and_left_alone(finished: tuple[Path, prismfl.Result]) -> None:
    path, result = finished
    before = contents(path)
    run = prismfl.open_run(str(path))
    assert (run.path, run.status, run.result) == (path, "finished", result)
    assert run.method is METHODS["dp-fedavg"]
    assert (run.config.sites, run.config.epsilon, run.config.settings["steps"]) == (2, 4.0, 2)
    assert [row["round"] for row in run.metrics] == [1, 2, 3]
    assert run.metrics[-1]["accuracy"] == pytest.approx(result.accuracy, abs=0.01)
    assert run.state is not None
    assert run.state.round == 3
    assert run.synthetic is None, "weights leave, no records"
    assert sum(m.bytes for m in run.messages if m.direction == "up") == result.bytes_up
    assert contents(path) == before


def test_a_release_says_what_left_at_which_price(finished: tuple[Path, prismfl.Result]) -> None:
    run = prismfl.open_run(finished[0])
    release = run.release("site-1", 0)
    assert (release.site, release.round, set(release.items)) == ("site-1", 0, set(run.method.leaves))
    assert release.noise == SIMULATION
    assert run.result is not None
    assert release.cost * 3 == prismfl.METHODS["dp-fedavg"].plan(run.method.settings(**run.config.settings), _task(run))


def _task(run: prismfl.Run) -> Any:
    from prismfl.runs.planning import declared_spec, task_of

    return task_of(run.config, declared_spec(run.config), run.method)


def test_a_release_that_is_not_there(finished: tuple[Path, prismfl.Result]) -> None:
    run = prismfl.open_run(finished[0])
    for site, round, words in (
        ("site-7", 0, "in that round sent: site-0, site-1"),
        ("site-0", 9, "in that round sent: nobody"),
        ("site-0", 1, "transcript=full"),
    ):
        with pytest.raises(UserError, match=words):
            run.release(site, round)


def test_a_release_that_was_changed_or_lost(copy: Path) -> None:
    run = prismfl.open_run(copy)
    file = copy / next(m.file for m in run.messages if m.direction == "up" and m.file)
    raw = file.read_bytes()
    file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(UserError, match="another digest"):
        run.release("site-0", 0)
    file.unlink()
    with pytest.raises(UserError, match="is gone"):
        run.release("site-0", 0)


def test_a_run_that_is_under_way(tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    from prismfl.runs import choosing, simulate

    asked, method = choosing.configure({**VALUES, "method": "fedavg", "out": str(tmp_path / "run")})
    with pytest.raises(KeyboardInterrupt):
        simulate.run(asked, method=method, progress=stop)
    run = prismfl.open_run(tmp_path / "run")
    assert (run.status, run.result, run.metrics) == ("running", None, [])
    assert run.state is not None
    assert run.state.round == 0


def test_synthetic_records_are_at_hand(tmp_path: Path) -> None:
    settings = {**METHODS["prism"].tiny, "sigma": 1.0}
    prismfl.run("prism", data="digits", sites=2, settings=settings, public_count=60, out=str(tmp_path / "run"))
    made = prismfl.open_run(tmp_path / "run").synthetic
    assert isinstance(made, SyntheticSet)
    assert tuple(made.x.shape[1:]) == (1, 8, 8)


def rewritten(name: str, **changes: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        told = {**json.loads((path / name).read_text()), **changes}
        (path / name).write_text(json.dumps({k: v for k, v in told.items() if v != "gone"}))

    return write


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "no run": (shutil.rmtree, "status", "is not a run directory"),
    "another format": (rewritten("run.json", schema_version=99), "status", "format 99"),
    "no config": (lambda path: (path / "config.json").unlink(), "config", "has no config.json"),
    "config of a list": (lambda path: (path / "config.json").write_text("[]"), "config", "not a JSON object"),
    "config without a name": (rewritten("config.json", run="gone"), "config", "does not name its run"),
    "config with a new key": (rewritten("config.json", surprise=1), "config", "Unknown key 'surprise'"),
    "config with a bad value": (rewritten("config.json", sites="many"), "config", "'sites'"),
    "code in the config": (rewritten("config.json", method="os:system"), "method", "import code"),
    "no result": (lambda path: (path / "result.json").unlink(), "result", "has no result.json"),
    "result without a digest": (rewritten("result.json", digest="gone"), "result", "'digest'"),
    "result with a bad value": (rewritten("result.json", epsilon="small"), "result", "'epsilon'"),
    "messages of another kind": (
        lambda path: (path / "transcript.jsonl").write_text('{"round": 1}\n'),
        "messages",
        "does not hold messages",
    ),
    "damaged state": (
        lambda path: [file.write_bytes(b"x" * 99) for file in (path / "checkpoint").iterdir()],
        "state",
        "damaged",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_clear_line(fault: str, copy: Path) -> None:
    break_it, attribute, words = FAULTS[fault]
    break_it(copy)
    with pytest.raises(PrismError) as error:
        getattr(prismfl.open_run(copy), attribute)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_result_with_a_key_of_a_later_version_is_read(copy: Path, finished: tuple[Path, prismfl.Result]) -> None:
    rewritten("result.json", surprise=1)(copy)
    assert prismfl.open_run(copy).result == finished[1]
