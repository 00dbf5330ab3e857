"""The rooms of the house: imports only point down, lazy ones too, and each folder's sentence is true."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import prismfl

ROOT = Path(prismfl.__file__).parent
# From the ground up. A name is a folder or a module; the longest that fits a module decides.
LAYERS = (
    ("errors", "sources", "version", "rng", "files", "runtime", "stages"),
    ("privacy", "data"),
    ("kernels",),
    ("core",),
    ("secure",),
    ("nets",),
    ("methods", "metrics"),
    ("runs",),
    ("transport",),
    ("runs.simulate", "runs.sweep", "runs.reopen", "runs.federation"),
    ("site", "server"),
    ("adversary", "synth", "report"),
    ("cli",),
)
LEVEL = {name: i for i, names in enumerate(LAYERS) for name in names}
TOP = ("prismfl", "prismfl.__main__")  # the public face reaches for everything, lazily
# What a folder's sentence rules out, beyond its level.
NEVER = {
    "privacy": {"kernels", "nets", "torch.nn"},
    "privacy.ledger": {"torch"},
    "kernels": {"privacy.cost", "privacy.ledger", "core"},
    "nets": {"privacy", "core", "data"},
    "metrics": {"core.door", "core.hub", "data", "files"},
    "transport": {"data"},
    "site": {"runs.simulate", "runs.reopen", "report", "adversary", "synth", "server"},
    # An attack never holds the truth: neither the records, nor who scores it, nor where both are in hand.
    "adversary.attacks": {"core.door", "core.hub", "core.trial", "data", "runs", "adversary.scores", "adversary.cases"},
    "adversary.scores": {"core", "data", "runs", "adversary.cases"},
    "cli": {"torch", "core"},
}
# To name a module is to run its code: only what a user's own command does comes to it.
IMPORTS_CODE = {
    *("prismfl", "prismfl.cli.plan", "prismfl.cli.run", "prismfl.cli.synth", "prismfl.runs.simulate"),
    *("prismfl.runs.sweep", "prismfl.runs.federation"),
}

DOORS = ("PrivateRecords", "PrivateSum", "PrivateShare", "OpenedSum", "WatchedRecords", "WatchedSum")
MADE_IN_CORE = (*DOORS, "Release", "make_release")


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("prismfl", *path.relative_to(ROOT).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imported(path: Path) -> frozenset[str]:
    """Everything that a file imports, anywhere in it: modules of prismfl in full, others by their name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            known = {full for full in inner.values() if full in modules() or full == "torch.nn"}
            found |= known if len(known) == len(inner) else known | {node.module}
    return frozenset(found)


def within(module: str, place: str) -> bool:
    """Whether a module (of prismfl, or another) is at or below a place such as `core.door` or `torch`."""
    return any(module == full or module.startswith(f"{full}.") for full in (place, f"prismfl.{place}"))


def level(module: str) -> int:
    fitting = [name for name in LEVEL if within(module, name)]
    assert fitting, f"{module} has no layer: add it to LAYERS"
    return LEVEL[max(fitting, key=len)]


def own(path: Path) -> list[str]:
    return [name for name in imported(path) if name.partition(".")[0] == "prismfl" and name != "prismfl"]


@pytest.mark.parametrize("module", [m for m in modules() if m not in TOP])
def test_imports_point_down(module: str) -> None:
    for name in own(modules()[module]):
        assert level(name) <= level(module), f"{module} imports {name}, which lies above it"


@pytest.mark.parametrize("module", modules())
def test_a_folder_keeps_its_word(module: str) -> None:
    for place, never in NEVER.items():
        if within(module, place):
            found = [(n, what) for n in imported(modules()[module]) for what in never if within(n, what)]
            assert not found, f"{module} imports {found[0][0]}; {place} may not"


def test_no_module_reaches_itself() -> None:
    """No cycles, lazy imports included."""
    graph = {m: {n for n in own(path) if n in modules()} for m, path in modules().items() if m not in TOP}
    while graph:
        free = [m for m, names in graph.items() if not names & graph.keys() - {m}]
        assert free, f"these import each other: {sorted(graph)}"
        for m in free:
            del graph[m]


def closure(module: str) -> set[str]:
    """All that an import can load, lazily too."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [n for n in own(modules()[name]) if n in modules()]
    return seen


def test_a_site_reaches_neither_simulator_nor_report() -> None:
    reached = closure("prismfl.site.office")
    assert not [m for m in reached for place in ("runs.simulate", "report", "adversary", "synth") if within(m, place)]


def test_only_the_users_own_commands_import_code_by_name() -> None:
    """Neither a site nor what reads a folder that somebody sent: `runs.choosing` is out of their reach."""
    assert {m for m, path in modules().items() if "prismfl.runs.choosing" in imported(path)} == IMPORTS_CODE
    for module in ("site.office", "site.bundle", "server.serving", "runs.reopen", "runs.opened", "report.dashboard"):
        assert "prismfl.runs.choosing" not in closure(f"prismfl.{module}"), module


def test_every_folder_has_its_sentence() -> None:
    for folder in {path.parent for path in modules().values()}:
        words = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        assert words.split("\n")[0].endswith("."), folder


def test_the_check_sees_imports_that_point_up(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from prismfl.cli.main import main\n    from prismfl.core import door\n")
    assert imported(file) == {"prismfl.cli.main", "prismfl.core.door"}
    assert level("prismfl.cli.main") > level("prismfl.core.door")
    assert level("prismfl.runs.simulate") > level("prismfl.transport") > level("prismfl.runs.config")


def test_a_class_name_stands_once() -> None:
    """Config is each method's own; a Synthesizer also travels as a payload."""
    seen: dict[str, str] = {}
    for module, path in modules().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name not in ("Config", "Synthesizer"):
                assert node.name not in seen, f"{node.name} in {module} and {seen[node.name]}"
                seen[node.name] = module


def calls(path: Path, name: str) -> list[ast.Call]:
    """The calls of a function that a file makes, by its whole name."""
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


def test_no_pickle_and_one_torch_load_of_tensors_alone() -> None:
    """The one file that torch made has a pinned SHA-256, and even so nothing but tensors is made of it."""
    for module, path in modules().items():
        text, loads = path.read_text(), calls(path, "torch.load")
        assert "import pickle" not in text, path
        assert len(loads) == text.count("torch.load(") == (module == "prismfl.nets.encoders.efficientnet"), path
        for load in loads:
            assert "weights_only=True" in [ast.unparse(word) for word in load.keywords], path


def test_torchscript_is_loaded_for_the_users_own_commands_alone() -> None:
    """Such a file is code of its author: it is loaded in one place, which only `runs.choosing` reaches."""
    script = "prismfl.nets.encoders.scripts"
    assert {m for m, path in modules().items() if "torch.jit" in path.read_text()} == {script}
    assert {m for m, path in modules().items() if script in imported(path)} == {"prismfl.runs.choosing"}


def test_only_the_adapter_imports_flower() -> None:
    users = {m for m, path in modules().items() if any(within(n, "flwr") for n in imported(path))}
    assert users
    assert all(within(m, "transport.flower") for m in users)


def test_only_the_core_makes_doors_and_releases() -> None:
    for module, path in modules().items():
        if not within(module, "core"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func).rpartition(".")[2]
                    assert name not in MADE_IN_CORE, f"{module} makes a {name}"
