"""Central images: noisy sums over random parts of a site's records, by class, that show what a class looks like.

A record adds one vector of norm at most 1 to one block (its class, or its class and bucket): its picture at a low
resolution and a count. Everything made from the sums, denominators included, is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.nn import functional as F

from prismfl.core.door import PrivateRecords
from prismfl.methods.generators.images import CLEAR
from prismfl.rng import Key

FAINT = 0.15  # and its picture when the noise on a pixel, on average, is below this
COARSE = 4  # side of the public patterns that tell buckets apart


@dataclass(frozen=True)
class Central:
    """Public description of the questions.

    `kind` mean: sums of pictures; mode: sums of how often a pixel falls into each of `bins` grey levels; bucket: sums
    of pictures, each class divided into `buckets` by public random patterns around its own noisy mean. `bound` is the
    root mean square pixel above which a picture is dimmed.
    """

    kind: Literal["mean", "mode", "bucket"]
    image: tuple[int, ...]
    classes: int
    side: int
    queries: int
    batch: float
    sigma: float
    bound: float = 0.5
    bins: int = 6
    buckets: int = 8
    share_count: float = 0.1

    @property
    def pixels(self) -> int:
        """Numbers of a small picture."""
        return self.image[0] * self.side**2

    @property
    def blocks(self) -> int:
        """Classes, or classes times buckets."""
        return self.classes * (self.buckets if self.kind == "bucket" else 1)

    @property
    def width(self) -> int:
        """Numbers of a block: its picture, or its levels, and its count."""
        return self.pixels * (self.bins if self.kind == "mode" else 1) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answers."""
        return (self.queries, self.blocks, self.width)

    @property
    def together(self) -> float:
        """How many questions' answers stand in one row."""
        return 1.0

    @property
    def count_noise(self) -> float:
        """Standard deviation of a block's count in one answer, in records."""
        return self.sigma / math.sqrt(self.share_count)

    def rows(self, x: torch.Tensor, y: torch.Tensor, centres: torch.Tensor | None = None) -> torch.Tensor:
        """A vector per record, of norm at most 1. Buckets are told apart around `centres`, a picture per class."""
        low = F.adaptive_avg_pool2d(x.clamp(0.0, 1.0), self.side).flatten(1)
        body = self._levels(low) if self.kind == "mode" else self._picture(low)
        much, little = math.sqrt(1.0 - self.share_count), math.sqrt(self.share_count)
        vector = torch.cat([much * body, torch.full((len(x), 1), little).to(body)], 1)
        where = F.one_hot(self._block(low, y, centres), self.blocks).to(vector)
        return (where[:, :, None] * vector[:, None, :]).flatten(1)

    def ask(self, door: PrivateRecords) -> torch.Tensor:
        """The noisy sums of all questions: (queries, blocks, width).

        Buckets need centres: the first answer is that of whole classes, and the next ones are asked around it.
        """
        answers: list[torch.Tensor] = []
        for _ in range(self.queries):
            centres = self._small(answers[0])[:: self.buckets] if answers and self.kind == "bucket" else None
            rows = partial(self.rows, centres=centres)
            answer = door.noisy_sum(rows, bound=1.0, sigma=self.sigma, batch=self.batch)
            answers.append(answer.reshape(self.blocks, self.width))
        return torch.stack(answers)

    def counts(self, sums: torch.Tensor, *, records: float) -> torch.Tensor:
        """Estimated records of each class, from the noisy counts of all questions."""
        rate = min(1.0, self.batch / records)
        blocks = sums[:, :, -1].mean(0) / math.sqrt(self.share_count) / rate
        return blocks.reshape(self.classes, -1).sum(1)

    def total_noise(self, *, records: float, sites: int = 1) -> float:
        """Standard deviation of `counts`."""
        rate = min(1.0, self.batch / records)
        per_class = self.blocks // self.classes
        return self.count_noise * math.sqrt(per_class * sites / self.queries) / rate

    def images(self, sums: torch.Tensor, *, sites: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures at full size with their classes; blocks that do not stand out of the noise are left out."""
        noise = self.sigma * math.sqrt(sites)
        least = max(CLEAR / math.sqrt(self.share_count), self.bound * math.sqrt(self.pixels) / FAINT) * noise
        clear = sums[:, :, -1] / math.sqrt(self.share_count) > least
        block = torch.arange(self.blocks).expand(len(sums), -1)[clear]
        small = self._small(sums)[clear].reshape(-1, self.image[0], self.side, self.side)
        labels = block // (self.blocks // self.classes)
        if not len(small):
            return torch.zeros(0, *self.image), labels
        return F.interpolate(small, size=self.image[1:], mode="bilinear", align_corners=False), labels

    def _small(self, sums: torch.Tensor) -> torch.Tensor:
        """Small pictures in [0, 1] from noisy sums (..., blocks, width)."""
        body = sums[..., :-1] / math.sqrt(1.0 - self.share_count)
        if self.kind == "mode":
            level = body.reshape(*body.shape[:-1], self.pixels, self.bins).argmax(-1)
            return (level.float() + 0.5) / self.bins
        counts = (sums[..., -1:] / math.sqrt(self.share_count)).clamp(min=1.0)
        small: torch.Tensor = body / counts * (self.bound * math.sqrt(self.pixels))
        return small.clamp(0.0, 1.0)

    def _picture(self, low: torch.Tensor) -> torch.Tensor:
        scaled = low / (self.bound * math.sqrt(self.pixels))
        inside: torch.Tensor = scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=1.0)
        return inside

    def _levels(self, low: torch.Tensor) -> torch.Tensor:
        level = (low * self.bins).long().clamp(0, self.bins - 1)
        levels: torch.Tensor = F.one_hot(level, self.bins).to(low).flatten(1)
        return levels / math.sqrt(self.pixels)

    def _block(self, low: torch.Tensor, y: torch.Tensor, centres: torch.Tensor | None) -> torch.Tensor:
        if self.kind != "bucket":
            return y
        if centres is None:
            return y * self.buckets
        return y * self.buckets + ((low - centres.to(low)[y]) @ self._patterns().to(low).T).argmax(1)

    def _patterns(self) -> torch.Tensor:
        """Smooth public patterns: which of them a picture resembles most is its bucket."""
        drawn = torch.randn(self.buckets, self.image[0], COARSE, COARSE, generator=Key.seed(0).child("buckets").torch())
        smooth = F.interpolate(drawn, size=(self.side, self.side), mode="bilinear", align_corners=False).flatten(1)
        return F.normalize(smooth - smooth.mean(1, keepdim=True), dim=1)
