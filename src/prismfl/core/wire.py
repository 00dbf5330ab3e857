"""What a message may look like, checked on its header before any tensor is made.

A message is safetensors: eight bytes with the length of a JSON header, the header, the numbers. Anybody may have sent
it, so the header is bounded in bytes, tensors, items, dimensions and depth, and must describe exactly the bytes that
follow. Whatever is wrong is a `WireError` that quotes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from prismfl.errors import WireError
from prismfl.files.bounded import load_json

HEADER_BYTES = 4 * 1024 * 1024
TENSORS, ITEMS, DIMENSIONS, NAME = 10_000, 64, 8, 200
SPEC_BYTES, SPEC_DEPTH = 64 * 1024, 8
MESSAGE_BYTES = 1024 * 1024
"""Of the header that the caller gave to `encode`: a release's cost lists each mechanism of each class."""
SIZES = {"F32": 4, "F64": 8, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}

JsonDict = dict[str, Any]


def check(raw: bytes) -> tuple[dict[str, JsonDict], JsonDict]:
    """The items (kind and spec by name) and the header of a well-formed message."""
    size = int.from_bytes(raw[:8], "little") if len(raw) >= 8 else -1
    if size < 2 or size > len(raw) - 8:
        raise WireError("Message has no readable header.")
    if size > HEADER_BYTES:
        raise WireError(f"Message has a header of {size} bytes, over the limit of {HEADER_BYTES}.")
    # The tensors lie at depth 3; the text of the metadata is JSON of its own.
    tensors = _object(raw[8 : 8 + size], depth=3)
    metadata = tensors.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {"prismfl"} or not isinstance(metadata["prismfl"], str):
        raise WireError("Message has no readable header.")
    meta = _object(metadata["prismfl"], depth=SPEC_DEPTH + 3)
    if set(meta) != {"items", "header"} or not all(isinstance(part, dict) for part in meta.values()):
        raise WireError("Message has no readable header.")
    items: dict[str, JsonDict] = meta["items"]
    _check_items(items)
    _check_tensors(tensors, len(raw) - 8 - size)
    if not {name.partition("/")[0] for name in tensors} <= set(items):
        raise WireError("Message has items that its header does not describe.")
    _check_json(meta["header"], MESSAGE_BYTES, "header")
    return items, meta["header"]


def text(value: object, *, limit: int = NAME) -> str:
    """A printable text of bounded length out of a header."""
    if not isinstance(value, str) or not 0 < len(value) <= limit or not value.isprintable():
        raise WireError(f"Message has no printable text of at most {limit} characters where one belongs.")
    return value


def whole(value: object, *, limit: int) -> int:
    """A whole number from 0 to `limit` out of a header; true and 1.0 are none."""
    if type(value) is not int or not 0 <= value <= limit:
        raise WireError(f"Message has no whole number from 0 to {limit} where one belongs.")
    return value


def _object(raw: bytes | str, *, depth: int) -> JsonDict:
    try:
        value = load_json(raw, depth=depth)
    except ValueError:
        raise WireError("Message has no readable header.") from None
    if not isinstance(value, dict):
        raise WireError("Message has no readable header.")
    return value


def _check_items(items: Mapping[str, Any]) -> None:
    if len(items) > ITEMS:
        raise WireError(f"Message has {len(items)} items, over the limit of {ITEMS}.")
    for name, entry in items.items():
        text(name)
        if "/" in name or not isinstance(entry, dict) or set(entry) != {"kind", "spec"}:
            raise WireError("Message has an item without kind and spec.")
        text(entry["kind"])
        if not isinstance(entry["spec"], dict):
            raise WireError("Message has an item without kind and spec.")
        _check_json(entry["spec"], SPEC_BYTES, "spec")


def _check_json(value: JsonDict, limit: int, what: str) -> None:
    size = len(json.dumps(value))
    if size > limit:
        raise WireError(f"Message has a {what} of {size} bytes of JSON, over the limit of {limit}.")


def _check_tensors(tensors: Mapping[str, Any], body: int) -> None:
    """Each tensor is as large as its shape says, and together they are the body, without gap or overlap."""
    if len(tensors) > TENSORS:
        raise WireError(f"Message has {len(tensors)} tensors, over the limit of {TENSORS}.")
    spans = []
    for name, entry in tensors.items():
        text(name, limit=2 * NAME)
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise WireError("Message has a tensor without dtype, shape and place.")
        dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in SIZES:
            raise WireError("Message has a tensor of a dtype that may not cross.")
        if not isinstance(shape, list) or len(shape) > DIMENSIONS or not isinstance(place, list) or len(place) != 2:
            raise WireError(f"Message has a tensor without a shape of at most {DIMENSIONS} dimensions and a place.")
        begin, end = (whole(offset, limit=body) for offset in place)
        count = math.prod(whole(n, limit=2**40) for n in shape)
        if end - begin != count * SIZES[dtype]:
            raise WireError("Message has a tensor that is not as large as its shape.")
        spans.append((begin, end))
    edges = [0, *(end for _, end in sorted(spans))]
    if [begin for begin, _ in sorted(spans)] != edges[:-1] or edges[-1] != body:
        raise WireError("Message has tensors that are not exactly its bytes.")
