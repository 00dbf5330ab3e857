"""Randomness in two kinds: keys for ordinary choices, and one cryptographic stream for noise and sampling.

A `Key` is a name for randomness: the same path from the same seed gives the same numbers, whatever the global
seed is. `NoiseStream` is what differential privacy draws from; it only moves forward and nothing can reseed it.
`RecordDraws` come out of it for one question: a record's own numbers, which follow from the record and not from its
place, so that nothing changes for the others when one is taken out.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from prismfl.sources import DEPLOYMENT, SIMULATION

Identities = npt.NDArray[np.uint8]  # (n, BLOCK)
BLOCK = 16
NAMED = 64  # records that are named at a time


@dataclass(frozen=True)
class Key:
    """32 bytes from which generators are derived; children are independent of each other and of the parent."""

    entropy: bytes = field(repr=False)
    source: str = SIMULATION

    @classmethod
    def seed(cls, seed: int) -> Key:
        """The key of a seed, for simulation."""
        return cls(hashlib.sha256(f"prismfl seed {seed}".encode()).digest())

    @classmethod
    def from_os(cls) -> Key:
        """A fresh key from the operating system's entropy, for deployment."""
        return cls(os.urandom(32), DEPLOYMENT)

    def child(self, *path: str | int) -> Key:
        """The key at a path below this one, from the same source."""
        entropy = self.entropy
        for part in path:
            entropy = hashlib.sha256(entropy + f"{type(part).__name__}:{part}".encode()).digest()
        return Key(entropy, self.source)

    def integer(self) -> int:
        """A whole number of 63 bits, for what takes a seed."""
        return int.from_bytes(self.entropy[:8], "big") >> 1

    def torch(self, device: str | torch.device = "cpu") -> torch.Generator:
        """A torch generator on a device, seeded by this key."""
        generator = torch.Generator(device=device)
        generator.manual_seed(self.integer())
        return generator

    def numpy(self) -> np.random.Generator:
        """A numpy generator, seeded by this key."""
        return np.random.default_rng(np.frombuffer(self.entropy, dtype=np.uint32))

    def noise(self) -> NoiseStream:
        """A new noise stream that begins at this key."""
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
        return _unit_interval(np.frombuffer(self._stream.update(b"\0" * (8 * count)), dtype="<u8"))

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

    def by_record(self) -> RecordDraws:
        """Fresh numbers for the records of one question. The stream moves by as much for any number of records."""
        return RecordDraws(self._stream.update(b"\0" * 64))


class RecordDraws:
    """Numbers that belong to records: AES keyed for one question, of a record's identity and a counter.

    Identities are first enciphered, so that the blocks of two records (identity plus counter) meet with no more than
    chance.
    """

    def __init__(self, key: bytes) -> None:
        self._who, self._what = key[:32], key[32:]

    def uniform(self, identities: Identities) -> torch.Tensor:
        """A float64 number in (0, 1) for each record, with 53 random bits."""
        return _unit_interval(self._blocks(identities, range(1)).view("<u8")[:, 0])

    def normal(self, identities: Identities, width: int) -> torch.Tensor:
        """`width` standard normal float32 numbers for each record (Box-Muller)."""
        half = (width + 1) // 2
        raw = self._blocks(identities, range(1, 1 + -(-half // 2))).view("<i4")[:, : 2 * half]
        bits = torch.from_numpy(raw.astype(np.int32, copy=False))
        # 31 bits near zero tell small numbers apart, which is where the tails come from.
        part = (bits[:, :half] & 0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31)
        radius, angle = part.log_().mul_(-2.0).clamp_(min=0.0).sqrt_(), bits[:, half:].float().mul_(np.pi * 2.0**-31)
        return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 1)[:, :width]

    def _blocks(self, identities: Identities, counters: range) -> npt.NDArray[np.uint8]:
        """Random bytes: (n, BLOCK * len(counters)), other ones for other counters."""
        names = _encipher(self._who, identities).view("<u8")
        blocks = np.repeat(names[:, None], len(counters), axis=1)
        blocks[:, :, 0] ^= np.arange(counters.start, counters.stop, dtype=np.uint64)
        return _encipher(self._what, blocks).reshape(len(identities), BLOCK * len(counters))


def identities(
    *parts: npt.NDArray[Any], value: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] = lambda rows: rows
) -> Identities:
    """A name for each record, out of its content (its row in every part) and nothing else.

    `value` says what some rows of a part stand for, where it is not the numbers themselves. Equal
    records are numbered: with one coin for all of them, a sample would hold all or none, which is no Poisson sample.
    """
    count, seen = len(parts[0]), Counter[bytes]()
    if not count:
        return np.zeros((0, BLOCK), dtype=np.uint8)
    found = []
    for start in range(0, count, NAMED):
        some = [np.ascontiguousarray(value(part[start : start + NAMED])) for part in parts]
        rows = [part.reshape(len(part), -1).view(np.uint8) for part in some]
        for record in zip(*rows):
            content = hashlib.blake2b(digest_size=BLOCK)
            for row in record:
                content.update(row)
            name = content.digest()
            number, seen[name] = seen[name], seen[name] + 1
            found.append(hashlib.blake2b(name, digest_size=BLOCK, salt=number.to_bytes(8)).digest() if number else name)
    return np.frombuffer(b"".join(found), dtype=np.uint8).reshape(count, BLOCK)


def _encipher(key: bytes, blocks: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Each block of 16 bytes by itself: with a fresh key, a random function of it."""
    raw = bytearray(blocks.nbytes + BLOCK - 1)  # the cipher asks for room for one block more
    Cipher(algorithms.AES(key), modes.ECB()).encryptor().update_into(blocks.tobytes(), raw)
    return np.frombuffer(raw, dtype=np.uint8, count=blocks.nbytes).reshape(-1, BLOCK)


def _unit_interval(raw: npt.NDArray[np.uint64]) -> torch.Tensor:
    return torch.from_numpy(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
