"""What a column of cells looks like: a number and its signs, a choice, a date and its format, ids, free text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any, Literal

from prismfl.data.cells import LONGEST, instant, is_missing, number_of, plain

Look = Literal["empty", "date", "time", "text", "binary", "categorical", "integer", "number", "comma"]
MOST_CATEGORIES = 60
FEW = 20
LONG, APART = 4, 20  # digits of a code, and how far apart few of them are as a rule
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?")
_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_ID = re.compile(r"(.*[^a-z])?(id|nr|no|uuid|guid|key|mrn|pid|ssn|identifier)", re.IGNORECASE)
# (decimal, thousands), the likelier first where cells leave it open.
SIGNS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (",", " "), (".", "'"))
DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d", "%d.%m.%y")
CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")


def look_of(values: Sequence[Any]) -> Look:
    """The type that a column of cells looks like."""
    filled = [v for v in values if not is_missing(v)]
    cells = [plain(v) for v in filled]
    if not cells:
        return "empty"
    distinct = set(cells)
    numbers = [number_of(c) for c in distinct]
    if all(n is not None for n in numbers):
        if len(distinct) <= 2:
            return "binary"
        return "integer" if all(float(n or 0).is_integer() for n in numbers) else "number"
    if all(instant(v) is not None for v in filled if not isinstance(v, str)) and _mostly(_DATE, distinct):
        return "date"
    if all(_TIME.fullmatch(c) for c in distinct):
        return "time"
    if len(distinct) > 2 and signs_of(distinct) is not None:
        return "comma"
    if len(distinct) > min(MOST_CATEGORIES, max(2, len(cells) // 2)):
        return "text"
    return "binary" if len(distinct) == 2 else "categorical"


def are_codes(values: Sequence[Any]) -> bool:
    """Whether a few whole numbers are rather codes, such as postal ones: one of them begins with 0, or they are long,
    of one length and far apart."""
    cells = {plain(v) for v in values if not is_missing(v)}
    few = 2 < len(cells) <= MOST_CATEGORIES and all(cell.isdecimal() and cell.isascii() for cell in cells)
    if not few or any(len(cell) > 1 and cell[0] == "0" for cell in cells):
        return few
    long = len({len(cell) for cell in cells}) == 1 and len(min(cells)) >= LONG
    return long and int(max(cells)) - int(min(cells)) > APART * len(cells)


def signs_of(cells: Collection[str]) -> tuple[str, str] | None:
    """The decimal sign and the one between thousands in which all cells are numbers, None where there is none."""
    for decimal, thousands in SIGNS:
        whole = rf"(\d{{1,3}}({re.escape(thousands)}\d{{3}})+|\d+)" if thousands else r"\d+"
        form = re.compile(rf"[+-]?{whole}({re.escape(decimal)}\d+)?([eE][+-]?\d+)?", re.ASCII)
        if all(len(cell) <= LONGEST and form.fullmatch(cell.replace("\u00a0", " ")) for cell in cells):
            return decimal, thousands
    return None


def decimals_of(cells: Iterable[str], decimal: str) -> int:
    """The most digits behind the decimal sign."""
    return min(6, max((len(cell.partition(decimal)[2]) for cell in cells if "e" not in cell.lower()), default=0))


def format_of(values: Sequence[Any], *, clock: bool = False) -> str | None:
    """The format in which all cells are dates (or times); "" for ISO, None where there is none."""
    filled = {v for v in values if not is_missing(v)}
    if all(instant(v, clock=clock) is not None for v in filled):
        return ""
    forms = ("%H:%M", "%H:%M:%S") if clock else tuple(day + rest for day, rest in product(DAYS, CLOCKS))
    return next((f for f in forms if all(instant(v, f, clock=clock) is not None for v in filled)), None)


def step_of(moments: Iterable[float]) -> str:
    """The longest step that all moments lie on."""
    found = list(moments)
    steps = (("day", 86400), ("hour", 3600), ("minute", 60))
    return next((name for name, length in steps if all(m % length == 0 for m in found)), "second")


def is_id(name: str, values: Sequence[Any]) -> bool:
    """Whether a column looks like ids: a different one in every row, and a name or a form that says so."""
    cells = [plain(v) for v in values]
    if len(cells) <= FEW or len(set(cells)) < len(cells) or any(isinstance(v, float) and v % 1 for v in values):
        return False
    codes = all(" " not in cell and number_of(cell) is None and _DATE.fullmatch(cell) is None for cell in cells)
    return codes or _ID.fullmatch(name.strip()) is not None


def constant_in(ids: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether a column is the same in all rows of a unit, in a table in which that says something."""
    known: dict[str, str] = {}
    same = all(known.setdefault(plain(one), plain(value)) == plain(value) for one, value in zip(ids, values))
    return same and len(known) < len(values) and len(set(known.values())) > 1


def _mostly(form: re.Pattern[str], cells: Collection[str]) -> bool:
    return sum(form.fullmatch(cell) is not None for cell in cells) > 0.8 * len(cells)
