"""A ledger as a whole: no copy, restored anywhere, gives budget back."""

from __future__ import annotations

import errno
import json
import shutil
import stat
from pathlib import Path

import pytest

from prismfl.errors import BudgetError, DiskFullError, LedgerError, UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import care, chain
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.keeping import set_cap

ONE = Cost.gaussian(5.0)
CAP = Cap(2.0, 1e-5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "home" / "ledger.sqlite") as ledger:
        ledger.dataset("patients", records=[b"1", b"2"], cap=CAP)
        return ledger.path


def spend(path: Path, run: str) -> None:
    with Ledger.open(path, create=False) as ledger:
        ledger.reserve(run, "ds1", ONE)
        ledger.release(run, "ds1", f"{run}/north/0", ONE, b"payload")


def lose(path: Path) -> None:
    """The disk is gone, the anchor with it."""
    shutil.rmtree(path.parent)


def test_a_backup_is_whole_closed_and_leaves_the_ledger_alone(path: Path, tmp_path: Path) -> None:
    spend(path, "a")
    copied = care.backup(path, tmp_path / "copy")
    assert (copied.entries, copied.head) == care.head_of(path)
    assert sorted(file.name for file in (tmp_path / "copy").iterdir()) == [
        "backup.json",
        "ledger.sqlite",
        "ledger.sqlite.anchor",
    ]
    for file in (tmp_path / "copy", *(tmp_path / "copy").iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    spend(path, "b")
    with pytest.raises(UserError, match="exists already"):
        care.backup(path, tmp_path / "copy")
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be used"):
        care.backup(path, tmp_path / "file" / "copy")


def test_an_old_copy_does_not_give_budget_back(path: Path, tmp_path: Path) -> None:
    """The bug: a restore that asks nobody. Both at the head kept elsewhere and at the anchor that was left."""
    care.keep_head(path, tmp_path / "elsewhere")
    spend(path, "a")
    care.backup(path, tmp_path / "old")
    spend(path, "b")
    for everything in (False, True):
        lose(path) if everything else path.unlink()
        with pytest.raises(LedgerError, match=r"older than the head that is kept \(5 of 7 entries\)"):
            care.restore(tmp_path / "old", path)
    assert not path.exists()
    done = care.restore(tmp_path / "old", path, lost=True)
    assert done.lost == 2
    with pytest.raises(BudgetError, match="2 entries of this ledger are lost"):
        spend(path, "c")
    with Ledger.open(path) as ledger:  # what a site does at every request: its own cap is no decision on the loss
        ledger.set_cap("ds1", Cap(9.0, 1e-5))
        with pytest.raises(BudgetError, match="entries of this ledger are lost"):
            ledger.reserve("d", "ds1", ONE)
        new = ledger.dataset("others", records=[b"9"])
        with pytest.raises(BudgetError, match="entries of this ledger are lost"):
            ledger.reserve("d", new, ONE)
    set_cap(path, "ds1", 9.0)
    spend(path, "c")


def test_the_newest_copy_is_restored_and_goes_on(path: Path, tmp_path: Path) -> None:
    care.keep_head(path, tmp_path / "elsewhere")
    spend(path, "a")
    care.backup(path, tmp_path / "copy")
    lose(path)
    done = care.restore(tmp_path / "copy", path)
    assert done.lost == 0
    spend(path, "b")
    with Ledger.open(path) as ledger:
        assert [charge.run for charge in ledger.charges()] == ["a", "b"]
        assert ledger.history()[-4].kind == "restore"
    noted = json.loads((tmp_path / "elsewhere").read_text())
    assert (noted["seq"], noted["head"]) == care.head_of(path)


def test_files_put_back_by_hand_are_found_out_by_the_head_kept_elsewhere(path: Path, tmp_path: Path) -> None:
    care.keep_head(path, tmp_path / "elsewhere")
    shutil.copytree(path.parent, tmp_path / "by hand")
    spend(path, "a")
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "by hand", path.parent)
    with pytest.raises(LedgerError, match="older than its head kept at"):
        Ledger.open(path)
    (tmp_path / "elsewhere").unlink()
    with pytest.raises(LedgerError, match=r"head kept at .* is missing"):
        Ledger.open(path)


def test_without_a_head_nobody_can_tell(path: Path, tmp_path: Path) -> None:
    care.backup(path, tmp_path / "copy")
    spend(path, "a")
    lose(path)
    with pytest.raises(LedgerError, match="nobody can tell what came after the 2 entries"):
        care.restore(tmp_path / "copy", path)
    care.restore(tmp_path / "copy", path, lost=True)
    with pytest.raises(BudgetError, match="lost"):
        spend(path, "b")


def test_a_moved_ledger_spends_in_one_place(path: Path, tmp_path: Path) -> None:
    spend(path, "a")
    care.move(path, tmp_path / "stick")
    with pytest.raises(BudgetError, match="moved to another machine"):
        spend(path, "b")
    there = tmp_path / "there" / "ledger.sqlite"
    assert care.restore(tmp_path / "stick", there).lost == 0
    spend(there, "b")
    with pytest.raises(UserError, match="there and whole"):
        care.restore(tmp_path / "stick", path)
    with pytest.raises(UserError, match="exists already"):
        care.move(there, tmp_path / "stick")
    care.move(there, tmp_path / "back")
    care.restore(tmp_path / "back", path)
    spend(path, "c")
    with Ledger.open(path) as ledger:
        assert [charge.run for charge in ledger.charges()] == ["a", "b", "c"]


def test_a_stick_restored_twice_is_found_out_by_the_head(path: Path, tmp_path: Path) -> None:
    care.move(path, tmp_path / "stick")
    head = tmp_path / "share" / "head"
    head.parent.mkdir()
    head.write_text((path.parent / "ledger.sqlite.anchor").read_text())
    care.restore(tmp_path / "stick", tmp_path / "one" / "ledger.sqlite", head=head)
    with pytest.raises(LedgerError, match="older than the head that is kept"):
        care.restore(tmp_path / "stick", tmp_path / "two" / "ledger.sqlite", head=head)


def test_a_ledger_that_is_there_is_not_replaced_but_a_damaged_one_is_set_aside(path: Path, tmp_path: Path) -> None:
    spend(path, "a")
    care.backup(path, tmp_path / "copy")
    with pytest.raises(UserError, match="there and whole, with 4 entries"):
        care.restore(tmp_path / "copy", path)
    path.write_bytes(b"not a database" * 400)
    care.restore(tmp_path / "copy", path)
    assert list(path.parent.glob("ledger.sqlite.before-*"))
    spend(path, "b")


def test_what_is_no_copy_of_this_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no backup of a ledger"):
        care.restore(tmp_path, path)
    with Ledger.open(tmp_path / "other" / "ledger.sqlite") as other:
        other.dataset("x", records=[b"7"])
    care.backup(tmp_path / "other" / "ledger.sqlite", tmp_path / "copy")
    path.unlink()
    with pytest.raises(LedgerError, match="of another ledger than the head"):
        care.restore(tmp_path / "copy", path, lost=True)
    manifest = tmp_path / "copy" / "backup.json"
    good = manifest.read_text()
    manifest.write_text(good.replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(LedgerError, match="is damaged"):
        care.restore(tmp_path / "copy", path)
    manifest.write_text(good.replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UserError, match="another version of prismfl"):
        care.restore(tmp_path / "copy", path)


def test_a_head_that_cannot_be_kept_or_found_is_one_clear_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be kept at"):
        care.keep_head(path, tmp_path / "nowhere" / "head")
    care.keep_head(path, tmp_path / "head")
    with Ledger.open(tmp_path / "other" / "ledger.sqlite") as other:
        pass
    with pytest.raises(LedgerError, match="of another ledger, or ahead"):
        care.keep_head(other.path, tmp_path / "head")
    care.backup(path, tmp_path / "copy")
    lose(path)
    (tmp_path / "head").unlink()
    with pytest.raises(LedgerError, match="is not there; mount it"):
        care.restore(tmp_path / "copy", path)


def test_a_full_disk_is_no_damage(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain_note = chain.write_note

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    care.backup(path, tmp_path / "copy")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(DiskFullError, match="is full"):
            care.restore(tmp_path / "copy", tmp_path / "new" / "ledger.sqlite")
        assert list((tmp_path / "new").iterdir()) == []
        patch.setattr(chain, "write_note", full)
        with pytest.raises(DiskFullError, match="is full"):
            care.backup(path, tmp_path / "second")
        assert not (tmp_path / "second").exists()
        with pytest.raises(DiskFullError, match="is full"):
            spend(path, "a")
        with pytest.raises(DiskFullError, match="is full"):
            Ledger.open(tmp_path / "fresh" / "ledger.sqlite")
        patch.setattr(chain, "write_note", chain_note)
        patch.setattr(care, "make_folder", full)
        with pytest.raises(DiskFullError, match="is full"):
            care.backup(path, tmp_path / "third")
        with pytest.raises(DiskFullError, match="is full"):
            care.move(path, tmp_path / "stick")
    spend(path, "b")  # the move came to nothing: the ledger goes on here
    assert not list(tmp_path.glob(".*part"))
