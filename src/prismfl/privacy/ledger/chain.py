"""The ledger's file: an append-only chain of entries in SQLite, and the anchor that tells a lost or older file.

Each entry carries an HMAC over itself and its predecessor. Beside the file lies an anchor (`<path>.anchor`) with the
number and the head of the last entry, rewritten after each commit: a file that is missing, older than its anchor, or
does not verify is refused, never replaced by a fresh one. What entries mean is for the reader, who gets each of them
once, in order and verified.
"""

from __future__ import annotations

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

from prismfl.errors import LedgerError, UserError

VERSION = 1

_DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # the second where a damaged name or text reaches Python
_BUSY_SECONDS = 300.0
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
        if not self.lasting and _anchor_path(self.path).parent.is_dir():
            with _locked(self.path):
                self._write_anchor()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool, reader: Reader, lasting: bool = True) -> Chain:
        """Opens and verifies the chain at `path`, or begins one where there is neither file nor anchor."""
        path = Path(path)
        if not create and not path.exists() and not _anchor_path(path).exists():
            raise UserError(f"No ledger at {path}.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                anchored = _anchor_path(path).exists()
                if anchored and not path.exists():
                    raise LedgerError(f"The ledger {path} is missing although its anchor exists; restore it.")
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                db = _connected(path, lasting=lasting)
                try:
                    secret = _secret_of(db, path, fresh=not anchored)
                    chain = cls(path, db, secret=secret, reader=reader, lasting=lasting)
                    chain._catch_up(first=True)
                    chain._write_anchor()
                except BaseException:
                    db.close()
                    raise
        except OSError as error:
            raise LedgerError(f"The ledger {path} cannot be opened: {error.strerror}.") from error
        except _DAMAGE as error:
            raise _wrapped(path, error) from error
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
                    self._write_anchor()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
        except OSError as error:
            raise LedgerError(f"The ledger {self.path} cannot be written: {error.strerror}.") from error

    def refresh(self) -> None:
        """Hands new entries to the reader."""
        try:
            self._catch_up()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error

    def check(self) -> None:
        """SQLite's own check of the file."""
        try:
            report = [row[0] for row in self.db.execute("PRAGMA integrity_check(1)")]
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
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

    def fingerprint(self, data: bytes) -> bytes:
        """What only this ledger's key makes of some bytes."""
        return hmac.digest(self._secret, data, "sha256")

    def blob(self, name: str, digest: str) -> bytes:
        """Stored bytes whose digest an entry holds."""
        try:
            row = self.db.execute("SELECT data FROM blobs WHERE name = ?", (name,)).fetchone()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
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
            raise _wrapped(self.path, error) from error

    def _catch_up(self, *, first: bool = False) -> None:
        """Verifies the entries that the reader has not seen and hands them over, then compares with the anchor. The
        anchor is read first: another process may commit in between, and then the chain is rightly ahead."""
        anchor, heads = _read_anchor(self.path), self._heads
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
        if anchor is None:
            if not (first and len(heads) == 1):
                raise LedgerError(
                    f"The anchor of the ledger {self.path} is missing; restore {_anchor_path(self.path)}."
                )
            return
        seq, head = anchor
        if seq > len(heads):
            raise LedgerError(
                f"The ledger {self.path} is older than its anchor ({len(heads)} of {seq} entries); restore it."
            )
        if heads[seq - 1] != head:
            raise LedgerError(f"The ledger {self.path} is not the one its anchor belongs to; restore it.")

    def _write_anchor(self) -> None:
        """Moves the anchor forward; the caller holds the lock. Atomic: a crash leaves the old one or the new one."""
        anchor = _read_anchor(self.path)
        seq = len(self._heads)
        if anchor is not None and anchor[0] >= seq:
            return
        final = _anchor_path(self.path)
        draft = final.with_name(final.name + ".new")
        text = json.dumps({"version": VERSION, "seq": seq, "head": self._heads[-1].hex()}) + "\n"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            if self.lasting:
                os.fsync(file.fileno())
        os.replace(draft, final)
        if anchor is not None or not self.lasting:
            return  # a power cut that undoes the renaming leaves the anchor before, which the ledger may be ahead of
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


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


def _anchor_path(path: Path) -> Path:
    return path.with_name(path.name + ".anchor")


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


def _read_anchor(path: Path) -> tuple[int, bytes] | None:
    try:
        data = json.loads(_anchor_path(path).read_text(encoding="ascii"))
        seq, head = data["seq"], bytes.fromhex(data["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"The anchor {_anchor_path(path)} is damaged; restore it.") from error
    if not isinstance(seq, int) or seq < 1:
        raise LedgerError(f"The anchor {_anchor_path(path)} is damaged; restore it.")
    return seq, head


def _link(secret: bytes, previous: bytes, fields: tuple[Any, Any, Any, Any]) -> bytes:
    return hmac.digest(secret, previous + repr(fields).encode(), "sha256")


def _wrapped(path: Path, error: Exception) -> LedgerError:
    """In SQLite's own words ('database or disk is full'), without the cell that some of them quote."""
    reason = str(error).partition(" with text ")[0] if isinstance(error, sqlite3.Error) else "its text is damaged"
    return LedgerError(f"The ledger {path} cannot be used: {reason}.")
