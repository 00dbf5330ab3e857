"""The scores of a run's recommended model as a part of its page: every figure, and which class is taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismfl.report.charts import heat, simple_rows
from prismfl.report.tables import SCORE_NAMES, score_rows

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


DISTANCES = {
    "tv_1": "distance of single columns (total variation)",
    "tv_2": "of pairs of columns",
    "tv_3": "of three columns",
    "correlations": "mean gap of correlations",
    "rare_categories": "rare categories that are there at all",
}


def tables_part(facts: Facts) -> str:
    """A synthetic table judged: models trained on it and tested on held-out records, and its distance from them."""
    found = facts["utility"].get("tables") or {}
    useful, faithful = found.get("useful") or {}, found.get("faithful") or {}
    if "accuracy" in facts["withheld"] or not useful:
        return ""
    if any("r2" in scores for scores in useful.values()):
        rows = [
            [SCORE_NAMES[key], *(score_rows(scores, ())[SCORE_NAMES[key]] for scores in useful.values())]
            for key in ("r2", "mae")
        ]
    else:
        shown = ("accuracy", "balanced_accuracy", "f1", "auc", "average_precision")
        rows = [[SCORE_NAMES[key], *(_percent(scores.get(key)) for scores in useful.values())] for key in shown]
    table = simple_rows(["score", *useful], rows)
    distances = [[DISTANCES[key], "-" if value is None else f"{value:.3f}"] for key, value in faithful.items()]
    return (
        "<h3>Learnt from the synthetic table</h3><p class='quiet'>Trained on synthetic records alone, tested on "
        f'held-out real ones.</p><div class="scroll" tabindex="0">{table}</div><h3>How far it is from real records</h3>'
        f'<div class="scroll" tabindex="0">{simple_rows(["measure", "value"], distances)}</div>'
    )


SEEN = {"image": "pictures alone", "text": "texts alone", "words": "texts alone, by their words", "table": "rows alone"}


def parts_part(facts: Facts) -> str:
    """Synthetic records of several parts judged: what models learn from each and from all, and whether parts fit."""
    found = facts["utility"].get("parts") or {}
    told = {key: found[key] for key in (*SEEN, "together") if isinstance(found.get(key), dict)}
    if "accuracy" in facts["withheld"] or not told:
        return ""
    rows = [
        [SEEN.get(key, "all parts"), _percent(one.get("accuracy")), _percent(one.get("auc"))]
        for key, one in told.items()
    ]
    fits = found.get("retrieval") or {}
    words = (
        f"<p>The text that fits a real picture is found among ten in {fits['synthetic']:.1f} %, by what synthetic "
        f"pairs tell; by mixed pairs in {fits['shuffled']:.1f} %.</p>"
        if {"synthetic", "shuffled"} <= fits.keys()
        else ""
    )
    return (
        "<h3>Learnt from the synthetic records</h3><p class='quiet'>Linear models trained on synthetic records alone, "
        f'tested on held-out real ones.</p><div class="scroll" tabindex="0">'
        f"{simple_rows(['trained on', 'accuracy', 'AUC'], rows)}</div>{words}"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _names(facts: Facts, count: int) -> list[str]:
    told = facts["utility"].get("names") or facts["config"].get("classes") or ()
    return [str(name) for name in told] if len(told) == count else [f"class {i}" for i in range(count)]


def _confusion(scores: Facts, names: Sequence[str]) -> str:
    matrix = scores.get("confusion")
    if not matrix or len(matrix) > MOST_SHOWN:
        return ""
    said = "A row for each true class, a column for what was said"
    return "<h3>Which class is taken for which</h3>" + heat(said, names, list(zip(names, matrix)), corner="true")
