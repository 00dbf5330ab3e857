"""Charts as SVG: round ticks, places on the plane, text that cannot become markup, numbers in a table."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.methods import METHODS
from prismfl.report.charts import (
    DASHES,
    FIXED,
    LETTER,
    NO_METHOD,
    PALETTE,
    WIDTH,
    Axis,
    Series,
    around,
    bars,
    colour_of,
    dots,
    figure,
    heat,
    lines,
    nice_ticks,
    number,
    simple_rows,
    whole,
)
from prismfl.report.page import template

X, Y = Axis("round", 0, 10), Axis("accuracy", 0, 100)


def parsed(html: str) -> ElementTree.Element:
    """Every page is well-formed: what is opened is closed."""
    return ElementTree.fromstring(html)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (3, 3, [3.0]),
        (-1, 1, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        (12, 87, [20, 40, 60, 80]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_rounds_have_whole_ticks() -> None:
    assert list(whole("round", 1, 3).ticks()) == [1, 2, 3]
    assert list(whole("round", 1, 60).ticks()) == nice_ticks(1, 60)
    assert list(whole("round", 1, 1).ticks()) == [1]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_there_are_a_few_ticks_and_none_outside(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 1 <= len(ticks) <= 7
    slack = 1e-6 * (abs(low) + span)
    assert all(low - slack <= t <= low + span + slack for t in ticks)


def test_powers_of_ten_on_a_logarithmic_axis() -> None:
    assert Axis("e", 0.1, 100, log=True).ticks() == pytest.approx([0.1, 1, 10, 100])
    place = Axis("e", 0.1, 100, log=True).place(0, 300)
    assert [place(v) for v in (0.1, 1, 10, 100)] == pytest.approx([0, 100, 200, 300])
    assert place(0.0) == 0  # what is below the axis lies on its end


def test_places_are_proportional_and_may_run_downwards() -> None:
    place = Y.place(220, 20)
    assert [place(v) for v in (0, 50, 100)] == [220, 120, 20]
    assert Axis("flat", 5, 5).place(0, 10)(5) == 0


def test_a_range_has_air_and_stays_within_its_limits() -> None:
    low, high = around([50.0, 51.0], floor=0, ceiling=100)
    assert low < 45
    assert high > 56
    assert around([0.0, 100.0], floor=0, ceiling=100) == (0, 100)


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (12.5, "12.5"), (0.001, "0.001"), (1e-5, "1e-5"), (123456, "1e5")]
)
def test_short_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_lines_have_a_path_dots_a_legend_and_their_numbers() -> None:
    one, two = Series("a", ((0, 10), (5, 50))), Series("limit", ((0, 90), (10, 90)), bound=True)
    html = lines("f", "Progress", [one, two], x=X, y=Y)
    root = parsed(html)
    assert len(root.findall(".//circle")) == 2  # a bound has no dots
    assert html.count('class="line c1 bound"') == 2  # in the drawing and the legend
    cells = [cell.text for cell in root.findall(".//td")]
    assert cells == ["0", "10", "5", "50", "0", "90", "10", "90"]


def test_one_line_needs_no_legend() -> None:
    assert "legend" not in lines("f", "t", [Series("a", ((0, 1), (1, 2)))], x=X, y=Y)


def test_many_points_have_no_dots_and_a_short_table() -> None:
    points = tuple((float(i), float(i)) for i in range(1000))
    root = parsed(lines("f", "t", [Series("a", points)], x=Axis("x", 0, 999), y=Axis("y", 0, 999)))
    assert not root.findall(".//circle")
    rows = root.findall(".//tbody/tr")
    assert len(rows) <= 61
    assert [c.text for c in rows[-1].findall("td")] == ["999", "999"]  # the last point is always there


def test_bars_are_as_long_as_their_values_and_endless_ones_say_so() -> None:
    html = bars("b", "t", [("a", 1.0, "one"), ("b", 2.0, "two"), ("c", math.inf, "no guarantee")], label="run")
    widths = [float(w) for w in re.findall(r'<rect class="bar c0[^"]*" [^>]*width="([\d.]+)"', html)]
    assert widths[1] == pytest.approx(2 * widths[0])
    assert widths[2] == pytest.approx(widths[1])
    assert html.count("endless") == 1


def test_named_points_carry_their_names() -> None:
    root = parsed(dots("d", "t", [("left", 1, 50), ("right", 9, 60)], x=X, y=Y))
    texts = {t.text: t.get("text-anchor") for t in root.findall(".//text") if t.get("class") == "name"}
    assert texts == {"left": "start", "right": "end"}


def test_a_name_without_room_is_in_the_legend_alone() -> None:
    """Names ran out of the chart, and over each other where two runs are as good."""
    rows = [(f"run {i}", 5.0, 50.0) for i in range(8)] + [("edge", 9.9, 99.0)]
    short = [f"quite-a-long-name-{i}" for i in range(8)] + ["edge"]
    root = parsed(dots("d", "t", rows, x=X, y=Y, short=short))
    places: list[tuple[float, float, float]] = []
    for t in root.findall("./svg/text[@class='name']"):
        x, y, wide = float(t.get("x") or 0), float(t.get("y") or 0), LETTER * len(t.text or "")
        left = x - {"start": 0.0, "end": wide, "middle": wide / 2}[str(t.get("text-anchor"))]
        assert 0 <= left <= left + wide <= WIDTH
        assert all(abs(y - other) > 12 or left + wide <= a or b <= left for a, b, other in places)
        places.append((left, left + wide, y))
    assert 1 < len(places) < len(rows)
    seeds = parsed(dots("d", "t", [("a", 5, 50), ("b", 5, 51), ("c", 5, 95)], x=X, y=Y, short=["m", "m", "m"]))
    assert len(seeds.findall("./svg/text[@class='name']")) == 2, "seeds side by side have one name"
    assert [li.findtext("svg/circle/title") or "".join(li.itertext()) for li in root.findall(".//li")] == short
    assert "legend" not in dots("d", "t", rows[:2], x=X, y=Y, short=["a", "a"])


def test_counts_are_shaded_by_size_and_summed() -> None:
    root = parsed(heat("Split", ["a", "b"], [("site-0", [10, 0]), ("site-1", [5, 20])]))
    cells = [(c.text, c.get("style")) for c in root.findall(".//tbody//td")]
    assert cells == [
        ("10", "--v:50%"),
        ("·", "--v:0%"),
        ("10", None),
        ("5", "--v:25%"),
        ("20", "--v:100%"),
        ("25", None),
    ]


NASTY = '<script>alert("x")</script>&'


def test_names_never_become_markup() -> None:
    made = [
        lines("f", NASTY, [Series(NASTY, ((0, 1),)), Series("b", ((0, 1),))], x=X, y=Y),
        bars("f", NASTY, [(NASTY, 1.0, NASTY)], label=NASTY),
        dots("f", NASTY, [(NASTY, 1, 1)], x=X, y=Y),
        heat(NASTY, [NASTY], [(NASTY, [1])], corner=NASTY),
        dots("f", NASTY, [(NASTY, 1, 1), ("b", 2, 2)], x=X, y=Y, short=[NASTY, "b"]),
        simple_rows([NASTY], [[NASTY, NASTY]], caption=NASTY),
        figure("f", NASTY, ""),
    ]
    for html in made:
        assert "<script" not in html
        parsed(html)


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    html = simple_rows(["a", "b"], [["row", "12 kB", "a longer sentence may break"]])
    assert "12\N{NO-BREAK SPACE}kB" in html
    assert "a longer sentence may break" in html


def test_a_method_has_its_colour_by_its_name_alone() -> None:
    assert [colour_of(name) for name in FIXED] == list(range(len(FIXED)))
    assert set(FIXED) <= set(METHODS)
    assert {colour_of(name) for name in (*METHODS, "somebody-elses")} <= set(range(NO_METHOD))
    assert colour_of("fedprox") == 1  # another hash would give the methods other colours from one version to the next


def palettes() -> dict[str, list[str]]:
    """The colours of page.css: on light, on dark, and in print."""
    rows = re.findall(r"--c0: #.*", template("page.css"))
    return dict(zip(("light", "dark", "print"), ([*re.findall(r"--c\d: (#[0-9a-f]{6});", row)] for row in rows)))


def test_pictures_and_pages_have_the_same_colours() -> None:
    assert palettes()["light"] == palettes()["print"] == list(PALETTE)
    css = template("page.css")
    for k in range(len(PALETTE)):
        assert f".line.c{k} {{ stroke: var(--c{k}); }} .dot.c{k}, .bar.c{k}, .band.c{k} {{ fill: var(--c{k}); }}" in css
    assert all(f"svg .d{k} {{ stroke-dasharray" in css for k in range(1, DASHES))


# How colours look without one of the three cones (Machado, Oliveira and Fernandes, 2009), in linear RGB.
BLIND = {
    "none": np.eye(3),
    "red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.052]]),
    "green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
    "blue": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]),
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def linear(colours: list[str]) -> np.ndarray:
    values = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    share = rgb.clip(0, 1) @ XYZ.T / XYZ.sum(1)
    root = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.stack([116 * root[:, 1] - 16, 500 * (root[:, 0] - root[:, 1]), 200 * (root[:, 1] - root[:, 2])], 1)


@pytest.mark.parametrize("lacking", BLIND)
@pytest.mark.parametrize("page", ["light", "dark"])
def test_colours_differ_for_colour_blind_eyes(page: str, lacking: str) -> None:
    seen = lab(linear(palettes()[page]) @ BLIND[lacking].T)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + 1000 * np.eye(len(seen))
    assert apart.min() > 14, f"colours {np.argwhere(apart == apart.min())[0]}"


@pytest.mark.parametrize(("page", "paper"), [("light", "#ffffff"), ("dark", "#161c24")])
def test_colours_stand_out_from_the_paper(page: str, paper: str) -> None:
    assert f"--paper: {paper};" in template("page.css")
    shades, ground = linear(palettes()[page]) @ XYZ[1] + 0.05, (linear([paper]) @ XYZ[1] + 0.05)[0]
    assert (np.maximum(shades, ground) / np.minimum(shades, ground)).min() >= 3.0


def test_lines_of_one_colour_have_different_patterns() -> None:
    runs = [Series(name, ((0, 1), (1, 2)), colour=2) for name in "abc"]
    html = lines("f", "t", [*runs, Series("d", ((0, 1), (1, 2)), colour=3)], x=X, y=Y)
    assert re.findall(r'<path class="(line c\d(?: d\d)?)" d="M52', html) == [
        "line c2",
        "line c2 d1",
        "line c2 d2",
        "line c3",
    ]


def test_intervals_are_whiskers_that_stay_inside_the_frame() -> None:
    one = Series("a", ((0, 50), (10, 90)), spread=((40, 60), (70, 110)))
    html = lines("f", "t", [one, Series("b", ((0, 20), (10, 20)), spread=(None, None))], x=X, y=Y)
    ends = re.findall(r'whisker" d="M[\d.]+ ([\d.]+) L[\d.]+ ([\d.]+) ', html)
    place = Y.place(220, 14)
    assert [(float(a), float(b)) for a, b in ends] == [
        pytest.approx((place(40), place(60)), abs=0.06),
        pytest.approx((place(70), 14), abs=0.06),
    ]


def test_a_level_line_has_a_band_and_no_dots() -> None:
    html = lines("f", "t", [Series("a", ((0, 50), (10, 50)), spread=((40, 60),), level=True)], x=X, y=Y)
    (height,) = re.findall(r'<rect class="band c0"[^>]* height="([\d.]+)"', html)
    assert float(height) == pytest.approx(Y.place(220, 14)(40) - Y.place(220, 14)(60), abs=0.06)
    assert "circle" not in html


def test_ticks_that_are_asked_for() -> None:
    assert Axis("e", 0.1, 100, log=True, at=(0.2, 5)).ticks() == [0.2, 5]


def test_points_and_bars_take_the_colours_they_are_given() -> None:
    assert 'class="dot c4"' in dots("d", "t", [("a", 1, 50)], x=X, y=Y, colours=[4])
    assert 'class="bar c4"' in bars("b", "t", [("a", 1.0, "one")], label="run", colours=[4])
