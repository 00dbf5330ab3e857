"""What a user may give by mistake: one clear line each, exit code 2, before anything is spent; or a warning."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from prismfl.privacy.ledger.place import ledger_path
from prismfl.report.tables import result_table
from tests.cli.command import Done, invoke, run_json

SCHEMA = """
label = "ill"
classes = ["no", "yes"]
train_size = 60
[[columns]]
name = "age"
min = 0
max = 120
[[columns]]
name = "sex"
type = "binary"
categories = ["f", "m"]
"""
TABLE = "age,sex,ill\n" + "".join(f"{20 + i},{'fm'[i % 2]},{'yes' if i % 3 else 'no'}\n" for i in range(60))
CSV = ("-d", "t.csv", "--schema", "schema.toml", "--records", "20", "--sites", "2")
IMAGES = ("-d", "s", "--image-size", "10", "--channels", "1", "--records", "10", "--sites", "2")
METHOD = ("-m", "dp-fedavg", "-e", "4", "--model", "logreg", "--set", "rounds=1", "--set", "steps=1")


def picture(path: Path, size: tuple[int, ...] = (10, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(len(str(path))).integers(0, 255, size, dtype=np.uint8)).save(path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Own data that are right in every way, as a table and as pictures."""
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for i in range(20):
        for name in ("cat", "dog"):
            picture(tmp_path / "s" / name / f"{i}.png")
    return tmp_path


def write(name: str, content: str | bytes) -> Callable[[Path], object]:
    raw = content.encode() if isinstance(content, str) else content
    return lambda place: (place / name).write_bytes(raw)


class Mistake(NamedTuple):
    """What is spoilt, what is asked, and words of the line that comes."""

    spoil: Callable[[Path], object]
    asked: tuple[str, ...]
    words: tuple[str, ...]


def nothing(_: Path) -> None:
    pass


def npz(y: Any) -> Callable[[Path], object]:
    return lambda place: np.savez(place / "d.npz", x=np.zeros((20, 10, 10), np.uint8), y=y)


NPZ = ("-d", "d.npz", "--classes", "a,b", "--records", "10", "--sites", "2")
MISTAKES = {
    "a typo in a config": Mistake(write("run.toml", "epsilom = 1"), ("run.toml",), ("'epsilom'", "'epsilon'")),
    "a typo in --set": Mistake(nothing, (*CSV, "--set", "record=9"), ("'record'", "did you mean 'records'?")),
    "a typo in a setting": Mistake(nothing, (*CSV, "--set", "round=9"), ("'round'", "did you mean 'rounds'?")),
    "a typo in [settings]": Mistake(
        write("run.toml", 'data = "digits"\nmethod = "fedavg"\n[settings]\nepoch = 2\n'), ("run.toml",), ("'epochs'?",)
    ),
    "a typo in prismfl.toml": Mistake(
        write("prismfl.toml", 'data = "t.csv"\nshema_file = "schema.toml"\n'), (), ("'shema_file'", "'schema_file'?")
    ),
    "a typo in the schema": Mistake(write("schema.toml", SCHEMA + "mim = 0\n"), CSV, ("'mim'", "did you mean 'min'?")),
    "a typo in a top key of the schema": Mistake(write("schema.toml", "lable = 1"), CSV, ("'lable'", "'label'?")),
    "a folder that is no class": Mistake(nothing, (*IMAGES, "--classes", "cat,cow"), ("dog", "--classes")),
    "pictures without class folders": Mistake(
        lambda place: shutil.move(place / "s" / "dog", place / "dog"),
        IMAGES,
        ("at least two", "--classes"),
    ),
    "mixed sizes": Mistake(
        lambda place: picture(place / "s" / "cat" / "odd.png", (9, 10)),
        (*IMAGES[:2], *IMAGES[4:]),
        ("10x9", "cat/odd.png", "--image-size"),
    ),
    "mixed channels": Mistake(
        lambda place: picture(place / "s" / "cat" / "odd.png", (10, 10, 3)),
        (*IMAGES[:4], *IMAGES[6:]),
        ("cat/odd.png", "--channels 1 or 3"),
    ),
    "a picture that is none": Mistake(write("s/cat/3.png", b"no image"), IMAGES, ("s/cat/3.png", "remove it")),
    "Latin-1": Mistake(write("t.csv", TABLE.replace("20,", "Bär,").encode("latin-1")), CSV, ("WINDOWS-1252", "iconv")),
    "UTF-16": Mistake(write("t.csv", TABLE.encode("utf-16")), CSV, ("UTF-16", "iconv")),
    "no separator": Mistake(write("t.csv", TABLE.replace(",", " ")), CSV, ("'ill'", "age sex ill")),
    "labels with a fraction": Mistake(write("t.csv", TABLE.replace("yes", "0.5")), CSV, ("'0.5'", "a quantity")),
    "labels of an npz with a fraction": Mistake(npz(np.linspace(0, 1, 20)), NPZ, ("y of d.npz", "a quantity")),
    "no header": Mistake(write("t.csv", "31,1,0\n" * 9), CSV, ("31", "header")),
    "a column twice": Mistake(write("t.csv", TABLE.replace("sex,", "age,", 1)), CSV, ("'age' twice", "header")),
    "a zip": Mistake(write("s.zip", b"PK"), ("-d", "s.zip", "--records", "9"), ("s.zip", "unpack it")),
    "nothing there": Mistake(nothing, ("-d", "nothere", "--records", "9"), ("'nothere'", "--data")),
    "a decimal comma": Mistake(write("t.csv", TABLE.replace(",", ";").replace("20;", "20,5;")), CSV, ("'20,5'",)),
    "no permission": Mistake(nothing, (*CSV, "--out", "/sys/prismfl"), ("/sys/prismfl", "--out")),
    "a file in the way": Mistake(nothing, (*CSV, "--out", "t.csv/run"), ("t.csv/run", "--out")),
}


def told(done: Done, place: Path, before: set[Path]) -> None:
    """One line, exit code 2, nothing written and nothing spent."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("using ./prismfl.toml", "warning: "))]
    assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), done.stderr
    assert lines[0].startswith("prismfl: ")
    assert set(place.rglob("*")) == before
    assert not ledger_path().exists()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_mend(name: str, place: Path) -> None:
    mistake = MISTAKES[name]
    mistake.spoil(place)
    before = set(place.rglob("*"))
    done = invoke("run", *mistake.asked, *(METHOD if mistake.asked[:1] != ("run.toml",) else ()), cwd=place)
    told(done, place, before)
    for words in mistake.words:
        assert words in done.stderr


def test_the_same_data_without_a_mistake_run(place: Path) -> None:
    assert run_json(*CSV, *METHOD, cwd=place)["sites"] == 2
    assert run_json(*IMAGES, *METHOD, "--seed", "1", cwd=place)["sites"] == 2


def test_a_disk_that_is_too_small_for_the_plan(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(place)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    before = set(place.rglob("*"))
    done = invoke("run", *CSV, *METHOD, cwd=place)
    told(done, place, before)
    assert "0 MB are free" in done.stderr
    assert "--out" in done.stderr


@pytest.mark.parametrize("out", ["/sys/prismfl", "/sys/prismfl/x.csv"])
def test_synth_looks_where_it_will_write_before_it_spends(place: Path, out: str) -> None:
    data = ("t.csv", "--schema", "schema.toml") if out.endswith("csv") else ("s", *IMAGES[2:6])
    before = set(place.rglob("*"))
    told(invoke("synth", *data, "-e", "1", "-o", out, cwd=place), place, before)


def test_new_says_where_it_may_not_write(place: Path) -> None:
    data = place / "s"
    done = invoke("new", data, "--yes", "--image-size", "10", "--channels", "1", cwd=Path("/sys"))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "prismfl.toml" in done.stderr


def warnings(*asked: str, cwd: Path) -> str:
    done = invoke(*asked, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_empty_and_one_image_classes_are_warned_of(place: Path) -> None:
    (place / "s" / "empty").mkdir()
    picture(place / "s" / "lonely" / "0.png")
    said = warnings("run", *IMAGES, *METHOD, "--test", "0", cwd=place)
    assert "Class 'empty' has no record" in said
    assert "Class 'lonely' has one record" in said
    assert "'cat'" not in said
    classes = ("--classes", "cat,dog,empty,lonely,cow")
    assert "Class 'cow' has no record" in warnings("run", *IMAGES, *METHOD, *classes, cwd=place)


def test_mixed_sizes_and_channels_are_mapped_with_a_notice(place: Path) -> None:
    picture(place / "s" / "cat" / "odd.png", (30, 20, 3))
    said = warnings("run", *IMAGES, *METHOD, "--test", "0", cwd=place)
    assert "1 of 41 images of s were brought to 10x10 pixels (--image-size), grey (--channels 1)" in said


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_found(place: Path, separator: str) -> None:
    (place / "t.csv").write_text(TABLE.replace(",", separator))
    assert run_json(*CSV, *METHOD, "--seed", "1", cwd=place)["sites"] == 2


def test_labels_as_floats_count_the_classes(place: Path) -> None:
    npz(np.array([0.0, 1.0] * 10))(place)
    assert run_json(*NPZ, *METHOD, "--seed", "1", cwd=place)["sites"] == 2
    (place / "t.csv").write_text(TABLE.replace("yes", "1.0").replace("no", "0.0"))
    (place / "schema.toml").write_text(SCHEMA.replace('"no", "yes"', "0, 1"))
    assert run_json(*CSV, *METHOD, "--seed", "1", cwd=place)["sites"] == 2


@pytest.mark.parametrize(
    "asked",
    [
        ("plan", *CSV, *METHOD),
        ("run", *CSV, *METHOD, "--seed", "1"),
        ("synth", "t.csv", "--schema", "schema.toml", "-e", "1", "--seed", "1", "--method", "dp-copula"),
    ],
)
def test_a_large_delta_is_warned_of(place: Path, asked: tuple[str, ...]) -> None:
    words = "delta 0.5 is not below 1 / "
    assert words in warnings(*asked, "--delta", "0.5", *(("-o", "weak.csv") if asked[0] == "synth" else ()), cwd=place)
    assert words not in warnings(*asked, cwd=place)


def test_a_seeded_run_is_not_shown_as_protected(place: Path) -> None:
    """Nothing in its table is green, and the word for it is simulation."""
    console = Console(force_terminal=True, color_system="truecolor", width=100, record=True, file=io.StringIO())
    console.print(result_table(run_json(*CSV, *METHOD, "--seed", "1", cwd=place)))
    shown = console.export_text(styles=True)
    assert "simulation: no protection" in shown
    assert "differential privacy" not in shown
    assert not {"\x1b[32m", "\x1b[1;32m", "\x1b[92m"} & {shown[i : i + 7] for i in range(len(shown))}


def test_a_cap_quotes_the_epsilon_that_the_plan_prints(place: Path) -> None:
    """What is printed elsewhere (PLD) comes first; what the ledger's filter makes of it has its name."""
    planned = f"{run_json(*CSV, *METHOD, '--cap', '4', cwd=place)['epsilon']:.3g}"
    done = invoke("run", *CSV, *METHOD, "--cap", "4", cwd=place)
    assert done.returncode == 3
    assert f"asks for epsilon {planned}" in done.stderr
    assert "as the ledger's filter counts it" in done.stderr
