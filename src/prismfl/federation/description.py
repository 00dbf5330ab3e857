"""A run in public words: what the server sends to a site so that both build the same `Job`, checked by digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prismfl import __version__
from prismfl.config import RunConfig, check, validate
from prismfl.data import Schema, Spec, load_public
from prismfl.data.schema_file import parse_schema
from prismfl.errors import UserError
from prismfl.experiment import find_method, resolve, secrecy, task_of
from prismfl.federation.names import RefusedError, check_name
from prismfl.method import Settings
from prismfl.payloads import JsonDict
from prismfl.rounds import Job

# What stays with whoever wrote the config: places on its own disk, and how it uses its own machine.
OWN = ("out", "ledger", "dataset", "noise", "data_dir", "threads", "cap", "label", "schema_file", "transcript")


def describe(
    config: RunConfig, spec: Spec, sites: Sequence[str], *, run: str | None = None, schema: Schema | None = None
) -> JsonDict:
    """The description of a run: sigma is solved here, once, and everybody uses that number."""
    names = [check_name(name) for name in sites]
    if len(set(names)) != len(names):
        raise UserError(f"Two sites have the same name in {', '.join(names)}; give each its own.")
    check(config)
    method = find_method(config.method)
    if method.pooled:
        raise UserError(f"Method '{method.name}' needs all records in one place; it cannot run over sites.")
    asked = config.model_copy(update={"sites": len(names), "seed": config.seed or 0})
    settings = resolve(asked, task_of(asked, spec, method), method)
    public = asked.model_copy(update={"settings": settings.model_dump(mode="json")}).model_dump(mode="json")
    body = {
        "prismfl": __version__,
        "config": {k: v for k, v in public.items() if k not in OWN},
        "spec": {"name": spec.name, "kind": spec.kind, "shape": list(spec.shape), "classes": list(spec.classes)},
        "train_size": spec.train_size,
        "schema": None if schema is None else schema_words(schema),
        "sites": names,
    }
    return {**body, "digest": digest_of(body), "run": run or digest_of(body)[:16]}


def digest_of(description: JsonDict) -> str:
    public = {k: v for k, v in description.items() if k not in ("digest", "run")}
    return hashlib.sha256(json.dumps(public, sort_keys=True, allow_nan=False).encode()).hexdigest()


def check_description(description: JsonDict) -> None:
    """Refuse another version or a changed config, before anything else is looked at."""
    if description.get("prismfl") != __version__:
        raise RefusedError(
            "version-mismatch", f"The server runs prismfl {description.get('prismfl')}, this site runs {__version__}."
        )
    if description.get("digest") != digest_of(description):
        raise RefusedError("config-mismatch", "The run's config does not have the digest it claims.")
    if not re.fullmatch(r"[A-Za-z0-9.:_-]{1,80}", str(description.get("run"))):
        raise RefusedError("config-mismatch", "The run has no usable name.")


def job_of(description: JsonDict, *, with_public: bool = True) -> Job:
    """The job that a description stands for; the same on the server and on every site.

    Public images take seconds to make; what asks for no computation on them can do without.
    """
    check_description(description)
    config: RunConfig = validate(RunConfig, description["config"], "the run's config")
    method = find_method(config.method)
    spec = spec_of(description)
    public = None
    if method.needs_public and with_public:
        channels, height, width = spec.shape
        public = load_public(
            config.public or "procedural",
            shape=(channels, height, width),
            count=config.public_count,
            key_seed=config.seed or 0,
        ).images
    task = replace(task_of(config, spec, method, public), sites=tuple(description["sites"]))
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    return Job(str(description["run"]), method, settings, task, config.seed or 0, secrecy(config))


def spec_of(description: JsonDict) -> Spec:
    told: dict[str, Any] = description["spec"]
    shape, classes = tuple(int(n) for n in told["shape"]), tuple(str(c) for c in told["classes"])
    return Spec(told["name"], told["kind"], shape, classes, int(description["train_size"]), "", "")


def schema_words(schema: Schema) -> JsonDict:
    """A schema as plain values, in the keys of a schema file."""
    columns = []
    for column in schema.columns:
        words: JsonDict = {"name": column.name, "type": column.type, "min": column.min, "max": column.max}
        words |= {"categories": list(column.categories) or None, "missing": column.missing}
        words |= {"integer": column.integer or None, "scale": column.scale}
        columns.append({key: value for key, value in words.items() if value is not None})
    found = {"columns": columns, "label": schema.label, "classes": list(schema.classes), "unit": schema.unit}
    return {key: value for key, value in found.items() if value is not None}


def schema_of(description: JsonDict) -> Schema | None:
    told = description.get("schema")
    return None if told is None else parse_schema(told, where="the run's schema")
