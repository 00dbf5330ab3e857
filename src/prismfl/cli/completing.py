"""Names for the shell to complete. They are read from the source of the lists: importing those takes seconds."""

from __future__ import annotations

import ast
from importlib import resources

SPLITS = ("iid", "dirichlet(0.3)", "pathological(2)", "shards(2)", "natural(COLUMN)", "fedlap")
ENCODERS = ("auto", "none", "scattering", "efficientnet-lite0", "ngrams")


def method_names() -> list[str]:
    """The keys of `METHODS`."""
    calls = [node for node in ast.walk(_parsed("methods", "__init__.py")) if isinstance(node, ast.Call)]
    made = next(call.args[0] for call in calls if getattr(call.func, "id", None) == "Methods")
    keys = made.keys if isinstance(made, ast.Dict) else []
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def data_names() -> list[str]:
    """The names in the declarations of `DATASETS`."""
    calls = [node for node in ast.walk(_parsed("data", "datasets.py")) if isinstance(node, ast.Call) and node.args]
    made = [call for call in calls if getattr(call.func, "id", None) in ("_image", "_table", "_parted")]
    return [str(call.args[0].value) for call in made if isinstance(call.args[0], ast.Constant)]


def complete_method(incomplete: str) -> list[str]:
    """Methods that begin so."""
    return _beginning(method_names(), incomplete)


def complete_data(incomplete: str) -> list[str]:
    """Data sets that begin so; where none does, the shell's own files are not hidden for long."""
    return _beginning(data_names(), incomplete)


def complete_public(incomplete: str) -> list[str]:
    """Public images that begin so."""
    return _beginning(["procedural", "procedural-mixed", *data_names()], incomplete)


def complete_split(incomplete: str) -> list[str]:
    """Splits that begin so."""
    return _beginning(SPLITS, incomplete)


def complete_encoder(incomplete: str) -> list[str]:
    """Public encoders that begin so."""
    return _beginning(ENCODERS, incomplete)


def _beginning(names: list[str] | tuple[str, ...], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _parsed(*place: str) -> ast.Module:
    file = resources.files("prismfl").joinpath(*place)
    return ast.parse(file.read_text("utf-8"))
