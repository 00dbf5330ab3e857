"""Every score on the page of a run, and none of own records on one that is handed on."""

from __future__ import annotations

from typing import Any

import torch

from prismfl.metrics.classification import classifier_scores
from prismfl.report.scores import parts_part, scores_part, tables_part


def facts(**changed: Any) -> dict[str, Any]:
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
    scores = classifier_scores(logits, torch.tensor([0, 0, 1, 1]), classes=2)
    found = {"utility": {"scores": scores}, "withheld": [], "config": {"classes": ["well", "<ill>"]}}
    return {**found, **changed}


def test_scores_and_confusion_stand_on_the_page() -> None:
    text = scores_part(facts())
    for words in ("balanced accuracy", "75.00 %", "F1 of &lt;ill&gt;", "recall of well", "Brier score", "taken for"):
        assert words in text, words
    assert "<ill>" not in text


def test_classes_without_names_have_numbers() -> None:
    assert "recall of class 1" in scores_part(facts(config={}))


def test_what_is_withheld_or_was_not_measured_is_not_there() -> None:
    assert scores_part(facts(withheld=["accuracy"])) == ""
    assert scores_part(facts(utility={})) == ""
    assert scores_part(facts(utility={"scores": {"accuracy": 50.0}})) == "", "of an older version"


def test_a_judged_table_stands_on_the_page_unless_it_is_withheld() -> None:
    learnt = {"accuracy": 84.0, "balanced_accuracy": 75.0, "f1": 60.0, "auc": 89.5, "average_precision": None}
    judged = {"useful": {"boosted trees": learnt}, "faithful": {"tv_1": 0.01, "rare_categories": None}}
    found = {"utility": {"tables": judged}, "withheld": []}
    text = tables_part(found)
    for words in ("boosted trees", "89.50", "total variation", "0.010", "rare categories"):
        assert words in text, words
    assert tables_part({**found, "withheld": ["accuracy"]}) == ""
    assert tables_part({"utility": {}, "withheld": []}) == ""


def test_the_parts_of_a_patient_are_judged_each_and_together() -> None:
    told = {"text": {"accuracy": 81.25, "auc": 90.0}, "together": {"accuracy": 84.0}, "records": 40}
    found = {"withheld": [], "utility": {"parts": {**told, "retrieval": {"synthetic": 21.5, "shuffled": 9.8}}}}
    text = parts_part(found)
    assert "texts alone" in text
    assert "81.25" in text
    assert "21.5" in text
    assert parts_part({**found, "withheld": ["accuracy"]}) == ""
    assert parts_part({"utility": {}, "withheld": []}) == ""
    assert "among ten" not in parts_part({**found, "utility": {"parts": told}})
