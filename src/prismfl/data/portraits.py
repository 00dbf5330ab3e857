"""Faces that are nobody's: skin, hair, eyes and mouth as soft shapes before dead leaves, drawn by a seeded generator.

The proportions are those of a centred portrait. Hair and skin each take any lightness, warm of hue, independently of
one another, so that nothing but the labels of a release tells what goes with what.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prismfl.data.drawing import Pixels, Rng, dead_leaves, grid, palette, smooth_noise, uniform

_HAIR = np.array([1.0, 0.82, 0.6])
_SKIN = np.array([1.0, 0.78, 0.64])


class _Canvas:
    """Pictures under one another's coats of paint, and the shapes and shades to paint with."""

    def __init__(self, rng: Rng, n: int, height: int, width: int) -> None:
        self.rng, self.n, self.size = rng, n, (height, width)
        self.y, self.x = (axis[None] for axis in grid(height, width))
        self.edge = 2.0 / max(height, width)
        self.images = dead_leaves(rng, n, height, width)
        self.light = self.any(-0.15, 0.15) * self.x + self.any(-0.15, 0.15) * self.y

    def any(self, low: float, high: float) -> Pixels:
        """One number a picture."""
        return uniform(self.rng, low, high, self.n, 1, 1)

    def mottle(self, strength: float, grain: float) -> Pixels:
        noise = smooth_noise(self.rng, self.n, *self.size, grain=grain, mirrored=False)
        return (strength * noise).astype(np.float32)

    def ellipse(self, y: Pixels, x: Pixels, tall: Pixels | float, wide: Pixels | float) -> Pixels:
        """How far inside a pixel is: 1 at the centre, 0 on the rim."""
        return np.asarray(1 - np.sqrt(((self.y - y) / tall) ** 2 + ((self.x - x) / wide) ** 2))

    def paint(
        self, inside: Pixels, colour: Pixels, *, soft: float, cover: Pixels | float = 1.0, shade: Pixels | float = 0.0
    ) -> None:
        alpha = cover * np.clip(inside / (self.edge * soft) + 0.5, 0, 1)
        coat = np.clip(colour[:, None, None] + np.broadcast_to(shade, alpha.shape)[..., None], 0, 1)
        self.images += (alpha[..., None] * (coat - self.images)).astype(np.float32)


def draw_portraits(rng: Rng, n: int, height: int, width: int) -> Pixels:
    """NHWC in [0, 1]."""
    to = _Canvas(rng, n, height, width)
    hair = _warm(rng, rng.beta(1.0, 1.3, (n, 1)), _HAIR, 0.2, 1.6)
    skin = _warm(rng, rng.uniform(0.3, 1, (n, 1)), _SKIN, 0.6, 1.3)
    y, x = to.any(0.0, 0.25), to.any(-0.12, 0.12)
    tall, wide = to.any(0.5, 0.75), to.any(0.36, 0.52)

    shoulders = to.ellipse(y + to.any(1.1, 1.4), x, to.any(0.45, 0.6), to.any(0.7, 1.1))
    to.paint(0.5 * shoulders, palette(rng, n, 1)[:, 0], soft=2, shade=to.mottle(0.06, 0.2) + to.light)
    strands = to.mottle(0.08, 0.1) + to.mottle(0.05, 0.04)
    to.paint(0.6 * _hair(to, y, x, tall, wide), hair, soft=3, shade=strands + to.light)
    neck = np.minimum(1 - np.abs(to.x - x) / (0.55 * wide), np.minimum(to.y - y, y + tall + 0.35 - to.y))
    to.paint(0.4 * neck, 0.85 * skin, soft=2, shade=to.light)
    hairline = to.y - (y - tall * to.any(0.4, 0.95)) + to.any(-0.25, 0.25) * np.abs(to.x - x - to.any(-0.3, 0.3))
    face = np.minimum(0.5 * to.ellipse(y, x, tall, wide), hairline + to.mottle(0.04, 0.15))
    rounding = to.any(0.0, 0.15) * ((to.x - x) / wide) ** 2
    to.paint(face, skin, soft=2, shade=to.mottle(0.05, 0.25) + to.light - rounding)
    _features(to, y, x, tall, wide, skin=skin, dark=np.clip(0.5 * hair, 0, 0.4))
    return np.clip(to.images, 0, 1)


def _warm(
    rng: Rng, lightness: npt.NDArray[np.float64], hue: npt.NDArray[np.float64], low: float, high: float
) -> Pixels:
    """Colours of a hue, more or less of it, at the given lightness."""
    n = len(lightness)
    colour = lightness * hue ** rng.uniform(low, high, (n, 1)) + rng.normal(0, 0.03, (n, 3))
    return np.clip(colour, 0, 1).astype(np.float32)


def _hair(to: _Canvas, y: Pixels, x: Pixels, tall: Pixels, wide: Pixels) -> Pixels:
    """Inside of the hair: a cap around the head, and on most heads hair that falls beside the face."""
    beside = wide + to.any(0.05, 0.3)
    cap = to.ellipse(y - to.any(0.05, 0.25), x, tall + to.any(0.02, 0.15), beside)
    length = to.any(0.0, 0.9) * (to.rng.random((to.n, 1, 1)) < 0.6)
    fall = np.minimum(1 - np.abs(to.x - x) / beside, np.minimum(to.y - y + 0.2, length - (to.y - y)))
    return np.asarray(np.maximum(0.6 * cap, fall) + to.mottle(0.05, 0.12))


def _features(to: _Canvas, y: Pixels, x: Pixels, tall: Pixels, wide: Pixels, *, skin: Pixels, dark: Pixels) -> None:
    """Eyes, brows, mouth and nose."""
    for side in (-1, 1):
        at = x + side * 0.42 * wide
        to.paint(to.ellipse(y - 0.1 * tall, at, 0.05 * to.any(0.7, 1.4), 0.1), dark, soft=2, cover=to.any(0.5, 1))
        to.paint(to.ellipse(y - 0.28 * tall, at, 0.03, 0.14), dark, soft=2, cover=to.any(0, 0.7))
    lips = skin * np.array([0.9, 0.6, 0.6], dtype=np.float32)
    mouth = to.ellipse(y + 0.5 * tall, x, 0.05 * to.any(0.6, 1.6), wide * to.any(0.3, 0.5))
    to.paint(mouth, lips, soft=2, cover=to.any(0.3, 1))
    to.paint(to.ellipse(y + 0.2 * tall, x, 0.03, 0.1), 0.7 * skin, soft=3, cover=to.any(0, 0.5))
