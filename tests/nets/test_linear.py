"""A linear classifier of rows."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.linear import fit_linear


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_that_a_plane_parts_are_told_apart(classes: int) -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(classes).repeat(50)
    x = 0.05 * (torch.randn(len(y), 6, generator=draw) + 4 * torch.eye(6)[y])
    found = fit_linear(x, y)
    assert found["weight"].shape == (6, classes)
    assert float(((x @ found["weight"] + found["bias"]).argmax(1) == y).float().mean()) > 0.97


def test_one_class_has_one_answer() -> None:
    found = fit_linear(torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
    assert found["weight"].shape == (3, 1)
