"""The scores of a run's recommended model as a part of its page: every figure, and which class is taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismfl.report.charts import simple_rows
from prismfl.report.tables import score_rows

Facts = Mapping[str, Any]
MOST_SHOWN = 20  # classes of a confusion matrix that a page has room for


def scores_part(facts: Facts) -> str:
    """The table of scores, and the confusion matrix where it fits; nothing where a run has measured none."""
    scores = facts["utility"].get("scores") or {}
    if "accuracy" in facts["withheld"] or not scores.get("intervals"):
        return ""
    names = _names(facts, len(scores.get("recall") or ()))
    rows = [[name, value] for name, value in score_rows(scores, names).items()]
    table = simple_rows(["score", "on held-out records"], rows)
    return f'<h3>Every score</h3><div class="scroll" tabindex="0">{table}</div>{_confusion(scores, names)}'


def _names(facts: Facts, count: int) -> list[str]:
    told = facts["config"].get("classes") or ()
    return [str(name) for name in told] if len(told) == count else [f"class {i}" for i in range(count)]


def _confusion(scores: Facts, names: Sequence[str]) -> str:
    matrix = scores.get("confusion")
    if not matrix or len(matrix) > MOST_SHOWN:
        return ""
    rows = [[name, *(str(count) for count in row)] for name, row in zip(names, matrix)]
    return (
        "<h3>Which class is taken for which</h3><p class='quiet'>A row for each true class, a column for what "
        f'was said.</p><div class="scroll" tabindex="0">{simple_rows(["true", *names], rows)}</div>'
    )
