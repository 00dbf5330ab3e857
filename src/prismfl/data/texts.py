"""Text as bytes of a declared length, by one rule for every text there is: no text is an error.

A cell becomes text (bytes as UTF-8, or as UTF-16 where its mark stands first, what is neither as the replacement sign;
None, NaN and blanks as no text), in the composed form of Unicode; control and invisible signs become blanks, runs of
blanks one. Then it is cut at a whole character to the declared bytes and filled up with zeros. No text at all is a row
of zeros. Of a very long cell only the first so many characters are looked at, so that ten megabytes cost no more than a
page.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
LEAST, MOST = 8, 20_000  # bytes that may be declared
LOOKED = 8  # characters of a cell that are looked at, for each declared byte
MARKS = 30  # accents in a row that are kept
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def cleaned(cell: object, most: int) -> str:
    """A cell as plain text of at most `most` bytes of UTF-8."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    looked = most * LOOKED
    if isinstance(cell, bytes | bytearray | memoryview):
        raw = bytes(cell[: 4 * looked])
        text = raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8", "replace")
    else:
        text = cell if isinstance(cell, str) else str(cell)
    text = text[:looked]
    text = text if text.isascii() else unicodedata.normalize("NFC", _few_marks(text))
    if not text.isascii() or not text.isprintable():
        text = "".join(" " if unicodedata.category(c) in _HIDDEN else c for c in text)
    raw = " ".join(text.split()).encode("utf-8", "replace")[:most]
    return raw.decode("utf-8", "ignore").rstrip()


def _few_marks(text: str) -> str:
    """At most `MARKS` accents in a row: to put n of them in order takes n * n steps."""
    found, row = [], 0
    for sign in text:
        row = row + 1 if unicodedata.combining(sign) else 0
        if row <= MARKS:
            found.append(sign)
    return "".join(found)


def text_bytes(cells: Iterable[object], most: int) -> Bytes:
    """Texts as rows of `most` bytes, filled up with zeros."""
    rows = [np.frombuffer(cleaned(cell, most).encode(), dtype=np.uint8) for cell in cells]
    found = np.zeros((len(rows), most), dtype=np.uint8)
    for row, raw in zip(found, rows):
        row[: len(raw)] = raw
    return found


def bytes_text(row: Bytes) -> str:
    """The text of a row of bytes; what is no UTF-8 is the replacement sign."""
    return row.tobytes().split(b"\0", 1)[0].decode("utf-8", "replace")
