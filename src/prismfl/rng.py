"""Randomness in two kinds: keys for ordinary choices, and one cryptographic stream for noise and sampling.

A `Key` is a name for randomness: the same path from the same seed gives the same numbers, whatever the global
seed is. `NoiseStream` is what differential privacy draws from; it only moves forward and nothing can reseed it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

SIMULATION = "seeded: simulation only"
DEPLOYMENT = "operating system"
NO_PROTECTION = "simulation: no protection"
"""What stands where the guarantee would stand when the noise follows from a seed."""


@dataclass(frozen=True)
class Key:
    """32 bytes from which generators are derived; children are independent of each other and of the parent."""

    entropy: bytes = field(repr=False)
    source: str = SIMULATION

    @classmethod
    def seed(cls, seed: int) -> Key:
        return cls(hashlib.sha256(f"prismfl seed {seed}".encode()).digest())

    @classmethod
    def from_os(cls) -> Key:
        return cls(os.urandom(32), DEPLOYMENT)

    def child(self, *path: str | int) -> Key:
        entropy = self.entropy
        for part in path:
            entropy = hashlib.sha256(entropy + f"{type(part).__name__}:{part}".encode()).digest()
        return Key(entropy, self.source)

    def integer(self) -> int:
        return int.from_bytes(self.entropy[:8], "big") >> 1

    def torch(self, device: str | torch.device = "cpu") -> torch.Generator:
        generator = torch.Generator(device=device)
        generator.manual_seed(self.integer())
        return generator

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(np.frombuffer(self.entropy, dtype=np.uint32))

    def noise(self) -> NoiseStream:
        return NoiseStream(self)


class NoiseStream:
    """A ChaCha20 key stream read as uniform and Gaussian float64 numbers.

    Simulation and deployment take the same path and differ only in where the 32 key bytes come from, so what is
    tested with a seed is what runs with the operating system's entropy.
    """

    def __init__(self, key: Key) -> None:
        self.source = key.source
        self._stream = Cipher(algorithms.ChaCha20(key.entropy, b"\0" * 16), mode=None).encryptor()

    def uniform(self, count: int) -> torch.Tensor:
        """`count` numbers in (0, 1), never exactly 0 or 1."""
        raw = np.frombuffer(self._stream.update(b"\0" * (8 * count)), dtype="<u8")
        return torch.from_numpy(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)

    def normal(self, count: int) -> torch.Tensor:
        """`count` standard normal float64 numbers (Box-Muller)."""
        half = (count + 1) // 2
        u = self.uniform(2 * half)
        radius = torch.sqrt(-2.0 * torch.log(u[:half]))
        angle = (2.0 * np.pi) * u[half:]
        return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])[:count]

    def laplace(self, count: int) -> torch.Tensor:
        """`count` standard (scale 1) Laplace float64 numbers."""
        u = self.uniform(count) - 0.5
        return -torch.sign(u) * torch.log1p(-2.0 * u.abs())
