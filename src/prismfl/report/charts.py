"""Charts as inline SVG that one can read values off: labelled ticks and ends, and the numbers in a table below."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40
PALETTE = ("#1d5ba8", "#e96c17", "#02895c", "#966ae5", "#845b05", "#439acf", "#b32477", "#37404a")
"""The colours c0, c1, ... of a light page, as page.css has them. They differ for colour-blind eyes too."""
FIXED = ("prism", "dp-fedavg", "prism-head", "dp-central", "fedlap-dp", "local-only", "fedavg")
"""Methods that often stand side by side: a colour each."""
NO_METHOD = len(PALETTE) - 1
"""The colour of what is no method: guessing, say."""
DASHES = 4
"""Patterns of a line in page.css: whole, and three dashed ones."""
Scale = Callable[[float], float]
Spread = tuple[float, float]


def colour_of(method: str) -> int:
    """The number of a method's colour, by its name alone: the same in every chart, table and page."""
    if method in FIXED:
        return FIXED.index(method)
    return hashlib.sha256(method.encode()).digest()[0] % NO_METHOD


@dataclass(frozen=True)
class Series:
    """A named line; `bound` draws it dashed, as a limit rather than a measurement.

    `colour` is the number of its colour (of `colour_of`, say), else its place among the lines. `dash` picks one of the
    patterns of page.css. `spread` is an interval a point, drawn as whiskers, or as a band where the line is `level`.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    bound: bool = False
    colour: int | None = None
    dash: int = 0
    spread: tuple[Spread | None, ...] = ()
    level: bool = False


@dataclass(frozen=True)
class Axis:
    """A range with ticks; `log` for powers of ten; `at` for ticks at these values."""

    label: str
    low: float
    high: float
    log: bool = False
    at: tuple[float, ...] = ()

    def ticks(self) -> list[float]:
        """The values that get a tick: those asked for, else round ones, or powers of ten if `log`."""
        if self.at:
            return list(self.at)
        if self.log:
            return [
                10.0**k for k in range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high)) + 1)
            ]
        return nice_ticks(self.low, self.high)

    def place(self, start: float, end: float) -> Scale:
        """The function that maps the axis's values to positions from `start` to `end`."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

        def scale(value: float) -> float:
            v = math.log10(max(value, self.low)) if self.log else value
            return start + (end - start) * (v - low) / ((high - low) or 1.0)

        return scale


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that cover the range."""
    span = (high - low) or 1.0
    raw = span / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(f * size for f in (1, 2, 2.5, 5, 10) if f * size >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def whole(label: str, low: float, high: float) -> Axis:
    """An axis of whole numbers, rounds say: no tick between two of them."""
    ticks = tuple(t for t in nice_ticks(low, high) if t == int(t))
    return Axis(label, low, high, at=ticks or (low, high))


def around(values: Sequence[float], *, floor: float, ceiling: float) -> tuple[float, float]:
    """A range with some air around the values, never so narrow that noise looks like a trend."""
    low, high = min(values), max(values)
    air = max(0.08 * (high - low), 0.1 * (ceiling - floor) - (high - low) / 2)
    return max(floor, low - air), min(ceiling, high + air)


def number(value: float) -> str:
    """A short number for ticks and labels."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def lines(
    ident: str, title: str, series: Sequence[Series], *, x: Axis, y: Axis, fmt: Callable[[float], str] = number
) -> str:
    """Lines over a common pair of axes, each with a marker a point (where there are few) and its name in a legend."""
    sx, sy = x.place(LEFT, WIDTH - RIGHT), y.place(HEIGHT - BOTTOM, TOP)
    body, series = [_frame(x, y, sx, sy, fmt)], _told_apart(series)
    for s, apart in zip(series, beside(series)):
        places = [(sx(a) + 4 * apart, sy(b)) for a, b in s.points]
        path = " ".join(f"{'M' if i == 0 else 'L'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(places))
        body.append(_spread(s, places, sy))
        body.append(f'<path class="{_style(s)}" d="{path}"/>')
        if not s.bound and not s.level and len(s.points) <= 60:
            body += [
                f'<circle class="dot c{s.colour}" cx="{px:.1f}" cy="{py:.1f}" r="3">'
                f"<title>{escape(s.name)}: {escape(x.label)} {number(a)}, {escape(y.label)} {fmt(b)}</title></circle>"
                for (px, py), (a, b) in zip(places, s.points)
            ]
    return figure(ident, title, _svg(ident, title, body), legend=_legend(series), table=_line_table(series, x, y, fmt))


def beside(series: Sequence[Series]) -> list[float]:
    """How far each line stands aside: those with intervals a little, so that whiskers at one x can be told apart."""
    told = [s for s in series if s.spread and not s.level]
    return [told.index(s) - (len(told) - 1) / 2 if s in told else 0.0 for s in series]


def _told_apart(series: Sequence[Series]) -> list[Series]:
    """The lines with their colours; where two would look the same, the second has the next pattern."""
    found, seen = [], set[tuple[int, int]]()
    for k, s in enumerate(series):
        colour = (k if s.colour is None else s.colour) % len(PALETTE)
        free = ((s.dash + i) % DASHES for i in range(DASHES) if (colour, (s.dash + i) % DASHES) not in seen)
        found.append(replace(s, colour=colour, dash=next(free, s.dash)))
        seen.add((colour, found[-1].dash))
    return found


def _style(s: Series) -> str:
    return f"line c{s.colour}" + (f" d{s.dash}" if s.dash else "") + (" bound" if s.bound else "")


def _spread(s: Series, places: Sequence[tuple[float, float]], sy: Scale) -> str:
    """The intervals of a line: whiskers, or a band along a level one. Nothing is drawn beyond the frame."""
    ends = [None if e is None else (_inside(sy(e[0])), _inside(sy(e[1]))) for e in s.spread]
    if s.level and ends and ends[0] is not None:
        (low, high), (left, _), (right, _) = ends[0], places[0], places[-1]
        return (
            f'<rect class="band c{s.colour}" x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" '
            f'height="{max(low - high, 0):.1f}"/>'
        )
    return "".join(
        f'<path class="line c{s.colour} whisker" d="M{a:.1f} {e[0]:.1f} L{a:.1f} {e[1]:.1f} '
        f'M{a - 4:.1f} {e[0]:.1f} h8 M{a - 4:.1f} {e[1]:.1f} h8"/>'
        for (a, _), e in zip(places, ends)
        if e is not None
    )


def _inside(py: float) -> float:
    return min(max(py, TOP), HEIGHT - BOTTOM)


def bars(
    ident: str,
    title: str,
    rows: Sequence[tuple[str, float, str]],
    *,
    label: str,
    high: float | None = None,
    colours: Sequence[int] = (),
) -> str:
    """Horizontal bars, each with its name above and its value at its end: (name, value, words for the value)."""
    step, top = 40, 6  # a name of 16 units, as small screens show it, and its bar
    height = top + step * len(rows) + 8
    most = high or max([value for _, value, _ in rows if math.isfinite(value)] + [1e-9])
    room = WIDTH - 110
    body = []
    for i, (name, value, words) in enumerate(rows):
        y = top + i * step
        length = room * min(1.0, max(0.0, value / most)) if math.isfinite(value) else room
        shape = f"bar c{colours[i] if i < len(colours) else 0}" + (" endless" if not math.isfinite(value) else "")
        body.append(f'<text class="name" x="0" y="{y + 12}">{escape(name)}</text>')
        body.append(f'<rect class="track" x="0" y="{y + 19}" width="{room}" height="11" rx="2"/>')
        body.append(
            f'<rect class="{shape}" x="0" y="{y + 19}" width="{max(length, 1.5):.1f}" height="11" rx="2">'
            f"<title>{escape(name)}: {escape(words)}</title></rect>"
        )
        body.append(f'<text class="value" x="{room + 8}" y="{y + 29}">{escape(words)}</text>')
    table = simple_rows([label, "value"], [[name, words] for name, _, words in rows])
    return figure(ident, title, _svg(ident, title, body, height=height), table=table)


def dots(
    ident: str,
    title: str,
    rows: Sequence[tuple[str, float, float]],
    *,
    x: Axis,
    y: Axis,
    fmt: Callable[[float], str] = number,
    colours: Sequence[int] = (),
    short: Sequence[str] = (),
) -> str:
    """Named points on a plane: (name, x, y), each in its colour, else in that of its place among them.

    `short` are the names beside the points, and in the legend; a name that has no room is in the legend alone.
    """
    sx, sy = x.place(LEFT, WIDTH - RIGHT), y.place(HEIGHT - BOTTOM, TOP)
    body, taken, kinds = [_frame(x, y, sx, sy, fmt)], [(sx(a), sy(b)) for _, a, b in rows], dict[str, int]()
    boxes = [(px - 5, py - 5, px + 5, py + 5) for px, py in taken]
    named: list[tuple[str, float, float]] = []
    for k, (name, a, b) in enumerate(rows):
        (px, py), colour = taken[k], (colours[k] if colours else k) % len(PALETTE)
        body.append(
            f'<circle class="dot c{colour}" cx="{px:.1f}" cy="{py:.1f}" r="4.5">'
            f"<title>{escape(name)}: {escape(x.label)} {number(a)}, {escape(y.label)} {fmt(b)}</title></circle>"
        )
        said = short[k] if short else name
        near = any(abs(px - ox) < NEAR and abs(py - oy) < NEAR for other, ox, oy in named if other == said)
        kinds.setdefault(said, colour)
        if not near and (drawn := _beside(said, px, py, boxes)):
            named.append((said, px, py))
            body.append(drawn)
    table = simple_rows(["run", x.label, y.label], [[n, number(a), fmt(b)] for n, a, b in rows])
    return figure(ident, title, _svg(ident, title, body), legend=dot_legend(kinds), table=table)


NEAR = 40.0
"""Units within which a name beside one point stands for others of its kind: the seeds of a method."""
LETTER = 9.0
"""Units that a letter takes at most: a small screen shows them larger than the chart's own units."""


def _beside(name: str, px: float, py: float, boxes: list[tuple[float, float, float, float]]) -> str:
    """A name next to its point where it fits: to the right, to the left, above, below; else nothing."""
    wide = LETTER * len(name)
    for anchor, dx, dy in (("start", 8, 5), ("end", -8, 5), ("middle", 0, -9), ("middle", 0, 20)):
        left = px + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (left, py + dy - 12, left + wide, py + dy + 4)
        inside = box[0] >= LEFT and box[2] <= WIDTH and box[1] >= 0 and box[3] <= HEIGHT - BOTTOM
        own = (px - 5, py - 5, px + 5, py + 5)
        if inside and not any(_overlap(box, other) for other in boxes if other != own):
            boxes.append(box)
            return (
                f'<text class="name" text-anchor="{anchor}" x="{px + dx:.1f}" y="{py + dy:.1f}">{escape(name)}</text>'
            )
    return ""


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def dot_legend(kinds: Mapping[str, int]) -> str:
    """The points of a chart by colour; one kind needs no legend."""
    items = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><circle class="dot c{colour}" cx="13" cy="5" r="4.5"/></svg>'
        f"{escape(name)}</li>"
        for name, colour in kinds.items()
    )
    return f'<ul class="legend">{items}</ul>' if len(kinds) > 1 else ""


def figure(ident: str, title: str, drawing: str, *, legend: str = "", table: str = "") -> str:
    """A drawing with its caption, its legend, and its numbers in a table to unfold."""
    numbers = (
        f'<details class="numbers"><summary>Numbers</summary><div class="scroll" tabindex="0">{table}</div></details>'
    )
    caption = f'<figcaption id="{ident}-caption">{escape(title)}</figcaption>'
    return f'<figure id="{ident}">{caption}{drawing}{legend}{numbers if table else ""}</figure>'


def simple_rows(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """An HTML table; numbers are aligned to the right, the first column is the row's header."""
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{_unbroken(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table>{said}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _unbroken(cell: str) -> str:
    """A number and its unit stay on one line."""
    return escape(cell).replace(" ", "\N{NO-BREAK SPACE}") if len(cell) <= 12 else escape(cell)


def heat(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[int]]],
    *,
    corner: str = "",
    total: bool = True,
) -> str:
    """Counts as a table whose cells are shaded by size: the split of the records over the sites, say."""
    most = max([n for _, counts in rows for n in counts] + [1])
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in (*columns, *(["all"] if total else [])))
    body = []
    for name, counts in rows:
        cells = "".join(f'<td style="--v:{100 * n / most:.0f}%">{n or "·"}</td>' for n in counts)
        end = f'<td class="sum">{sum(counts)}</td>' if total else ""
        body.append(f'<tr><th scope="row">{escape(name)}</th>{cells}{end}</tr>')
    return (
        f'<div><p class="quiet">{escape(caption)}</p>'  # a caption would be as wide as the table, which may be scrolled
        f'<div class="scroll" tabindex="0"><table class="heat" aria-label="{escape(caption)}">'
        f"<thead><tr><td>{escape(corner)}</td>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div></div>"
    )


def _frame(x: Axis, y: Axis, sx: Scale, sy: Scale, fmt: Callable[[float], str]) -> str:
    parts = []
    for t in y.ticks():
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{sy(t):.1f}" y2="{sy(t):.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{sy(t) + 4:.1f}">{escape(fmt(t))}</text>')
    for t in x.ticks():
        parts.append(f'<line class="grid" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="{sx(t):.1f}" x2="{sx(t):.1f}"/>')
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{sx(t):.1f}" y="{HEIGHT - BOTTOM + 15}">{number(t)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" text-anchor="middle" x="{middle}" y="{HEIGHT - 6}">{escape(x.label)}</text>')
    parts.append(
        f'<text class="axis" text-anchor="middle" transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">'
        f"{escape(y.label)}</text>"
    )
    return "".join(parts)


def _svg(ident: str, title: str, body: Sequence[str], *, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{ident}-caption" focusable="false">'
        f"{''.join(body)}</svg>"
    )


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true">'
        f'<path class="{_style(s)}" d="M1 5 L25 5"/></svg>{escape(s.name)}</li>'
        for s in series
    )
    return f'<ul class="legend">{items}</ul>'


def _line_table(series: Sequence[Series], x: Axis, y: Axis, fmt: Callable[[float], str], most: int = 60) -> str:
    """At most `most` rows a line, evenly chosen: a ROC curve has thousands of points."""
    rows = []
    for s in series:
        every = max(1, math.ceil(len(s.points) / most))
        rows += [
            [s.name, number(a), fmt(b)] for i, (a, b) in enumerate(s.points) if i % every == 0 or i == len(s.points) - 1
        ]
    return simple_rows(["line", x.label, y.label], rows)
