"""The files that declare own data: prismfl.toml, and schema.toml of a table, written together and never over others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.files.atomic import write_atomically
from prismfl.files.fresh import write_new
from prismfl.files.written import toml_value
from prismfl.privacy.guessing import OFTEN_LESS, guess_words, most_right
from prismfl.runs.config import HERE

SCHEMA = "schema.toml"
WHY = {
    "data": "your data; they stay where they are",
    "schema_file": "the declared columns",
    "label": "the column that is predicted",
    "classes": "public, in this order",
    "unit": "whom the promise protects",
    "image_size": "pixels a side that all images are brought to",
    "channels": "1 is grey, 3 is colour",
    "test": "what accuracy is measured on, where the data have no test part of their own",
    "sites": "simulated sites",
    "split": "how records are dealt to them",
    "records": "public, rounded number of records a site",
    "method": "`prismfl help methods` says which when",
    "model": "the network",
    "public": "public images",
    "encoder": "public encoder that images are looked at through",
    "epsilon": "total budget of each site",
    "delta": "below 1 / records",
}
"""The keys of a prismfl.toml, in their order, and what is said of each."""


@dataclass(frozen=True)
class SetUp:
    """What was declared: the keys of prismfl.toml, and the schema of a table that is written beside it."""

    keys: dict[str, Any]
    schema: dict[str, Any] | None = None

    def texts(self) -> dict[str, str]:
        """The files by their names."""
        found = {HERE: config_text(self.keys)}
        return found if self.schema is None else {SCHEMA: schema_text(self.schema), **found}


def config_text(keys: Mapping[str, Any]) -> str:
    """The text of prismfl.toml."""
    lines = ["# Made by `prismfl new`: plan, run, synth, partition and site init in this folder read it."]
    lines += [f"{key} = {toml_value(keys[key])}  # {why}" for key, why in WHY.items() if keys.get(key) is not None]
    if keys.get("epsilon") is not None:
        words = guess_words(most_right(keys["epsilon"], keys["delta"]), f"one {keys['unit']}")
        lines.append(f"# Epsilon {keys['epsilon']:g}: {words}.")
        lines.append(f"# {OFTEN_LESS}.")
    return "\n".join(lines) + "\n"


def schema_text(schema: Mapping[str, Any]) -> str:
    """The text of schema.toml."""
    lines = ["# Public: confirm every line from a public document. `prismfl help schema` explains the keys."]
    lines += [f"{key} = {toml_value(value)}" for key, value in schema.items() if key != "columns"]
    for column in schema["columns"]:
        lines += ["", "[[columns]]", *(f"{key} = {toml_value(value)}" for key, value in column.items())]
    return "\n".join(lines) + "\n"


def refuse_there(made: SetUp, folder: Path) -> None:
    """One line for a file that would be overwritten."""
    for name in made.texts():
        if (folder / name).exists() or (folder / name).is_symlink():
            raise UserError(f"'{folder / name}' exists; give --force to overwrite it.")


def write_set_up(made: SetUp, folder: Path, *, force: bool) -> list[Path]:
    """The files of a set-up, all or none; what is there is replaced only by force."""
    files = {folder / name: text.encode() for name, text in made.texts().items()}
    if not force:
        refuse_there(made, folder)
        write_new(files)
    else:
        for path, raw in files.items():
            write_atomically(path, raw)
    return list(files)


def placed(data: Path, folder: Path) -> str:
    """The path of a file as one in `folder` names it: relative where it lies in it."""
    place, home = data.resolve(), folder.resolve()
    return os.path.relpath(place, home) if place.is_relative_to(home) else str(place)
