"""Questions about own data: what must be declared, why, and the answer that is proposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prismfl.errors import UserError


@dataclass(frozen=True)
class Inquiry:
    """One fact that must be declared: the key it has in a config, the option that gives it, why it is asked, and the
    answer that is proposed (None: there is none that could be known)."""

    key: str
    option: str
    text: str
    why: str
    proposal: Any = None
    read: Callable[[str], Any] = str

    @property
    def shown(self) -> str:
        """The proposal as a person would type it."""
        return ",".join(self.proposal) if isinstance(self.proposal, list) else f"{self.proposal}"


Ask = Callable[[Inquiry], str]


@dataclass
class Interview:
    """Answers: what was given as an option, else what a person says, else (nobody is asked) what is proposed."""

    given: Mapping[str, Any]
    ask: Ask | None
    say: Callable[[str], None]
    hint: str = ""
    missing: list[str] = field(default_factory=list)

    def answer(self, question: Inquiry) -> Any:
        """The answer, asked for again until it can be read; None and noted as missing where there is none."""
        found = self.given.get(question.key)
        if found is not None:
            return found
        if self.ask is None:
            if question.proposal is None:
                self.missing.append(question.option)
            return question.proposal
        while True:
            words = self.ask(question).strip()
            if not words and question.proposal is not None:
                return question.proposal
            try:
                return question.read(words)
            except UserError as error:
                self.say(str(error))

    def complete(self, hint: str = "") -> None:
        """Refuse, in one line, what nobody has declared."""
        if self.missing:
            raise UserError(f"Not declared: give {' '.join(self.missing)} (with your own values){hint or self.hint}.")


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Reads a whole number of at least `low`."""

    def read(words: str) -> int:
        text = words.replace(",", "")
        if not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
            most = "" if high is None else f" to {high}"
            raise UserError(f"Expected a whole number from {low}{most}, got '{words}'.")
        return int(text)

    return read


def positive(words: str) -> float:
    """Reads a number above 0."""
    try:
        found = float(words)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UserError(f"Expected a number above 0, got '{words}'.")
    return found


def names(words: str) -> list[str]:
    """Reads names with commas between them, at least two."""
    found = [name.strip() for name in words.split(",") if name.strip()]
    if len(found) < 2 or len(set(found)) != len(found):
        raise UserError(f"Expected at least two different names with commas between them, got '{words}'.")
    return found


def one_of(known: tuple[str, ...], *also: str) -> Callable[[str], str]:
    """Reads one of some names."""

    def read(words: str) -> str:
        if words not in (*known, *also):
            raise UserError(f"Expected one of {', '.join((*also, *known))}, got '{words}'.")
        return words

    return read
