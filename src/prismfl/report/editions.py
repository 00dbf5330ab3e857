"""Two editions of what a run tells: on-site, which may hold anything, and sharing, which holds what is listed here.

A sharing page, table or figure is made from `share` or `share_result` alone. They copy by name, so a new fact stays on
the site until somebody lists it: it was released and charged, or it is public. Of a named benchmark the records are
public, and so is what was measured on them; of own data nothing measured is.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image

from prismfl import runtime
from prismfl.data import DATASETS

ON_SITE, SHARING = "on-site", "sharing"
STAYS = "stays on this site"
ELSEWHERE = "measured on this site only"
WITHHELD = ("accuracy", "seconds", "counts", "attacks", "audits")
MOST_PIXELS = 4_000_000
Shape = Any
COPY: Shape = "copy"
NAME: Shape = "name"  # the last part of a path
NO_PATH: Shape = "no path"  # texts without the folders in them


class OnSiteFacts(dict[str, Any]):
    """Everything that is known of a run, exact figures and paths included."""


class SharedFacts(dict[str, Any]):
    """What may be handed on. Made by `share`."""


Edition = OnSiteFacts | SharedFacts


def names(*fields: str) -> dict[str, Shape]:
    """Fields that are copied as they are."""
    return dict.fromkeys(fields, COPY)


CONFIG = {
    **names("run", "created", "method", "label", "classes", "image_size", "unit", "relation", "subset", "sites"),
    **names("split", "records", "participation", "epsilon", "delta", "model", "public_count", "device", "threads"),
    **names("transcript", "cap", "secure", "noise"),
    **dict.fromkeys(("data", "schema_file", "public", "start", "settings"), NAME),
    "encoder": NO_PATH,
}
GUARANTEE = {
    **names("known", "final", "level", "leaves", "delta", "target", "private", "nothing_leaves", "epsilon"),
    **names("epsilon_rdp", "epsilon_total", "simulation", "unit", "relation", "cost", "words", "allows"),
}
LEDGER_ROW = names("ledger", "releases", "epsilon spent", "delta", "unit", "cap", "budget held")
OWN: dict[str, Shape] = {
    **names("schema_version", "prismfl", "written", "own_data", "noise", "digest", "noise_to_signal"),
    "run": {**names("status", "id", "created"), "path": NAME},
    "setting": {
        **names("method", "split", "sites", "model", "unit", "relation", "delta"),
        **{"data": NAME, "encoder": NO_PATH, "pretrained_on": NO_PATH},
    },
    "guarantee": GUARANTEE,
    "releases": [names("site", "round", "bytes", "cost", "words", "digest", "confirmed")],
    "ledger": {"status": [LEDGER_ROW], "chain": [names("ledger", "chain")]},
    "utility": {**names("classes"), "rounds": [names("round", "epsilon", "bytes_up", "bytes_down")]},
    "traffic": {
        **names("up", "down"),
        "rounds": [names("round", "up", "down")],
        "sites": [names("site", "up", "down")],
    },
    "config": CONFIG,
    "environment": dict.fromkeys(runtime.environment(), NAME),
}
BENCHMARK: dict[str, Shape] = {
    **OWN,
    "setting": {**OWN["setting"], "seed": COPY},
    "config": {**CONFIG, "seed": COPY},
    "ledger": {"status": [LEDGER_ROW], "chain": [names("ledger", "chain", "entries")]},
    "utility": names("accuracy", "accuracy_min", "scores", "tables", "parts", "classes", "names", "rounds"),
    **names("partition", "seconds"),
    "models": [names("name", "accuracy", "taken")],
    **dict.fromkeys(("attacks", "audits"), NO_PATH),
}
RESULT = {
    **names("method", "split", "sites", "rounds", "model", "epsilon", "epsilon_total", "guarantee", "noise", "delta"),
    **names("unit", "relation", "sigma", "bytes_up", "bytes_down", "own_data"),
    **{"data": NAME, "encoder": NO_PATH, "pretrained_on": NO_PATH},
}
SWEEP: dict[str, Shape] = {
    **names("schema_version", "prismfl", "written", "own_data"),
    "setting": {**names("split", "sites", "model", "delta"), "data": NAME},
    "rows": [
        {
            **names("method", "pretrained_on", "epsilon_asked", "epsilon", "epsilon_total", "guarantee", "noise"),
            **names("unit", "relation", "delta", "bytes", "seeds", "seeds_planned", "failed"),
            "encoder": NAME,
        }
    ],
    "cells": [{**names("method", "epsilon", "status"), "encoder": NAME}],
}
BENCHMARK_SWEEP: dict[str, Shape] = {
    **SWEEP,
    "rows": [
        {
            **SWEEP["rows"][0],
            **names("accuracy", "accuracy_sd", "accuracy_half_width", "balanced_accuracy", "auc", "seconds"),
        },
    ],
    "cells": [{**SWEEP["cells"][0], **names("name", "seed"), "reason": NO_PATH}],
}
MISSING = {
    "config": "The run has no config.json that can be read.",
    "result": "The run has no result.json that can be read: it was cut off before it was written.",
    "environment": "The run has no environment.json that can be read: versions are not known.",
    "ledger": "The ledgers cannot be read or are not at hand.",
    "transcript": "No message was kept, nor a line about it (transcript = none): bytes are those of each round, not of "
    "each site, and what crossed cannot be held against the ledgers.",
    "start": "The model starts from an earlier run, and what that one cost is not in these figures.",
    "pictures": "The synthetic set is not of images (or its picture is missing), so none is shown.",
    "attacks": "No attack was run: prismfl attack RUN.",
    "audits": "No audit was run: prismfl audit RUN.",
    "unfinished": "The run is not finished: prismfl resume RUN. Figures are those up to the cut.",
    "data": "The data are not at hand, so what needs them is not shown.",
}
"""What a report may lack, in words that hold no path and no value."""


def is_own(config: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether a run used the user's own records. In doubt it did."""
    return config.get("data") not in DATASETS or result.get("own_data") is True


def share(facts: Edition) -> SharedFacts:
    """The sharing edition. What is not listed above is not in it."""
    if isinstance(facts, SharedFacts):
        return facts
    own = bool(facts["own_data"])
    empty: dict[str, Any] = {"partition": None, "attacks": [], "audits": [], "seconds": None, "models": []}
    made = SharedFacts({**empty, **_copied(facts, OWN if own else BENCHMARK)})
    made["utility"] = {
        "accuracy": None,
        "accuracy_min": None,
        "scores": {},
        "tables": {},
        "parts": {},
        **made["utility"],
    }
    data = str(made["setting"].get("data"))  # the ledger knows them by every path they were ever read from
    made["ledger"]["status"] = [{"ledger": row["ledger"], "data set": data, **row} for row in made["ledger"]["status"]]
    made["pictures"] = [clean for p in facts["pictures"] if not p["private"] and (clean := _cleaned(p))]
    made["delivered"] = [_shared_item(item) for item in facts.get("delivered") or ()]
    told = [m["what"] for m in facts["missing"] if not (own and m["what"] in WITHHELD)]
    made["missing"] = [{"what": what, "words": MISSING[what]} for what in told]
    return SharedFacts({**made, "edition": SHARING, "withheld": list(WITHHELD) if own else []})


def share_result(result: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    """A run's result for a table that may be handed on."""
    measured = names("accuracy", "accuracy_min", "balanced_accuracy", "auc", "fitting", "seconds", "seed")
    shape = RESULT if own else {**RESULT, **measured}
    empty = {"accuracy": None, "accuracy_min": None, "seconds": None}
    return {**empty, **_copied(result, shape), "edition": SHARING, "withheld": ["accuracy", "seconds"] if own else []}


def share_sweep(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep for a page or a table that may be handed on."""
    own = bool(facts["own_data"])
    made: dict[str, Any] = _copied(facts, SWEEP if own else BENCHMARK_SWEEP)
    return {**made, "edition": SHARING, "withheld": ["accuracy", "seconds"] if own else []}


def name_of(path: str) -> str:
    """The last part of a path, of either system."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _copied(value: Any, shape: Shape) -> Any:
    if shape == COPY:
        return value
    if isinstance(shape, str):
        return _worded(value, name_of if shape == NAME else _no_path)
    if isinstance(shape, list):
        return [_copied(v, shape[0]) for v in value]
    return {k: _copied(value[k], inner) for k, inner in shape.items() if k in value}


def _worded(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {k: _worded(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [_worded(v, change) for v in value]
    return change(value) if isinstance(value, str) else value


def _no_path(text: str) -> str:
    return re.sub(r"(?<!\w)(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+", "", text)


def _shared_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """What may be said of an item that a run delivers: its words always, its drawing where it need not stay."""
    drawn = {} if item["private"] else names("points", "head", "rows")
    words: dict[str, Any] = _copied(item, {**names("name", "words"), **drawn})
    clean = None if item["private"] or "png" not in item else _cleaned({**item, "title": item["picture"]})
    return {**words, "private": False, **({"picture": clean["title"], "png": clean["png"]} if clean else {})}


def _cleaned(picture: Mapping[str, Any]) -> dict[str, Any] | None:
    """The picture's pixels alone: a file from elsewhere may carry text, a date, a place."""
    try:
        with Image.open(io.BytesIO(base64.b64decode(picture["png"])), formats=["PNG"]) as found:
            if found.width * found.height > MOST_PIXELS:
                return None
            plain = found.convert("L" if found.mode in ("1", "L") else "RGB")
            bare = Image.frombytes(plain.mode, plain.size, plain.tobytes())
    except (OSError, ValueError, SyntaxError):
        return None
    file = io.BytesIO()
    bare.save(file, format="PNG")
    return {"title": picture["title"], "png": base64.b64encode(file.getvalue()).decode(), "private": False}
