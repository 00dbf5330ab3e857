"""Pages that are made from the code each time the site is built: settings, commands, methods, data sets and the API.

Nothing here is fetched or measured. The test of the documentation reads `PAGES` too, so that a link to a page that is
made here leads somewhere.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "prismfl"
API = "reference/api"
COPIES = {
    "project/changelog.md": "CHANGELOG.md",
    "project/security.md": "SECURITY.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "results/speed.md": "benchmarks/README.md",
    "results/flower.md": "benchmarks/flower.md",
    **{f"results/{p.parent.name}.md": str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("reproduce/*/README.md"))},
}


def modules(folder: Path = SOURCE) -> Iterator[Path]:
    """Every file of the package, in the order of its names."""
    return (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def dotted(path: Path) -> str:
    """The name that `import` takes."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def defined(name: str) -> Any:
    """A class or value of the package by its own name, wherever it lies."""
    places = []
    for path in modules():
        for node in parsed(path).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            names = {getattr(target, "id", "") for target in targets}
            if (isinstance(node, ast.ClassDef) and node.name == name) or name in names:
                places.append(dotted(path))
    if len(places) != 1:
        raise LookupError(f"Expected one {name} in the package, got {places}.")
    return getattr(importlib.import_module(places[0]), name)


def methods() -> dict[str, Any]:
    """Every method, by its name."""
    from prismfl.methods import METHODS

    return METHODS


def plain(cell: str) -> str:
    """A cell that holds no mark of Markdown or HTML by accident; what stands between backticks is shown as it is."""
    parts = cell.replace("\n", " ").split("`")
    parts[::2] = [part.replace("|", "\\|").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[plain(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *cells]) + "\n"


# Settings


def kind(annotation: Any) -> str:
    """A type in the words of a config file."""
    if annotation is NoneType:
        return "nothing"
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(kind(part) for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) in (list, tuple):
        return f"list of {kind(get_args(annotation)[0])}"
    if get_origin(annotation) is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def limits(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return "".join(
        f", {sign} {getattr(mark, name):g}"
        for mark in field.metadata
        for name, sign in signs.items()
        if getattr(mark, name, None) is not None
    )


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"


def fields(model: type[BaseModel]) -> str:
    rows = [
        [f"`{name}`", kind(f.annotation) + limits(f), default(f), f.description or ""]
        for name, f in model.model_fields.items()
    ]
    return table(["key", "value", "default", "what it is"], rows)


def settings_page() -> str:
    run = defined("RunConfig")
    nested = {
        name: part
        for name, f in run.model_fields.items()
        for part in (f.annotation, *get_args(f.annotation))
        if isinstance(part, type) and issubclass(part, BaseModel)
    }
    parts = [
        "# Settings",
        "",
        "Made from the code. Every key can stand in a TOML or YAML file (`prismfl run run.toml`), on the command line "
        "(`--set key=value`, as often as needed) and in Python (`prismfl.run(key=value)`). A key that is not one of "
        "the run's is looked for in the method's settings. Unknown keys are errors that name the nearest known one.",
        "",
        "```toml",
        'method = "fedlap-dp"\ndata = "mnist-5k"\nepsilon = 4.0\nsites = 5',
        "[settings]   # the method's own",
        "rounds = 3",
        "```",
        "",
        "## Of a run",
        "",
        fields(run),
    ]
    for name, model in nested.items():
        parts += [f"### `[{name}]`", "", model.__doc__ or "", "", fields(model)]
    parts += ["## Of each method", "", "`sigma` is solved from `epsilon` over the whole run when it is not given.", ""]
    for method in methods().values():
        parts += [f"### {method.name}", "", f"{method.summary}.", "", fields(method.settings)]
    return "\n".join(parts)


# Methods and data sets

_KINDS = {"image": "images", "table": "tables", "text": "texts", "patient": "patients"}
_GUARANTEE = {"site": "DP at each site", "client": "DP for whole clients, at the hub", None: "none (ε = ∞)"}


def methods_page() -> str:
    rows = []
    for m in methods().values():
        leaves = ", ".join(m.leaves) or "nothing"
        guarantee = _GUARANTEE[m.guarantee] if m.leaves else "nothing leaves (ε = 0)"
        kinds = " and ".join(_KINDS[k] for k in m.kinds)
        paper = re.sub(r"arXiv[: ](\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", m.paper)
        needs = ", public images" if m.needs_public else ""
        rows.append([f"[`{m.name}`](settings.md#{m.name})", m.summary, leaves, guarantee, kinds + needs, paper])
    return "\n".join(
        [
            "# Methods",
            "",
            "Made from the code; `prismfl methods` prints the same. Every method runs in one harness: same split, same "
            "total epsilon, bytes counted from what crossed. A method without a guarantee prints epsilon = ∞ and says "
            "so. [Which method when](../how-to/which-method.md) helps to choose, "
            "[papers](../explanation/papers.md) lists where they come from.",
            "",
            table(["method", "what it does", "what leaves", "guarantee", "works on", "paper"], rows),
        ]
    )


def data_sets_page() -> str:
    from prismfl.data import DATASETS as sets
    from prismfl.data import public_names

    embedded, more = set(defined("EMBEDDED")), [name for name in public_names() if name not in sets]
    rows = [
        [
            f"`{s.name}`",
            s.kind,
            " x ".join(map(str, s.shape)),
            str(len(s.classes)),
            f"{s.train_size:,}",
            "with the package" if s.name in embedded else "files",
            s.licence,
        ]
        for s in sets.values()
    ]
    return "\n".join(
        [
            "# Data sets",
            "",
            "Made from the code; `prismfl data` prints the same and says which are at hand. Those from files lie in "
            "the folder that `PRISMFL_DATA` or `--data-dir` names. Runs on them are simulations: their noise is seeded "
            "unless you ask for `noise=operating-system`.",
            "",
            table(["name", "kind", "shape", "classes", "training records", "from", "licence"], rows),
            "",
            "Public images (`--public`): a folder, any image set above, or "
            + ", ".join(f"`{name}`" for name in more)
            + ". See [choosing public images](../how-to/public-images.md).",
            "",
        ]
    )


# The command line


def commands() -> dict[str, click.Command]:
    """Every command that does something by itself, by its whole name."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    app = importlib.import_module(scripts["prismfl"].partition(":")[0]).app
    return dict(sorted(walk(typer.main.get_command(app), "prismfl")))


def command_line_page() -> str:
    explained = {name: f.description for name, f in defined("RunConfig").model_fields.items() if f.description}
    parts = [
        "# Command line",
        "",
        "Made from the code; `prismfl COMMAND --help` says the same. `--format json` prints one document on stdout. "
        "Exit codes: 0 done, 1 something went wrong on the way, 2 a mistake in what was asked, 3 a budget that does "
        "not suffice or a ledger that is refused, 130 interrupted.",
        "",
    ]
    for name, command in commands().items():
        parts += [f"## {name}", "", *described(name, command, explained)]
    return "\n".join(parts)


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from walk(inner, f"{name} {part}")
        if name == "prismfl" or not command.invoke_without_command:
            return
    yield name, command


def described(name: str, command: click.Command, explained: Mapping[str, str]) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    shown = " ".join(p.make_metavar(click.Context(command)) for p in arguments)
    lines = [
        re.sub(r"\[/?\w+\]", "", command.help or "").strip(),
        "",
        "```",
        f"{name} [OPTIONS] {shown}".rstrip(),
        "```",
    ]
    rows = [option(p, explained) for p in command.params]
    return [*lines, "", table(["option", "default", "what it is"], rows) if rows else ""]


def option(p: click.Parameter, explained: Mapping[str, str]) -> list[str]:
    flags = (
        ", ".join(f"`{flag}`" for flag in (*p.opts, *p.secondary_opts))
        if p.param_type_name == "option"
        else (f"`{p.make_metavar(click.Context(click.Command('x')))}`")
    )
    value = p.default() if callable(p.default) else p.default
    plain = value in (None, False, ()) or "Sentinel" in type(value).__name__
    words = getattr(p, "help", None) or explained.get(p.name or "", "")
    return [flags, "required" if p.required else "-" if plain else f"`{value}`", words]


# The API


def sentence(path: Path) -> str:
    """The first paragraph of a file's docstring."""
    return " ".join((ast.get_docstring(parsed(path)) or "").partition("\n\n")[0].split())


def packages() -> list[Path]:
    return [path for path in modules() if path.name == "__init__.py"]


def api_path(package: Path) -> str:
    return f"{API}/{dotted(package)}.md"


def api_page(package: Path) -> str:
    own = [p for p in sorted(package.parent.glob("*.py")) if not p.name.startswith("__")]
    head = [f"# {dotted(package)}", "", sentence(package), ""]
    rows = [[f"[`{p.stem}`](#{dotted(p)})", sentence(p)] for p in own]
    below = [
        [f"[`{p.parent.name}`]({dotted(p)}.md)", sentence(p)] for p in packages() if p.parent.parent == package.parent
    ]
    if below:
        head += ["## Packages", "", table(["package", "what it is"], below), ""]
    if own:
        head += ["## Modules", "", table(["module", "what it is"], rows), ""]
    here = [] if package.parent == SOURCE or not any(names(package)) else [package]
    return "\n".join([*head, *(block(p) for p in [*here, *own])])


def names(path: Path) -> Iterator[str]:
    """Public functions and classes that a file defines itself."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def block(path: Path) -> str:
    """A module with what it defines; what it only passes on is described where it is defined."""
    found = list(names(path))
    members = f"[{', '.join(found)}]" if found else "false"
    return f"::: {dotted(path)}\n    options:\n      heading_level: 2\n      members: {members}\n"


def passed_on() -> dict[str, str]:
    """Names that the public face passes on, lazily or for types alone, with the place that has them."""
    found = [node for node in ast.walk(parsed(SOURCE / "__init__.py")) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in found for alias in node.names}


def python_page() -> str:
    """The public face: what `import prismfl` gives, functions first, then what they take and return, then errors."""
    import prismfl

    face = {name: getattr(prismfl, name) for name in prismfl.__all__ if not name.startswith("_")}
    kinds = {name: value for name, value in face.items() if isinstance(value, type)}
    functions = [name for name, value in face.items() if callable(value) and name not in kinds]
    places = {f"{value.__module__}.{value.__name__}": issubclass(value, Exception) for value in kinds.values()}
    returned = [str(face[name].__annotations__.get("return", "")) for name in functions]
    places |= {passed_on()[name]: False for name in returned if name in passed_on()}
    others = [f"`prismfl.{name}`" for name in face if name not in kinds and name not in functions]
    lines = [
        "# Python",
        "",
        "What `import prismfl` gives. Everything else may move between versions; it is described "
        f"[package by package](api/{SOURCE.name}.md). Scripts that run are in [examples](../examples.md), and the "
        f"[methods](methods.md) in {', '.join(others)}.",
        "",
    ]
    for name in sorted(functions, key=list(face).index, reverse=True):
        lines += [f"::: prismfl.{name}", "    options:", "      heading_level: 2", ""]
    for place, error in sorted(places.items(), key=lambda one: (one[1], one[0].rpartition(".")[2])):
        lines += [f"::: {place}", "    options:", "      heading_level: 2", "      show_root_full_path: false"]
        lines += ["      members: false", ""] if error else [""]
    return "\n".join(lines)


def examples_page() -> str:
    """Every script of examples/, whole, and the notebooks without what they showed."""
    parts = ["# Examples", "", "Each runs in a few seconds, without a network: `python examples/NAME.py`.", ""]
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text()
        title = sentence(path).partition(":")[0].rstrip(".")
        parts += [f"## {title}", "", f"`examples/{path.name}`", "", "```python", text.rstrip(), "```", ""]
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        parts += notebook_lines(path)
    return "\n".join(parts)


def notebook_lines(path: Path) -> list[str]:
    """The words and the code of a notebook; its title is the first line."""
    lines: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        lines += [text, ""] if cell["cell_type"] == "markdown" else ["```python", text, "```", ""]
    title, _, rest = lines[0].removeprefix("# ").partition("\n")
    return [f"## {title}", "", f"`examples/{path.name}`, a notebook", "", rest.strip(), *lines[1:]]


def copied(source: str) -> Callable[[], str]:
    return lambda: (ROOT / source).read_text()


PAGES: dict[str, Callable[[], str]] = {
    "reference/methods.md": methods_page,
    "reference/settings.md": settings_page,
    "reference/command-line.md": command_line_page,
    "reference/data-sets.md": data_sets_page,
    "reference/python.md": python_page,
    "examples.md": examples_page,
    **{page: copied(source) for page, source in COPIES.items()},
    **{api_path(package): (lambda p=package: api_page(p)) for package in packages()},
}
