"""How a bug is planted: a snippet of a function's source is replaced, in this process, for one test."""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.ledger import admission

Check = Callable[[Path, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    """`owner.name` with `old` replaced by `new`, and the check that must turn red."""

    name: str
    owner: Any
    function: str
    old: str
    new: str
    check: Check

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        current = inspect.getattr_static(self.owner, self.function)
        plain = current.__func__ if isinstance(current, (classmethod, staticmethod)) else current
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(plain)))
        assert source.count(self.old) == 1, f"'{self.old}' is not once in {self.function}: the bench must be updated"
        module = sys.modules[self.owner.__module__ if inspect.isclass(self.owner) else self.owner.__name__]
        code = compile(
            source.replace(self.old, self.new), "<planted>", "exec", flags=__future__.annotations.compiler_flag
        )
        made: dict[str, Any] = {}
        exec(code, vars(module), made)
        monkeypatch.setattr(self.owner, self.function, made[self.function])
        _everywhere(monkeypatch, self.function, current, made[self.function])


def _everywhere(monkeypatch: pytest.MonkeyPatch, name: str, old: object, new: object) -> None:
    """Modules that imported the function by name, and methods that hold it, get the bug too."""
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] in ("prismfl", "tests")]:
        if vars(module).get(name) is old:
            monkeypatch.setattr(module, name, new)
    for key, method in list(METHODS.items()):
        if getattr(method, name, None) is old:
            change: dict[str, Any] = {name: new}
            monkeypatch.setitem(METHODS, key, replace(method, **change))
    forget()


def forget() -> None:
    """Empty the accountant's caches, which would carry a right answer into a planted world, and a wrong one out."""
    for cached in (account._composed, account._branch_epsilon, account.mechanism_rdp, admission.orders):
        cached.cache_clear()
