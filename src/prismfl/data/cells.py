"""Cells of a table as values: text, numbers as they are written in other countries, dates and times, empty cells.

Everything goes by the cell and the declaration alone, so that no record changes how another one is read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "<na>"})
LONGEST = 64  # characters of a cell that can be a number or a date
EPOCH = datetime(1970, 1, 1)
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_STEP = re.compile(r"(?:([1-9]\d{0,5})\s+)?(second|minute|hour|day|week)s?", re.ASCII)
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2009\u202f"), " ")


def listed(names: Mapping[str, object] | Sequence[str], most: int = 20) -> str:
    """Names for a message, cut where the line would grow too long."""
    shown = list(names)
    return ", ".join(shown[:most]) + (f", ... ({len(shown)} in all)" if len(shown) > most else "")


def shown(text: str, most: int = 40) -> str:
    """A cell for a message: on one line, printable, and cut."""
    cut = text if len(text) <= most else f"{text[:most]}..."
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut)


def plain(value: object) -> str:
    """A cell as text, so that 1, 1.0 and '1' name the same category."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()


def is_missing(value: object) -> bool:
    """Whether a cell stands for a missing value."""
    return plain(value).lower() in MISSING


class Names:
    """The number of each declared name: as text, or by the value of what is nothing but a number.

    One cell of text makes a whole column text ("1.0" where 1 stood): that must not rename the others.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._codes = {name: code for code, name in enumerate(names)}
        values = Counter(value_of(name) for name in names)
        self._by_value = {v: code for name, code in self._codes.items() if values[v := value_of(name)] == 1}
        self._by_value.pop(None, None)

    def code(self, value: object) -> int | None:
        """The number of a cell's name, None for one that is not declared."""
        text = plain(value)
        code = self._codes.get(text)
        return self._by_value.get(value_of(text)) if code is None and self._by_value else code


def value_of(text: str) -> float | None:
    """The value of text that is nothing but a finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def number_of(value: object, decimal: str = ".", thousands: str = "") -> float | None:
    """A cell as a number (which may not be finite), None where it is none: with the declared signs in text."""
    if isinstance(value, str) and (decimal != "." or thousands):
        text = value.translate(_BLANKS).strip()
        text = text.replace(thousands, "") if thousands else text
        if decimal != "." and "." in text:
            return None
        value = text.replace(decimal, ".")
    if isinstance(value, str) and len(value) > LONGEST:
        return None
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number is told by the exception
    except (TypeError, ValueError, OverflowError):
        return None


def step_seconds(step: str) -> float | None:
    """The length of a step such as "day" or "15 minutes", None where it is none."""
    found = _STEP.fullmatch(step.strip().lower())
    return None if found is None else int(found[1] or 1) * SECONDS[found[2]]


def instant(value: object, form: str | None = None, *, clock: bool = False) -> float | None:
    """Seconds from 1970, or since midnight for a `clock`, of a date or of text: by the declared form, else by ISO."""
    if isinstance(value, str):
        value = _read(value.strip(), form, clock=clock)
    if isinstance(value, datetime):
        whole = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return _since_midnight(whole.time()) if clock else (whole - EPOCH).total_seconds()
    if isinstance(value, date) and not clock:
        return (datetime.combine(value, time()) - EPOCH).total_seconds()
    return _since_midnight(value) if isinstance(value, time) and clock else None


def _read(text: str, form: str | None, *, clock: bool) -> object:
    if len(text) > LONGEST:
        return None
    try:
        if form is not None:
            return datetime.strptime(text, form)
        return time.fromisoformat(text) if clock else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None


def _since_midnight(at: time) -> float:
    return at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6


def moment_words(seconds: float, form: str) -> str:
    """Seconds from 1970 in a declared form."""
    return (EPOCH + timedelta(seconds=seconds)).strftime(form)
