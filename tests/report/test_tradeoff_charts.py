"""Accuracy against epsilon: where rows stand, in which colour and pattern, on a page and in a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.errors import UserError
from prismfl.report.charts import PALETTE, colour_of
from prismfl.report.tradeoff_charts import axis_of, chart, draw, encoder_name, series_of


def row(method: str, epsilon: float | None, accuracy: float | None, half: float | None = 2.0, **more: Any) -> Any:
    total = None if epsilon is None else epsilon * 0.99
    plain = {"method": method, "encoder": None, "epsilon_asked": epsilon, "epsilon": total, "epsilon_total": total}
    guarantee = "none" if epsilon is None else "differential privacy"
    return {**plain, "guarantee": guarantee, "accuracy": accuracy, "accuracy_half_width": half, **more}


ROWS = [
    row("prism", 1.0, 60.0),
    row("prism", 0.2, 40.0),
    row("prism", 1.0, 70.0, encoder="net@64"),
    row("prism", 1.0, 75.0, encoder="net@128"),
    row("dp-fedavg", 1.0, 30.0, None),
    row("fedavg", None, 90.0),
    row("local-only", None, 50.0, guarantee="nothing leaves", epsilon_total=0.0),
    row("psg", 1.0, None),
]


def test_a_line_a_method_and_encoder_and_a_level_one_without_an_epsilon() -> None:
    found = {s.name: s for s in series_of(ROWS)}
    assert list(found) == [
        "prism",
        "prism, net@64",
        "prism, net@128",
        "dp-fedavg",
        "fedavg (no guarantee)",
        "local-only (nothing leaves)",
    ]
    assert found["prism"].points == ((0.2, 40.0), (1.0, 60.0)), "in the order of epsilon, at what was asked for"
    assert found["prism"].spread == ((38.0, 42.0), (58.0, 62.0))
    assert found["dp-fedavg"].spread == (None,)
    assert {s.colour for name, s in found.items() if name.startswith("prism")} == {colour_of("prism")}
    assert [found[n].dash for n in ("prism", "prism, net@64", "prism, net@128")] == [0, 1, 2]
    level = found["fedavg (no guarantee)"]
    axis = axis_of(ROWS)
    assert level.level
    assert level.points == ((axis.low, 90.0), (axis.high, 90.0))


def test_the_axis_has_a_tick_at_each_epsilon_and_ticks_do_not_touch() -> None:
    assert axis_of(ROWS).ticks() == [0.2, 1.0]
    close = [row("prism", e, 50.0) for e in (0.1, 1.0, 1.05, 10.0)]
    assert axis_of(close).ticks() == [0.1, 1.0, 10.0]
    assert axis_of([row("fedavg", None, 90.0)]).ticks() == pytest.approx([0.1, 1, 10])


def test_a_model_that_depends_on_more_stands_at_all_of_it() -> None:
    (line,) = series_of([row("dp-fedavg", 1.0, 50.0, epsilon_total=1.7)])
    assert line.points == ((1.7, 50.0),)
    (line,) = series_of([row("dp-fedavg", 1.0, 50.0, epsilon_total=None)])
    assert line.level


def test_nothing_to_draw_is_no_chart() -> None:
    assert chart([row("prism", 1.0, None)]) == ""
    assert encoder_name({"encoder": "none"}) is None


def test_the_picture_has_the_colours_of_the_page(tmp_path: Path) -> None:
    draw(ROWS, tmp_path / "t.png", stays=False)
    pixels = np.asarray(Image.open(tmp_path / "t.png").convert("RGB")).reshape(-1, 3)
    seen = {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(pixels, axis=0)}
    assert {PALETTE[colour_of(name)] for name in ("prism", "dp-fedavg", "fedavg")} <= seen
    assert "#d62728" not in seen
    draw(ROWS, tmp_path / "on-site.png", stays=True)
    pixels = np.asarray(Image.open(tmp_path / "on-site.png").convert("RGB")).reshape(-1, 3)
    assert (pixels == (214, 39, 40)).all(1).any(), "red words that it stays"


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot write the picture"):
        draw(ROWS, tmp_path / "none" / "t.png", stays=False)
