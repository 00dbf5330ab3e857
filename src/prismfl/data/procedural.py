"""Public images that nobody had to collect: pen strokes, silhouettes and dead leaves, drawn by a seeded generator.

They need no download and can contain no person. Strokes are white curves on black with the size, slant and thickness of
handwriting; silhouettes are filled, shaded shapes on black, alike on both sides; dead leaves are coloured shapes that
cover one another, with sizes that follow a power law, the simplest pictures whose edges and colours are distributed
somewhat like those of photographs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float32]
Rng = np.random.Generator

_CHUNK = 256
_LUMINANCE = np.array([[0.299], [0.587], [0.114]], dtype=np.float32)
_POINTS = 48
_STROKES = 3


def draw(kind: str, *, shape: tuple[int, int, int], count: int, seed: int) -> Pixels:
    """Images of `kind` "strokes", "silhouettes" or "leaves", NCHW float32 in [0, 1].

    The first ones do not depend on `count`.
    """
    channels, height, width = shape
    batches = []
    for start in range(0, count, _CHUNK):
        rng = np.random.default_rng(np.random.SeedSequence([seed, 0xD2A3, start]))
        if kind in _GREY:
            images = np.repeat(_GREY[kind](rng, _CHUNK, height, width)[:, None], channels, axis=1)
        else:
            images = _leaves(rng, _CHUNK, height, width)
            if channels == 1:
                images = images @ _LUMINANCE
            images = images.transpose(0, 3, 1, 2)
        batches.append(images)
    return np.ascontiguousarray(np.concatenate(batches)[:count], dtype=np.float32)


def _uniform(rng: Rng, low: float, high: float, *size: int) -> Pixels:
    return rng.uniform(low, high, size).astype(np.float32)


def _grid(height: int, width: int) -> tuple[Pixels, Pixels]:
    """Pixel centres with the longer side spanning -1 to 1."""
    half = max(height, width) / 2
    y = (np.arange(height, dtype=np.float32) + 0.5 - height / 2) / half
    x = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) / half
    return np.broadcast_to(y[:, None], (height, width)), np.broadcast_to(x, (height, width))


def _strokes(rng: Rng, n: int, height: int, width: int) -> Pixels:
    points = _pen_paths(rng, n)
    # Handwriting is scaled to a common box and centred, as digit collections are.
    low, high = np.nanmin(points, 1, keepdims=True), np.nanmax(points, 1, keepdims=True)
    half = np.maximum((high - low).max(2, keepdims=True) / 2, 1e-3)
    points = (points - (low + high) / 2) / half * _uniform(rng, 0.6, 0.8, n, 1, 1)
    gy, gx = _grid(height, width)
    pixels = np.stack([gy.ravel(), gx.ravel()])
    points = np.nan_to_num(points, nan=9.0)  # strokes that were not drawn lie far outside the picture
    square = (points**2).sum(2)[:, :, None] - 2 * points @ pixels
    distance = np.sqrt(np.maximum(square.min(1) + (pixels**2).sum(0), 0))
    radius = _uniform(rng, 0.06, 0.125, n, 1)
    soft = 2.0 / max(height, width)
    ink = np.clip((radius - distance) / soft + 0.5, 0, 1) * _uniform(rng, 0.85, 1.0, n, 1)
    return np.asarray(ink.reshape(n, height, width), dtype=np.float32)


def _pen_paths(rng: Rng, n: int) -> Pixels:
    """Points (n, strokes x points, 2) along one to three smooth strokes; those of strokes left out are NaN."""
    t = np.linspace(0, 1, _POINTS, dtype=np.float32)
    drawn = 1 + rng.choice(_STROKES, size=n, p=[0.45, 0.35, 0.2])
    paths = np.full((n, _STROKES, _POINTS, 2), np.nan, dtype=np.float32)
    for stroke in range(_STROKES):
        # The heading of the pen: straight, bent or nearly closed, with a wave on top.
        bend = _uniform(rng, -1, 1, n, 1) * rng.choice([0.6, 4.0, 7.0], size=(n, 1), p=[0.35, 0.4, 0.25])
        wave = rng.normal(0, 0.55, (n, 1)) * np.sin(
            2 * np.pi * (t * _uniform(rng, 0.6, 1.6, n, 1) + rng.random((n, 1)))
        )
        corner = np.where(t > _uniform(rng, 0.25, 0.75, n, 1), rng.normal(0, 1.6, (n, 1)), 0) * (
            rng.random((n, 1)) < 0.3
        )
        heading = _uniform(rng, 0, 2 * np.pi, n, 1) + bend * t + wave + corner
        length = _uniform(rng, 0.9, 2.0, n, 1, 1) if stroke == 0 else _uniform(rng, 0.35, 1.4, n, 1, 1)
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
    gy, gx = _grid(height, width)
    outline = _field(rng, n, height, width, grain=0.36, mirrored=True) - 2.2 * np.sqrt(1.3 * gx**2 + gy**2)
    cover = rng.uniform(0.2, 0.6, n)
    level = np.array([np.quantile(one, 1 - part) for one, part in zip(outline, cover)])[:, None, None]
    mask = 1 / (1 + np.exp(-12 * (outline - level)))
    shade = rng.normal(0.55, 0.2, (n, 1, 1)) + 0.12 * _field(rng, n, height, width, grain=0.29, mirrored=True)
    shade = shade + 0.06 * _field(rng, n, height, width, grain=0.07, mirrored=False)
    return np.asarray(mask * np.clip(shade, 0.1, 1), dtype=np.float32)


def _field(rng: Rng, n: int, height: int, width: int, *, grain: float, mirrored: bool) -> npt.NDArray[np.float64]:
    """Smooth noise of mean 0 and variance 1 in each image; `grain` is its blur in halves of the longer side."""
    from scipy.ndimage import gaussian_filter

    sigma = grain * max(height, width) / 2
    noise = gaussian_filter(rng.standard_normal((n, height, width)), (0, sigma, sigma), mode="wrap")
    if mirrored:
        noise = noise + noise[:, :, ::-1]
    noise = noise - noise.mean((1, 2), keepdims=True)
    return np.asarray(noise / (noise.std((1, 2), keepdims=True) + 1e-9))


def _leaves(rng: Rng, n: int, height: int, width: int) -> Pixels:
    gy, gx = (axis[None] for axis in _grid(height, width))
    palette = _palette(rng, n)
    images = np.zeros((n, height, width, 3), dtype=np.float32)
    leaves = 40
    # Radii with density ~ r^-3 between the bounds; the first leaf is the background.
    smallest, largest = 0.12, 1.4
    u = rng.random((n, leaves))
    radii = (smallest**-2 - u * (smallest**-2 - largest**-2)) ** -0.5
    radii[:, 0] = 6.0
    for leaf in range(leaves):
        radius = radii[:, leaf].astype(np.float32)[:, None, None]
        alpha, across, along = _leaf(rng, radius, gy, gx, edge=2.0 / max(height, width))
        colour = palette[np.arange(n), rng.integers(0, palette.shape[1], n)] + rng.normal(0, 0.05, (n, 3))
        shade = _texture(rng, across, along, gy, gx)
        paint = np.clip(colour[:, None, None].astype(np.float32) + shade[..., None], 0, 1)
        images += alpha[..., None] * (paint - images)
    light = 1 + _uniform(rng, -0.25, 0.25, n, 1, 1) * gx + _uniform(rng, -0.25, 0.25, n, 1, 1) * gy
    return np.clip(images * light[..., None], 0, 1)


def _leaf(rng: Rng, radius: Pixels, gy: Pixels, gx: Pixels, *, edge: float) -> tuple[Pixels, Pixels, Pixels]:
    """Cover of one shape (between an ellipse and a box) in each image, and its own two coordinates."""
    n = len(radius)
    angle = _uniform(rng, 0, np.pi, n, 1, 1)
    dy, dx = gy - _uniform(rng, -1.1, 1.1, n, 1, 1), gx - _uniform(rng, -1.1, 1.1, n, 1, 1)
    stretch = np.exp(rng.normal(0, 0.45, (n, 1, 1))).astype(np.float32)
    across = (np.cos(angle) * dx + np.sin(angle) * dy) / (radius * stretch)
    along = (np.cos(angle) * dy - np.sin(angle) * dx) / (radius / stretch)
    boxy = (rng.random((n, 1, 1)) < 0.35).astype(np.float32)
    ellipse = np.sqrt(across**2 + along**2)
    reach = ellipse + boxy * (np.maximum(np.abs(across), np.abs(along)) - ellipse)
    soft = edge * np.where(rng.random((n, 1, 1)) < 0.2, _uniform(rng, 2, 5, n, 1, 1), 1)
    alpha = np.clip((1 - reach) * radius / soft + 0.5, 0, 1)
    return alpha.astype(np.float32), across, along


def _texture(rng: Rng, across: Pixels, along: Pixels, gy: Pixels, gx: Pixels) -> Pixels:
    """Brightness within a leaf: a gradient along its own axes, and on some leaves stripes."""
    n = len(across)
    slope = _uniform(rng, -0.22, 0.22, n, 1, 1)
    gradient = slope * np.clip(across, -1, 1) + _uniform(rng, -0.12, 0.12, n, 1, 1) * np.clip(along, -1, 1)
    strength = _uniform(rng, 0.04, 0.2, n, 1, 1) * (rng.random((n, 1, 1)) < 0.35)
    angle, pitch = _uniform(rng, 0, np.pi, n, 1, 1), _uniform(rng, 6, 30, n, 1, 1)
    stripes = np.sin(pitch * (np.cos(angle) * gx + np.sin(angle) * gy) + _uniform(rng, 0, 6.28, n, 1, 1))
    return (gradient + strength * stripes).astype(np.float32)


def _palette(rng: Rng, n: int, colours: int = 7) -> Pixels:
    """A few related colours an image: brightness varies most, and hues gather around two per image."""
    bright = rng.beta(1.6, 1.6, (n, colours, 1))
    hue = rng.random((n, 1, 1)) + np.where(rng.random((n, colours, 1)) < 0.6, 0, rng.random((n, 1, 1)))
    hue = hue + rng.normal(0, 0.05, (n, colours, 1))
    colourful = rng.beta(1.3, 2.2, (n, colours, 1)) * np.minimum(bright, 1 - bright) * 2
    phases = np.array([0.0, 1 / 3, 2 / 3])
    tint = 0.5 * colourful * np.cos(2 * np.pi * (hue - phases))
    return np.asarray(np.clip(bright + tint, 0, 1), dtype=np.float32)


_GREY = {"strokes": _strokes, "silhouettes": _silhouettes}
