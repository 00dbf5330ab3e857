"""Ids of people and places in one form, so that one person written in two ways is one privacy unit.

Taking two people for one costs some utility; taking one person for two breaks the promise. So what may be the same is
taken for the same: signs that nobody sees, the width of letters, kinds of blanks, dashes and digits, and numbers by
their value. Capitals stay: they are seen.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal, DecimalException
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.cells import MISSING
from prismfl.data.faults import Faults
from prismfl.errors import CellError, UserError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TAG = b"prismfl unit\0"
LONG = 5000
# Drawn as nothing, though Unicode counts them among letters and marks.
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)


def canonical_text(text: str) -> str:
    """NFKC without unseen characters, with one kind of blank, dash and digit, stripped.

    Removed: categories Cf and Cc (but tabs and line ends are blanks), variation selectors and fillers. Blanks of any
    kind and number become one space, dashes and the minus sign "-", decimal digits of any script 0 to 9.
    """
    if (text.isascii() and text.isprintable() and "  " not in text) or len(text) > LONG:
        return text.strip()  # a text of many pages is compared as it is: to normalise it may take minutes
    before, seen = None, text
    while seen != before:  # what was unseen may have kept a letter and its accent apart
        before, seen = seen, "".join(map(_character, unicodedata.normalize("NFKC", seen)))
    return " ".join(seen.split())


def cache_key(value: object) -> object:
    """A key under which a column's repeated cells are found again; True is not 1 here."""
    return type(value), value if type(value).__hash__ is not None else str(value)


def _character(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category in ("Zs", "Zl", "Zp"):
        return " "
    if category in ("Cf", "Cc") or character in _UNSEEN:
        return ""
    if category == "Pd" or character == "\u2212":
        return "-"
    return str(unicodedata.decimal(character)) if category == "Nd" else character


def canonical_id(value: object) -> str:
    """An id in one form: text as by `canonical_text`; what is nothing but a number is compared by its value.

    So "1", "01", " 1 ", "1.0", "1e0", 1 and 1.0 are one id, and so are "1E5" and "100000". Numbers in text and whole
    numbers are exact, whatever their length. A float that is no exactly known whole number (2**53 and more, or a
    fraction) is refused: it may already stand for several people.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, float | np.floating):
        whole = float(value)
        exact = 2.0 ** (np.finfo(type(value)).nmant + 1)
        if not (whole.is_integer() and abs(whole) < exact):
            raise UserError(
                f"Expected whole numbers below {exact:.0f} or text as ids, got a fraction or a number that a float "
                "cannot tell from its neighbours; save the ids (--unit) as text."
            )
        return str(int(whole))
    text = canonical_text("" if value is None else str(value))
    return canonical_number(text) or text


def canonical_number(text: str) -> str | None:
    """A number in text by its exact value, None for other text."""
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except DecimalException:  # an exponent beyond all bounds
        return None
    if not isinstance(exponent, int):
        return None
    kept = "".join(map(str, digits)).lstrip("0")
    short = kept.rstrip("0")
    exponent += len(kept) - len(short)
    if not short:
        return "0"
    # A large exponent stays one: 1e999999 would else be a megabyte.
    shown = short + "0" * exponent if 0 <= exponent <= 40 else f"{short}e{exponent}"
    return f"-{shown}" if sign else shown


def id_column(
    values: Sequence[object] | npt.NDArray[Any], name: str, faults: Faults | None = None
) -> npt.NDArray[np.str_]:
    """An id column in canonical form; an empty cell would silently merge strangers into one unit."""
    noted = faults or Faults()
    known: dict[object, str | UserError] = {}
    found = []
    for row, value in enumerate(values):
        key = cache_key(value)
        if key not in known:
            known[key] = _id_or_error(value)
        one = known[key]
        if isinstance(one, UserError) or one.lower() in MISSING:
            words = f"Empty or NaN cell in id column '{name}', row {row + 1}; every record needs an id."
            if isinstance(one, UserError):
                words = f"Id column '{name}', row {row + 1}: {one}"
            noted.note(row, "it has no safe id", CellError(words, without_values=words), place=f"column '{name}'")
            one = ""
        found.append(one)
    return np.array(found, dtype=np.str_)


def _id_or_error(value: object) -> str | UserError:
    try:
        return canonical_id(value) if value == value else ""  # NaN is an empty cell
    except UserError as error:
        return error


def unit_code(identity: str) -> int:
    """63 bits that follow from a canonical id alone, never from which other ids there are."""
    return int.from_bytes(hashlib.sha256(_TAG + identity.encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


def codes_of(ids: Iterable[str]) -> npt.NDArray[np.int64]:
    """The code of each canonical id."""
    known: dict[str, int] = {}
    return np.array([known[i] if i in known else known.setdefault(i, unit_code(i)) for i in ids], dtype=np.int64)


def unit_codes(values: Sequence[object] | npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    """The code of each record's unit, from the raw column `name`."""
    return codes_of(id_column(values, name))
