"""Reading a `Schema` from TOML or YAML: unknown keys are errors, with the nearest known name."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from prismfl.data.cells import instant, listed
from prismfl.data.columns import MOST_COLUMNS, read_columns
from prismfl.data.constraints import MOST_PAIRS, Constraint
from prismfl.data.schema import EVERY, Column, Schema, plain
from prismfl.errors import UserError
from prismfl.files.bounded import read_regular
from prismfl.files.written import toml_value

LIMIT = 4 * 2**20  # bytes
DEPTH = 20
NO_LABEL = "\0no label"
_TOP = ("columns", "label", "classes", "unit", "train_size", "unit_rows", "label_per_unit", "constraints")
_COLUMN = (
    *("name", "type", "min", "max", "categories", "integer", "scale", "missing", "decimals", "decimal", "thousands"),
    *("other", "format", "step", "per_unit"),
)
_CONSTRAINT = ("rule", "repair", "within", "columns", "allowed", "table")
IDS, TEXTS = ("id",), ("text",)


class _Bounded(yaml.SafeLoader):
    """YAML without aliases, which let a few lines stand for billions, and without deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        self.depth += 1
        if self.depth > DEPTH:
            raise yaml.YAMLError(f"nested more than {DEPTH} deep")
        found = super().compose_node(parent, index)
        self.depth -= 1
        return found


def read_schema(path: str | Path) -> Schema:
    """The schema that a TOML or YAML file declares."""
    return parse_schema(read_content(Path(path)), where=f"schema {path}")


def read_content(path: Path) -> object:
    """What a schema file holds, bounded in length, depth and repetition."""
    try:
        text = read_regular(path, limit=LIMIT).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"Expected UTF-8 text in schema {path}.") from None
    except UserError as error:
        raise UserError(f"Expected a schema file at {path}: {error}") from None
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _Bounded)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UserError(f"Expected valid TOML or YAML in schema {path}: {' '.join(str(error).split())}.") from None
    except (RecursionError, ValueError):  # brackets in brackets in TOML; a number or date that cannot be
        raise UserError(f"Expected valid TOML or YAML in schema {path}: a value in it cannot be read.") from None
    return _with_tables(content, path)


def _with_tables(content: object, path: Path) -> object:
    """Allowed pairs that stand in a file of their own, beside the schema, as if they stood in it."""
    rules = content.get("constraints") if isinstance(content, dict) else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, dict) and isinstance(rule.get("table"), str) and "allowed" not in rule:
            names = [plain(name) for name in _items(rule.get("columns", []), f"columns of a constraint of {path}")]
            found = read_columns(path.parent / rule.pop("table"))
            if odd := [name for name in names if name not in found]:
                raise UserError(
                    f"Expected column '{odd[0]}' in the table of a constraint of {path}, got {listed(found)}."
                )
            rule["allowed"] = [list(pair) for pair in dict.fromkeys(zip(*(map(plain, found[name]) for name in names)))]
    return content


def parse_schema(content: object, *, where: str) -> Schema:
    """A schema from the plain content of a file (or from a config's table)."""
    top = _mapping(content, where)
    _known(top, _TOP, where)
    for key in ("columns", "label", "classes"):
        if key not in top and not (key == "classes" and _label_is_number(top)):
            raise UserError(f"Expected key '{key}' in {where}, got {', '.join(top) or 'nothing'}.")
    unit = top.get("unit")
    columns = _items(top["columns"], f"columns in {where}")
    if len(columns) > MOST_COLUMNS:
        raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in {where}, got {len(columns):,}.")
    named = [_named(c, where) for c in columns]
    _check_open(named, where)
    return Schema(
        columns=tuple(_column(raw, where) for raw in named if raw.get("type") not in (*IDS, *TEXTS)),
        label=str(top["label"]),
        classes=tuple(plain(c) for c in _items(top.get("classes", EVERY), f"classes in {where}")),
        unit=None if unit is None else str(unit),
        train_size=_whole(top, "train_size", where),
        ids=_without_values(named, IDS, where),
        left_out=_without_values(named, TEXTS, where),
        unit_rows=_whole(top, "unit_rows", where),
        label_per_unit=_flag(top, "label_per_unit", where),
        constraints=tuple(_constraint(c, where) for c in _items(top.get("constraints", []), f"constraints in {where}")),
    )


def _label_is_number(top: Mapping[str, object]) -> bool:
    """Whether the label is one of the columns and a number: what a regression predicts."""
    columns = top["columns"] if isinstance(top["columns"], list | tuple) else ()
    named = [one for one in columns if isinstance(one, Mapping) and one.get("name") == top["label"]]
    return any(one.get("type", "numeric") == "numeric" for one in named)


def parse_any(content: object, *, where: str) -> tuple[Schema, bool]:
    """A schema that need not declare a label, and whether it declares one with classes: there are none without a label,
    and none where the label is a number."""
    labelled = not isinstance(content, dict) or "label" in content
    if isinstance(content, dict) and not labelled:
        content = {**content, "label": NO_LABEL, "classes": ["0", "1"]}
    found = parse_schema(content, where=where)
    return found, labelled and found.target is None


def _constraint(content: object, where: str) -> Constraint:
    """A rule in words, or two columns and their allowed pairs."""
    raw, place = _mapping(content, f"a constraint of {where}"), f"a constraint of {where}"
    _known(raw, _CONSTRAINT, place)
    if ("rule" in raw) == ("columns" in raw):
        raise UserError(f"Expected rule (start <= end), or columns and allowed, in {place}.")
    if "rule" in raw:
        if odd := [key for key in ("allowed", "table") if key in raw]:
            raise UserError(f"Expected no key '{odd[0]}' beside rule in {place}.")
        within = raw.get("within")
        if within is not None and (isinstance(within, bool) or not isinstance(within, int | float)):
            raise UserError(f"Expected a number as within of {place}, got {within!r}.")
        return Constraint.parse(str(raw["rule"]), repair=str(raw.get("repair", "auto")), within=within, where=place)
    if "within" in raw:
        raise UserError(f"Expected no key 'within' beside columns in {place}.")
    names = [plain(name) for name in _items(raw["columns"], f"columns of {place}")]
    pairs = [_items(pair, f"a pair of {place}") for pair in _items(raw.get("allowed", []), f"allowed of {place}")]
    if len(names) != 2 or not pairs or any(len(pair) != 2 for pair in pairs):
        raise UserError(f"Expected two columns and a list of allowed pairs in {place}.")
    if len(pairs) > MOST_PAIRS:
        raise UserError(f"Expected at most {MOST_PAIRS:,} allowed pairs in {place}, got {len(pairs):,}.")
    return Constraint(names[0], names[1], pairs=tuple((plain(a), plain(b)) for a, b in pairs))


def schema_words(schema: Schema) -> dict[str, Any]:
    """A schema as plain values, in the keys of a schema file; keys at their defaults are left out."""
    columns = [_column_words(column) for column in schema.columns]
    columns += [{"name": name, "type": "id"} for name in schema.ids]
    columns += [{"name": name, "type": "text"} for name in schema.left_out]
    found: dict[str, Any] = {"columns": columns, "label": schema.label, "classes": list(schema.classes)}
    if schema.target is not None:
        del found["classes"]
    found["unit"] = schema.unit
    found |= {"unit_rows": schema.unit_rows, "label_per_unit": schema.label_per_unit or None}
    found["constraints"] = [_constraint_words(constraint) for constraint in schema.constraints] or None
    return {key: value for key, value in found.items() if value is not None}


def schema_toml(schema: Schema) -> str:
    """A schema as the text of a schema file."""
    words = schema_words(schema)
    lines = [f"{key} = {toml_value(value)}" for key, value in words.items() if key not in ("columns", "constraints")]
    for key in ("columns", "constraints"):
        for one in words.get(key, ()):
            lines += ["", f"[[{key}]]", *(f"{name} = {toml_value(value)}" for name, value in one.items())]
    return "\n".join(lines) + "\n"


def _constraint_words(constraint: Constraint) -> dict[str, Any]:
    if constraint.pairs:
        columns = [constraint.left, constraint.right]
        return {"columns": columns, "allowed": [list(pair) for pair in constraint.pairs]}
    rule = f'"{constraint.left}" {constraint.sign} "{constraint.right}"'
    within = {} if constraint.within is None else {"within": constraint.within}
    return {"rule": rule, "repair": constraint.repair, **within}


def _column_words(column: Column) -> dict[str, Any]:
    words: dict[str, Any] = {"name": column.name, "type": column.type, "min": column.min, "max": column.max}
    if column.type in ("date", "time"):
        words |= {key: column.words(words[key]) for key in ("min", "max")}
    words |= {"categories": list(column.categories) or None, "missing": column.missing}
    words |= {"integer": column.integer or None, "scale": column.scale, "decimals": column.decimals}
    words |= {"decimal": None if column.decimal == "." else column.decimal, "thousands": column.thousands or None}
    words |= {"other": column.other, "format": column.format, "step": column.step, "per_unit": column.per_unit or None}
    return {key: value for key, value in words.items() if value is not None}


def _check_open(columns: Sequence[Mapping[str, object]], where: str) -> None:
    """Name all columns whose bounds a person has still to give, not one after the other."""
    numbers = [raw for raw in columns if raw.get("type", "numeric") in ("numeric", "date")]
    found = [f"'{raw['name']}'" for raw in numbers if raw.get("min") is None or raw.get("max") is None]
    if len(found) > 1:
        raise UserError(
            f"Expected declared min and max for the columns {listed(found[:-1])} and {found[-1]} of {where}; bounds "
            "are never taken from the data."
        )


def _named(content: object, where: str) -> Mapping[str, object]:
    raw = _mapping(content, f"a column of {where}")
    if "name" not in raw:
        raise UserError(f"Expected key 'name' in every column of {where}.")
    _known(raw, _COLUMN, f"column '{raw['name']}' of {where}")
    return raw


def _without_values(columns: Sequence[Mapping[str, object]], types: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Names of the columns whose values are neither released nor synthesised: nothing is declared about them."""
    found = [raw for raw in columns if raw.get("type") in types]
    for raw in found:
        if odd := [key for key in raw if key not in ("name", "type")]:
            raise UserError(f"Expected no key '{odd[0]}' in column '{raw['name']}' of {where}: it is {raw['type']}.")
    return tuple(str(raw["name"]) for raw in found)


def _column(raw: Mapping[str, object], where: str) -> Column:
    name = str(raw["name"])
    place = f"column '{name}' of {where}"
    missing = raw.get("missing")
    if missing is not None and not isinstance(missing, int | float | str):
        raise UserError(f"Expected true, a number or text as missing of {place}, got {missing!r}.")
    return Column(
        name=name,
        type=str(raw.get("type", "numeric")),  # type: ignore[arg-type]  # Column refuses other words by name
        min=_bound(raw, "min", place),
        max=_bound(raw, "max", place),
        categories=tuple(plain(c) for c in _items(raw.get("categories", []), f"categories of {place}")),
        integer=_flag(raw, "integer", place),
        scale=str(raw.get("scale", "linear")),  # type: ignore[arg-type]
        missing=missing,
        decimals=_whole(raw, "decimals", place),
        decimal=_text(raw, "decimal", place) or ".",
        thousands=_text(raw, "thousands", place) or "",
        other=None if raw.get("other") is None else plain(raw["other"]),
        format=_text(raw, "format", place),
        step=_text(raw, "step", place),
        per_unit=_flag(raw, "per_unit", place),
    )


def _bound(raw: Mapping[str, object], key: str, place: str) -> float | None:
    value, kind = raw.get(key), raw.get("type")
    if value is None:
        return None
    if kind in ("date", "time"):
        form = raw.get("format")
        found = instant(value, clock=kind == "time")
        if found is None and isinstance(form, str):
            found = instant(value, form, clock=kind == "time")
        if found is None:
            raise UserError(f"Expected a {kind} as {key} of {place}, got {value!r}.")
        return found
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"Expected a number as {key} of {place}, got {value!r}.")
    return float(value)


def _whole(raw: Mapping[str, object], key: str, place: str) -> int | None:
    value = raw.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UserError(f"Expected a whole number as {key} in {place}, got {value!r}.")
    return value


def _text(raw: Mapping[str, object], key: str, place: str) -> str | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"Expected text as {key} of {place}, got {value!r}.")
    return value


def _flag(raw: Mapping[str, object], key: str, place: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"Expected true or false as {key} of {place}, got {value!r}.")
    return value


def _mapping(content: object, where: str) -> Mapping[str, object]:
    if not isinstance(content, Mapping):
        raise UserError(f"Expected keys and values in {where}, got {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _items(content: object, where: str) -> list[object]:
    if not isinstance(content, list | tuple):
        raise UserError(f"Expected a list for {where}, got {type(content).__name__}.")
    return list(content)


def _known(raw: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}."
            raise UserError(f"Unknown key '{key}' in {where}; {hint}")
