"""Errors that people see: one clear line each, with the exit code the command ends with."""


class PrismError(Exception):
    """Base of every error that prismfl raises on purpose."""

    exit_code = 1
    code = "error"


class UserError(PrismError, ValueError):
    """A mistake in what the user gave: a file, an option, a value."""

    exit_code = 2
    code = "user-error"


class BudgetError(PrismError):
    """The ledger refuses: the privacy budget would be exceeded."""

    exit_code = 3
    code = "budget-refused"


class LedgerError(PrismError):
    """The ledger file is damaged, older than its anchor, or missing although its anchor exists."""

    exit_code = 3
    code = "ledger-damaged"


class BoundaryError(PrismError):
    """A method tried to take something out of a site that it did not declare or that is not fit to leave."""

    code = "boundary"


class WireError(PrismError):
    """Bytes that came from elsewhere are not a well-formed message."""

    code = "malformed"
