"""A user's own torch module as a public encoder."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder, numbers_digest

UNSAID = "data that its maker does not name"
MOST_WORDS = 200


class Wrapped(Encoder):
    """Any module from images (n, c, h, w) in [0, 1] to a tensor, several, or a dict of tensors.

    What it was trained on it says in `trained_on`; `channels` and `side` say what images it wants. It counts as
    pretrained unless its `pretrained` says otherwise.
    """

    def __init__(self, module: nn.Module, words: str) -> None:
        super().__init__()
        self.module = module.eval()
        for number in module.parameters():  # one by one: TorchScript has no more
            number.requires_grad_(False)
        self.name, self.layers = words, ()
        self.trained_on = one_line(getattr(module, "trained_on", None)) or UNSAID
        self.pretrained = bool(getattr(module, "pretrained", True))
        self.channels = _whole(getattr(module, "channels", None), words, "channels")
        self.side = _whole(getattr(module, "side", None), words, "side")

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows of each of its answers."""
        return rows_of(self.module(images), self.name)

    @property
    def digest(self) -> str:
        """Of its words, sizes and numbers. Its code is not in it."""
        return numbers_digest(repr((self.name, self.channels, self.side)), self.module.state_dict())


def rows_of(answer: object, name: str) -> dict[str, torch.Tensor]:
    """What a module answers as rows by layer: a tensor, several, or a dict; maps are averaged over their pixels."""
    if isinstance(answer, Mapping):
        found = {str(key): value for key, value in answer.items()}
    elif isinstance(answer, tuple | list):
        found = {str(i): value for i, value in enumerate(answer)}
    else:
        found = {"out": answer}
    return {key: _pooled(value, name, key) for key, value in found.items()}


def _pooled(value: object, name: str, layer: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.dim() not in (2, 4) or not value.is_floating_point():
        got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise UserError(
            f"Encoder '{name}' gave {got} for layer '{layer}'; a tensor (n, numbers), or (n, channels, h, w), which is "
            "averaged over its pixels, was expected."
        )
    return (value.mean((2, 3)) if value.dim() == 4 else value).float()


def one_line(words: object) -> str:
    """Words of somebody's for a report: printable, on one line, not long."""
    return "".join(c if c.isprintable() else " " for c in str(words or "")).strip()[:MOST_WORDS]


def _whole(value: object, words: str, what: str) -> int | None:
    most = 3 if what == "channels" else 1024
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UserError(f"Expected {what} of encoder '{words}' as a whole number from 1 to {most}, got {value!r:.40}.")
    return value
