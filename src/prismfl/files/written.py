"""Values as TOML text."""

from __future__ import annotations

import json
import re
from typing import Any


def toml_value(value: Any) -> str:
    """A text, number, truth value, or a list of them, as TOML writes it."""
    # JSON text, numbers, booleans and lists of them are TOML as they are, but for letters beyond 16 bits, which JSON
    # would write as two, and for DEL. 1e-05 is a TOML float as well.
    if isinstance(value, float):
        return repr(value)
    return re.sub("\x7f", r"\\u007f", json.dumps(value, ensure_ascii=False))
