"""How useful a model is: its scores of held-out records, some at a time, and how often the largest is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from prismfl.core.payloads import Payload
from prismfl.core.records import as_floats
from prismfl.kernels.parts import in_parts
from prismfl.stages import track

Predict = Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]


def accuracy(predict: Predict, items: Mapping[str, Payload], x: torch.Tensor, y: torch.Tensor) -> float | None:
    """Percent of held-out records whose largest score is their label; None while there is no model or no record."""
    if "model" not in items or not len(x):
        return None
    guess = _scored(lambda part: predict(items, part).argmax(1).cpu(), x)
    return 100.0 * int((guess == y).sum()) / len(x)


def logits_of(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *, device: str = "cpu") -> torch.Tensor:
    """A model's scores of records, some at a time."""
    return _scored(lambda part: model(part.to(device)).cpu(), x)


def _scored(score: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    parts = track(in_parts(x, 500), "scoring held-out records", len(x), each=len)
    with torch.no_grad():
        return torch.cat([score(as_floats(part)) for part in parts])
