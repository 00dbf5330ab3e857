"""What is drawn from: bins are filled as the fine tables say, where that is more than noise."""

from __future__ import annotations

import pytest
import torch

from prismfl.methods.generators import table_model
from prismfl.methods.generators.questions import Counts


def test_what_is_inside_a_bin_is_kept_if_it_is_more_than_noise() -> None:
    counts = torch.tensor([900.0, 0, 0, 100, 250, 260, 240, 250, -3, 2, 1, 0])
    (found,) = table_model.filling(3, 4, Counts(counts, 10.0), 0)
    assert found[0].tolist() == pytest.approx([0.9, 0, 0, 0.1], abs=0.02)
    assert found[1].tolist() == pytest.approx([0.25] * 4, abs=0.01)
    assert found[2].tolist() == pytest.approx([0.25] * 4, abs=0.01)
    assert table_model.coarser(3, 4, Counts(counts, 10.0), 0).counts.tolist() == [1000, 1000, 0]


def test_what_is_inside_a_bin_goes_by_the_label_if_that_is_more_than_noise() -> None:
    table = Counts(torch.tensor([[900.0, 0.0], [100, 1000]]).flatten(), 10.0)
    assert table_model.filling(1, 2, table, 2).flatten().tolist() == pytest.approx([0.9, 0.1, 0, 1], abs=0.02)
    loud = table_model.filling(1, 2, Counts(table.counts, 1e4), 2)
    assert loud.flatten().tolist() == pytest.approx([0.5] * 4, abs=0.05)
    found = table_model.coarser(1, 2, table, 2)
    assert found.counts.tolist() == [2000]
    assert found.noise == pytest.approx(20.0)
