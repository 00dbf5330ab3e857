"""Presets are complete and checked, each row of a table has one, and both say the same."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import pytest

from prismfl.cli import demo
from prismfl.methods import METHODS
from prismfl.runs import planning
from prismfl.runs.config import RunConfig, read
from tests.cli.command import invoke

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "presets"
REPRODUCE = ROOT / "reproduce"
FILES = {file: read(file) for file in sorted(FOLDER.rglob("*.toml"))}
FIRST_LINE = re.compile(r"# [^:]+: .+\. (?:Aim|Paper): .+\. Ours: (?:([\d.]+) %|not run|does not apply).*\.")
VARIANT = re.compile(r"-steps|-frequencies")  # of a row: another length, another network
NOT_OURS = {"seed", "out", "data_dir", "ledger", "noise"}  # of one run or one machine, not of a row


def name_of(file: Path) -> str:
    return str(file.relative_to(FOLDER).with_suffix("")) if file.suffix == ".toml" else file.name


def config_of(name: str) -> RunConfig:
    return planning.configure(read(FOLDER / f"{name}.toml"))


def told(name: str) -> re.Match[str]:
    first = (FOLDER / f"{name}.toml").read_text().partition("\n")[0]
    match = FIRST_LINE.fullmatch(first)
    assert match is not None, f"{name} does not begin with its table, row, the paper's figure and ours: {first}"
    return match


def one_of_each() -> list[str]:
    """A preset for each method of each table: noise is solved from epsilon, which takes too long for all of them."""
    found = {(file.parent.name, given["method"]): name_of(file) for file, given in FILES.items()}
    return list(found.values())


# What is on file


@pytest.mark.parametrize("table", sorted({file.parent.name for file in FILES}))
def test_a_preset_is_a_whole_run_and_says_which_row_it_is(table: str) -> None:
    runs = {}
    for file in sorted((FOLDER / table).iterdir()):
        name = name_of(file)
        told(name)
        given, config = read(file), config_of(name)  # unknown keys and settings of the wrong type end here
        model = {"model"} if given.get("tuning") == "fixed" else set()  # elsewhere it may be chosen, too
        assert {"method", "data", "sites", "split"} | model <= set(given), name
        assert not set(given) & NOT_OURS, name
        settings = METHODS[config.method].settings(**config.settings)
        if METHODS[config.method].guarantee and "sigma" in type(settings).model_fields:
            assert (config.epsilon is None) != (settings.model_dump()["sigma"] is None), name
            assert "delta" in given, name
        runs[name.lower()] = config.model_dump_json()
    assert len(set(runs.values())) == len(runs) == len(list((FOLDER / table).iterdir())), "no row twice"


@pytest.mark.parametrize("name", one_of_each())
def test_a_preset_can_be_planned_without_data(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISMFL_DATA", str(tmp_path))
    config = config_of(name)
    planned = planning.plan(config)
    if config.epsilon is not None:
        assert planned.epsilon is not None
        assert 0.9 * config.epsilon < planned.epsilon <= config.epsilon


def test_the_demo_is_its_presets() -> None:
    for method, more in demo.RUNS.items():
        assert config_of(f"demo/{method}") == planning.configure({"method": method, **demo.COMMON, **more})


# Rows of results: the preset's name, what the row was run with, the accuracy in percent


Row = tuple[str, dict[str, Any], float]


def load(path: str) -> Any:
    return json.loads((REPRODUCE / path).read_text())


def with_facts(table: str, **facts: Any) -> str:
    """The one preset of a table that has these facts, whatever its name."""
    own = {file: given for file, given in FILES.items() if file.parent.name == table and not VARIANT.search(file.stem)}
    (file,) = [file for file, given in own.items() if facts.items() <= given.items()]
    return name_of(file)


def slug(label: str) -> str:
    return re.sub("[^a-z0-9.]+", "-", label.lower())


def prism_rows() -> Iterator[Row]:
    for path in sorted((REPRODUCE / "prism").glob("results_*.json")):
        rows = json.loads(path.read_text())
        # Rows of auto are kept by name: what they were run with was chosen by the run.
        for row in rows if path.stem != "results_ablation" and isinstance(rows, list) else []:
            data, method, split, epsilon, sites, _ = row["name"].split()
            facts = {"data": data, "method": method, "split": split, "epsilon": float(epsilon[3:])}
            name = with_facts("prism", **facts, sites=int(sites[5:]))
            yield name, {"model": row["model"], "settings": row["settings"]}, row["accuracy"]


def ablation_rows() -> Iterator[Row]:
    for row in load("prism/results_ablation.json"):
        if row["what"] != "as in the demo":
            yield f"prism-ablation/{slug(row['what'])}", {}, row["accuracy"]


def fedlap_rows() -> Iterator[Row]:
    for row in load("fedlap/results.json"):
        data, method, rounds, _ = row["name"].split()
        yield f"fedlap/{data}-{method}-{rounds}", {"delta": row["delta"], "settings": row["settings"]}, row["accuracy"]


def quick_rows() -> Iterator[Row]:
    found = load("fedlap/results-quick.json")
    for row in found["rows"]:
        facts = {**found["task"], "settings": row["settings"]}
        yield f"fedlap-quick/{row['method']}", facts, row["accuracy_by_round"][-1]


def generator_rows() -> Iterator[Row]:
    for data, seeds in load("3dgl/results.json").items():
        for parts in seeds.values():
            for part, found in parts.items():
                if isinstance(found, dict):
                    scores = found["unit"]["synth_equal" if part.endswith("one") else "fold_test_equal"]
                    yield f"3dgl/{data}-{part}", {"data": data}, scores["accuracy"]


def feta_rows() -> Iterator[Row]:
    for row in load("dp-feta/results.json"):
        data, method, epsilon, sites, split, *steps = row["name"].split()
        facts = {"data": data, "method": method, "split": split, "epsilon": float(epsilon[3:]), "sites": int(sites[5:])}
        name = "-".join([with_facts("dp-feta", **facts), *steps])
        yield name, {"model": row["model"], "settings": row["settings"]}, row["accuracy"]


def fedem_rows() -> Iterator[Row]:
    for data in ("mnist", "fashion-mnist", "cifar10"):
        found, long = load(f"fedem/results-{data}-methods.json"), load(f"fedem/utility-{data}.json")
        for row in found["rows"]:
            name, lengths = f"fedem/{data}-{slug(row['label'])}", [r for r in long if r["label"] == row["label"]]
            for run in lengths or [{**row, "epochs": found["rounds"] // 94}]:
                settings = {**row["settings"], "rounds": run["epochs"] * 94}
                settings.pop("sigma", None)  # solved from epsilon for the rounds that were attacked
                yield name, {"epsilon": row["epsilon"], "settings": settings}, run["accuracy"]


def radius_rows() -> Iterator[Row]:
    for row in load("fedem/results-mnist-ablation.json")["rows"]:
        yield f"fedem-ablation/mnist-{slug(row['label'])}", {"settings": row["settings"]}, row["accuracy"]


def robust_rows() -> Iterator[Row]:
    for method, row in load("robust/results.json").items():
        yield f"robust/{method}", {"method": method}, row["five honest"]["accuracy"]


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "prism": prism_rows,
    "prism-ablation": ablation_rows,
    "fedlap": fedlap_rows,
    "fedlap-quick": quick_rows,
    "3dgl": generator_rows,
    "dp-feta": feta_rows,
    "fedem": fedem_rows,
    "fedem-ablation": radius_rows,
    "robust": robust_rows,
}


@pytest.mark.parametrize("table", ROWS)
def test_each_row_of_the_results_is_its_preset(table: str) -> None:
    scores = defaultdict(list)
    for name, facts, accuracy in ROWS[table]():
        config = config_of(name)
        whole = METHODS[config.method].settings(**config.settings).model_dump(mode="json")
        for key, value in facts.pop("settings", {}).items():
            assert whole[key] == value, (name, key)
        for key, value in facts.items():
            assert getattr(config, key) == value, (name, key)
        scores[name].append(accuracy)
    for file in FILES:
        if file.parent.name == table:
            name = name_of(file)
            assert (name in scores) == (told(name)[1] is not None), f"{name}: figure without a row, or the reverse"
    for name, found in scores.items():
        assert abs(float(told(name)[1]) - mean(found)) < 0.051, (name, mean(found))


# The scripts


def script(path: str) -> ModuleType:
    name = "reproduce_" + slug(path)
    spec = importlib.util.spec_from_file_location(name, REPRODUCE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def taken(path: str, monkeypatch: pytest.MonkeyPatch, ask: Callable[[ModuleType], object]) -> set[str]:
    """The presets that a script reads when asked for its rows."""
    module, seen = script(path), set()

    def noting(file: Path) -> dict[str, Any]:
        seen.add(name_of(file))
        return read(file)

    monkeypatch.setattr(module, "read", noting)
    ask(module)
    return seen


SCRIPTS: dict[str, tuple[str, Callable[[ModuleType], object]]] = {
    "prism": ("prism/run.py", lambda m: m.rows()),
    "prism-ablation": ("prism/ablation.py", lambda m: [m.preset(what) for what in m.changes()]),
    "fedlap": ("fedlap/run.py", lambda m: [m.preset(d, c, rounds=4) for d in m.DATA for c in m.COMPARED]),
    "fedlap-quick": (
        "fedlap/quick.py",
        lambda m: [m.preset(c, rounds=4, sigma=1.0) for c in (*m.EXACT, *m.PRIVATE)],
    ),
    "3dgl": ("3dgl/run.py", lambda m: [m.preset(d, part) for d in m.DATA for part in ("one", "pool", *m.BEST[d])]),
    "dp-feta": ("dp-feta/run.py", lambda m: [m.rows(), m.sweep()]),
    "fedem": ("fedem/run.py", lambda m: [m.main_rows(d) for d in ("mnist", "fashion-mnist", "cifar10")]),
    "fedem-ablation": ("fedem/run.py", lambda m: m.ablation_rows("mnist")),
    "robust": ("robust/run.py", lambda m: [m.read(m.PRESETS / f"{c}.toml") for c in m.RUNS]),
}


@pytest.mark.parametrize("table", ROWS)
def test_the_scripts_take_every_preset_of_their_table(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ask = SCRIPTS[table]
    # The row of four rounds is asked for with --rounds, from the preset of one.
    expected = {name_of(f) for f in FILES if f.parent.name == table} - {"fedlap/mnist-fedlap-dp-rounds4"}
    assert taken(path, monkeypatch, ask) - {"demo/prism"} == expected


# The command line


def test_a_preset_runs_with_a_seed_and_changes_of_ones_own(tmp_path: Path) -> None:
    smaller = ["--data", "digits", "--model", "logreg", "--seed", "1", "--out", str(tmp_path / "run")]
    done = invoke("run", str(FOLDER / "demo" / "local-only.toml"), *smaller, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kept = (found["method"], found["split"], found["sites"])
    assert (kept, found["data"], found["seed"]) == (("local-only", "pathological(2)", 5), "digits", 1)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_preset_that_is_not_there_names_the_nearest(command: str) -> None:
    done = invoke(command, "presets/prsm/mnist-eps1.toml", cwd=ROOT)
    assert done.returncode == 2
    line = "prismfl: No config file 'presets/prsm/mnist-eps1.toml'; did you mean 'presets/prism/mnist-eps1.toml'?\n"
    assert done.stderr == line


def test_a_file_like_no_preset_is_just_missing(tmp_path: Path) -> None:
    for name in ("site.toml", "nothing.yaml"):
        assert invoke("plan", name, cwd=ROOT).stderr == f"prismfl: No config file '{name}'.\n"
    missing = f"presets/{'x' * 40}.toml"
    assert invoke("plan", missing, cwd=tmp_path).stderr == f"prismfl: No config file '{missing}'.\n"
