"""Public images: a named data set, a folder, or drawings made on the spot, in the shape that the private task has."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prismfl.data.datasets import DATASETS, EMBEDDED, data_directory, load
from prismfl.data.manifest import FILES, read_checked
from prismfl.data.spec import Spec
from prismfl.errors import UserError

if TYPE_CHECKING:
    import torch

DRAWN = {
    "procedural": "",
    "procedural-strokes": "strokes",
    "procedural-silhouettes": "silhouettes",
    "procedural-leaves": "leaves",
    "procedural-portraits": "portraits",
    "procedural-mixed": "mixed",
}
PUBLIC_ONLY = ("kannada", "omniglot", "kannada+omniglot", "tiny-imagenet")
_OLD_SUM = "kannada+omniglot"  # one set of its own name: runs that took it draw from both as from one

Images = npt.NDArray[Any]
_CHOICE_STREAM = 0x9B1C


@dataclass(frozen=True, eq=False)
class Public:
    """Public images, NCHW float32 in [0, 1], and what was done to them on the way."""

    images: torch.Tensor
    notices: tuple[str, ...] = ()


def public_names() -> tuple[str, ...]:
    """Every name that `load_public` takes, besides folders."""
    return (*DRAWN, *PUBLIC_ONLY, *(name for name, spec in DATASETS.items() if spec.kind == "image"))


def load_public(
    name_or_path: str | Path,
    *,
    shape: tuple[int, int, int],
    count: int,
    key_seed: int,
    data_dir: str | Path | None = None,
) -> Public:
    """`count` different public images of `shape` (channels, height, width), chosen by `key_seed`.

    A named set whose pictures are larger than `shape` yields more than it has: sharp crops follow the whole ones.
    """
    if count < 1:
        raise UserError(f"Expected at least one public image (key: public_count), got {count}.")
    if shape[0] not in (1, 3) or min(shape) < 1:
        raise UserError(f"Expected public images with 1 or 3 channels (--channels), got shape {shape}.")
    name = str(name_or_path)
    if name in DRAWN:
        return _drawn(name, shape, count, key_seed)
    if is_sum(name):
        return _sum(name.split("+"), shape=shape, count=count, key_seed=key_seed, data_dir=data_dir)
    rng = np.random.default_rng(np.random.SeedSequence([key_seed, _CHOICE_STREAM]))
    if isinstance(name_or_path, Path) or (not is_named(name) and Path(name).is_dir()):
        return _folder(Path(name), shape, count, rng)
    pool = _named(name, data_directory(data_dir))
    room = min(pool.shape[2] - shape[1], pool.shape[3] - shape[2])
    chosen = _choose(len(pool), min(count, len(pool)) if room > 0 else count, rng, name)
    images = pool[chosen].astype(np.float32)
    if pool.dtype == np.uint8:
        images /= 255
    fitted = _fit(images, shape, name)
    return fitted if count <= len(pool) else _with_crops(fitted, images, count - len(pool), rng, name=name)


def is_named(name: str) -> bool:
    """Whether `load_public` knows this name, or each of the names that it joins."""
    return name in public_names() or is_sum(name)


def is_sum(name: str) -> bool:
    """Whether this is several named sources joined by "+", each a part of the images, and none twice: a request that
    names one a thousand times would have it read as often."""
    parts = name.split("+")
    return 1 < len(parts) == len(set(parts)) and name != _OLD_SUM and all(part in public_names() for part in parts)


def _sum(names: list[str], *, shape: tuple[int, int, int], count: int, key_seed: int, data_dir: Any) -> Public:
    """As equal parts of each source as they have images for, mixed: the first so many are a mixture as well."""
    import torch

    counts = _parts([_room(name, shape) for name in names], count, "+".join(names))
    found = [
        load_public(name, shape=shape, count=part, key_seed=key_seed, data_dir=data_dir)
        for name, part in zip(names, counts)
        if part
    ]
    images = torch.cat([part.images for part in found])
    rng = np.random.default_rng(np.random.SeedSequence([key_seed, _CHOICE_STREAM]))
    order = torch.from_numpy(rng.permutation(len(images)))
    return Public(images[order], tuple(line for part in found for line in part.notices))


_SIZES = {"kannada": 10_000, "omniglot": 4840, _OLD_SUM: 14_840, "tiny-imagenet": 5000}


def _room(name: str, shape: tuple[int, int, int]) -> float:
    """How many images of this shape a named source has: drawn ones, and crops of larger ones, are without end."""
    if name in DRAWN:
        return math.inf
    size, side = (_SIZES[name], 64 if name == "tiny-imagenet" else 28) if name in _SIZES else (0, 0)
    if name in DATASETS:
        size, side = DATASETS[name].train_size, min(DATASETS[name].shape[1:])
    return math.inf if side > max(shape[1:]) else size


def _parts(rooms: list[float], count: int, name: str) -> list[int]:
    """`count` in parts as equal as the rooms allow; the first ones take what is left over."""
    found = [0] * len(rooms)
    while (left := count - sum(found)) > 0:
        free = [i for i, room in enumerate(rooms) if found[i] < room]
        if not free:
            raise UserError(f"Expected {count} public images, but '{name}' has only {sum(found)}; lower public_count.")
        for k, i in enumerate(free):
            found[i] += int(min(rooms[i] - found[i], left // len(free) + (k < left % len(free))))
    return found


def _drawn(name: str, shape: tuple[int, int, int], count: int, seed: int) -> Public:
    import torch

    from prismfl.data.procedural import draw

    if DRAWN[name] == "mixed":
        kinds = [kind for kind, one in DRAWN.items() if one not in ("", "mixed")]
        return _sum(kinds, shape=shape, count=count, key_seed=seed, data_dir=None)
    kind = DRAWN[name] or ("strokes" if shape[0] == 1 else "leaves")
    return Public(torch.from_numpy(draw(kind, shape=shape, count=count, seed=seed)))


def _choose(found: int, count: int, rng: np.random.Generator, name: str) -> npt.NDArray[np.int64]:
    if found < count:
        raise UserError(
            f"Expected {count} public images, but '{name}' has only {found}; ask for fewer or use procedural, which "
            f"draws as many as needed."
        )
    return rng.choice(found, size=count, replace=False)


def _folder(folder: Path, shape: tuple[int, int, int], count: int, rng: np.random.Generator) -> Public:
    import torch

    from prismfl.data.decoding import open_picture, to_array
    from prismfl.data.folders import SUFFIXES

    if not folder.is_dir():
        raise UserError(f"Expected a folder of public images (--public) at {folder}, but there is none.")
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    if not files:
        raise UserError(f"Expected PNG or JPEG images in {folder}, got none.")
    chosen = _choose(len(files), count, rng, str(folder))
    channels, height, width = shape
    images = np.stack([to_array(open_picture(files[i]), (width, height), channels) for i in chosen])
    notice = (
        f"Public images from {folder} fitted to {height}x{width} pixels and {channels} channels where they differed."
    )
    return Public(torch.from_numpy(images), (notice,))


def _named(name: str, folder: Path | None) -> Images:
    """All images of a named set as NCHW, bytes where the source has bytes."""
    from prismfl.data.stored import read_idx, read_npz, read_pixels, read_sheet

    if name == "kannada":
        return read_idx(read_checked(folder, name, *FILES[name]))[:, None]
    if name == "omniglot":
        return read_npz(read_checked(folder, name, *FILES[name]))["images"][:, None]
    if name == "kannada+omniglot":
        return np.concatenate([_named("kannada", folder), _named("omniglot", folder)])
    if name == "tiny-imagenet":
        return read_sheet(read_checked(folder, name, *FILES[name]), columns=50, side=64)
    spec = _image_spec(name)
    return load(name).x_train.numpy() if name in EMBEDDED else read_pixels(spec, folder)


def _image_spec(name: str) -> Spec:
    spec = DATASETS.get(name)
    if spec is None:
        near = difflib.get_close_matches(name, public_names(), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"use a folder or one of {', '.join(public_names())}."
        raise UserError(f"Unknown public images '{name}' (--public); {hint}")
    if spec.kind != "image":
        raise UserError(f"Expected images as --public, got the table '{name}'; use procedural or another image set.")
    return spec


def _fit(images: npt.NDArray[np.float32], shape: tuple[int, int, int], name: str) -> Public:
    """The asked channels and size, with a notice for each change."""
    import torch
    from torch.nn.functional import interpolate

    channels, height, width = shape
    x = torch.from_numpy(images)
    notices = []
    if x.shape[1] != channels:
        if channels == 1:
            x = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        else:
            x = x.repeat(1, 3, 1, 1)
        notices.append(
            f"Public images '{name}' turned from {'colour to grey' if channels == 1 else 'grey to 3 channels'}."
        )
    if tuple(x.shape[2:]) != (height, width):
        notices.append(f"Public images '{name}' resized from {x.shape[2]}x{x.shape[3]} to {height}x{width}.")
        x = interpolate(x, size=(height, width), mode="bilinear", antialias=True, align_corners=False)
    return Public(x.clamp_(0, 1).contiguous(), tuple(notices))


def _with_crops(
    fitted: Public, originals: npt.NDArray[np.float32], count: int, rng: np.random.Generator, *, name: str
) -> Public:
    """After the whole images, random square crops of the originals, no smaller than the asked size, half mirrored."""
    import torch

    _, channels, height, width = fitted.images.shape
    full = min(originals.shape[2:])
    draws = rng.random((count, 4))
    parts = [fitted.images]
    for i, (size, top, left, flip) in enumerate(draws):
        side = round(max(height, width) + size * (full - max(height, width)))
        a, b = (int(t * (s - side + 1)) for t, s in zip((top, left), originals.shape[2:]))
        crop = originals[i % len(originals), :, a : a + side, b : b + side][None]
        parts.append(_fit(crop[..., ::-1].copy() if flip < 0.5 else crop, (channels, height, width), name).images)
    notice = f"Public images '{name}': {len(fitted.images)} whole ones and {count} crops of them."
    return Public(torch.cat(parts), (*fitted.notices, notice))
