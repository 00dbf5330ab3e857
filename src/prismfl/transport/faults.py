"""Sites that did not count in a round, by name and code, beside the run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from prismfl.runs.directory import RunDirectory

CODE_LENGTH = 40
SPOILS = "spoils-the-step"


@dataclass(frozen=True)
class Fault:
    """A site that did not count in a round, and why."""

    round: int
    site: str
    code: str

    def line(self, why: str = "") -> str:
        """The fault as one line to show, with a reason where one is given."""
        return f"round {self.round + 1}: {self.site} does not count: {self.code}" + (f" ({why})" if why else "")


def note(directory: RunDirectory, round: int, site: str, code: str) -> Fault:
    """Add a fault to the run's `faults.jsonl` and give it back."""
    fault = Fault(round, site, clean_code(code))
    with (directory.path / "faults.jsonl").open("a") as file:
        file.write(json.dumps(asdict(fault), sort_keys=True) + "\n")
    return fault


def faults(directory: RunDirectory) -> list[Fault]:
    """The faults noted beside the run, oldest first."""
    path = directory.path / "faults.jsonl"
    return [Fault(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def clean_code(code: Any) -> str:
    """A code that may be printed, whatever came over the wire: short, lower case, letters and dashes."""
    text = "".join(c for c in str(code)[:CODE_LENGTH].lower() if c.isascii() and (c.isalnum() or c == "-"))
    return text or "malformed"
