"""Brushes of the drawn public images: grids, smooth noise, related colours, and dead leaves.

Dead leaves are coloured shapes that cover one another, with sizes that follow a power law: the simplest pictures whose
edges and colours are distributed somewhat like those of photographs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float32]
Rng = np.random.Generator


def uniform(rng: Rng, low: float, high: float, *size: int) -> Pixels:
    """Uniform draws between `low` and `high` as float32."""
    return rng.uniform(low, high, size).astype(np.float32)


def grid(height: int, width: int) -> tuple[Pixels, Pixels]:
    """Pixel centres with the longer side spanning -1 to 1."""
    half = max(height, width) / 2
    y = (np.arange(height, dtype=np.float32) + 0.5 - height / 2) / half
    x = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) / half
    return np.broadcast_to(y[:, None], (height, width)), np.broadcast_to(x, (height, width))


def smooth_noise(rng: Rng, n: int, height: int, width: int, *, grain: float, mirrored: bool) -> npt.NDArray[np.float64]:
    """Smooth noise of mean 0 and variance 1 in each image; `grain` is its blur in halves of the longer side."""
    from scipy.ndimage import gaussian_filter

    sigma = grain * max(height, width) / 2
    noise = gaussian_filter(rng.standard_normal((n, height, width)), (0, sigma, sigma), mode="wrap")
    if mirrored:
        noise = noise + noise[:, :, ::-1]
    noise = noise - noise.mean((1, 2), keepdims=True)
    return np.asarray(noise / (noise.std((1, 2), keepdims=True) + 1e-9))


def dead_leaves(rng: Rng, n: int, height: int, width: int) -> Pixels:
    """Images (n, h, w, 3) in [0, 1] of textured leaves that cover one another, under an uneven light."""
    gy, gx = (axis[None] for axis in grid(height, width))
    colours = palette(rng, n)
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
        colour = colours[np.arange(n), rng.integers(0, colours.shape[1], n)] + rng.normal(0, 0.05, (n, 3))
        shade = _texture(rng, across, along, gy, gx)
        paint = np.clip(colour[:, None, None].astype(np.float32) + shade[..., None], 0, 1)
        images += alpha[..., None] * (paint - images)
    light = 1 + uniform(rng, -0.25, 0.25, n, 1, 1) * gx + uniform(rng, -0.25, 0.25, n, 1, 1) * gy
    return np.clip(images * light[..., None], 0, 1)


def _leaf(rng: Rng, radius: Pixels, gy: Pixels, gx: Pixels, *, edge: float) -> tuple[Pixels, Pixels, Pixels]:
    """Cover of one shape (between an ellipse and a box) in each image, and its own two coordinates."""
    n = len(radius)
    angle = uniform(rng, 0, np.pi, n, 1, 1)
    dy, dx = gy - uniform(rng, -1.1, 1.1, n, 1, 1), gx - uniform(rng, -1.1, 1.1, n, 1, 1)
    stretch = np.exp(rng.normal(0, 0.45, (n, 1, 1))).astype(np.float32)
    across = (np.cos(angle) * dx + np.sin(angle) * dy) / (radius * stretch)
    along = (np.cos(angle) * dy - np.sin(angle) * dx) / (radius / stretch)
    boxy = (rng.random((n, 1, 1)) < 0.35).astype(np.float32)
    ellipse = np.sqrt(across**2 + along**2)
    reach = ellipse + boxy * (np.maximum(np.abs(across), np.abs(along)) - ellipse)
    soft = edge * np.where(rng.random((n, 1, 1)) < 0.2, uniform(rng, 2, 5, n, 1, 1), 1)
    alpha = np.clip((1 - reach) * radius / soft + 0.5, 0, 1)
    return alpha.astype(np.float32), across, along


def _texture(rng: Rng, across: Pixels, along: Pixels, gy: Pixels, gx: Pixels) -> Pixels:
    """Brightness within a leaf: a gradient along its own axes, and on some leaves stripes."""
    n = len(across)
    slope = uniform(rng, -0.22, 0.22, n, 1, 1)
    gradient = slope * np.clip(across, -1, 1) + uniform(rng, -0.12, 0.12, n, 1, 1) * np.clip(along, -1, 1)
    strength = uniform(rng, 0.04, 0.2, n, 1, 1) * (rng.random((n, 1, 1)) < 0.35)
    angle, pitch = uniform(rng, 0, np.pi, n, 1, 1), uniform(rng, 6, 30, n, 1, 1)
    stripes = np.sin(pitch * (np.cos(angle) * gx + np.sin(angle) * gy) + uniform(rng, 0, 6.28, n, 1, 1))
    return (gradient + strength * stripes).astype(np.float32)


def palette(rng: Rng, n: int, colours: int = 7) -> Pixels:
    """A few related colours an image: brightness varies most, and hues gather around two per image."""
    bright = rng.beta(1.6, 1.6, (n, colours, 1))
    hue = rng.random((n, 1, 1)) + np.where(rng.random((n, colours, 1)) < 0.6, 0, rng.random((n, 1, 1)))
    hue = hue + rng.normal(0, 0.05, (n, colours, 1))
    colourful = rng.beta(1.3, 2.2, (n, colours, 1)) * np.minimum(bright, 1 - bright) * 2
    phases = np.array([0.0, 1 / 3, 2 / 3])
    tint = 0.5 * colourful * np.cos(2 * np.pi * (hue - phases))
    return np.asarray(np.clip(bright + tint, 0, 1), dtype=np.float32)
