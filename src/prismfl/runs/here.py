"""The prismfl.toml of the working folder: what a command means that was given neither a config nor data.

Nobody named the file, so it may have come with a folder from anybody: it declares data, method and budget, and cannot
make a command run code, take the noise off, or write elsewhere. Who names it (`prismfl run prismfl.toml`) has read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.nets.encoders.names import is_ours, parts_of
from prismfl.runs.config import HERE, RunConfig, check_keys, read, validate

KEYS = frozenset(
    {
        *(
            "data",
            "schema_file",
            "label",
            "classes",
            "image_size",
            "channels",
            "features",
            "unit",
            "relation",
            "records",
            "subset",
        ),
        *("test", "dataset", "method", "model", "sites", "split", "epsilon", "delta", "cap", "public", "public_count"),
        *("encoder", "tuning", "settings"),
    }
)
"""Keys that a file which nobody named may hold."""


def with_here(
    file: Path | None, sets: Sequence[str], given: Mapping[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """`given` on top of ./prismfl.toml, where there is one and neither a config nor data were given."""
    own = {key: value for key, value in given.items() if value is not None}
    named = file is not None or "data" in own or any(line.partition("=")[0].strip() == "data" for line in sets)
    if named or not Path(HERE).is_file():
        return dict(given)
    found = checked(read(Path(HERE)))
    config: RunConfig = validate(RunConfig, found, f"./{HERE}")
    budget = "" if config.epsilon is None else f", epsilon {own.get('epsilon', config.epsilon):g}"
    say(f"using ./{HERE}: data {config.data}{budget}; options win over it")
    return {**found, **own}


def checked(found: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a file that nobody named: none that could run code, hide the noise, or write elsewhere."""
    check_keys(RunConfig, found, f"./{HERE}")
    named = f"give it on the command line, or name the file: prismfl run {HERE}"
    for key in found:
        if key not in KEYS:
            raise UserError(f"Key '{key}' of ./{HERE} is not taken from a file that was not named; {named}.")
    if ":" in str(found.get("method", "")):
        raise UserError(f"method = '{found['method']:.80}' of ./{HERE} would run code; {named} (--method).")
    for part in parts_of(str(found.get("encoder") or "none")):
        if part.body not in ("none", "auto") and not is_ours(part.body):
            raise UserError(f"encoder = '{part.body:.80}' of ./{HERE} would load a file or code; {named} (--encoder).")
    return dict(found)
