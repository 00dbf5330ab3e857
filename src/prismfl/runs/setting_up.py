"""A set-up of own data: what is asked, in which order, and how it is checked on site.

Of the data, names and layout are looked at; records are read for a draft only if their holder allows it, and once with
the declared facts, to see that they fit. Nothing is charged: no ledger is opened here.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismfl.data.column_words import WITH_BOUNDS, column_words, parse_column
from prismfl.data.folders import measured
from prismfl.data.layout import DataLayout, rounded
from prismfl.data.schema_draft import draft, load_columns
from prismfl.data.schema_file import read_schema
from prismfl.data.schemes import parse_split
from prismfl.errors import UserError
from prismfl.runs import questions
from prismfl.runs.config import RunConfig, check, validate
from prismfl.runs.declared_files import SCHEMA, SetUp, placed, schema_text
from prismfl.runs.interview import Interview
from prismfl.runs.planning import find_method, large_delta, resolve, task_of
from prismfl.runs.records import read_data

Columns = list[dict[str, Any]]


@dataclass(frozen=True)
class Looked:
    """What reading the records proposes. It is private until a person has confirmed each line."""

    about: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    columns: Columns = field(default_factory=list)
    notes: tuple[str, ...] = ()


def set_up(layout: DataLayout, asked: Interview, *, allowed: bool, columns: Sequence[str], folder: Path) -> SetUp:
    """Everything that must be declared, from options, proposals and answers. Records are read only if it is `allowed`;
    what was seen in them is said to be private."""
    if not allowed and layout.form != "npz":
        asked.hint = "; with --look the records are read to propose some of them"
    if layout.form != "table":
        _refuse_tables(asked.given, columns, folders=layout.form == "folders")
        looked = look(layout) if allowed else Looked()
        return SetUp({"data": placed(layout.path, folder), **_images(layout, asked, looked)})
    if asked.given.get("schema_file"):
        return SetUp({"data": placed(layout.path, folder), **_by_schema(layout, asked, columns, folder)})
    label, unit = asked.answer(questions.label_question(layout)), asked.answer(questions.unit_question(layout))
    looked = look(layout, label=label, unit=None if unit == "record" else unit) if allowed else Looked()
    for note in looked.notes:
        asked.say(note)
    classes = asked.answer(questions.classes_question(looked.facts.get("classes")))
    keys = _shared(layout, asked, {"unit": unit}, about=looked.about)
    roles = {label, unit, parse_split(keys["split"]).column, keys["test"]}
    features = [name for name in layout.names if name not in roles]
    size = looked.about or rounded(keys["records"] * keys["sites"])
    head = {"label": label, "classes": classes, **({} if unit == "record" else {"unit": unit}), "train_size": size}
    made = {**looked.more, **head, "columns": _columns(features, asked, looked, columns)}
    return SetUp({"data": placed(layout.path, folder), "schema_file": SCHEMA, **keys}, made)


def look(layout: DataLayout, *, label: str | None = None, unit: str | None = None) -> Looked:
    """A draft by reading the records: sizes and channels of images, types, categories and the number of a table's."""
    if layout.form == "folders":
        found = measured(layout.path, sized=False)
        with suppress(UserError):  # several sizes: there is none to propose
            found = measured(layout.path, sized=True)
        return Looked(facts=found)
    if layout.form == "npz":
        return Looked()
    text, notes = draft(layout.path, label=label, unit=unit, bounds_from_data=False)
    drafted = tomllib.loads(text)
    cells = next(iter(load_columns(layout.path).values()))
    facts = {"classes": drafted["classes"]} if "classes" in drafted else {}
    more = {key: value for key, value in drafted.items() if key not in ("label", "classes", "unit", "columns")}
    return Looked(rounded(len(cells)), facts, more, drafted.get("columns", []), tuple(notes))


def _refuse_tables(given: Mapping[str, Any], columns: Sequence[str], *, folders: bool) -> None:
    """Options that belong to tables."""
    options = {"label": "--label", "schema_file": "--schema", **({"unit": "--unit"} if folders else {})}
    found = [option for key, option in options.items() if given.get(key) not in (None, "record")]
    for option in [*found, *(["--column"] if columns else [])]:
        raise UserError(f"Expected no {option} for images{' in folders' if folders else ''}; it belongs to tables.")


def _images(layout: DataLayout, asked: Interview, looked: Looked) -> dict[str, Any]:
    """The facts of images; size and channels of an npz file are those of its array."""
    depth, height, width = layout.shape or (None, None, None)
    if height != width:
        raise UserError(f"Expected square images in {layout.path}, got {height}x{width}; cut them, then: prismfl new.")
    classes = asked.answer(questions.classes_question(list(layout.names) if layout.form == "folders" else None))
    unit = "record" if layout.form == "folders" else asked.answer(questions.unit_question(layout))
    size = asked.answer(questions.size_question(height or looked.facts.get("image_size")))
    channels = asked.answer(questions.channels_question(depth or looked.facts.get("channels")))
    found = {"classes": classes, "unit": unit, "image_size": size, "channels": channels}
    return _shared(layout, asked, found, about=layout.about)


def _by_schema(layout: DataLayout, asked: Interview, columns: Sequence[str], folder: Path) -> dict[str, Any]:
    """A table whose columns are declared already."""
    if columns:
        raise UserError("Expected --schema or --column, not both; declare the columns in the schema.")
    place = Path(asked.given["schema_file"])
    schema = read_schema(place)
    unit = asked.answer(questions.unit_question(layout, schema.unit))
    found = {key: asked.given.get(key) for key in ("label", "classes")}
    found |= {"schema_file": placed(place, folder), "unit": unit}
    return _shared(layout, asked, found, about=schema.train_size)


def _shared(layout: DataLayout, asked: Interview, found: dict[str, Any], *, about: int | None) -> dict[str, Any]:
    """What is asked of all kinds of data: sites, test part, records, public images and budget."""
    sites, split = asked.answer(questions.sites_question()), asked.answer(questions.split_question(layout))
    test = questions.DEFAULTS.test if layout.own_test else asked.answer(questions.test_question(layout))
    test = validate(RunConfig, {"test": test}, "the options").test
    share = 0.0 if layout.own_test or isinstance(test, str) else test
    records = asked.answer(questions.records_question(about, sites=sites, test=share))
    asked.complete()
    found = {**found, "test": test, "sites": sites, "split": split, "records": records}
    return {**found, **_budget(asked, found, table=layout.form == "table")}


def _budget(asked: Interview, keys: Mapping[str, Any], *, table: bool) -> dict[str, Any]:
    """Method, public images, epsilon and delta."""
    found: dict[str, Any] = {"method": asked.given.get("method") or ("dp-fedavg" if table else "prism")}
    method = find_method(found["method"])
    found["model"] = asked.given.get("model") or ("logreg" if table else None)
    found["encoder"] = asked.given.get("encoder")
    if method.needs_public:
        public = asked.answer(questions.public_question())
        found["public"] = None if public == "procedural" else public  # then the method picks among all that are drawn
    delta = asked.given.get("delta")
    if delta is None:
        delta = questions.DEFAULTS.delta
        if delta * keys["records"] >= 1:
            delta = 10.0 ** -(len(str(keys["records"])) + 1)  # below 1 / records
    if method.guarantee is not None:
        found["epsilon"] = asked.answer(questions.epsilon_question(delta, keys["unit"]))
    return {**found, "delta": delta}


def _columns(features: Sequence[str], asked: Interview, looked: Looked, given: Sequence[str]) -> Columns:
    """The declaration of every feature: from `--column NAME=WORDS`, from a draft, or asked."""
    said = dict(_named(words, features) for words in given)
    drafted = {column["name"]: column for column in looked.columns}
    found: Columns = []
    for name in features:
        mine, words = drafted.get(name), said.get(name)
        # What a draft leaves out (free text, say) is left out.
        proposal = None if not drafted else "-" if mine is None else column_words(mine)
        if words is None and mine is not None and _whole(mine) and (asked.ask is None or proposal is None):
            words = proposal
        elif words is None:
            words = asked.answer(questions.column_question(name, proposal))
        if mine is not None and _whole(mine) and words == proposal:
            found.append(mine)
        elif words is not None and (column := parse_column(name, words)) is not None:
            found.append({**mine, **column} if mine and "min" in column else column)
    asked.complete("; a choice is --column NAME=a,b and what is left out --column NAME=-")
    if not found:
        raise UserError("Expected at least one column to learn from; declare one with --column NAME=LOW..HIGH.")
    return found


def _named(words: str, features: Sequence[str]) -> tuple[str, str]:
    name, equals, rest = words.partition("=")
    if not equals or name.strip() not in features:
        raise UserError(f"Expected --column NAME=LOW..HIGH with one of {', '.join(features)}, got '{words}'.")
    return name.strip(), rest


def _whole(column: Mapping[str, Any]) -> bool:
    """Whether a drafted column says all that a schema needs."""
    return column.get("type", "numeric") not in WITH_BOUNDS or {"min", "max"} <= column.keys()


def check_set_up(made: SetUp, folder: Path) -> tuple[RunConfig, list[str]]:
    """The config that the files will mean, once the records were read by it; and what to know about them.

    Nothing is charged, and what is wrong is one line.
    """
    keys = {key: value for key, value in made.keys.items() if value is not None}
    keys |= {key: str(folder / keys[key]) for key in ("data", "schema_file") if key in keys}
    with tempfile.TemporaryDirectory() as scratch:
        if made.schema is not None:
            (Path(scratch) / SCHEMA).write_text(schema_text(made.schema))
            keys["schema_file"] = str(Path(scratch) / SCHEMA)
        config: RunConfig = validate(RunConfig, keys, "the options")
        check(config)
        method = find_method(config.method)
        dataset = read_data(config)
        task = task_of(config, dataset.spec, method)
        resolve(
            config, task, method
        )  # what else to know about the method, `plan` says for the settings that it chooses
    weak = large_delta(config.delta, task.records) if method.guarantee is not None else None
    return config, [*dataset.notices, *([weak] if weak else [])]
