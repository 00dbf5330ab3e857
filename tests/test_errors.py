"""Errors that people see, and what a log may say of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from prismfl.data.schema import Column
from prismfl.errors import (
    BoundaryError,
    BudgetError,
    CellError,
    DiskFullError,
    LedgerError,
    PrismError,
    UserError,
    WireError,
    words_for_log,
)


@pytest.mark.parametrize(
    ("kind", "exit_code", "code"),
    [
        (PrismError, 1, "error"),
        (UserError, 2, "user-error"),
        (BudgetError, 3, "budget-refused"),
        (LedgerError, 3, "ledger-damaged"),
        (DiskFullError, 3, "disk-full"),
        (BoundaryError, 1, "boundary"),
        (WireError, 1, "malformed"),
    ],
)
def test_exit_codes_and_codes(kind: type[PrismError], exit_code: int, code: str) -> None:
    assert (kind.exit_code, kind.code) == (exit_code, code)
    assert issubclass(kind, PrismError)


def test_a_mistake_may_be_told_with_its_place() -> None:
    assert str(UserError("Bad.").within("file.csv")) == "file.csv: Bad."


def test_a_cell_keeps_both_its_forms() -> None:
    error = CellError("Got '99y'.", without_values="Got something.").within("file.csv")
    assert isinstance(error, CellError)
    assert str(error) == "file.csv: Got '99y'."
    assert error.without_values == "file.csv: Got something."
    assert words_for_log(error) == "file.csv: Got something."


def caught(call: object) -> BaseException:
    assert callable(call)
    try:
        call()
    except Exception as error:  # whatever it raises is what the log is asked about
        return error
    raise AssertionError("nothing was raised")


def test_our_own_words_about_settings_are_logged() -> None:
    error = caught(lambda: (_ for _ in ()).throw(BudgetError("Refused: over the cap.")))
    assert words_for_log(error) == "Refused: over the cap."


def test_what_a_data_reader_raises_is_logged_without_its_words() -> None:
    error = caught(lambda: Column("age", min=3, max=1))
    said = words_for_log(error)
    assert said.startswith("UserError in prismfl.data.column, line ")
    assert "age" not in said


def test_what_a_library_raises_is_logged_without_its_words() -> None:
    said = words_for_log(caught(lambda: int("secret")))
    assert said == "ValueError outside prismfl (its words may quote a record and are not logged)"


def test_a_crash_of_a_sites_process_says_no_word_of_its_own() -> None:
    code = "from prismfl.errors import quiet_crashes; quiet_crashes(); raise ValueError('secret')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "secret" not in found.stderr
    assert found.stderr.startswith("prismfl: ValueError outside prismfl")
