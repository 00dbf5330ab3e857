"""Accuracy by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from prismfl.core.payloads import Payload, Weights
from prismfl.metrics.utility import accuracy

MODEL = {"model": Weights({"w": torch.zeros(1)})}


def as_scores(items: Mapping[str, Payload], x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(("labels", "percent"), [([0, 1], 100.0), ([1, 1], 50.0), ([1, 0], 0.0)])
def test_percent_of_largest_scores_that_are_the_label(labels: list[int], percent: float) -> None:
    x = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert accuracy(as_scores, MODEL, x, torch.tensor(labels)) == percent


def test_more_records_than_a_block_are_all_counted() -> None:
    x = torch.eye(2).repeat(601, 1)
    y = torch.tensor([0, 1]).repeat(601)
    y[-1] = 0
    assert accuracy(as_scores, MODEL, x, y) == pytest.approx(100 * 1201 / 1202)


def test_blocks_are_of_five_hundred() -> None:
    seen: list[int] = []

    def watching(items: Mapping[str, Payload], x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return x

    accuracy(watching, MODEL, torch.zeros(1100, 2), torch.zeros(1100, dtype=torch.int64))
    assert seen == [500, 500, 100]


def test_without_a_model_or_a_record_there_is_no_number() -> None:
    x, y = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    assert accuracy(as_scores, {}, x, y) is None
    assert accuracy(as_scores, MODEL, x[:0], y[:0]) is None
