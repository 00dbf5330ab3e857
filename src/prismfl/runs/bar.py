"""A progress bar in a notebook, of plain HTML. Anywhere else nothing is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prismfl import stages
from prismfl.runs.html import escaped

EVERY = 0.2  # seconds between two pictures of the bar
Show = Callable[[str], None]


def bar_html(what: str, done: int, total: int) -> str:
    """The bar as it stands."""
    share = min(max(done, 0), total) / total if total > 0 else 0.0
    return f'<div><progress value="{share:.3f}" max="1"></progress> {escaped(what)} ({done} of {total})</div>'


def told_through(show: Show, clock: Callable[[], float] = time.monotonic) -> stages.Progress:
    """A progress that draws the bar with `show`: at once for a new stage or its end, else now and then."""
    last: list[Any] = ["", float("-inf")]

    def progress(what: str, done: int, total: int) -> None:
        now = clock()
        if what != last[0] or done >= total or now - last[1] >= EVERY:
            last[:] = [what, now]
            show(bar_html(what, done, total))

    return progress


@contextmanager
def shown() -> Iterator[stages.Progress]:
    """The progress of a run: a bar in a notebook, which goes when the run is over; nothing elsewhere."""
    if not in_notebook():
        yield lambda *_: None
        return
    from IPython.display import HTML, display

    handle: Any = display(HTML(""), display_id=True)
    try:
        yield told_through(lambda page: handle.update(HTML(page)))
    finally:
        handle.update(HTML(""))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this program. IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
