"""From a finished run to a case: what the attack sees and, apart from it, the truth that only the score is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

View = TypeVar("View")
Truth = TypeVar("Truth")
R = TypeVar("R")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Asked:
    """How an attack is to be made: by whom, on what, how hard."""

    adversary: str = "server"
    round: int | None = None
    victims: int = 6
    restarts: int = 2
    iterations: int = 300
    known_labels: bool = False
    adaptive: bool = False
    records: int = 1000
    shadows: int = 16
    epochs: int = 20
    seed: int = 0


@dataclass(frozen=True)
class Case(Generic[View, Truth]):
    """What the attack sees, and the truth. The `control` is another view, of a world in which it must succeed."""

    view: View
    truth: Truth = field(repr=False)
    control: View | None = None


@dataclass(frozen=True)
class Scene:
    """A run under attack. Whatever several attacks need is made once."""

    run: Reopened
    asked: Asked = Asked()
    progress: Progress = lambda *_: None
    made: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[Scene], R]) -> R:
        """What `make` makes of this scene; made at the first call and kept."""
        if make not in self.made:
            self.made[make] = make(self)
        found: R = self.made[make]
        return found

    def key(self, name: str) -> Key:
        """A key of this name, from the seed that was asked for."""
        return Key.seed(self.asked.seed).child(name)


@dataclass(frozen=True)
class Need(Generic[View, Truth]):
    """What an adversary must have seen: in a word, the kind of its results, and where a run shows it, or why not."""

    what: str
    kind: str
    look: Callable[[Scene], Case[View, Truth] | str]
