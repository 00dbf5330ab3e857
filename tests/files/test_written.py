"""Values as TOML text: what is written is what is read."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from prismfl.files.written import toml_value

VALUES = st.text() | st.integers(-(2**60), 2**60) | st.booleans()


@given(VALUES | st.lists(VALUES, max_size=4) | st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read(value: object) -> None:
    assert tomllib.loads(f"key = {toml_value(value)}\n")["key"] == value
