"""What a folder of patients declares (`patients.toml`): a schema with a picture, a text, or both, beside columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl.data.cells import listed, plain
from prismfl.data.parts import Parts, RecordPart
from prismfl.data.schema import Schema, check_classes
from prismfl.data.schema_file import parse_schema, read_content, schema_words
from prismfl.errors import UserError

BYTES, SIZE = 1000, 28  # of a text and of a picture, where nothing is said
_IMAGE, _TEXT = ("column", "size", "channels"), ("column", "files", "bytes", "language", "concepts")


@dataclass(frozen=True)
class PatientFile:
    """What a file declares of each record: its parts, and the columns that the parts, label and unit stand in.

    `text_files`: the text column names .txt files.
    """

    parts: Parts
    label: str
    classes: tuple[str, ...]
    unit: str | None = None
    train_size: int | None = None
    image: str | None = None
    text: str | None = None
    text_files: bool = False


def is_parted(path: str | Path | None) -> bool:
    """Whether a schema file declares a picture or a text."""
    if path is None or not Path(path).is_file():
        return False
    content = read_content(Path(path))
    return isinstance(content, dict) and ("image" in content or "text" in content)


def read_patient_file(path: str | Path) -> PatientFile:
    """The declaration in a TOML or YAML file."""
    return parse_patient_file(read_content(Path(path)), where=f"schema {path}")


def parse_patient_file(content: object, *, where: str) -> PatientFile:
    """The same from the plain content of a file."""
    if not isinstance(content, dict):
        raise UserError(f"Expected keys and values in {where}.")
    for key in ("label", "classes"):
        if key not in content:
            raise UserError(f"Expected key '{key}' in {where}, got {listed(content)}.")
    image, text = _table(content, "image", _IMAGE, where), _table(content, "text", _TEXT, where)
    rest = {key: value for key, value in content.items() if key not in ("image", "text")}
    label, classes = str(content["label"]), content["classes"]
    names = tuple(plain(name) for name in classes) if isinstance(classes, list) else ()
    check_classes(names)
    parts: list[RecordPart] = []
    if image is not None:
        side, channels = _whole(image, "size", SIZE, where), _whole(image, "channels", 1, where)
        parts.append(RecordPart("image", "image", (channels, side, side)))
    if text is not None:
        words = str(text.get("language", "en")), str(text.get("concepts", ""))
        parts.append(RecordPart("text", "text", (_whole(text, "bytes", BYTES, where),), *words))
    schema: Schema | None = None
    if rest.get("columns"):
        schema = parse_schema(rest, where=where)
        parts.append(RecordPart("row", "table", (schema.width,)))
    size = rest.get("train_size")
    return PatientFile(
        Parts(tuple(parts), schema),
        label,
        names,
        unit=None if rest.get("unit") is None else str(rest["unit"]),
        train_size=size if isinstance(size, int) else None,
        image=None if image is None else str(image.get("column", "image")),
        text=None if text is None else str(text.get("files", text.get("column", "text"))),
        text_files=text is not None and "files" in text,
    )


def parts_words(parts: Parts) -> dict[str, Any]:
    """Parts as plain values: what a run keeps of them."""
    told = [
        {"name": p.name, "kind": p.kind, "shape": list(p.shape), "language": p.language, "concepts": p.concepts}
        for p in parts
    ]
    return {"parts": told, "schema": None if parts.schema is None else schema_words(parts.schema)}


def parse_parts(content: object, *, where: str) -> Parts:
    """Parts from their words; whoever wrote them may want what cannot be."""
    told = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(told, list) or not 1 <= len(told) <= 3:
        raise UserError(f"Expected one to three parts of a record in {where}.")
    found = []
    for one in told:
        shape = one.get("shape") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
            raise UserError(f"Expected parts with a name, a kind and a shape in {where}.")
        words = (str(one.get("language", ""))[:20], str(one.get("concepts", ""))[:40])
        found.append(RecordPart(str(one.get("name"))[:40], one.get("kind"), tuple(shape), *words))  # type: ignore[arg-type]
    schema = content.get("schema")
    return Parts(tuple(found), None if schema is None else parse_schema(schema, where=where))


def _table(content: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> Mapping[str, Any] | None:
    found = content.get(key)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise UserError(f"Expected [{key}] as a table of keys in {where}.")
    if odd := [name for name in found if name not in known]:
        raise UserError(f"Unknown key '{odd[0]}' in [{key}] of {where}; known: {', '.join(known)}.")
    return found


def _whole(content: Mapping[str, Any], key: str, usual: int, where: str) -> int:
    found = content.get(key, usual)
    if type(found) is not int or found < 1:
        raise UserError(f"Expected {key} as a whole number above 0 in {where}, got {found!r:.40}.")
    return found
