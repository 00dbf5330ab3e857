"""What a site's operator allows, against what a server asks: names, lists, facts and limits. No record, no ledger.

Whoever wrote the request wants the records. So nothing in it is used but a method's name, numbers within the method's
own ranges, and names that stand on lists of the site; data, schema, classes, unit, relation, public images, encoders,
device are the site's own words in `site.toml`, and a request that says otherwise is refused before anything is opened.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from prismfl.core.job import Job
from prismfl.core.method import Method
from prismfl.core.payloads import JsonDict, Statistics
from prismfl.data import DATASETS, Spec
from prismfl.data.parts_file import parts_words
from prismfl.data.public import DRAWN, is_named
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.kernels.parts import MEMORY
from prismfl.nets.encoders.named import built, ours
from prismfl.nets.encoders.names import NGRAMS, OWN_NAME, SCATTERING, is_ours, name_and_side, parts_of
from prismfl.runs.description import TRAVELS, schema_digest
from prismfl.runs.names import NAME, RefusedError
from prismfl.runs.parted import parted
from prismfl.site.config import SiteConfig, own_encoders

MODEL = re.compile(r"(convnet|lenet|mlp|logreg)(:[1-9][0-9]{0,3})?")
MOST_WIDTH = 1024
MOST_SITES = 1000
MOST_LIST = 10_000
MOST_TEXT = 200
MOST_WORDS = 1_000_000
LONG = 100_000
"""Most of what takes time or room in proportion: steps, epochs, images, samples."""
LIGHT = (SCATTERING, NGRAMS)
"""Encoders that are made in no time: their digest is compared before anything is reserved, others' in a round."""
TIMES = 32
"""A size of a network or a statistic may be so many times its default."""
PROPORTIONAL = frozenset(
    {"batch", "batches", "candidates", "copies", "epochs", "images", "iterations", "made_batch", "paths", "per_class"}
    | {"picked", "public_classes", "public_copies", "queries", "radius_records", "samples", "start", "stops", "updates"}
    | {"train_batch", "warm_batch"}
)

_TOP = {"protocol", "config", "spec", "train_size", "schema", "sites", "public", "encoder", "digest", "run"}


def check_request(config: SiteConfig, facts: Spec, description: JsonDict) -> None:
    """Refuse what this site's words do not allow; what is left names only things of the site."""
    told = description["config"]
    if len(json.dumps(description)) > MOST_WORDS:
        raise RefusedError("limit", f"The request has more than {MOST_WORDS} letters.")
    if not isinstance(told, dict) or not set(description) <= _TOP or not set(told) <= set(TRAVELS):
        raise RefusedError("refused", "The request holds something that no request of this version has.")
    _check_names(config, description)
    if config.configs and description["digest"] not in config.configs:
        raise RefusedError("config-not-allowed", f"Config {description['digest'][:16]} is not in `configs`.")
    if told.get("method") not in config.methods:
        name = f"{told.get('method')!s:.40}"
        raise RefusedError("method-not-allowed", f"Method '{name}' is not in `methods` of site.toml.")
    _check_facts(config, facts, description)
    _check_public(config, told)
    _check_encoder(config, facts, told, description.get("encoder"))
    model = MODEL.fullmatch(str(told.get("model")))
    if model is None or int((model[2] or ":1")[1:]) > MOST_WIDTH:
        raise RefusedError("limit", f"Model '{told.get('model')!s:.40}' is unknown here, or wider than {MOST_WIDTH}.")


def _check_names(config: SiteConfig, description: JsonDict) -> None:
    sites = description["sites"]
    if not isinstance(sites, list) or not 1 <= len(sites) <= MOST_SITES:
        raise RefusedError("limit", f"A run has 1 to {MOST_SITES} sites.")
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in sites) or len(set(sites)) != len(sites):
        raise RefusedError("refused", "The run's sites do not have names of their own.")
    if config.name not in sites:
        raise RefusedError("unknown-site", f"The run has no site named '{config.name}'.")


def _check_facts(config: SiteConfig, facts: Spec, description: JsonDict) -> None:
    told, spec = description["config"], description["spec"]
    same = (
        isinstance(spec, dict)
        and set(spec) - {"parts"} == {"name", "kind", "shape", "classes"}
        and isinstance(spec["name"], str)
        and len(spec["name"]) <= MOST_TEXT
        and (spec.get("kind"), spec.get("shape"), spec.get("classes"))
        == (facts.kind, list(facts.shape), list(facts.classes))
        and _same_parts(facts, spec)
        and told.get("relation") == config.relation
        and description["schema"] == own_schema(config, facts)
    )
    if not same:
        raise RefusedError(
            "refused",
            f"The run's data are not this site's: {facts.kind} of shape {facts.shape}, {len(facts.classes)} classes, "
            f"{config.relation}.",
        )


def _same_parts(facts: Spec, spec: Mapping[str, Any]) -> bool:
    """Whether the request means this site's own parts, to the letter: shapes, places, vocabularies and columns."""
    if facts.parts is None or "parts" not in spec:
        return facts.parts is None and "parts" not in spec
    return json.dumps(spec["parts"], sort_keys=True) == json.dumps(parts_words(facts.parts), sort_keys=True)


def own_schema(config: SiteConfig, facts: Spec) -> str | None:
    """The digest of this site's own schema, where its data are a table of its own."""
    if facts.kind != "table" or config.data in DATASETS or config.schema_file is None:
        return None
    return schema_digest(read_schema(config.schema_file))


def _check_public(config: SiteConfig, told: Mapping[str, Any]) -> None:
    name, count = told.get("public"), told.get("public_count")
    if name is not None and not is_named(str(name)) and name not in config.public:
        raise RefusedError("refused", "The run's public images are not drawn, named or on the list of site.toml.")
    if not isinstance(count, int) or not 1 <= count <= config.max_public:
        raise RefusedError("limit", f"A run has 1 to max_public = {config.max_public} public images.")


def _check_encoder(config: SiteConfig, facts: Spec, told: Mapping[str, Any], digest: object) -> None:
    """Names on this site's list, and the digest that the run means. No file is opened for it. Where no name is said,
    what looks at the parts of a record is built in."""
    words, known = told.get("encoder"), {*config.encoders, *own_encoders(config)}
    refused = RefusedError("refused", "The run's public encoder is not on the list of site.toml.")
    if words is None and facts.parts is None:
        if digest is not None:
            raise refused
        return
    if not isinstance(words, str | None) or len(words or "") > MOST_TEXT or not isinstance(digest, str):
        raise refused
    try:
        parts = () if words is None else parts_of(words)
        for part in parts:
            name = name_and_side(part.body)[0] if is_ours(part.body) else part.body
            if part.digest is not None or name not in known or not OWN_NAME.fullmatch(name):
                raise refused
        if all(is_ours(part.body) and name_and_side(part.body)[0] in LIGHT for part in parts):
            found = None if words is None else built(words, ours)
            looked = found if facts.parts is None else parted(found, facts.parts)
            if looked is None or looked.digest != digest:
                raise RefusedError("refused", "This site's public encoder is not the one that the run means.")
    except UserError:
        raise refused from None


def unit_of(config: SiteConfig, facts: Spec) -> str:
    """Whom this site protects: the unit that its schema names counts even where site.toml says nothing."""
    return facts.unit if config.unit == "record" and facts.unit else config.unit


def check_job(config: SiteConfig, facts: Spec, job: Job) -> None:
    """The run's numbers within the method's ranges and this site's limits, before anything is reserved."""
    check_ranges(job.method, job.settings)
    if job.settings.rounds > config.max_rounds:
        raise RefusedError("limit", f"{job.settings.rounds} rounds are more than max_rounds = {config.max_rounds}.")
    secured = job.secure is not None
    kinds = {Statistics.kind} if secured else {kind.kind for kind in job.method.leaves.values()}
    refused = sorted(kinds - set(config.releases))
    if refused:
        raise RefusedError("release-not-allowed", f"A release of {refused[0]} is not in `releases` of site.toml.")
    unit = unit_of(config, facts)
    if job.task.unit != unit and (secured or job.method.guarantee == "site"):
        raise RefusedError("unit-mismatch", f"The run protects {job.task.unit}, this site {unit}.")
    size = 8 * sum(math.prod(shape) for item in job.shapes.values() for _, shape in item.values())
    if size > config.max_bytes:
        raise RefusedError("limit", f"A release of up to {size} bytes is more than max_bytes = {config.max_bytes}.")
    if job.step_bytes > step_memory(config):
        need = 2 * job.step_bytes / 2**30
        raise RefusedError("limit", f"A private step needs max_memory = {need:.1f}, here it is {config.max_memory:g}.")


def step_memory(config: SiteConfig) -> int:
    """The bytes that a private step may take: half of what an answer may, and no more than in a simulation."""
    return min(MEMORY, int(config.max_memory * 2**30 / 2))


def check_ranges(method: Method, settings: BaseModel) -> None:
    """Each setting within the range that follows from its declaration: a size up to 32 times its default, what only
    takes time up to 100,000, other numbers up to a million."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        for one in value if isinstance(value, tuple) else (value,):
            _check_value(method, name, one, field.default)
        if isinstance(value, tuple) and len(value) > MOST_LIST:
            raise RefusedError("limit", f"Setting '{name}' of {method.name} has more than {MOST_LIST} entries.")


def _check_value(method: Method, name: str, value: object, default: object) -> None:
    if isinstance(value, tuple):
        for one in value[: MOST_LIST + 1]:
            _check_value(method, name, one, default)
        return
    if isinstance(value, str):
        most, size = float(MOST_TEXT), float(len(value))
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return
    else:
        most, size = _most(name, value, default), abs(float(value))
    if not size <= most:
        raise RefusedError("limit", f"Setting '{name}' of {method.name} is {value!s:.40}, more than {most:g}.")


def _most(name: str, value: float, default: object) -> float:
    if isinstance(value, float):
        return 1e6
    if name.endswith("seed"):
        return 2.0**63
    if name == "class_sizes":
        return 1e9
    if name in PROPORTIONAL or name.endswith("steps") or name == "rounds":
        return float(LONG)
    usual = max(default) if isinstance(default, tuple) and default and isinstance(default[0], int) else default
    return float(TIMES * max(8, usual if isinstance(usual, int) else 8))


def public_source(config: SiteConfig, name: str | None) -> str:
    """Where this site has the public images of a name from: drawn, a named set, or a folder on its own list."""
    wanted = name or next(iter(DRAWN))
    if is_named(wanted):
        return wanted
    if wanted not in config.public:
        raise UserError("The run's public images are not on this site's list.")
    return config.public[wanted]
