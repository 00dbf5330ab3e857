"""When each site was last there, as the process of a run notes it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_json

CONTACTS, NOTE_SECONDS = "contacts.json", 2.0


def note_contacts(folder: Path, clock: Callable[[], float] = time.time) -> Callable[[Iterable[str]], None]:
    """A function that takes the names of the sites that are there, and notes when, every two seconds at most."""
    seen, written = contacts(folder), 0.0

    def note(names: Iterable[str]) -> None:
        nonlocal written
        now = clock()
        seen.update(dict.fromkeys(names, now))
        if now - written >= NOTE_SECONDS:
            written = now
            write_atomically(folder / CONTACTS, json.dumps(seen, sort_keys=True).encode())

    return note


def contacts(folder: Path) -> dict[str, float]:
    """When each site was last there, in Unix time."""
    path = folder / CONTACTS
    found = read_json(path) if path.exists() else {}
    return {str(name): float(when) for name, when in found.items()}
