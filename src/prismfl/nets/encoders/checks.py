"""What an encoder must hold before a run begins, tried on public or drawn images; a private record is never looked at.

A row may depend on its own image alone. An encoder that mixes the images of a batch (a batch norm that still learns)
would make one record count in the rows of others, and the bound on a record would be none.
"""

from __future__ import annotations

import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder

MOST_NUMBERS = 100_000
TRIED = 5
CLOSE = 1e-3  # of the largest number: batches of another size are summed in another order


def check_encoder(encoder: Encoder, images: torch.Tensor) -> Encoder:
    """The encoder, once it has looked at a few images and done as it should; otherwise one line says what is wrong."""
    few = images[:TRIED] if len(images) >= TRIED else torch.cat([images] * -(-TRIED // len(images)))[:TRIED]
    found = _looked(encoder, few)
    if not encoder.layers:
        encoder.layers = tuple(found)
    if not encoder.layers or sum(rows.shape[1] for rows in found.values()) > MOST_NUMBERS:
        raise UserError(f"Encoder '{encoder.name}' gave no layer, or more than {MOST_NUMBERS:,} numbers an image.")
    parts = [_looked(encoder, part) for part in (few[:2], few[2:])]
    for layer in encoder.layers:
        if layer not in found:
            raise UserError(f"Encoder '{encoder.name}' gave no layer '{layer}'; it has {', '.join(found):.200}.")
        _check_layer(encoder.name, layer, found[layer], [part.get(layer) for part in parts])
    return encoder


def _looked(encoder: Encoder, images: torch.Tensor) -> dict[str, torch.Tensor]:
    try:
        with torch.no_grad():
            found: dict[str, torch.Tensor] = encoder(images)
            return found
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        size = " x ".join(str(n) for n in images.shape[1:])
        words = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"Encoder '{encoder.name}' cannot look at images of {size} (channels, height, width): {words:.200}."
        ) from None


def _check_layer(name: str, layer: str, whole: torch.Tensor, parts: list[torch.Tensor | None]) -> None:
    where = f"Encoder '{name}', layer '{layer}'"
    if whole.dim() != 2 or len(whole) != TRIED or whole.shape[1] < 1:
        raise UserError(f"{where}: {tuple(whole.shape)} for {TRIED} images; a row an image was expected.")
    again = [part for part in parts if part is not None]
    for part in again:
        if part.dim() != 2 or part.shape[1] != whole.shape[1]:
            raise UserError(
                f"{where}: {whole.shape[1]} numbers an image, and {tuple(part.shape)[1:]} in another batch; the width "
                "must stay the same."
            )
    if len(again) != len(parts) or sum(len(part) for part in again) != TRIED:
        raise UserError(f"{where}: not a row an image in every batch.")
    if not bool(torch.isfinite(whole).all()):
        raise UserError(f"{where}: NaN or infinite numbers on public images; its rows must be finite there.")
    if float((torch.cat(again) - whole).abs().max()) > CLOSE * max(float(whole.abs().max()), 1e-6):
        raise UserError(
            f"{where}: another row for the same image in another batch; the row of an image must follow from it alone "
            "(leave out what is random, and batch norms that still learn)."
        )
