"""Names of sites, and refusals that may be told."""

from __future__ import annotations

import re

from prismfl.errors import PrismError, UserError

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class RefusedError(PrismError):
    """A site or a server does not take part, for a reason that may be told."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_name(name: str) -> str:
    """The name, if a site may be called so; otherwise an error."""
    if not NAME.fullmatch(name):
        raise UserError(f"Expected a site name of lower-case letters, digits and dashes (at most 40), got '{name}'.")
    return name
