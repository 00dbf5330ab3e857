"""Files that others may have written: pipes, devices, sizes, depths, aliases and numbers end in one clear line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prismfl.core.payloads import encode
from prismfl.errors import UserError
from prismfl.files.bounded import TEXT_LIMIT, load_json, load_toml, load_yaml, read_json, read_regular
from prismfl.runs.config import merge, read
from prismfl.runs.directory import RunDirectory


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, limit=5) == b"12345"
    with pytest.raises(UserError, match="at most 4 bytes"):
        read_regular(file, limit=4)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_regular(link, limit=5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    irregular = [(path, "regular file") for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"))]
    for bad, words in (*irregular, (tmp_path / "none", "No such file")):
        with pytest.raises(UserError, match=words):
            read_regular(bad, limit=5)


PIPES = """
import sys
from pathlib import Path
from prismfl.errors import UserError
from prismfl.files.bounded import read_regular
from prismfl.runs.config import read
from prismfl.site.keys import node_identity, signing_key, verifying_key
from prismfl.runs.directory import RunDirectory

for path in map(Path, sys.argv[1:]):
    for reader in (lambda p: read_regular(p, limit=10), read, node_identity, signing_key, verifying_key,
                   lambda p: RunDirectory(p.parent).read_json(p.name)):
        try:
            reader(path)
        except UserError as error:
            assert "regular file" in str(error), error
            continue
        raise AssertionError(path)
print("refused")
"""


def test_pipes_and_devices_are_refused_not_waited_for(tmp_path: Path) -> None:
    """In a process that can be ended: who reads a pipe without a writer waits for ever, who reads /dev/zero too."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    done = subprocess.run(
        [sys.executable, "-c", PIPES, str(tmp_path / "pipe"), str(tmp_path / "link"), "/dev/zero"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.stdout == "refused\n", done.stderr


LAUGHS = "a: &a [x, x]\nb: [*a, *a]\n"
YAML = {
    "aliases": (LAUGHS, "anchors or aliases"),
    "an anchor alone": ("a: &b 1\n", "anchors or aliases"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "33 deep": ("[" * 33 + "]" * 33, "nested too deeply"),
    "deep blocks": ("- " * 5_000 + "x", "nested too deeply"),
    "a long sexagesimal": ("a: " + "1:" * 20_000 + "1", "more than 10000 characters"),
    "a sexagesimal float": ("a: " + "1:" * 1_000 + "1.0", "not well-formed"),
    "digits": ("a: " + "9" * 5_000, "not well-formed"),
    "no day": ("a: 2001-99-99", "not well-formed"),
    "python": ("a: !!python/object/apply:os.system [ls]", "not well-formed"),
    "a list as key": ("? [1]\n: 2", "not well-formed"),
    "large": ("#" * (TEXT_LIMIT + 1), "limit of 1000000"),
}
TOML = {
    "deep": ("a = " + "[" * 50_000, "nested too deeply"),
    "a key of 40 parts": ("a." * 39 + "a = 1", "more than 32 parts"),
    "a key of many parts": ("a." * 100_000 + "a = 1", "more than 32 parts"),
    "a quoted key of many parts": ('"a".' * 100_000 + "a = 1", "more than 32 parts"),
    "an inline key of many parts": ("x = {" + "a." * 100_000 + "a = 1}", "more than 32 parts"),
    "a table of many parts": ("[" + "a." * 100_000 + "a]", "more than 32 parts"),
    "open strings": ('a = "' + '\\"' * 200_000, "not well-formed"),
    "digits": ("a = " + "9" * 5_000, "not well-formed"),
    "large": ("#" * (TEXT_LIMIT + 1), "limit of 1000000"),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", YAML)
def test_yaml_is_bounded(name: str, tmp_path: Path) -> None:
    text, words = YAML[name]
    with pytest.raises(UserError, match=words):
        load_yaml(text, "The text")
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(UserError, match=words.replace("limit of 1000000", "limit")):
        read(tmp_path / "run.yaml")
    with pytest.raises(UserError, match=words):
        merge({}, [f"seed={text}"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", TOML)
def test_toml_is_bounded(name: str, tmp_path: Path) -> None:
    text, words = TOML[name]
    with pytest.raises(UserError, match=words):
        load_toml(text, "The text")
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(UserError, match=words.replace("limit of 1000000", "limit")):
        read(tmp_path / "run.toml")


def test_what_people_write_is_read_as_before() -> None:
    assert load_yaml("a: {b: [1, 2.5, true, null, x]}\nc: 'anchor &a and *a'", "x") == {
        "a": {"b": [1, 2.5, True, None, "x"]},
        "c": "anchor &a and *a",
    }
    assert load_yaml("1e-5", "x") == "1e-5"  # YAML 1.1, as ever
    dots = "." * 80
    text = f'# {dots}\na.b = "{dots}"\nc = \'{dots}\'\nd = """\n{dots}\n"""\n[e.f]\ng = [1.5, 2.5]\n'
    assert load_toml(text, "x")["e"] == {"f": {"g": [1.5, 2.5]}}


def test_json_has_one_meaning_and_a_depth() -> None:
    assert load_json('{"a": [1, {"b": 2.5}]}', depth=3) == {"a": [1, {"b": 2.5}]}
    bad: list[str | bytes] = [
        '{"a": 1, "a": 2}',
        "1e999",
        "NaN",
        "-Infinity",
        "9" * 5_000,
        "[" * 50_000,
        "[1",
        b"\xff",
        "[[[[1]]]]",
    ]
    for raw in bad:
        with pytest.raises(ValueError, match=r"not readable JSON|nested deeper than 3"):
            load_json(raw, depth=3)


def test_a_run_directory_from_elsewhere_is_one_clear_line(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {}, {})
    good = (run.path / "run.json").read_text()
    deep = '{"schema_version": 1, "x": ' + "[" * 3_000 + "]" * 3_000 + "}"
    for text in (deep, "[" * 100_000, '{"schema_version": ' + "9" * 5_000 + "}", "[]", "\x00", good[:-3]):
        (run.path / "run.json").write_text(text)
        with pytest.raises(UserError) as caught:
            RunDirectory.open(run.path)
        assert caught.value.exit_code == 2
    (run.path / "run.json").write_text(good)
    with pytest.raises(UserError, match="larger than the limit"):
        read_json(run.path / "run.json", limit=10)
    for line in ("[1]", "[" * 50_000, '{"round": ', "NaN"):
        (run.path / "transcript.jsonl").write_text(line + "\n")
        assert run.messages() == []
    rows: list[dict[str, object]] = [{"round": []}, {"round": 1, "site": "a", "direction": "up", "surprise": 1}]
    for row in rows:
        for name, reader in (("transcript.jsonl", run.messages), ("metrics.jsonl", run.metrics)):
            (run.path / name).write_text(json.dumps(row) + "\n")
            if name == "transcript.jsonl":
                with pytest.raises(UserError, match="does not hold messages"):
                    reader()
            else:
                assert reader() == ([] if row["round"] == [] else [row])


@pytest.mark.parametrize("file", ["../secret", "/etc/hostname", "a/../../secret"])
def test_a_transcript_names_no_file_outside_its_run(tmp_path: Path, file: str) -> None:
    run = RunDirectory.create(tmp_path / "run", {}, {})
    (tmp_path / "secret").write_bytes(b"x")
    row = {"round": 0, "site": "a", "direction": "up", "bytes": 1, "digest": "", "file": file}
    (run.path / "transcript.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="outside the run"):
        run.payloads(run.messages()[0])


def test_a_checkpoint_without_a_round_counts_as_damaged(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {}, {})
    (run.path / "checkpoint").mkdir()
    for header in ({}, {"round": "0"}, {"round": -1}, {"round": True}):
        raw = encode({}, header)
        (run.path / "checkpoint" / "state.safetensors").write_bytes(hashlib.sha256(raw).digest() + raw)
        with pytest.raises(UserError, match="damaged"):
            run.load_state()
