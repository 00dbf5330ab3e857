"""How useful the outcome is: accuracy of a model on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from prismfl.core.payloads import Payload

Predict = Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]


def accuracy(predict: Predict, items: Mapping[str, Payload], x: torch.Tensor, y: torch.Tensor) -> float | None:
    """Percent of held-out records whose largest score is their label; None while there is no model or no record."""
    if "model" not in items or not len(x):
        return None
    right = 0
    with torch.no_grad():
        for i in range(0, len(x), 500):
            right += int((predict(items, x[i : i + 500]).argmax(1).cpu() == y[i : i + 500]).sum())
    return 100.0 * right / len(x)
