"""What is drawn from: bins are filled as the fine tables say, where that is more than noise."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.methods.generators import questions, table_model
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables


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


ASKED = questions.design(Variables.of(Columns.parse(["c3", "b"]), bins=2, labels=2), finer=2, given=None, pair_cells=0)
GOOD = {
    "order": torch.tensor([2, 0, 1]),
    "given.0": torch.tensor([2]),
    "given.1": torch.tensor([2]),
    "given.2": torch.zeros(0, dtype=torch.int64),
    "chances.0": torch.ones(2, 3),
    "chances.1": torch.ones(2, 2),
    "chances.2": torch.ones(1, 2),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": torch.tensor([2, 0, 2**40])},
        {"order": torch.tensor([2, 0, 0])},
        {"order": torch.tensor([0, 2, 1])},
        {"order": torch.tensor([2, 0])},
        {"given.0": torch.tensor([99])},
        {"given.1": torch.tensor([2, 2])},
        {"given.1": torch.tensor([1])},
        {"chances.0": torch.ones(1, 3)},
        {"chances.1": torch.ones(2, 7)},
    ],
)
def test_a_model_of_another_table_is_refused_in_one_line(wrong: dict[str, torch.Tensor]) -> None:
    draws = torch.Generator().manual_seed(0)
    assert table_model.records(ASKED, GOOD, 50, draws)[0].shape == (50, 4)
    with pytest.raises(UserError, match="Expected a model of") as error:
        table_model.records(ASKED, {**GOOD, **wrong}, 50, draws)
    assert "\n" not in str(error.value)
