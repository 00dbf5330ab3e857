"""The accountant in a process of its own, which loads dp-accounting and scipy while this one loads torch.

A command starts it before anything else, so that nothing but its own lines is shared; the answers are the same numbers,
digit for digit. Without it, or once it is gone, whoever asks computes here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from prismfl.runtime import loading

Functions = Mapping[str, Callable[..., Any]]


@dataclass
class _Line:
    """Where to ask, and in which process that may be done: a fork must not ask on its parent's line."""

    questions: TextIO
    answers: TextIO
    owner: int


_line: _Line | None = None


def start(served: Callable[[], Functions]) -> None:
    """Begin to load what is `served` beside this process, where there is a second core for it. Before any import of
    torch: a process with threads is not forked."""
    global _line
    if _line is not None or sys.platform != "linux" or "torch" in sys.modules or len(os.sched_getaffinity(0)) < 2:
        return
    asked, asking = os.pipe()
    told, telling = os.pipe()
    if not os.fork():
        os.close(asking)
        os.close(told)
        _serve(asked, telling, served)
    os.close(asked)
    os.close(telling)
    _line = _Line(os.fdopen(asking, "w"), os.fdopen(told), os.getpid())


def ask(function: str, *values: Any) -> Any:
    """What the accountant answers; None where there is none to ask."""
    global _line
    if _line is None or _line.owner != os.getpid():
        return None
    try:
        _line.questions.write(json.dumps([function, *values]) + "\n")
        _line.questions.flush()
        return json.loads(_line.answers.readline())
    except (OSError, ValueError):  # it is gone
        _line = None
        return None


def _serve(asked: int, telling: int, served: Callable[[], Functions]) -> None:
    """Answer until the line is closed."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends who asks, and with it the line
        with loading():
            functions = served()
        with os.fdopen(asked) as questions, os.fdopen(telling, "w") as answers:
            for line in questions:
                name, *values = json.loads(line)
                answers.write(json.dumps(functions[name](*values)) + "\n")
                answers.flush()
        status = 0
    finally:
        os._exit(status)  # whatever happens, this is not the command
