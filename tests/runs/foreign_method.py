"""A method outside the package, as somebody else would write it; and things that are none."""

from __future__ import annotations

from dataclasses import replace

from prismfl.methods import METHODS

METHOD = replace(METHODS["fedavg"], name="their-average")
CLASH = replace(METHODS["fedavg"], summary="another average")
OURS = METHODS["fedavg"]
ODD = replace(METHODS["fedavg"], name="../their average")
NUMBER = 3
