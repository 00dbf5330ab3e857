"""A run's directory: what is written comes back, a killed run leaves whole things, damage is one line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from prismfl.core.method import State
from prismfl.core.payloads import Weights, encode
from prismfl.errors import UserError
from prismfl.runs.directory import SCHEMA_VERSION, Message, RunDirectory, digest


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "r", {"method": "fedavg"}, {"python": "3"})


def model(value: float) -> dict[str, Weights]:
    return {"model": Weights({"w": torch.tensor([value])})}


def message(round: int, site: str = "site-0", *, file: str | None = None, bytes: int = 3) -> Message:
    return Message(round, site, "up", bytes, "d", file)


def refused(path: Path, line: str) -> None:
    with pytest.raises(UserError) as error:
        RunDirectory.open(path)
    assert str(error.value) == line


def test_a_new_run_says_what_it_is(run: RunDirectory) -> None:
    assert run.status == "running"
    assert run.read_json("config.json") == {"method": "fedavg"}
    assert run.read_json("environment.json") == {"python": "3"}
    assert RunDirectory.open(run.path).path == run.path


def test_a_run_is_made_once(run: RunDirectory) -> None:
    with pytest.raises(UserError) as error:
        RunDirectory.create(run.path, {}, {})
    assert str(error.value) == f"The run directory '{run.path}' exists already; choose another with --out."


def test_a_closed_run_is_for_its_owner_alone(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "own", {}, {}, closed=True)
    run.add_metrics({"round": 0})
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.path / "metrics.jsonl").stat().st_mode) == 0o600


def test_a_place_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError) as error:
        RunDirectory.create(tmp_path / "file" / "r", {}, {})
    assert str(error.value).startswith(f"Cannot make the run directory '{tmp_path / 'file' / 'r'}': ")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, f"'{tmp_path}' is not a run directory (it has no run.json).")


def test_another_format_is_refused_unless_it_is_old_and_finished(run: RunDirectory) -> None:
    run.write_json("run.json", {"schema_version": 99, "status": "finished"})
    refused(
        run.path,
        f"'{run.path}' was written in run format 99, this version reads format {SCHEMA_VERSION}; use the version of "
        "prismfl that wrote it.",
    )
    run.write_json("run.json", {"schema_version": 1, "status": "running"})
    with pytest.raises(UserError, match="run format 1"):
        RunDirectory.open(run.path)
    run.write_json("run.json", {"schema_version": 1, "status": "finished"})
    assert RunDirectory.open(run.path).status == "finished"


def test_status_changes(run: RunDirectory) -> None:
    run.set_status("finished")
    assert RunDirectory.open(run.path).status == "finished"


def test_numbers_that_are_not_finite_are_never_written(run: RunDirectory) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.write_json("bad.json", {"x": float("nan")})
    assert not (run.path / "bad.json").exists()


def test_a_file_that_was_not_written_or_is_no_object_is_one_line(run: RunDirectory) -> None:
    with pytest.raises(UserError) as error:
        run.read_json("result.json")
    assert str(error.value) == f"'{run.path}' has no result.json: the run was cut off before it was written."
    run.write_json("list.json", [1])
    with pytest.raises(UserError) as error:
        run.read_json("list.json")
    assert str(error.value) == f"'{run.path / 'list.json'}' is not a JSON object."


def test_messages_come_back_with_their_content(run: RunDirectory) -> None:
    raw = encode(model(2.5))
    sent = Message(0, "site-0", "up", len(raw), digest(raw), "wire/0.safetensors")
    run.record(sent, raw)
    run.record(message(1), None)
    assert run.messages() == [sent, message(1)]
    assert float(run.payloads(sent)["model"].tensors["w"]) == 2.5
    assert not list(run.path.rglob("*.part"))


def test_a_resumed_runs_last_word_counts(run: RunDirectory) -> None:
    for size in (3, 4):
        run.record(message(0, bytes=size), None)
    run.record(message(0, "site-1"), None)
    assert [(m.site, m.bytes) for m in run.messages()] == [("site-0", 4), ("site-1", 3)]


def test_a_message_of_which_only_the_digest_was_kept(run: RunDirectory) -> None:
    with pytest.raises(UserError) as error:
        run.payloads(message(3))
    assert str(error.value) == "The run kept only the digest of round 3; run again with --set transcript=full."


def test_a_line_cut_off_by_a_kill_is_left_out(run: RunDirectory) -> None:
    run.add_metrics({"round": 0, "accuracy": 50.0})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"round": 1, "accu')
    assert run.metrics() == [{"round": 0, "accuracy": 50.0}]


def test_metrics_of_a_round_are_its_last_ones(run: RunDirectory) -> None:
    for round, accuracy in ((0, 1.0), (1, 2.0), (1, 3.0)):
        run.add_metrics({"round": round, "accuracy": accuracy})
    run.add_metrics({"note": "no round"})
    assert [row["accuracy"] for row in run.metrics()] == [1.0, 3.0]


def test_a_transcript_of_something_else_is_one_line(run: RunDirectory) -> None:
    (run.path / "transcript.jsonl").write_text('{"hello": 1}\n')
    with pytest.raises(UserError) as error:
        run.messages()
    assert str(error.value) == f"'{run.path / 'transcript.jsonl'}' does not hold messages."


def test_a_fresh_run_has_no_checkpoint(run: RunDirectory) -> None:
    assert run.load_state() is None
    assert run.messages() == []
    assert run.metrics() == []


def test_the_newest_whole_checkpoint_counts(run: RunDirectory) -> None:
    for round in (1, 2):
        run.save_state(State(round, model(float(round))))
    found = run.load_state()
    assert found is not None
    assert (found.round, float(found.items["model"].tensors["w"])) == (2, 2.0)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_checkpoint_falls_back_and_two_are_refused(run: RunDirectory, damage: str) -> None:
    for round in (1, 2):
        run.save_state(State(round, model(float(round))))
    folder = run.path / "checkpoint"

    def spoil(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(bytes(raw[:40]) if damage == "cut" else bytes(raw))

    spoil(folder / "state.safetensors")
    found = run.load_state()
    assert found is not None
    assert found.round == 1
    spoil(folder / "state.previous.safetensors")
    with pytest.raises(UserError) as error:
        run.load_state()
    assert str(error.value) == f"Both checkpoints in '{folder}' are damaged; the run cannot be resumed."
