"""What every public encoder is: images in, one row of numbers an image and layer out; a digest; words on its origin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.errors import UserError


class Encoder(nn.Module):
    """A frozen public network or transform. No private record has a part in it, so looking through it costs nothing.

    `layers` names what it answers with (none: not known before it is looked through, see `checks`), `trained_on` says
    what it was trained on, in words for reports, and `pretrained` whether that was anything besides the run's own
    public images. Images (n, c, h, w) in [0, 1] are brought to `channels` and `side` where it wants them so.
    """

    name: str
    layers: tuple[str, ...]
    trained_on: str
    pretrained: bool = False
    sees: str = "image"  # the part of a record that it looks at
    channels: int | None = None
    side: int | None = None

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows of images that have the wanted channels and side. For subclasses."""
        raise NotImplementedError

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row of numbers an image, for each layer."""
        return self.look(fitted(images, channels=self.channels, side=self.side))

    def activations(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The same without a graph, and checked: a row an image. What is not finite stays so: for a private record that
        is nobody's business, and the door counts such a row for nothing."""
        with torch.no_grad():
            if len(images):
                found = self(images)
            else:  # a site may hold no record; few modules can look at none
                found = {layer: rows[:0] for layer, rows in self(images.new_zeros(1, *images.shape[1:])).items()}
        for layer in self.layers:
            rows = found.get(layer)
            if rows is None or rows.dim() != 2 or len(rows) != len(images):
                shape = None if rows is None else tuple(rows.shape)
                raise UserError(
                    f"Encoder '{self.name}' gave {shape} for layer '{layer}' of {len(images)} images; a row an image "
                    "was expected."
                )
        return {layer: found[layer] for layer in self.layers}

    @property
    def digest(self) -> str:
        """The SHA-256 of its name, layers, sizes and numbers, in hex."""
        return numbers_digest(repr((self.name, self.layers, self.channels, self.side)), self.state_dict())


def numbers_digest(words: str, state: Mapping[str, object]) -> str:
    """The SHA-256 of words and of the tensors among `state`, in hex."""
    found = hashlib.sha256(words.encode())
    for key, value in sorted(state.items()):
        if isinstance(value, torch.Tensor):
            found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def fitted(images: torch.Tensor, *, channels: int | None, side: int | None) -> torch.Tensor:
    """Images with the channels and the side that an encoder wants. Grey ones stay grey unless it wants colour."""
    if channels is not None and images.shape[1] != channels:
        images = images.mean(1, keepdim=True) if channels == 1 else images.expand(-1, channels, -1, -1)
    if side is not None and tuple(images.shape[2:]) != (side, side):
        images = F.interpolate(images, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    return images
