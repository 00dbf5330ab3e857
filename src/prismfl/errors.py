"""Errors that people see: one clear line each, with the exit code the command ends with, and what a log may say."""

from __future__ import annotations

import sys
import threading
import traceback


class PrismError(Exception):
    """Base of every error that prismfl raises on purpose."""

    exit_code = 1
    code = "error"


class UserError(PrismError, ValueError):
    """A mistake in what the user gave: a file, an option, a value."""

    exit_code = 2
    code = "user-error"

    def within(self, where: object) -> UserError:
        """The same mistake with the place it lies in, the file say, in front."""
        return UserError(f"{where}: {self}")


class BudgetError(PrismError):
    """The ledger refuses: the privacy budget would be exceeded."""

    exit_code = 3
    code = "budget-refused"


class LedgerError(PrismError):
    """The ledger file is damaged, older than its anchor, or missing although its anchor exists."""

    exit_code = 3
    code = "ledger-damaged"


class DiskFullError(LedgerError):
    """No room to write to: nothing is damaged, and whatever was asked for can be asked again once there is some."""

    code = "disk-full"


class BoundaryError(PrismError):
    """A method tried to take something out of a site that it did not declare or that is not fit to leave."""

    code = "boundary"


class WireError(PrismError):
    """Bytes that came from elsewhere are not a well-formed message."""

    code = "malformed"


class CellError(UserError):
    """A mistake in a cell of the user's own data.

    `str()` quotes the cell, for whoever sits before the data. `without_values` says the same with file, column and row
    but without the cell's content, for logs: `CellError("Expected a number in column 'age', row 7, got '99y'.",
    without_values="Expected a number in column 'age', row 7.")`. Of what data readers raise, a site's log tells the
    words of this class alone (see `words_for_log`).
    """

    def __init__(self, message: str, *, without_values: str) -> None:
        super().__init__(message)
        self.without_values = without_values

    def within(self, where: object) -> CellError:
        """The same error, with both of its texts preceded by where it happened."""
        return CellError(f"{where}: {self}", without_values=f"{where}: {self.without_values}")


def words_for_log(error: BaseException) -> str:
    """What a log may say of an error: where it happened, and its own words only if they cannot quote a record.

    Our own errors speak of options, names and sizes. What was raised while data were read may quote a cell, and so may
    the words of any library: of those only the type and the place in our source are told.
    """
    if isinstance(error, CellError):
        return error.without_values
    frames = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [(name, line) for name, line in frames if str(name).partition(".")[0] == "prismfl"]
    reads_data = any(name.startswith("prismfl.data") for name, _ in ours)
    if isinstance(error, PrismError) and not reads_data:
        return str(error)
    place = "in {}, line {}".format(*ours[-1]) if ours else "outside prismfl"
    return f"{type(error).__name__} {place} (its words may quote a record and are not logged)"


def quiet_crashes() -> None:
    """In a process of a site: an exception that nobody catches leaves its type and place on stderr, not its words."""

    def say(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            sys.stderr.write(f"prismfl: {words_for_log(error)}\n")

    sys.excepthook = lambda kind, error, trace: say(error)
    threading.excepthook = lambda told: say(told.exc_value)
    sys.unraisablehook = lambda told: say(told.exc_value)
