"""How far the work is: whoever works says it, whoever listens shows it. Without a listener nothing is noted.

It is for the user of this machine: no message carries it, and a site that answers a server has no listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Progress = Callable[[str, int, int], None]
T = TypeVar("T")
_listener: ContextVar[Progress | None] = ContextVar("prismfl progress", default=None)


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """While this is on, `progress(what, done, total)` hears of every stage; one inside of another hears alone."""
    before = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, done: int, total: int) -> None:
    """So much of a stage is done."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


def track(items: Iterable[T], what: str, total: int, *, each: Callable[[T], int] = lambda _: 1) -> Iterator[T]:
    """The items, told one by one as they are done; `each` is what one of them counts for."""
    done = 0
    tell(what, done, total)
    for item in items:
        yield item
        done += each(item)
        tell(what, min(done, total), total)
