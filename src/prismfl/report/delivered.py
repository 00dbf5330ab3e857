"""What a run delivers, item by item: each in words, and as a picture where one says something.

All of it is the server's final state, made from what was released, so it costs nothing to show. Where own records have
no guarantee the picture stays on the site: weights that nothing protects may show a record.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from prismfl.core.payloads import Payload, Statistics, Synthesizer, SyntheticEmbeddings, SyntheticSet, Weights
from prismfl.data.pictures import grid
from prismfl.errors import PrismError
from prismfl.report.charts import figure, simple_rows
from prismfl.runs.directory import RunDirectory
from prismfl.runs.opened import Run

Facts = dict[str, Any]
Array = npt.NDArray[Any]
PATIENTS = "Synthetic patients, twenty of them"
MOST_POINTS = 400
MOST_FILTERS = 64
ROWS, MOST_COLUMNS = 5, 30  # of a synthetic table that a page shows
MOST_WIDTH = 4096  # of rows that are drawn on a plane
MOST_NUMBERS = 500_000  # of a layer that is drawn: a folder may come from anybody
PLANE = 320  # units of a side of the plane that embeddings are drawn on


def delivered(run: RunDirectory, *, private: bool) -> list[Facts]:
    """Every item of the final state: its name, what it is, and what can be drawn of it. `private`: it stays on site."""
    try:
        state = run.load_state()
    except PrismError:
        return []
    items = {} if state is None else state.items
    shape = _image_shape(items)
    found = [{"name": name, "private": private, **_told(payload, shape)} for name, payload in sorted(items.items())]
    return [{**item, **(_first_rows(run) if item["name"] == "synthetic" and shape is None else {})} for item in found]


def _first_rows(run: RunDirectory) -> Facts:
    """The first synthetic records of a table, in its own columns and units."""
    try:
        columns = Run(run).columns or {}
    except PrismError:
        return {}
    kept = dict(list(columns.items())[:MOST_COLUMNS])
    rows = [[_cell(value) for value in row] for row in zip(*(values[:ROWS] for values in kept.values()))]
    return {"head": [str(name)[:80] for name in kept], "rows": rows} if rows else {}


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:80]


def _image_shape(items: Mapping[str, Payload]) -> tuple[int, ...] | None:
    made = items.get("synthetic")
    return tuple(made.x.shape[1:]) if isinstance(made, SyntheticSet) and made.x.ndim == 4 else None


def _told(payload: Payload, shape: tuple[int, ...] | None) -> Facts:
    if isinstance(payload, SyntheticEmbeddings):
        return {"words": _rows_words(payload, "synthetic rows of public features"), **_plane(payload)}
    if isinstance(payload, SyntheticSet):
        kind = "synthetic images" if payload.x.ndim == 4 else "synthetic records"
        return {"words": _rows_words(payload, kind)}
    if isinstance(payload, Synthesizer):
        return {"words": f"a generator of {_count(payload)}; it draws as many records as one asks for"}
    if isinstance(payload, Weights | Statistics):
        return {"words": _model_words(payload), **_filters(payload, shape)}
    return {"words": f"{payload.kind} of {_count(payload)}"}


def _count(payload: Payload) -> str:
    total = sum(t.numel() for t in payload.tensors.values())
    return f"{total:,} numbers in {len(payload.tensors)} tensors"


def _rows_words(made: SyntheticSet, kind: str) -> str:
    sides = " x ".join(str(n) for n in made.x.shape[1:])
    return f"{len(made.y):,} {kind} ({sides}), labels {'hard' if made.y.ndim == 1 else 'soft'}"


def _model_words(payload: Payload) -> str:
    """Layers by the shapes of their weights, the input first."""
    shapes = [" x ".join(map(str, t.shape)) for _, t in _layers(payload)]
    shown = ", ".join(shapes[:4]) + (f" and {len(shapes) - 4} more" if len(shapes) > 4 else "")
    return f"{_count(payload)}; weights {shown}" if shapes else _count(payload)


def _layers(payload: Payload) -> list[tuple[str, torch.Tensor]]:
    """The weights of layers, those of the input first: networks number their layers."""

    def place(name: str) -> tuple[list[int], str]:
        return [int(part) for part in name.split(".") if part.isdigit()], name

    found = [(name, t) for name, t in payload.tensors.items() if t.ndim >= 2]
    return sorted(found, key=lambda pair: place(pair[0]))


def _filters(payload: Payload, shape: tuple[int, ...] | None) -> Facts:
    """The first layer as small pictures: the filters of a convolution, or what a linear model weighs of each pixel."""
    layers = _layers(payload)
    first = layers[0][1][:MOST_FILTERS] if layers else torch.zeros(0)
    if first.numel() > MOST_NUMBERS:
        return {}
    if first.ndim == 4 and first.shape[1] in (1, 3) and first.shape[-1] > 1:
        words = "the filters of its first layer"
    elif first.ndim == 2 and len(layers) == 1 and (found := shape or _square(first.shape[1])) is not None:
        if first.shape[1] != int(np.prod(found)):
            return {}
        first, words = first.reshape(len(first), *found), "what it weighs for each class: light is for it, dark against"
    else:
        return {}
    first = first.double()
    most = first.flatten(1).abs().amax(1).clamp_min(1e-12)
    tiles = (first / most.view(-1, 1, 1, 1) + 1) / 2  # nought is grey
    return {"picture": words, "png": _png(grid(tiles.float(), min(10, len(tiles))), scale=_scale(first.shape[-1]))}


def _square(width: int) -> tuple[int, int, int] | None:
    """The square image that a row of so many numbers may be."""
    side = round(width**0.5)
    return (1, side, side) if side >= 5 and side * side == width else None


def _scale(side: int) -> int:
    return max(1, 56 // max(1, side))


def _png(sheet: torch.Tensor, *, scale: int) -> str:
    pixels = (sheet.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    pixels = np.repeat(np.repeat(pixels, scale, axis=0), scale, axis=1)
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


def _plane(made: SyntheticSet) -> Facts:
    """Rows on the plane of their two main directions, some of each class, in whole numbers from 0 to 1000."""
    labels, width = made.hard_y.numpy(), made.tensors["x"][:1].numel()
    classes = np.unique(labels)[:MOST_POINTS]
    if made.tensors["x"].ndim != 2 or not 2 <= width <= MOST_WIDTH or len(labels) < 3:
        return {}
    each = max(1, MOST_POINTS // len(classes))
    kept = np.concatenate([np.flatnonzero(labels == c)[:each] for c in classes])
    x = made.tensors["x"][torch.from_numpy(kept)].double().numpy()
    centred = x - x.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2, np.argmax(np.abs(axes[:2]), axis=1)].diagonal())[:, None]  # the same every time
    places: Array = centred @ axes.T
    low, span = places.min(0), np.ptp(places, axis=0)
    spread = np.rint(1000 * (places - low) / np.where(span > 0, span, 1.0)).astype(int)
    return {"points": [[int(a), int(b), int(c)] for (a, b), c in zip(spread, labels[kept])]}


def deliverables(facts: Mapping[str, Any], shown: Callable[[Mapping[str, Any]], str]) -> str:
    """The list of items in words, then every picture of the run and of its items. `shown` makes one of a PNG."""
    found = facts.get("delivered") or []
    rows = [[str(item["name"]), str(item["words"])] for item in found]
    table = f'<div class="scroll" tabindex="0">{simple_rows(["item", "what it is"], rows)}</div>'
    names = facts["utility"].get("names") or facts["config"].get("classes") or []
    wide = "".join(shown(picture) for picture in facts["pictures"] if picture["title"] == PATIENTS)  # has words to read
    drawn = [shown(picture) for picture in facts["pictures"] if picture["title"] != PATIENTS]
    for item in found:
        if item.get("png"):
            title = f"{item['name']}: {item['picture']}"
            drawn.append(shown({"title": title, "png": item["png"], "private": item["private"]}))
        if item.get("points"):
            drawn.append(scatter(f"points-{item['name']}", str(item["name"]), item["points"], names))
    for item in found:
        if item.get("rows"):
            first = simple_rows(item["head"], item["rows"])
            table += f'<h3>The first records of {escape(str(item["name"]))}</h3><div class="scroll">{first}</div>'
    return (table if rows else "") + wide + (f'<div class="pair">{"".join(drawn)}</div>' if drawn else "")


def scatter(ident: str, name: str, points: list[list[int]], names: list[str]) -> str:
    """Points as the numbers of their classes, so that no colour is needed: a colour means a method."""
    body = "".join(
        f'<text class="point" text-anchor="middle" x="{12 + (PLANE - 24) * min(max(a, 0), 1000) / 1000:.0f}" '
        f'y="{PLANE - 8 - (PLANE - 24) * min(max(b, 0), 1000) / 1000:.0f}">{int(c)}</text>'
        for a, b, c in points
    )
    title = f"{name}: each row as the number of its class, on the plane of the two main directions"
    # Classes are numbered from 0; where their names say more than the number, they are listed.
    told = [f"{i} {n}" for i, n in enumerate(names) if str(n) != str(i)]
    note = f'<p class="quiet">{escape(", ".join(told[:20]))}{" ..." if len(told) > 20 else ""}</p>' if told else ""
    drawing = (
        f'<svg class="points" viewBox="0 0 {PLANE} {PLANE}" role="img" aria-labelledby="{escape(ident)}-caption" '
        f'focusable="false">{body}</svg>'
    )
    return figure(escape(ident), title, drawing, legend=note)
