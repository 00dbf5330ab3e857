"""A run in public words: what the server sends to a site so that both build the same `Job`, checked by digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from prismfl.core.job import Job
from prismfl.core.method import Settings
from prismfl.core.payloads import JsonDict
from prismfl.data import DATASETS, Schema, Spec, load_public
from prismfl.data.declared import declared_schema
from prismfl.data.facts import parted_facts
from prismfl.data.parts_file import is_parted, parse_parts, parts_words, read_patient_file
from prismfl.data.public import is_named
from prismfl.data.public_rows import WRITTEN, load_public_rows
from prismfl.data.schema import check_classes, plain
from prismfl.data.schema_file import read_schema, schema_words
from prismfl.errors import UserError
from prismfl.runs.config import RunConfig, check, validate
from prismfl.runs.encoders import agreed, asked_for, ready, travelling, with_layers
from prismfl.runs.names import NAME, RefusedError, check_name
from prismfl.runs.planning import find_method, mixed_public, resolve, task_of, tuned, with_columns
from prismfl.version import __version__

PROTOCOL = 1
"""What a server and its sites say to each other. Versions of one number work together, so that they can be upgraded one
by one; whatever changes the words of a description, a request or a release, or what they mean, is a new number."""
SPOKEN = frozenset({PROTOCOL})
"""The protocols that a site of this version understands."""

# What a request says besides the public facts. Everything else is the server's own business, or the site's.
TRAVELS = (
    "method", "unit", "relation", "sites", "split", "subset", "records", "participation", "epsilon", "delta", "model",
    "public", "public_count", "encoder", "seed", "secure", "settings",
)  # fmt: skip


def describe(
    config: RunConfig, spec: Spec, sites: Sequence[str], *, run: str | None = None, schema: Schema | None = None
) -> JsonDict:
    """The description of a run: settings are chosen and sigma is solved here, once, for everybody."""
    names = [check_name(name) for name in sites]
    if len(set(names)) != len(names):
        raise UserError(f"Two sites have the same name in {', '.join(names)}; give each its own.")
    check(config)
    method = find_method(config.method)
    if method.pooled:
        raise UserError(f"Method '{method.name}' needs all records in one place; it cannot run over sites.")
    if config.public_text not in (None, WRITTEN):
        raise UserError("Sites have no file of public sentences in common: leave out public_text in a federation.")
    config = with_columns(mixed_public(config, method), method, schema)
    if config.unit == "record" and spec.unit is not None:
        config = config.model_copy(update={"unit": spec.unit})
    images, source = public_images(config.public)
    looked, own = travelling(asked_for(config, method, itself=True))
    encoder = agreed(looked, own)
    asked = config.model_copy(update={"sites": len(names), "seed": config.seed or 0, "public": images})
    layered = with_layers(asked.settings, encoder if spec.parts is None else None)
    asked = asked.model_copy(update={"encoder": looked, "settings": layered})
    resolve(asked, task_of(asked, spec, method), method)  # refuses what cannot be before anything is rehearsed
    found = load_images(asked, spec, source) if method.needs_public else None
    task = task_of(asked, spec, method, found)
    encoder = ready(encoder, task)
    task = replace(task, encoder=encoder)
    asked, _ = tuned(asked, task, method)
    settings = resolve(asked, task, method)
    told = asked.model_copy(update={"settings": settings.model_dump(mode="json")}).model_dump(mode="json")
    body = {
        "protocol": PROTOCOL,
        "config": {k: told[k] for k in TRAVELS},
        "spec": {
            "name": Path(spec.name).name,
            "kind": spec.kind,
            "shape": [*spec.shape],
            "classes": [*spec.classes],
            **({} if spec.parts is None else {"parts": parts_words(spec.parts)}),
        },
        "train_size": spec.train_size,
        "schema": None if schema is None else schema_digest(schema),
        "public": None if found is None else images_digest(found),
        "encoder": None if encoder is None else encoder.digest,
        "sites": names,
    }
    return {**body, "digest": digest_of(body), "run": run or digest_of(body)[:16]}


def public_images(given: str | None) -> tuple[str | None, str | None]:
    """The name under which public images travel, and where whoever asks has them from: NAME, or NAME=FOLDER."""
    if given is None or is_named(given):
        return given, given
    name, equals, folder = given.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise UserError(
            "Expected public images that are drawn or named, or NAME=FOLDER with NAME on the list of each site, got "
            f"'{given}'."
        )
    return name, folder


def load_images(config: RunConfig, spec: Spec, source: str | None) -> torch.Tensor:
    """The public images of a run, from `source` (a name or a folder); drawn ones without it. Of records of several
    parts public rows, whose sentences the grammar writes."""
    where: str | Path = source or "procedural"
    where = where if is_named(str(where)) else Path(where)
    if spec.parts is not None:
        given: dict[str, Any] = {
            "images": where,
            "text": None,
            "count": config.public_count,
            "key_seed": config.seed or 0,
        }
        return load_public_rows(spec.parts, **given, data_dir=config.data_dir).images
    channels, height, width = spec.shape
    shape, count = (channels, height, width), config.public_count
    return load_public(where, shape=shape, count=count, key_seed=config.seed or 0, data_dir=config.data_dir).images


def images_digest(images: torch.Tensor) -> str:
    """Of public images as 8 bits a pixel: what all sides of a run compare."""
    pixels = (images.clamp(0, 1) * 255).round().to(torch.uint8).contiguous()
    return hashlib.sha256(repr(tuple(pixels.shape)).encode() + pixels.numpy().tobytes()).hexdigest()


def schema_digest(schema: Schema) -> str:
    """The SHA-256 of a schema, in hex."""
    return hashlib.sha256(json.dumps(schema_words(schema), sort_keys=True).encode()).hexdigest()


def digest_of(description: JsonDict) -> str:
    """The SHA-256 of a description without its digest and its run's name, in hex."""
    public = {k: v for k, v in description.items() if k not in ("digest", "run")}
    return hashlib.sha256(json.dumps(public, sort_keys=True, allow_nan=False).encode()).hexdigest()


def check_description(description: JsonDict) -> None:
    """Refuse another protocol or a changed config, before anything else is looked at."""
    spoken = description.get("protocol")
    if type(spoken) is not int or spoken not in SPOKEN:
        known = " or ".join(map(str, sorted(SPOKEN)))
        raise RefusedError(
            "version-mismatch",
            f"The server speaks protocol {spoken!s:.20}, prismfl {__version__} here speaks {known}; upgrade the older.",
        )
    if description.get("digest") != digest_of(description):
        raise RefusedError("config-mismatch", "The run's config does not have the digest it claims.")
    run = description.get("run")
    if not isinstance(run, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,79}", run):
        raise RefusedError("config-mismatch", "The run has no usable name.")


def job_of(
    description: JsonDict,
    *,
    with_public: bool = True,
    source: str | None = None,
    encoders: Mapping[str, str] = MappingProxyType({}),
    device: str = "cpu",
) -> Job:
    """The job that a description stands for; the same on the server and on every site.

    Public images and encoders take seconds to make; what asks for no computation on them can do without. `source` is
    where this side has the images from, and `encoders` are its files of encoders by name, in its own words; both must
    be the ones that the description means.
    """
    check_description(description)
    config: RunConfig = validate(RunConfig, description["config"], "the run's config")
    method = find_method(config.method)
    spec = spec_of(description)
    public = None
    if method.needs_public and with_public:
        public = load_images(config, spec, source or config.public)
        if images_digest(public) != description["public"]:
            raise RefusedError("refused", "This side's public images are not the ones that the run means.")
    task = replace(task_of(config, spec, method, public), sites=tuple(description["sites"]), device=device)
    asked_for(config, method, itself=True)
    if (config.encoder is not None or spec.parts is not None) and with_public:
        encoder = agreed(config.encoder, encoders)
        encoder = encoder if spec.parts is None else ready(encoder, task)
        if encoder is None or encoder.digest != description["encoder"]:
            raise RefusedError("refused", "This side's public encoder is not the one that the run means.")
        task = replace(task, encoder=ready(encoder, task))
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    return Job(str(description["run"]), method, settings, task, config.seed or 0, config.secure)


def spec_of(description: JsonDict) -> Spec:
    """The public facts of the data, as a description tells them."""
    told: dict[str, Any] = description["spec"]
    shape, classes = tuple(int(n) for n in told["shape"]), tuple(str(c) for c in told["classes"])
    parts = None if told.get("parts") is None else parse_parts(told["parts"], where="the run's description")
    if parts is not None and (parts.width,) != shape:
        raise RefusedError("config-mismatch", "The parts of a record and its shape do not belong together.")
    return Spec(told["name"], told["kind"], shape, classes, int(description["train_size"]), "", "", parts=parts)


def table_schema(config: RunConfig) -> Schema | None:
    """The declared columns of the run's table, None where its data are none."""
    return declared_schema(config.data) or declared(config)[1]


def declared(config: RunConfig) -> tuple[Spec, Schema | None]:
    """The public facts of the sites' data, without any of it: a named data set's, or those of a declared schema.

    A named table's own columns are known to everybody: nobody has to compare them (`table_schema` tells them).
    """
    if config.data in DATASETS:
        return DATASETS[config.data], None
    if is_parted(config.schema_file):
        assert config.schema_file is not None
        return parted_facts(Path(config.data), read_patient_file(config.schema_file), records=config.records), None
    if config.schema_file is not None:
        schema = read_schema(config.schema_file)
        _check_labels(config, schema)
        size = config.records or schema.train_size or 0
        return Spec(config.data, "table", (schema.width,), schema.classes, size, "", "", unit=schema.unit), schema
    form = ("features",) if config.features is not None else ("image_size", "channels")
    missing = [key for key in ("classes", *form) if not getattr(config, key)]
    if missing:
        raise UserError(
            f"What the sites' own data are like is not declared: {' and '.join(missing)} missing. Tables: schema_file; "
            "images: classes, image_size and channels (1: grey, 3: colour); npz tables: classes and features."
        )
    classes = tuple(plain(name) for name in config.classes or ())
    check_classes(classes)
    if config.features is not None:
        return Spec(config.data, "table", (config.features,), classes, config.records or 0, "", ""), None
    shape = (config.channels or 0, config.image_size or 0, config.image_size or 0)
    return Spec(config.data, "image", shape, classes, config.records or 0, "", ""), None


def _check_labels(config: RunConfig, schema: Schema) -> None:
    """A run config that says another label or other classes than its schema: every site goes by the schema."""
    for key, given, said in (
        ("label", config.label, schema.label),
        ("classes", None if config.classes is None else tuple(map(plain, config.classes)), schema.classes),
    ):
        if given is not None and given != said:
            raise UserError(f"{key} is {given!r} in the run config and {said!r} in its schema; leave it to the schema.")
