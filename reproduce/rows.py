"""Rows of the tables: which are run, which are missing, which are older than the code that they test.

A row keeps the digest of the code that made it ("code"): the method's own modules, the door, and whatever of the
package's rooms below they import. Comments and docstrings do not count. A row without one was made by unknown code.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "prismfl"
ROOMS = ("core", "kernels", "methods", "nets", "privacy")
ALWAYS = ("prismfl.core.door", "prismfl.core.rounds")
CODE = "code"
Found = dict[str, Any]
State = Literal["run", "missing", "older", "older, unknown", "left out"]


@dataclass(frozen=True)
class Wanted:
    """A row that a table shall have: the methods that it tests, and what its script is told to make it."""

    name: str
    methods: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    results: Path | None = None  # where a script of several files puts it
    longer: float = 1.0  # than the other rows of its methods
    reason: str = ""  # why the queue leaves it out


@dataclass(frozen=True)
class Table:
    """A script, its rows, and the files that it keeps finished ones in. `rows` finds them inside a file by name."""

    name: str
    script: Path
    results: tuple[Path, ...]
    rows: Callable[[Any], Mapping[str, Found]]
    wanted: Callable[[], Iterable[Wanted]]
    minutes: float = 5.0  # for a row where none like it was run

    def done(self) -> dict[str, tuple[Path, Found]]:
        """Every finished row with its file."""
        return {
            name: (file, row)
            for file in self.results
            if file.exists()
            for name, row in self.rows(json.loads(file.read_text())).items()
        }


@dataclass(frozen=True)
class Status:
    """One row as it stands."""

    table: Table
    row: Wanted
    state: State
    minutes: float


def status(table: Table, *, source: Path = SOURCE, modules: Callable[[str], tuple[str, ...]]) -> list[Status]:
    """Every row that the table shall have, in order. `modules` names the modules of a method."""
    done, wanted = table.done(), list(table.wanted())
    found = []
    for row in wanted:
        if row.name in done:
            digest = done[row.name][1].get(CODE)
            fresh = digest == code_of(row.methods, source=source, modules=modules)
            state: State = "run" if fresh else "older" if digest else "older, unknown"
        else:
            state = "left out" if row.reason else "missing"
        found.append(Status(table, row, state, _expected(table, row, wanted, done)))
    return found


def _expected(table: Table, row: Wanted, wanted: list[Wanted], done: Mapping[str, tuple[Path, Found]]) -> float:
    """Its own minutes if it is there, or what rows of the same methods took, or the table's guess."""
    if row.name in done and (own := minutes_of(done[row.name][1])) is not None:
        return own
    like = [other for other in wanted if other.methods == row.methods and other.name in done]
    taken = [took / other.longer for other in like if (took := minutes_of(done[other.name][1])) is not None]
    return (median(taken) if taken else table.minutes) * row.longer


def minutes_of(row: Found) -> float | None:
    """Minutes that a row took, under whichever name its script keeps them."""
    for key, unit in (("cpu_minutes", 1.0), ("minutes", 1.0), ("cpu_seconds", 60.0), ("seconds", 60.0)):
        if isinstance(row.get(key), (int, float)):
            return float(row[key]) / unit
    return None


def code_of(methods: Iterable[str], *, source: Path = SOURCE, modules: Callable[[str], tuple[str, ...]]) -> str:
    """The digest of all code that these methods' rows test."""
    roots = (*ALWAYS, *(module for method in methods for module in modules(method)))
    found: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        file = _file(module, source)
        if module in found or file is None or not _counts(module):
            continue
        found[module], imported = _read(file, file.stat().st_mtime_ns)
        waiting += imported
    return hashlib.sha256("\n".join(f"{m} {d}" for m, d in sorted(found.items())).encode()).hexdigest()[:16]


def stamp(file: Path, names: Iterable[str], digest: str, rows: Callable[[Any], Mapping[str, Found]]) -> None:
    """Writes the digest into rows that were just made; the file keeps its look."""
    text = file.read_text()
    value = json.loads(text)
    for name, row in rows(value).items():
        if name in set(names):
            row[CODE] = digest
    file.write_text(_like(text, value))


def without(file: Path, name: str, rows: Callable[[Any], Mapping[str, Found]]) -> None:
    """Takes a row out of its file, so that its script makes it again."""
    text = file.read_text()
    value = json.loads(text)
    file.write_text(_like(text, _drop(value, rows(value)[name])))


def _drop(value: Any, row: Found) -> Any:
    if isinstance(value, dict):
        return {k: _drop(v, row) for k, v in value.items() if v is not row}
    return [_drop(v, row) for v in value if v is not row] if isinstance(value, list) else value


def _like(text: str, value: Any) -> str:
    """JSON in the layout of `text`: a line a row, or indented as far."""
    second = text.split("\n", 2)[1] if "\n" in text.strip() else " "
    indent = len(second) - len(second.lstrip())
    if not indent and isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]\n"
    return json.dumps(value, indent=indent or 1) + "\n"


def _counts(module: str) -> bool:
    return module == "prismfl.rng" or module.split(".")[1:2][0] in ROOMS


def _file(module: str, source: Path) -> Path | None:
    """A module's file; packages have no code of their own."""
    file = source.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return file if file.is_file() else None


@cache
def _read(file: Path, changed: int) -> tuple[str, tuple[str, ...]]:
    """The digest of a file's code, and the modules of the package that it imports, at the top or later."""
    tree = ast.parse(file.read_text())
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prismfl."):
            imported += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names if alias.name.startswith("prismfl.")]
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[:1] = []
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest(), tuple(imported)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
