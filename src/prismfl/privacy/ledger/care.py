"""A ledger as a whole: its head kept elsewhere, a backup, the way back, the move to another machine.

A restored copy may lack entries: releases that are out in the world and would be uncounted. So a restore needs proof
that nothing came after the copy: the note of an anchor at the place it goes to, a head that was kept elsewhere, or that
the copy ends with the entry of a move, after which the ledger it was made of spends nothing. Without proof, or where it
shows a loss, the copy is restored only as one that has lost entries: nothing more is spent on a data set until its
keeper has set its cap by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prismfl.errors import LedgerError, UserError
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.files.bounded import read_json
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.chain import anchor_path, read_note, wrapped
from prismfl.privacy.ledger.place import LEDGER_FILE

MANIFEST, SCHEMA = "backup.json", 1
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a ledger that was found whole: its entries, the head of the last one, how many are known to be lost."""

    path: Path
    entries: int
    head: str
    lost: int = 0


def head_of(path: Path) -> tuple[int, str]:
    """Number and head of the last entry: what to note elsewhere."""
    with Ledger.open(path, create=False) as ledger:
        seq, head = ledger.chain.head()
        return seq, head.hex()


def keep_head(path: Path, place: Path) -> None:
    """Have number and head of the last entry kept in a second place, moved forward with every entry and compared
    whenever the ledger is opened."""
    with Ledger.open(path, create=False, elsewhere=False) as ledger:
        try:
            ledger.chain.keep_head(place.absolute())
        except OSError as error:
            raise UserError(f"The head cannot be kept at '{place}': {error.strerror}.") from None


def backup(path: Path, folder: Path) -> Copied:
    """A consistent copy with its anchor in a new folder, also while other commands go on."""
    with _new_folder(folder) as part:
        with Ledger.open(path, create=False) as ledger:
            ledger.chain.copy(part / LEDGER_FILE)
        copied = _checked(part / LEDGER_FILE)
        told = {"schema": SCHEMA, "made": _now(), "entries": copied.entries, "head": copied.head}
        told["sha256"] = _digest(part / LEDGER_FILE)
        write_atomically(part / MANIFEST, json.dumps(told, indent=2).encode() + b"\n")
    return Copied(folder / LEDGER_FILE, copied.entries, copied.head)


def move(path: Path, folder: Path) -> Copied:
    """A copy to take to another machine; what stays behind can be read, and spends nothing more."""
    if folder.exists():
        raise _exists(folder)
    with Ledger.open(path, create=False) as ledger:
        ledger.note("move", {"to": folder.name})
        try:
            return backup(path, folder)
        except BaseException:
            ledger.note("restore", {"entries": ledger.chain.head()[0], "lost": 0})  # no copy went anywhere
            raise


def restore(source: Path, path: Path, *, head: Path | None = None, lost: bool = False) -> Copied:
    """Put a copy to `path`, if nothing can have come after it; else it is refused, or restored as one that has `lost`
    entries. `head` is a note kept elsewhere, and is kept there from then on."""
    _check_manifest(source)
    make_folder(path.parent, closed=True)
    part = path.parent / f".{path.name}.{secrets.token_hex(4)}.restore"
    make_folder(part, closed=True, new=True)
    try:
        for file in (source / LEDGER_FILE, anchor_path(source / LEDGER_FILE)):
            _copy_file(file, part / file.name, path)
        with Ledger.open(part / LEDGER_FILE, create=False, elsewhere=False) as copy:
            entries = copy.verify()
            _refuse_whole(path, copy)
            gone = _lost_after(copy, path, head)
            if gone != 0 and not lost:
                raise LedgerError(_refusal(entries, gone))
            unknown = 1 if gone is None else gone
            copy.note("restore", {"entries": entries, "lost": unknown})
            place = head.absolute() if head is not None else copy.chain.place_of_head()
            if place is not None:
                copy.chain.keep_head(place, anew=True)
            seq, last = copy.chain.head()
        _put(part / LEDGER_FILE, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Copied(path, seq, last.hex(), unknown)


def _lost_after(copy: Ledger, path: Path, head: Path | None) -> int | None:
    """How many entries are known to have come after those of the copy; None where nothing can tell."""
    kept = head.absolute() if head is not None else copy.chain.place_of_head()
    if kept is not None and not kept.exists():
        raise LedgerError(f"The head kept at {kept} is not there; mount it, or name the place it has now: --head FILE.")
    notes = [
        note for place in (anchor_path(path), kept) if place is not None and (note := read_note(place)) is not None
    ]
    entries = copy.chain.head()[0]
    for seq, last in notes:
        if seq <= entries and not copy.chain.knows(seq, last):
            raise LedgerError("The copy is of another ledger than the head that is kept; nothing was changed.")
    if notes:
        return max(0, max(seq for seq, _ in notes) - entries)
    return 0 if copy.history()[-1].kind == "move" else None


def _refuse_whole(path: Path, copy: Ledger) -> None:
    """A ledger that is there and whole is not replaced, unless the copy goes on where it ends."""
    if not path.exists():
        return
    try:
        with Ledger.open(path, create=False, elsewhere=False) as here:
            seq, head = here.chain.head()
    except LedgerError:
        return
    if seq >= copy.chain.head()[0] or not copy.chain.knows(seq, head):
        raise UserError(f"The ledger {path} is there and whole, with {seq} entries; there is nothing to restore.")


def _refusal(entries: int, gone: int | None) -> str:
    way = "Look for a newer copy; --lost restores this one with nothing to spend until you have set each cap by hand."
    if gone is None:
        return f"No head is kept elsewhere: nobody can tell what came after the {entries} entries of the copy. {way}"
    return f"The copy is older than the head that is kept ({entries} of {entries + gone} entries). {way}"


def _put(new: Path, path: Path) -> None:
    """The ledger first: until its anchor follows, the one that was there refuses it or it has none."""
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    for old in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if old.exists():
            old.rename(old.with_name(f"{old.name}.before-{stamp}"))
    os.replace(new, path)
    os.replace(anchor_path(new), anchor_path(path))


def _checked(path: Path) -> Copied:
    with Ledger.open(path, create=False, elsewhere=False) as copy:
        entries = copy.verify()
        head = copy.chain.head()[1].hex()
    path.with_name(path.name + ".lock").unlink()
    return Copied(path, entries, head)


def _check_manifest(source: Path) -> None:
    if not (source / MANIFEST).is_file():
        raise UserError(f"'{source}' is no backup of a ledger: it has no {MANIFEST}.")
    told = read_json(source / MANIFEST)
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise UserError(f"The backup '{source}' was made by another version of prismfl; restore it with that one.")
    if not (source / LEDGER_FILE).is_file() or _digest(source / LEDGER_FILE) != told.get("sha256"):
        raise LedgerError(f"The backup '{source}' is damaged: its file is not what its {MANIFEST} says.")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A closed folder that is there when it is whole."""
    if folder.exists():
        raise _exists(folder)
    part = folder.absolute().with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        make_folder(part, closed=True, new=True)
        yield part
        part.rename(folder)
    except OSError as error:
        raise wrapped(folder, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _exists(folder: Path) -> UserError:
    return UserError(f"'{folder}' exists already; name a new folder for the copy.")


def _copy_file(file: Path, to: Path, path: Path) -> None:
    try:
        shutil.copyfile(file, to)
        to.chmod(0o600)
    except OSError as error:
        raise wrapped(path, error) from error


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
