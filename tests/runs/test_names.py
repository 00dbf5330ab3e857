"""Names of sites."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.errors import UserError
from prismfl.runs.names import RefusedError, check_name


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}", fullmatch=True))
def test_good_names_pass_as_they_are(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a/b", "..", "a" * 41, "a\n", "ä"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UserError) as error:
        check_name(name)
    assert str(error.value) == (
        f"Expected a site name of lower-case letters, digits and dashes (at most 40), got '{name}'."
    )


def test_a_refusal_has_a_code_and_words() -> None:
    error = RefusedError("version-mismatch", "Other version.")
    assert (error.code, str(error), error.exit_code) == ("version-mismatch", "Other version.", 1)
