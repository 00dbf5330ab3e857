"""The progress bar of a notebook."""

from __future__ import annotations

from prismfl.runs import bar


def test_a_bar_is_escaped_and_never_longer_than_whole() -> None:
    assert 'value="0.500"' in bar.bar_html("round 1", 1, 2)
    assert 'value="1.000"' in bar.bar_html("round 1", 9, 2)
    assert 'value="0.000"' in bar.bar_html("round 1", 0, 0)
    assert "<script" not in bar.bar_html("<script>", 1, 2)


def test_stages_are_drawn_at_once_and_steps_now_and_then() -> None:
    pages: list[str] = []
    times = iter((0.0, 0.01, 0.5, 0.51, 0.52))
    progress = bar.told_through(pages.append, lambda: next(times))
    for what, done in (("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 9)):
        progress(what, done, 9)
    assert [page.partition("> ")[2] for page in pages] == [
        f"{what} ({done} of 9)</div>" for what, done in (("a", 0), ("a", 2), ("b", 0), ("b", 9))
    ]


def test_outside_a_notebook_nothing_is_shown() -> None:
    assert not bar.in_notebook()
    with bar.shown() as progress:
        progress("round 1", 1, 2)
