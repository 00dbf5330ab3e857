"""Public images that nobody had to collect: pen strokes, silhouettes, dead leaves and portraits, from a seed.

They need no download and can contain no person. Strokes are white curves on black with the size, slant and thickness of
handwriting; silhouettes are filled, shaded shapes on black, alike on both sides; dead leaves (`drawing.py`) stand for
photographs of anything; portraits (`portraits.py`) are faces that are nobody's.
"""

from __future__ import annotations

import numpy as np

from prismfl.data.drawing import Pixels, Rng, dead_leaves, grid, smooth_noise, uniform
from prismfl.data.portraits import draw_portraits
from prismfl.stages import track

_CHUNK, _LARGE = 256, 64  # drawn at a time; of pictures with a longer side, a quarter of that
_LUMINANCE = np.array([[0.299], [0.587], [0.114]], dtype=np.float32)
_POINTS = 48
_STROKES = 3


def draw(kind: str, *, shape: tuple[int, int, int], count: int, seed: int) -> Pixels:
    """Images of `kind` "strokes", "silhouettes", "leaves" or "portraits", NCHW float32 in [0, 1].

    The first ones do not depend on `count`.
    """
    channels, height, width = shape
    found = np.empty((count, *shape), dtype=np.float32)
    size = _CHUNK if max(height, width) <= _LARGE else _CHUNK // 4
    for start in track(range(0, count, size), "drawing public images", count, each=lambda _: size):
        rng = np.random.default_rng(np.random.SeedSequence([seed, 0xD2A3, start]))
        if kind in _GREY:
            images = np.repeat(_GREY[kind](rng, size, height, width)[:, None], channels, axis=1)
        else:
            images = _COLOUR[kind](rng, size, height, width)
            if channels == 1:
                images = images @ _LUMINANCE
            images = images.transpose(0, 3, 1, 2)
        found[start : start + size] = images[: count - start]
    return found


def _strokes(rng: Rng, n: int, height: int, width: int) -> Pixels:
    points = _pen_paths(rng, n)
    # Handwriting is scaled to a common box and centred, as digit collections are.
    low, high = np.nanmin(points, 1, keepdims=True), np.nanmax(points, 1, keepdims=True)
    half = np.maximum((high - low).max(2, keepdims=True) / 2, 1e-3)
    points = (points - (low + high) / 2) / half * uniform(rng, 0.6, 0.8, n, 1, 1)
    gy, gx = grid(height, width)
    pixels = np.stack([gy.ravel(), gx.ravel()])
    points = np.nan_to_num(points, nan=9.0)  # strokes that were not drawn lie far outside the picture
    square = (points**2).sum(2)[:, :, None] - 2 * points @ pixels
    distance = np.sqrt(np.maximum(square.min(1) + (pixels**2).sum(0), 0))
    radius = uniform(rng, 0.06, 0.125, n, 1)
    soft = 2.0 / max(height, width)
    ink = np.clip((radius - distance) / soft + 0.5, 0, 1) * uniform(rng, 0.85, 1.0, n, 1)
    return np.asarray(ink.reshape(n, height, width), dtype=np.float32)


def _pen_paths(rng: Rng, n: int) -> Pixels:
    """Points (n, strokes x points, 2) along one to three smooth strokes; those of strokes left out are NaN."""
    t = np.linspace(0, 1, _POINTS, dtype=np.float32)
    drawn = 1 + rng.choice(_STROKES, size=n, p=[0.45, 0.35, 0.2])
    paths = np.full((n, _STROKES, _POINTS, 2), np.nan, dtype=np.float32)
    for stroke in range(_STROKES):
        # The heading of the pen: straight, bent or nearly closed, with a wave on top.
        bend = uniform(rng, -1, 1, n, 1) * rng.choice([0.6, 4.0, 7.0], size=(n, 1), p=[0.35, 0.4, 0.25])
        wave = rng.normal(0, 0.55, (n, 1)) * np.sin(2 * np.pi * (t * uniform(rng, 0.6, 1.6, n, 1) + rng.random((n, 1))))
        corner = np.where(t > uniform(rng, 0.25, 0.75, n, 1), rng.normal(0, 1.6, (n, 1)), 0) * (
            rng.random((n, 1)) < 0.3
        )
        heading = uniform(rng, 0, 2 * np.pi, n, 1) + bend * t + wave + corner
        length = uniform(rng, 0.9, 2.0, n, 1, 1) if stroke == 0 else uniform(rng, 0.35, 1.4, n, 1, 1)
        steps = np.stack([np.sin(heading), np.cos(heading)], axis=2) * length / _POINTS
        path = np.cumsum(steps, axis=1)
        if stroke:
            # Later strokes cross or touch an earlier one at a random point of each.
            touch = paths[np.arange(n), 0, rng.integers(0, _POINTS, n)]
            own = path[np.arange(n), np.where(rng.random(n) < 0.6, 0, rng.integers(0, _POINTS, n))]
            path += (touch - own + rng.normal(0, 0.06, (n, 2)))[:, None]
        keep = drawn > stroke
        paths[keep, stroke] = path[keep]
    paths[..., 1] -= paths[..., 0] * rng.normal(0.15, 0.2, (n, 1, 1))  # slant
    return paths.reshape(n, -1, 2)


def _silhouettes(rng: Rng, n: int, height: int, width: int) -> Pixels:
    gy, gx = grid(height, width)
    outline = smooth_noise(rng, n, height, width, grain=0.36, mirrored=True) - 2.2 * np.sqrt(1.3 * gx**2 + gy**2)
    cover = rng.uniform(0.2, 0.6, n)
    level = np.array([np.quantile(one, 1 - part) for one, part in zip(outline, cover)])[:, None, None]
    mask = 1 / (1 + np.exp(-12 * (outline - level)))
    shade = rng.normal(0.55, 0.2, (n, 1, 1)) + 0.12 * smooth_noise(rng, n, height, width, grain=0.29, mirrored=True)
    shade = shade + 0.06 * smooth_noise(rng, n, height, width, grain=0.07, mirrored=False)
    return np.asarray(mask * np.clip(shade, 0.1, 1), dtype=np.float32)


_GREY = {"strokes": _strokes, "silhouettes": _silhouettes}
_COLOUR = {"leaves": dead_leaves, "portraits": draw_portraits}
