"""The egress log: each row follows from the one before, whoever writes, and whatever was torn by a kill."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.site import egress
from prismfl.site.egress import EgressLog


def filled(folder: Path, rows: int = 4) -> EgressLog:
    log = EgressLog(folder)
    for i in range(rows):
        log.word("run", i, "ready")
    return log


def test_rows_are_linked_and_the_head_stands_for_all(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.verify() == 4
    rows = log.rows()
    assert [row["previous"] for row in rows[1:]] == [row["chain"] for row in rows[:-1]]
    assert log.head() == rows[-1]["chain"]
    assert EgressLog(tmp_path / "none").verify() == 0


@pytest.mark.parametrize("how", ["changed", "taken out", "without a link", "swapped"])
def test_a_row_that_was_touched_is_found(tmp_path: Path, how: str) -> None:
    log = filled(tmp_path)
    lines = log.path.read_text().splitlines()
    if how == "changed":
        lines[1] = lines[1].replace('"round": 1', '"round": 7')
    elif how == "taken out":
        del lines[1]
    elif how == "without a link":
        lines[1] = json.dumps({"what": "word", "time": "now", "run": "x", "round": 0, "word": "ready"})
    else:
        lines[1], lines[2] = lines[2], lines[1]
    log.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="does not follow from the rows before it"):
        log.verify()


def test_a_log_of_before_goes_on_and_its_old_rows_are_held_as_well(tmp_path: Path) -> None:
    old = json.dumps({"what": "word", "time": "2026-01-01T00:00:00", "run": "x", "round": 0, "word": "ready"})
    (tmp_path / "egress.jsonl").write_text(f"{old}\n{old}\n")
    log = filled(tmp_path)
    assert log.verify() == 6
    log.path.write_text(log.path.read_text().replace('"round": 0', '"round": 9', 1))
    with pytest.raises(UserError, match="Row 3"):
        log.verify()


def test_a_torn_line(tmp_path: Path) -> None:
    """What a kill has left of a row costs no other row."""
    log = filled(tmp_path)
    with log.path.open("a") as file:
        file.write('{"what": "word", "ru')
    log.word("run", 9, "done")
    assert log.verify() == 5
    assert [row["round"] for row in log.rows()] == [0, 1, 2, 3, 9]


def test_the_last_row_is_found_however_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "TAIL", 30)
    assert filled(tmp_path).verify() == 4


def test_many_writers_make_one_chain(tmp_path: Path) -> None:
    threads = [threading.Thread(target=filled, args=(tmp_path, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert EgressLog(tmp_path).verify() == 40
