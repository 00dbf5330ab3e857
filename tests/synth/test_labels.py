"""Labels of a program: which are classes, which are refused, and what their codes stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prismfl.errors import UserError
from prismfl.synth.labels import class_names, label_array, named, numbered


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["b", "a"], "U"),
        (np.array(["b", "a"], dtype=object), "U"),
        ([3, 1], "i"),
        (np.array([3, 1], dtype=object), "i"),
        (np.array([3, 1], dtype=np.uint8), "u"),
        ([True, False], "b"),
        (np.array([True, False], dtype=object), "b"),
        (torch.tensor([3, 1]), "i"),
    ],
)
def test_text_whole_numbers_and_bools_are_classes(given: Any, kind: str) -> None:
    found = named(label_array(given, 2), None)
    assert found.classes.dtype.kind == kind
    assert found.codes.tolist() == [1, 0]
    assert list(found.classes[found.codes.numpy()]) == list(given)
    assert found.text == (kind == "U")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.0, 1.0], r"float64.*y\.astype\(int\)"),
        (np.array([0.5, 1.0], np.float32), r"float32.*y\.astype\(int\)"),
        (np.array([0.0, 1], dtype=object), r"float64.*y\.astype\(int\)"),
        (np.array([0, "a"], dtype=object), "Unknown label type: object"),
        (np.array([None, "a"], dtype=object), "Unknown label type: object"),
        ([[0], [1]], r"of shape \(2, 1\)"),
        ([1j, 2j], "complex128"),
        ([0, 1, 2], "as many labels as records, got 3 and 2"),
    ],
)
def test_others_are_refused_in_a_line(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        label_array(given, 2)


def test_declared_classes_are_all_there_though_no_record_has_them() -> None:
    found = named(np.array([7, 7]), [9, 7, 8])
    assert (found.classes.tolist(), found.codes.tolist(), found.names) == ([7, 8, 9], [0, 0], ("7", "8", "9"))
    assert named(np.array([1]), 3).classes.tolist() == [0, 1, 2]
    assert named(np.array([True]), [False, True]).codes.tolist() == [1]


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (["a", "z"], ["a", "b"], "Label 'z' is none of the declared classes"),
        (["", "a"], ["a", "b"], "Label '' is none"),
        ([0, 3], 3, "Label 3 is none"),
        ([-1, 0], 3, "Label -1 is none"),
        ([0, 1], ["0", "1"], "text and numbers are two things"),
        (["0"], 1, "text and numbers are two things"),
        ([0, 1], [0, 0, 1], "Expected different classes"),
        ([0, 1], 0, "at least one"),
        ([0, 1], [0.0, 1.0], r"y\.astype\(int\)"),
    ],
)
def test_a_label_that_was_not_declared_is_refused(labels: Any, classes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        named(np.array(labels), classes)


def test_numbers_are_places_for_the_synthesizer_and_text_is_a_name() -> None:
    assert numbered(np.array([2, 0]), None).names == ("0", "1", "2")
    assert numbered(np.array([1, 0]), ["dog", "cat"]).names == ("dog", "cat")
    by_name = numbered(np.array(["dog", "cat"]), ["dog", "cat"])
    assert [by_name.names[i] for i in by_name.codes] == ["dog", "cat"]
    assert class_names(0) == ("0",)
    with pytest.raises(UserError, match="labels from 0 to 1 for 2 declared"):
        numbered(np.array([2]), ["dog", "cat"])
