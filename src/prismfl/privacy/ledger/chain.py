"""The ledger's file: an append-only chain of entries in SQLite, and the anchor that tells a lost or older file.

Each entry carries an HMAC over itself and its predecessor. Beside the file lies an anchor (`<path>.anchor`) with the
number and the head of the last entry, rewritten after each commit: a file that is missing, older than its anchor, or
does not verify is refused, never replaced by a fresh one. The keeper may have the same note kept in a second place
(`keep_head`), on another disk or machine: then a file that was put back together with its anchor is found out too.
What entries mean is for the reader, who gets each of them once, in order and verified.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl.errors import DiskFullError, LedgerError, UserError

VERSION = 1

_DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # the second where a damaged name or text reaches Python
_BUSY_SECONDS = 300.0
_LITTLE = 2**16
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,"
    " head BLOB NOT NULL)",
    "CREATE TABLE blobs (name TEXT PRIMARY KEY, data BLOB NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One link of the chain."""

    seq: int
    time: str
    kind: str
    body: Mapping[str, Any]


Reader = Callable[[Entry], None]


class Chain:
    """See the module. Use `Chain.open`; one object per process and thread.

    One that is not `lasting` does not wait for the disk: it survives the death of its process at any point, but not
    that of the machine. That will do for a simulation, which can be run again. Its anchor follows when it is shut.
    """

    def __init__(
        self, path: Path, db: sqlite3.Connection, *, secret: bytes, reader: Reader, lasting: bool = True
    ) -> None:
        self.path = path
        self.lasting = lasting
        self._db: sqlite3.Connection | None = db
        self._process = os.getpid()
        self._secret = secret
        self._reader = reader
        self._heads: list[bytes] = []
        self.kept: Path | None = None
        """The second place that the head is kept in and compared with."""
        self._new: list[bytes] = []  # heads of what this transaction appends

    @property
    def db(self) -> sqlite3.Connection:
        """The open file. One that was shut is opened when it is used again: what it has gained is verified then."""
        if self._db is None:
            if not self.path.exists():
                raise LedgerError(f"The ledger {self.path} is missing although its anchor exists; restore it.")
            self._db, self._process = _connected(self.path, lasting=self.lasting), os.getpid()
        assert self._process == os.getpid(), "an open ledger crossed a fork: shut it before"
        return self._db

    def shut(self) -> None:
        """Closes the file until it is used again."""
        if self._db is None:
            return
        self._db.close()
        self._db = None
        if not self.lasting and anchor_path(self.path).parent.is_dir():
            with _locked(self.path):
                self._write_anchors()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool,
        reader: Reader,
        elsewhere: bool = True,
        lasting: bool = True,
    ) -> Chain:
        """Opens and verifies the chain at `path`, or begins one where there is neither file nor anchor. Not `elsewhere`
        leaves the head that is kept in a second place alone: for a copy, or to give it another place."""
        path = Path(path)
        if not create and not path.exists() and not anchor_path(path).exists():
            raise UserError(f"No ledger at {path}.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                anchored = anchor_path(path).exists()
                if anchored and not path.exists():
                    raise LedgerError(f"The ledger {path} is missing although its anchor exists; restore it.")
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                db = _connected(path, lasting=lasting)
                try:
                    secret = _secret_of(db, path, fresh=not anchored)
                    chain = cls(path, db, secret=secret, reader=reader, lasting=lasting)
                    chain.kept = chain.place_of_head() if elsewhere else None
                    chain._catch_up(first=True)
                    chain._write_anchors()
                except BaseException:
                    db.close()
                    raise
        except OSError as error:
            if _is_full(path, error):
                raise wrapped(path, error) from error
            raise LedgerError(f"The ledger {path} cannot be opened: {error.strerror}.") from error
        except _DAMAGE as error:
            raise wrapped(path, error) from error
        return chain

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One BEGIN IMMEDIATE .. COMMIT by an up-to-date reader; the anchor follows the commit. The reader learns of
        what was appended only by reading back what was committed."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                self._new = []
                self._catch_up()
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise
            self._catch_up()
            if self.lasting:
                with _locked(self.path):
                    self._write_anchors()
        except _DAMAGE as error:
            raise wrapped(self.path, error) from error
        except OSError as error:
            if _is_full(self.path, error):
                raise wrapped(self.path, error) from error
            raise LedgerError(f"The ledger {self.path} cannot be written: {error.strerror}.") from error

    def refresh(self) -> None:
        """Hands new entries to the reader."""
        try:
            self._catch_up()
        except _DAMAGE as error:
            raise wrapped(self.path, error) from error

    def check(self) -> None:
        """SQLite's own check of the file."""
        try:
            report = [row[0] for row in self.db.execute("PRAGMA integrity_check(1)")]
        except _DAMAGE as error:
            raise wrapped(self.path, error) from error
        if report != ["ok"]:
            raise LedgerError(f"The ledger {self.path} is damaged: the database fails its integrity check.")

    def read_again(self) -> None:
        """Hands all entries to the reader, from the first."""
        self._heads = []
        self.refresh()

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """One entry, inside a transaction, after those that it has appended before."""
        seq = len(self._heads) + len(self._new) + 1
        time, text = datetime.now(UTC).isoformat(timespec="milliseconds"), json.dumps(body, sort_keys=True)
        previous = (self._new or self._heads or [b""])[-1]
        head = _link(self._secret, previous, (seq, time, kind, text))
        self._new.append(head)
        self.db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (seq, time, kind, text, head))

    def head(self) -> tuple[int, bytes]:
        """Number and head of the last entry that the reader has seen."""
        return len(self._heads), self.head_at(len(self._heads))

    def head_at(self, seq: int) -> bytes:
        """The head of the entry of this number."""
        return self._heads[seq - 1]

    def knows(self, seq: int, head: bytes) -> bool:
        """Whether the entry of this number has this head; one that is not there yet is not known."""
        return 1 <= seq <= len(self._heads) and self.head_at(seq) == head

    def place_of_head(self) -> Path | None:
        """The second place of the head, as the file says."""
        row = self.db.execute("SELECT value FROM meta WHERE key = 'kept'").fetchone()
        return None if row is None else Path(str(row[0]))

    def keep_head(self, place: Path, *, anew: bool = False) -> None:
        """From now on the head is kept at `place` too; a note of this ledger that is ahead of it or of another ledger
        is refused, unless it is to be written `anew`."""
        noted = None if anew else read_note(place)
        if noted is not None and not self.knows(*noted):
            raise LedgerError(
                f"The head kept at {place} is of another ledger, or ahead of {self.path}; choose another."
            )
        write_note(place, *self.head())  # before the file says so: a place that cannot be written is no place
        with self.transaction():
            self.db.execute("INSERT OR REPLACE INTO meta VALUES ('kept', ?)", (str(place),))
            self.append("head", {"place": place.name})
        self.kept = place
        with _locked(self.path):
            self._write_anchors()

    def copy(self, to: Path) -> None:
        """A consistent copy of the file with an anchor of its own; others may go on writing meanwhile."""
        try:
            os.close(os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(to, isolation_level=None)) as copy:
                self.db.backup(copy)
                seq, head = copy.execute("SELECT seq, head FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
            write_note(anchor_path(to), seq, head)
        except (*_DAMAGE, OSError) as error:
            raise wrapped(self.path, error) from error

    def fingerprint(self, data: bytes) -> bytes:
        """What only this ledger's key makes of some bytes."""
        return hmac.digest(self._secret, data, "sha256")

    def blob(self, name: str, digest: str) -> bytes:
        """Stored bytes whose digest an entry holds."""
        try:
            row = self.db.execute("SELECT data FROM blobs WHERE name = ?", (name,)).fetchone()
        except _DAMAGE as error:
            raise wrapped(self.path, error) from error
        if row is None or not isinstance(row[0], bytes) or digest_of(row[0]) != digest:
            raise LedgerError(f"The ledger {self.path} is damaged: the content of {name} does not verify.")
        return row[0]

    def put(self, name: str, data: bytes, *, anew: bool = False) -> None:
        """Stores bytes, inside a transaction; `anew` may replace older ones."""
        self.db.execute(f"INSERT {'OR REPLACE ' if anew else ''}INTO blobs VALUES (?, ?)", (name, data))

    def drop(self, name: str) -> None:
        """Deletes stored bytes, inside a transaction."""
        self.db.execute("DELETE FROM blobs WHERE name = ?", (name,))

    def shrink(self) -> None:
        """Gives the room of what was dropped back to the disk."""
        try:
            self.db.execute("VACUUM")
        except _DAMAGE as error:
            raise wrapped(self.path, error) from error

    def _catch_up(self, *, first: bool = False) -> None:
        """Verifies the entries that the reader has not seen and hands them over, then compares with the anchor. The
        anchor is read first: another process may commit in between, and then the chain is rightly ahead."""
        noted, heads = {place: read_note(place) for place in self._places()}, self._heads
        with closing(
            self.db.execute("SELECT seq, time, kind, body, head FROM entries WHERE seq > ? ORDER BY seq", (len(heads),))
        ) as rows:
            for seq, time, kind, text, head in rows:
                expected = _link(self._secret, heads[-1] if heads else b"", (seq, time, kind, text))
                if seq != len(heads) + 1 or not isinstance(head, bytes) or not hmac.compare_digest(head, expected):
                    raise LedgerError(f"The ledger {self.path} is damaged: entry {len(heads) + 1} does not verify.")
                body = json.loads(text)
                if kind == "create" and body["version"] != VERSION:
                    raise LedgerError(f"Entry {seq} of the ledger was written by another version of prismfl.")
                self._reader(Entry(seq, time, kind, body))
                heads.append(head)
        for place, note in noted.items():
            self._compare(place, note, first=first)

    def _places(self) -> list[Path]:
        return [anchor_path(self.path), *([] if self.kept is None else [self.kept])]

    def _compare(self, place: Path, note: tuple[int, bytes] | None, *, first: bool) -> None:
        what = "anchor" if place != self.kept else f"head kept at {place}"
        if note is None:
            if place == self.kept or not (first and len(self._heads) == 1):
                raise LedgerError(f"The {what} of the ledger {self.path} is missing; restore {place}.")
            return
        seq, head = note
        if seq > len(self._heads):
            raise LedgerError(
                f"The ledger {self.path} is older than its {what} ({len(self._heads)} of {seq} entries); restore it."
            )
        if not self.knows(seq, head):
            raise LedgerError(f"The ledger {self.path} is not the one its {what} belongs to; restore it.")

    def _write_anchors(self) -> None:
        """Moves the anchor, and the head that is kept elsewhere, forward; the caller holds the lock."""
        seq, head = self.head()
        for place in self._places():
            note = read_note(place)
            if note is None or note[0] < seq:
                write_note(place, seq, head)


def _connected(path: Path, *, lasting: bool) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'OFF'}")
    except BaseException:
        db.close()
        raise
    return db


def digest_of(data: bytes) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def anchor_path(path: Path) -> Path:
    """Where the anchor of a ledger lies."""
    return path.with_name(path.name + ".anchor")


def write_note(place: Path, seq: int, head: bytes) -> None:
    """Number and head of an entry. Atomic: a crash leaves the old note or the new one."""
    new = not place.exists()
    draft = place.with_name(place.name + ".new")
    text = json.dumps({"version": VERSION, "seq": seq, "head": head.hex()}) + "\n"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, place)
    if not new:
        return  # a power cut that undoes the renaming leaves the note before, which the ledger may be ahead of
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Among processes: one at a time opens the ledger or moves the anchor. The kernel drops the lock of a dead one."""
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _secret_of(db: sqlite3.Connection, path: Path, *, fresh: bool) -> bytes:
    """The ledger's key; writes tables, key and first entry into an empty file where no anchor forbids it."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and fresh:
        secret = secrets.token_bytes(32)
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"version": VERSION}, sort_keys=True)
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute("INSERT INTO meta VALUES ('secret', ?)", (secret,))
        head = _link(secret, b"", (1, time, "create", text))
        db.execute("INSERT INTO entries VALUES (1, ?, 'create', ?, ?)", (time, text, head))
        db.execute("COMMIT")
        return secret
    row = db.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone() if "meta" in tables else None
    if row is None or not isinstance(row[0], bytes):
        raise LedgerError(f"The file {path} is not the ledger its anchor belongs to; restore it.")
    return row[0]


def read_note(place: Path) -> tuple[int, bytes] | None:
    """The number and the head in a note, or None where there is none."""
    try:
        data = json.loads(place.read_text(encoding="ascii"))
        seq, head = data["seq"], bytes.fromhex(data["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"The anchor {place} is damaged; restore it.") from error
    if not isinstance(seq, int) or seq < 1:
        raise LedgerError(f"The anchor {place} is damaged; restore it.")
    return seq, head


def _link(secret: bytes, previous: bytes, fields: tuple[Any, Any, Any, Any]) -> bytes:
    return hmac.digest(secret, previous + repr(fields).encode(), "sha256")


def wrapped(path: Path, error: Exception) -> LedgerError:
    """In SQLite's own words, without the cell that some of them quote. A full disk is no damage."""
    if _is_full(path, error):
        return DiskFullError(f"The disk of the ledger {path} is full; free space there and go on: nothing is damaged.")
    if isinstance(error, OSError):
        return LedgerError(f"The ledger {path} cannot be used: {error.strerror}.")
    reason = str(error).partition(" with text ")[0] if isinstance(error, sqlite3.Error) else "its text is damaged"
    return LedgerError(f"The ledger {path} cannot be used: {reason}.")


def _is_full(path: Path, error: Exception) -> bool:
    """SQLite says of some files that they cannot grow, not why: then the disk is asked."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_IOERR:
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize < _LITTLE
    return bool(code == sqlite3.SQLITE_FULL)
