"""What a server and its sites say to each other, and what a transport must do: move it, and decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from prismfl.core.payloads import JsonDict

Kind = Literal["hello", "round", "finish", "part"]


@dataclass(frozen=True)
class Request:
    """What the server asks of a site. `job` describes the run in public words, `state` is what it sends down.

    A round with secure sums is asked for in turns; `told` is what the other sites said in the turn before. An answer of
    up to `most` bytes may come in parts, where that is said; a transport asks for each by itself.
    """

    kind: Kind
    job: JsonDict
    round: int = 0
    seconds: float = 0.0
    state: bytes = b""
    turn: str = ""
    told: str = ""
    most: int = 0


@dataclass(frozen=True)
class Answer:
    """What comes back: a release, or a word. Of an exception on a site only its code crosses.

    Kinds: "ready", "release", "done", "code"; and "lost", the transport's own word that nothing will come.
    """

    kind: str
    code: str = ""
    site: str = ""
    body: bytes = b""


class Post(Protocol):
    """A transport: it numbers the places it can reach and moves requests and answers; it decides nothing."""

    def places(self) -> Mapping[int, str | None]:
        """Every reachable place and, where its key proves it, the name of the site there."""

    def send(self, place: int, request: Request) -> bool:
        """Whether the request was taken for delivery."""

    def collect(self) -> Iterable[tuple[int, Request, Answer]]:
        """Answers that have arrived since the last call, each with the request that it answers."""


@dataclass(frozen=True)
class RoundRules:
    """How long a round may take and how many releases it needs."""

    quorum: int
    deadline: float = 600.0
    join: float = 600.0
    poll: float = 0.5
    ask_again: float = 3.0
    close_after: float | None = None
    """Seconds that a round stays open once the quorum has answered; None: until its deadline."""
