"""The chain of entries on disk: what a file that cannot be read, or that another version wrote, leads to."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from prismfl.errors import LedgerError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import chain
from prismfl.privacy.ledger.book import Ledger


def test_a_ledger_in_no_folder_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger.open(tmp_path / "file" / "site.ledger")


def test_a_ledger_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "site.ledger"
    Ledger.open(path).shut()
    monkeypatch.setattr(chain, "VERSION", chain.VERSION + 1)
    with pytest.raises(LedgerError, match="another version"):
        Ledger.open(path)


def test_tables_that_vanish_under_an_open_ledger_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    with Ledger.open(path) as ledger:
        data = ledger.dataset("a", records=[b"1"])
        ledger.reserve("run", data, Cost.gaussian(2.0))
        ledger.release("run", data, "run/0", Cost.gaussian(2.0), b"x")
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE blobs")
        other.close()
        with pytest.raises(LedgerError, match=r"damaged|cannot"):
            ledger.outbox("run/0")
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE entries")
        other.close()
        with pytest.raises(LedgerError, match=r"damaged|cannot"):
            ledger.history()


def test_a_file_that_is_overwritten_fails_its_check(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    with Ledger.open(path) as ledger:
        ledger.dataset("a", records=[b"1"])
        ledger._chain.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.write_bytes(b"not a database at all" * 400)
        ledger._chain.db.execute("PRAGMA shrink_memory")
        with pytest.raises(LedgerError, match=r"damaged|cannot"):
            ledger._chain.check()


def test_a_file_that_cannot_grow_is_a_full_disk_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | (19 << 8)
    room = os.statvfs(tmp_path)
    assert chain.wrapped(tmp_path / "l", error).code == "ledger-damaged"
    monkeypatch.setattr(os, "statvfs", lambda place: os.statvfs_result((*room[:4], 0, *room[5:])))
    assert chain.wrapped(tmp_path / "l", error).code == "disk-full"


def test_room_is_not_given_back_in_the_midst_of_a_transaction(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "site.ledger")
    with ledger, pytest.raises(LedgerError, match="cannot be used"), ledger._chain.transaction():
        ledger.shrink()
