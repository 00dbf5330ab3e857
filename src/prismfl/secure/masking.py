"""The parts of a secure sum: Shamir's shares of a secret, and masks from keys that two sites agree on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from prismfl.errors import UserError, WireError

PRIME = 2**521 - 1  # a field that holds any 32-byte secret
Vector = npt.NDArray[np.uint64]


def split_secret(secret: bytes, holders: Sequence[str], quorum: int) -> dict[str, int]:
    """A share for each holder; any `quorum` of them give the secret, fewer say nothing about it."""
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(quorum - 1))]
    return {name: _evaluate(coefficients, i + 1) for i, name in enumerate(holders)}


def join_secret(shares: Mapping[str, int], holders: Sequence[str], quorum: int, size: int = 32) -> bytes:
    """The secret behind at least `quorum` shares (Lagrange at zero)."""
    if len(shares) < quorum:
        raise UserError(f"{len(shares)} of {quorum} shares: the sum stays closed.")
    points = [(holders.index(name) + 1, value) for name, value in sorted(shares.items())][:quorum]
    total = 0
    for i, (x, y) in enumerate(points):
        top = bottom = 1
        for j, (other, _) in enumerate(points):
            if i != j:
                top, bottom = top * -other % PRIME, bottom * (x - other) % PRIME
        total = (total + y * top * pow(bottom, -1, PRIME)) % PRIME
    if total >= 1 << (8 * size):
        raise WireError("The shares do not fit together.")
    return total.to_bytes(size, "big")


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


def expand(key: bytes, length: int) -> Vector:
    """A key as `length` numbers modulo 2^64: AES-256 in counter mode over zeros. A key is used once."""
    stream = Cipher(algorithms.AES(key), modes.CTR(b"\0" * 16)).encryptor()
    return np.frombuffer(stream.update(b"\0" * (8 * length)), dtype="<u8").astype(np.uint64)


def agree(mine: X25519PrivateKey, theirs: bytes, purpose: str) -> bytes:
    """The key that two sites share, for one purpose of one sum. A point that gives everybody the same is refused."""
    try:
        shared = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:
        raise WireError("A published key is not a point that two sites can agree on.") from error
    return derive(shared, purpose)


def derive(secret: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose, from a secret (HKDF)."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret)
