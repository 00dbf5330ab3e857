"""Automatic settings: what the user did not give is chosen by the method from public numbers and public images.

The choice is rehearsed on public data alone, so it costs no privacy. It is kept in the user's cache: the same facts are
rehearsed once.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from prismfl.core.method import Chosen, Method, Wanted
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.files.bounded import read_regular
from prismfl.version import __version__

TUNING = "PRISMFL_TUNING"  # auto or fixed, where a config does not say
_MOST = 1024 * 1024


def wanted(tuning: str | None) -> bool:
    """Whether settings are to be chosen: as the config says, else as PRISMFL_TUNING says, else yes."""
    said = tuning or os.environ.get(TUNING) or "auto"
    if said not in ("auto", "fixed"):
        raise UserError(f"Expected {TUNING} to be auto or fixed, got '{said}'.")
    return said == "auto"


def choose_settings(method: Method, asked: Wanted) -> Chosen:
    """What the method chooses, rehearsed now or read from the cache."""
    assert method.auto is not None
    place = cache_folder() / f"{digest_of(method, asked)}.json"
    kept = _kept(place)
    if kept is None:
        kept = method.auto(asked)
        kept = replace(kept, settings={k: v for k, v in kept.settings.items() if k not in asked.given})
        try:
            make_folder(place.parent)
            write_atomically(place, json.dumps(asdict(kept)).encode())
        except OSError:
            pass  # a cache that cannot be written costs a rehearsal, no more
    return kept


def cache_folder() -> Path:
    """Where rehearsals are kept: XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prismfl" / "settings"


def digest_of(method: Method, asked: Wanted) -> str:
    """Of everything that the choice follows from."""
    task = asked.task
    facts: list[Any] = [__version__, _rule_of(method), dict(asked.given), asked.epsilon, asked.secure, _facts(task)]
    facts.append(asked.free_model)
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def _rule_of(method: Method) -> list[str]:
    """The method's name and, as a digest, the files that its choice is made by: a changed rule is no longer cached."""
    rule = method.auto.func if isinstance(method.auto, partial) else method.auto
    place = Path(inspect.getsourcefile(rule) or "") if inspect.isfunction(rule) else Path()
    files = sorted(place.parent.glob("*.py")) if place.is_file() else []
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return [method.name, *digests]


def _facts(task: Task) -> list[Any]:
    images = None if task.public is None else hashlib.sha256(task.public.cpu().contiguous().numpy().data).hexdigest()
    looked = None if task.encoder is None else task.encoder.digest
    numbers = [task.shape, len(task.classes), len(task.sites), task.records, task.model, task.delta, task.relation]
    return [*numbers, task.participation, images, looked]


def _kept(place: Path) -> Chosen | None:
    """The cached choice; whatever cannot be read is rehearsed again."""
    try:
        found = json.loads(read_regular(place, limit=_MOST))
        model = found["model"]
        return Chosen(dict(found["settings"]), tuple(map(str, found["words"])), None if model is None else str(model))
    except (OSError, UserError, ValueError, KeyError, TypeError):
        return None
