"""The scores of a run's recommended model as a part of its page: every figure, and which class is taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismfl.report.charts import heat, simple_rows
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
    every = f'<div><h3>Every score</h3><div class="scroll" tabindex="0">{table}</div></div>'
    return f'<div class="pair">{every}<div>{_confusion(scores, names)}{_models(facts)}</div></div>'


def _models(facts: Facts) -> str:
    """The models of a run that holds several; the scores are of the one to take."""
    found = [row for row in facts.get("models") or () if row["accuracy"] is not None]
    if len(found) < 2:
        return ""
    rows = [
        [row["name"], f"{row['accuracy']:.1f} %", "yes, and the figures here are of it" if row.get("taken") else ""]
        for row in found
    ]
    return f"<h3>Its models</h3>{simple_rows(['model', 'accuracy', 'to take'], rows)}"


def _names(facts: Facts, count: int) -> list[str]:
    told = facts["utility"].get("names") or facts["config"].get("classes") or ()
    return [str(name) for name in told] if len(told) == count else [f"class {i}" for i in range(count)]


def _confusion(scores: Facts, names: Sequence[str]) -> str:
    matrix = scores.get("confusion")
    if not matrix or len(matrix) > MOST_SHOWN:
        return ""
    said = "A row for each true class, a column for what was said"
    return "<h3>Which class is taken for which</h3>" + heat(said, names, list(zip(names, matrix)), corner="true")
