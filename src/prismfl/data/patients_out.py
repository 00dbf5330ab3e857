"""Synthetic patients as a folder that others read: PNG files, JSON lines, Parquet where it can be written, and a page.

Every line says that it is synthetic and where its text comes from.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.data.parts import Parts, byte_columns
from prismfl.data.table_files import has_parquet, table_bytes
from prismfl.data.texts import Bytes

SHOWN = 20  # patients on a page
_WIDTH, _TALL = 860, 132  # pixels of a patient on the page


def patient_cells(
    parts: Parts, rows: Bytes, labels: Sequence[str], *, label: str, origin: str | None
) -> list[dict[str, Any]]:
    """Each synthetic patient as the object that its line holds; a part that is missing is null."""
    found: list[dict[str, Any]] = [{"id": i + 1} for i in range(len(rows))]
    if parts.find("image") is not None:
        for i, (one, image) in enumerate(zip(found, parts.images(rows))):
            one["image"] = f"images/{i + 1:05d}.png" if image.any() else None
    if parts.find("text") is not None:
        for one, text in zip(found, parts.texts(rows)):
            one |= {"text": text or None, "text_origin": origin if text else None}
    if parts.schema is not None:
        import torch

        cells = parts.schema.decode(torch.from_numpy(byte_columns(rows[:, parts.place("table")])))
        for name, values in cells.items():
            for one, value in zip(found, values.tolist()):
                one[name] = None if value != value else value
    for one, name in zip(found, labels):
        one |= {label: name, "synthetic": True}
    return found


def write_patients(
    folder: Path, parts: Parts, rows: Bytes, labels: Sequence[str], *, label: str = "label", origin: str | None = None
) -> None:
    """The folder: images/, patients.jsonl, patients.parquet and sample.png."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    cells = patient_cells(parts, rows, labels, label=label, origin=origin)
    if parts.find("image") is not None:
        (folder / "images").mkdir(exist_ok=True)
        for one, pixels in zip(cells, parts.images(rows)):
            if one["image"] is not None:
                Image.fromarray(_flat(pixels)).save(folder / one["image"])
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in cells)
    (folder / "patients.jsonl").write_text(lines, encoding="utf-8")
    if has_parquet() and cells:
        columns = {name: np.array([one[name] for one in cells], dtype=object) for name in cells[0]}
        (folder / "patients.parquet").write_bytes(table_bytes(columns, folder / "patients.parquet"))
    save_page(folder / "sample.png", parts, rows[:SHOWN], cells[:SHOWN])


def _flat(pixels: Bytes) -> Bytes:
    return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)


def save_page(path: Path, parts: Parts, rows: Bytes, cells: Sequence[Mapping[str, Any]]) -> None:
    """A picture of some patients: film, text and row of each side by side."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (2 * _WIDTH, _TALL * max(1, -(-len(cells) // 2))), "white")
    pen = ImageDraw.Draw(sheet)
    images = parts.images(rows) if parts.find("image") is not None else None
    for i, one in enumerate(cells):
        left, top = (i % 2) * _WIDTH, (i // 2) * _TALL
        if images is not None:
            film = (
                Image.fromarray(_flat(images[i]))
                .convert("RGB")
                .resize((_TALL - 20, _TALL - 20), Image.Resampling.NEAREST)
            )
            sheet.paste(film, (left + 8, top + 8))
        skip = ("id", "image", "text", "text_origin", "synthetic")
        head = ", ".join(f"{name} {value}" for name, value in one.items() if name not in skip)
        words = [*textwrap.wrap(head, 110), *textwrap.wrap(str(one.get("text") or "(no text)"), 110)[:6]]
        pen.multiline_text((left + (_TALL if images is not None else 8), top + 8), "\n".join(words), fill="black")
    sheet.save(path)
