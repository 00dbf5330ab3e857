"""Accuracy against epsilon with intervals, as inline SVG and as a PNG file: a colour a method, dashes for encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.report.charts import DASHES, PALETTE, Axis, Series, around, beside, colour_of, lines
from prismfl.report.editions import STAYS

Row = Mapping[str, Any]
LABEL = "epsilon"
SCORE = "accuracy %"
STYLES = ("-", "--", ":", "-.")
MARKERS = "osD^v<>P"


def encoder_name(row: Row) -> str | None:
    """The public encoder of a row, None for none."""
    name = row.get("encoder")
    return None if name in (None, "none") else str(name)


def series_of(rows: Sequence[Row]) -> list[Series]:
    """A line a method and encoder over its epsilons, and a level one for each that takes no epsilon."""
    encoders = list(dict.fromkeys(name for row in rows if (name := encoder_name(row))))
    x, found = axis_of(rows), dict[tuple[str, str], list[Row]]()
    for row in rows:
        if row.get("accuracy") is not None:
            place = _place(row)
            found.setdefault((_line_name(row), "level" if place is None else "line"), []).append(row)
    series = []
    for (name, kind), group in found.items():
        encoder = encoder_name(group[0])
        dash = 0 if encoder is None else 1 + encoders.index(encoder) % (DASHES - 1)
        group = sorted(group, key=lambda row: _place(row) or 0.0)
        points = tuple((_place(row) or 0.0, float(row["accuracy"])) for row in group)
        if kind == "level":
            points = ((x.low, points[0][1]), (x.high, points[0][1]))
        spread = tuple(_interval(row) for row in group)
        colour = colour_of(str(group[0]["method"]))
        series.append(Series(name, points, colour=colour, dash=dash, spread=spread, level=kind == "level"))
    return series


def axis_of(rows: Sequence[Row]) -> Axis:
    """Epsilon on a log axis, with a tick at each value that was asked for."""
    places = sorted({place for row in rows if (place := _place(row)) is not None})
    if not places:
        return Axis(LABEL, 0.1, 10.0, log=True)
    return Axis(LABEL, places[0] / 1.6, places[-1] * 1.6, log=True, at=_spaced(places))


def chart(rows: Sequence[Row], ident: str = "tradeoff") -> str:
    """The chart of a page; nothing where no run has an accuracy."""
    series = series_of(rows)
    if not series:
        return ""
    return lines(ident, "Accuracy against epsilon", series, x=axis_of(rows), y=Axis(SCORE, *_range(series)))


def draw(rows: Sequence[Row], path: Path, *, stays: bool) -> Path:
    """The same chart as a PNG file; one of own records says that it stays on site."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series, x = series_of(rows), axis_of(rows)
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown: list[Any] = []
    for s, apart in zip(series, beside(series)):
        look: dict[str, Any] = {"color": PALETTE[s.colour or 0], "linestyle": STYLES[s.dash], "label": s.name}
        if s.level:
            shown.append(axes.axhline(s.points[0][1], **look))
            if s.spread[0] is not None:
                axes.axhspan(*s.spread[0], color=look["color"], alpha=0.12, linewidth=0)
            continue
        ends = [((b, b) if e is None else e) for (_, b), e in zip(s.points, s.spread)]
        places, scores = [a * 1.025**apart for a, _ in s.points], [b for _, b in s.points]
        error = [[b - low for b, (low, _) in zip(scores, ends)], [high - b for b, (_, high) in zip(scores, ends)]]
        marker = MARKERS[(s.colour or 0) % len(MARKERS)]
        shown.append(axes.errorbar(places, scores, error, marker=marker, markersize=5, capsize=3, **look))
    axes.set(xscale="log", xlim=(x.low, x.high), ylim=_range(series), xlabel=LABEL, ylabel=f"test {SCORE}")
    axes.set_xticks(x.ticks(), [f"{t:g}" for t in x.ticks()])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(handles=shown, fontsize=8)
    if stays:
        figure.suptitle(f"Measured on held-out records without noise: {STAYS}", fontsize=10, color="tab:red")
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write the picture {path}: {error}.") from None
    return path


def _place(row: Row) -> float | None:
    """Where a row stands on the axis: what was asked for, or more if the model depends on more. None: it is level."""
    total = row.get("epsilon_total", row.get("epsilon"))
    if total is None or total <= 0:
        return None
    return max(float(total), float(row["epsilon_asked"] or 0.0))


def _line_name(row: Row) -> str:
    encoder = encoder_name(row)
    name = str(row["method"]) + (f", {encoder}" if encoder else "")
    if _place(row) is not None:
        return name
    return name + (" (nothing leaves)" if row.get("guarantee") == "nothing leaves" else " (no guarantee)")


def _interval(row: Row) -> tuple[float, float] | None:
    half = row.get("accuracy_half_width")
    return None if half is None else (float(row["accuracy"]) - half, float(row["accuracy"]) + half)


def _range(series: Sequence[Series]) -> tuple[float, float]:
    values = [b for s in series for _, b in s.points]
    values += [end for s in series for pair in s.spread if pair is not None for end in pair]
    return around([min(max(v, 0.0), 100.0) for v in values], floor=0, ceiling=100)


def _spaced(places: Sequence[float]) -> tuple[float, ...]:
    """Ticks that do not run into each other."""
    kept = [places[0]]
    for place in places[1:]:
        if place / kept[-1] > (places[-1] / places[0]) ** 0.07:
            kept.append(place)
    return tuple(kept)
