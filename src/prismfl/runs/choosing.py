"""The method that a user's own command means: ours by name, or anybody's as `pkg.mod:METHOD` or as an object.

To name a module is to run its code. So only `run`, `plan` and `resume` come here: a site, a server, and whatever reads
a run directory (it may come from anybody) take `planning.find_method`, which knows our names and imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismfl.core.method import Method
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs import planning
from prismfl.runs.config import RunConfig, written
from prismfl.runs.names import NAME


def choose(given: str | Method) -> tuple[str, Method]:
    """A method, and the words under which a config keeps it. An object has no place to be found at again."""
    if isinstance(given, Method):
        found, words = given, f":{given.name}"
    elif not isinstance(given, str):
        raise UserError(f"Expected a method's name, pkg.mod:METHOD or a Method, got {type(given).__name__}.")
    elif ":" not in given:
        return given, planning.find_method(given)
    else:
        found, words = _imported(given), given
    if METHODS.get(found.name) is found:
        return found.name, found
    if found.name in METHODS:
        raise UserError(f"The method '{words.lstrip(':')}' is called '{found.name}' like one of ours; rename it.")
    if not NAME.fullmatch(found.name):
        raise UserError(f"Expected a method name of lower-case letters, digits and dashes, got '{found.name}'.")
    return words, found


def _imported(words: str) -> Method:
    module, _, name = words.partition(":")
    if not module:
        raise UserError(
            f"Method '{name}' was given as a Python object, which nobody finds again by its name; keep it in a module "
            "and run it as pkg.mod:METHOD."
        )
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UserError(f"Expected a method's name or pkg.mod:METHOD, got '{words}'.")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (ImportError, SyntaxError) as error:
        raise UserError(f"Cannot import '{module}' for the method '{words}': {_reason(error, module)}.") from None
    if found is None:
        raise UserError(f"Module '{module}' has no '{name}'; a method there is a Method at its top level.")
    if not isinstance(found, Method):
        raise UserError(f"'{words}' is a {type(found).__name__}, not a prismfl.Method.")
    return found


def _reason(error: Exception, module: str) -> str:
    missing = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError) and missing and (module == missing or module.startswith(f"{missing}.")):
        return f"there is no module '{missing}' on Python's path (a file in this folder: set PYTHONPATH=.)"
    return str(error).rstrip(".")


def configure(options: Mapping[str, Any]) -> tuple[RunConfig, Method]:
    """Config and method from keyword arguments; what is not a key of the run is a setting of its method."""
    words, method = choose(options.get("method", RunConfig.model_fields["method"].default))
    return planning.configure({**options, "method": words}, method), method


def ask(file: Path | None, sets: Sequence[str], given: Mapping[str, Any]) -> tuple[RunConfig, Method]:
    """Config and method from a file, what was given besides, and overrides of the form a.b=c."""
    config = written(file, sets, given)
    words, method = choose(config.method)
    return config.model_copy(update={"method": words}), method
