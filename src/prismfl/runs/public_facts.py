"""The public facts that a run's models are used with: shape, classes, columns, and which public images and encoder.

They lie in the run directory (`task.json`), so that using a model needs none of the records it was learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from prismfl.core.task import Task
from prismfl.data import Schema, Spec
from prismfl.data.parts import Parts
from prismfl.data.parts_file import parse_parts, parts_words
from prismfl.data.schema_file import parse_schema, schema_words
from prismfl.errors import UserError
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.description import images_digest
from prismfl.runs.directory import RunDirectory
from prismfl.runs.planning import declared_spec

FILE = "task.json"
MOST_SIDE = 4096
MOST_WIDTH = 1_000_000
MOST_CLASSES = 100_000


@dataclass(frozen=True)
class PublicFacts:
    """What somebody who has no record may know of a run's data, and the digests of its public images and encoder."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    schema: Schema | None = None
    public: str | None = None
    encoder: str | None = None
    encoder_digest: str | None = None
    trained_on: str | None = None
    parts: Parts | None = None

    def spec(self, name: str) -> Spec:
        """The declaration that a task is made from."""
        if self.parts is not None:
            return Spec(name, self.parts.kind, self.shape, self.classes, 1, "", "", parts=self.parts)
        return Spec(name, "image" if len(self.shape) == 3 else "table", self.shape, self.classes, 1, "", "")


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    shape: list[int] = Field(min_length=1, max_length=3)
    classes: list[str] = Field(min_length=1, max_length=MOST_CLASSES)
    table: dict[str, Any] | None = None
    public: str | None = None
    encoder: str | None = None
    encoder_digest: str | None = None
    trained_on: str | None = None
    parts: dict[str, Any] | None = None


def keep_facts(directory: RunDirectory, task: Task, schema: Schema | None = None) -> None:
    """Writes the facts of a run that begins."""
    looked = task.encoder
    facts = {
        "shape": list(task.shape),
        "classes": list(task.classes),
        "table": None if schema is None else schema_words(schema),
        "public": None if task.public is None else images_digest(task.public.cpu()),
        "encoder": None if looked is None else looked.name,
        "encoder_digest": None if looked is None else looked.digest,
        "trained_on": getattr(looked, "trained_on", None),
    }
    if task.parts is not None:
        facts["parts"] = parts_words(task.parts)
    directory.write_json(FILE, facts)


def read_facts(directory: RunDirectory, config: RunConfig) -> PublicFacts:
    """The facts of a run; of one that kept none, what its description or config declares. No record is opened."""
    if (directory.path / FILE).exists():
        return _checked(directory.read_json(FILE), f"'{directory.path / FILE}'")
    if (directory.path / "federation.json").exists():
        told = directory.read_json("federation.json").get("description", {})
        if not isinstance(told, dict) or not isinstance(told.get("spec"), dict):
            raise UserError(f"'{directory.path / 'federation.json'}' does not describe its data.")
        return _checked({**told["spec"], "public": told.get("public")}, f"'{directory.path / 'federation.json'}'")
    spec = declared_spec(config)
    return PublicFacts(spec.shape, spec.classes, parts=spec.parts)


def _checked(stored: dict[str, Any], where: str) -> PublicFacts:
    """Facts that can be: whoever wrote the file may want a network that does not fit into memory."""
    known = {key: value for key, value in stored.items() if key in _Stored.model_fields}
    read: _Stored = validate(_Stored, known, where)
    shape = tuple(read.shape)
    fits = (len(shape) == 1 and 1 <= shape[0] <= MOST_WIDTH) or (
        len(shape) == 3 and shape[0] in (1, 3) and all(1 <= side <= MOST_SIDE for side in shape[1:])
    )
    if not fits:
        raise UserError(f"Expected the shape of an image or of a table's row in {where}, got {shape}.")
    if len(set(read.classes)) != len(read.classes):
        raise UserError(f"Expected distinct classes in {where}.")
    schema = None if read.table is None else parse_schema(read.table, where=where)
    if schema is not None and (schema.width,) != shape:
        raise UserError(f"The columns in {where} give rows of {schema.width} numbers, its shape says {shape}.")
    parts = None if read.parts is None else parse_parts(read.parts, where=where)
    if parts is not None and (parts.width,) != shape:
        raise UserError(f"The parts in {where} give rows of {parts.width} bytes, its shape says {shape}.")
    looked = (read.encoder, read.encoder_digest, read.trained_on)
    return PublicFacts(shape, tuple(read.classes), schema, read.public, *looked, parts)
