"""The method and the encoder that a user's own command means: ours by name, or anybody's as `pkg.mod:METHOD`.

To name a module is to run its code, and so is to load a TorchScript file. So only `run`, `plan`, `resume` and `synth`
come here: a site, a server, and whatever reads a run directory (it may come from anybody) take `planning.find_method`
and `encoders.encoder_of`, which know our names and import nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from prismfl.core.method import Method
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.files import SUFFIX as ONNX
from prismfl.nets.encoders.files import load_onnx
from prismfl.nets.encoders.named import NAMES, built, ours
from prismfl.nets.encoders.names import Part, is_ours
from prismfl.nets.encoders.scripts import SUFFIXES as SCRIPTS
from prismfl.nets.encoders.scripts import load_script
from prismfl.nets.encoders.vectors import SUFFIXES as VECTORS
from prismfl.nets.encoders.vectors import load_vectors
from prismfl.nets.encoders.wrapped import Wrapped
from prismfl.runs import planning
from prismfl.runs.config import RunConfig, check_keys, written
from prismfl.runs.encoders import asked_for
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


def choose_encoder(config: RunConfig, method: Method) -> Encoder | None:
    """The public encoder that a config asks for: ours by name, pkg.mod:build, or a file; several joined by "+"."""
    words = asked_for(config, method)
    return None if words is None else built(words, _encoder)


def looked_through(method: str, words: str | None) -> Encoder | None:
    """The encoder that words alone mean, for one of our methods."""
    return choose_encoder(RunConfig(method=method, encoder=words), planning.find_method(method))


def _encoder(part: Part) -> Encoder:
    place = Path(part.body)
    if is_ours(part.body):
        return ours(part)
    if place.suffix == ONNX:
        return load_onnx(place, digest=part.digest)
    if place.suffix in VECTORS:
        return load_vectors(place, digest=part.digest)
    if place.suffix in SCRIPTS:
        return load_script(place, digest=part.digest)
    if ":" not in part.body:
        raise UserError(
            f"Unknown encoder '{part.body:.80}'; known: {', '.join(NAMES)}, pkg.mod:build, or a file that ends in "
            f"{', '.join((ONNX, *SCRIPTS, *VECTORS))}."
        )
    build = _found(part.body, "encoder", "build", "a function that makes it")
    if not callable(build):
        raise UserError(f"'{part.body}' is a {type(build).__name__}, not a function that makes an encoder.")
    try:
        made = build()
    except (TypeError, ValueError, RuntimeError, OSError, ImportError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"'{part.body}()' failed: {lines[0].rstrip('.'):.200}.") from error
    if isinstance(made, Encoder):
        made.name = str(getattr(made, "name", part.body))
        return made
    if not isinstance(made, nn.Module):
        raise UserError(f"'{part.body}()' gave a {type(made).__name__}, not a torch.nn.Module.")
    return Wrapped(made, part.body)


def _imported(words: str) -> Method:
    name = words.removeprefix(":")
    if name != words:
        raise UserError(
            f"Method '{name}' was given as a Python object, which nobody finds again by its name; keep it in a module "
            "and run it as pkg.mod:METHOD."
        )
    found = _found(words, "method", "METHOD", "a Method at its top level")
    if not isinstance(found, Method):
        raise UserError(f"'{words}' is a {type(found).__name__}, not a prismfl.Method.")
    return found


def _found(words: str, what: str, example: str, kind: str) -> object:
    """What stands at pkg.mod:NAME."""
    module, _, name = words.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        article = "an" if what == "encoder" else "a"
        raise UserError(f"Expected {article} {what}'s name or pkg.mod:{example}, got '{words}'.")
    try:
        found: object = getattr(importlib.import_module(module), name, None)
    except (ImportError, SyntaxError) as error:
        raise UserError(f"Cannot import '{module}' for the {what} '{words}': {_reason(error, module)}.") from None
    if found is None:
        article = "an" if what == "encoder" else "a"
        raise UserError(f"Module '{module}' has no '{name}'; {article} {what} there is {kind}.")
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
    check_keys(method.settings, config.settings, f"the settings of {method.name}", also=RunConfig.model_fields)
    return config.model_copy(update={"method": words}), method
