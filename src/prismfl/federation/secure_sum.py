"""Sums that the server can read only as a whole: pairwise masks, shares for dropouts, and noise from every site.

After Bonawitz et al. 2017 (double masking) with the distributed discrete Gaussian of Kairouz et al. 2021; written for
few sites (each pair agrees on a key) and for statistics (integers modulo 2^k), against a server that follows the
protocol but is curious, and up to `colluding` sites that tell it what they know. Four steps:

1. every site publishes two X25519 keys (`keys`);
2. it sends each other site, encrypted, a Shamir share of its own mask's seed and of its private mask key (`shares`);
3. it sends its numbers plus noise plus masks (`masked`); the masks of sites that are there cancel in the sum;
4. for every site the survivors reveal *either* the share of its own mask (it sent numbers) *or* of its mask key (it
   dropped out), never both (`reveal`); with a quorum of shares the server removes what has not cancelled (`Collector`).

Noise: each site adds an integer share of variance (sigma * bound)^2 / (quorum - colluding). Below the quorum nothing
can be read, so what can be read always holds at least the promised noise, whoever drops out. `noise_of` says how much
it was; `naive_shortfall` says what sharing the noise over all enrolled sites would have lacked.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from prismfl.errors import UserError, WireError
from prismfl.privacy.cost import Cost, Relation
from prismfl.rng import NoiseStream

PRIME = 2**521 - 1  # a field that holds any 32-byte secret
MODULUS_BITS = 64
SMALLEST_SHARE = 4.0
"""The least standard deviation of a noise share, in integer steps: above it a sum of discrete Gaussians cannot be
told from a discrete Gaussian (the distance is below 10 n exp(-2 pi^2 s^2 / 2) < 1e-60)."""
Vector = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rules:
    """What everybody agrees on before the sum. `grid` is the size of an integer step; `bound` is one unit's L2 norm."""

    sites: tuple[str, ...]
    quorum: int
    length: int
    bound: float
    sigma: float
    grid: float
    largest: float
    colluding: int = 0
    label: str = "sum"

    def __post_init__(self) -> None:
        n = len(self.sites)
        if len(set(self.sites)) != n or n < 2:
            raise UserError(f"Expected at least two sites of different names, got {', '.join(self.sites)}.")
        if not n // 2 < self.quorum <= n:
            raise UserError(f"Expected a quorum above half of {n} sites, got {self.quorum}: else two sums could open.")
        if not 0 <= self.colluding < self.quorum:
            raise UserError(f"Expected 0 <= colluding < {self.quorum}, got {self.colluding}.")
        if not (self.bound > 0 and self.grid > 0 and self.length > 0 and self.sigma >= 0):
            raise UserError("Expected bound, grid and length > 0 and sigma >= 0.")
        if 0 < self.share_deviation < SMALLEST_SHARE:
            raise UserError(
                f"Expected a grid <= {self.grid * self.share_deviation / SMALLEST_SHARE:g} so that a noise share spans "
                f"{SMALLEST_SHARE:g} steps, got {self.grid:g}."
            )
        if n * (self.largest / self.grid + 40 * self.share_deviation) >= 2 ** (MODULUS_BITS - 2):
            raise UserError(
                f"The sum of {n} sites may pass 2^{MODULUS_BITS - 2} steps; choose a grid above {self.grid:g}."
            )

    @property
    def share_deviation(self) -> float:
        """The standard deviation of one site's noise share, in integer steps."""
        return self.sigma * self.rounded_bound / self.grid / math.sqrt(self.quorum - self.colluding)

    @property
    def rounded_bound(self) -> float:
        """One unit's norm after rounding: two sums that differ by it round up to a whole step apart a coordinate."""
        return self.bound + self.grid * math.sqrt(self.length)

    def cost(self, *, unit: str = "record", relation: Relation = "add-remove") -> Cost:
        """What the sum costs each unit, towards the server and the colluding sites; more sites only add noise."""
        return Cost.gaussian(self.sigma, unit=unit, relation=relation)


def noise_of(rules: Rules, present: int) -> float:
    """The noise multiplier that a sum over `present` sites holds towards server and colluding sites together."""
    honest = present - rules.colluding
    return rules.sigma * math.sqrt(honest / (rules.quorum - rules.colluding)) if present >= rules.quorum else 0.0


def naive_shortfall(rules: Rules, present: int) -> float:
    """What part of the promised noise multiplier would be missing had the noise been shared over all sites."""
    return 1.0 - math.sqrt(max(0, present - rules.colluding) / len(rules.sites))


def discrete_gaussian(deviation: float, count: int, stream: NoiseStream) -> Integers:
    """Integers from a discrete Gaussian, by rejection from a discrete Laplace (Canonne, Kamath, Steinke 2020)."""
    if deviation == 0:
        return np.zeros(count, dtype=np.int64)
    scale = math.floor(deviation) + 1
    found: list[Integers] = []
    missing = count
    while missing > 0:
        draw = 2 * missing + 16
        u, v, w = (stream.uniform(draw).numpy() for _ in range(3))
        magnitude = np.floor(-np.log(u) * scale).astype(np.int64)
        negative = v < 0.5
        kept = ~(negative & (magnitude == 0))  # zero would count twice
        accept = np.exp(-((magnitude - deviation**2 / scale) ** 2) / (2 * deviation**2))
        good = kept & (w < accept)
        values = np.where(negative, -magnitude, magnitude)[good][:missing]
        found.append(values)
        missing -= len(values)
    return np.concatenate(found)


# Shamir's shares


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


# Masks


def expand(key: bytes, length: int) -> Vector:
    """A key as `length` numbers modulo 2^64: AES-256 in counter mode over zeros. A key is used once."""
    stream = Cipher(algorithms.AES(key), modes.CTR(b"\0" * 16)).encryptor()
    return np.frombuffer(stream.update(b"\0" * (8 * length)), dtype="<u8").astype(np.uint64)


def agree(mine: X25519PrivateKey, theirs: bytes, purpose: str) -> bytes:
    """The key that two sites share, for one purpose of one sum."""
    shared = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()).derive(shared)


def pair_mask(rules: Rules, mine: X25519PrivateKey, theirs: bytes, *, me: str, other: str) -> Vector:
    """The mask between two sites: the one first in the alphabet adds it, the other one takes it away."""
    pair = "/".join(sorted((me, other)))
    mask = expand(agree(mine, theirs, f"prismfl mask {rules.label} {pair}"), rules.length)
    return mask if me < other else (np.uint64(0) - mask)


@dataclass(frozen=True)
class PublicKeys:
    """What a site publishes: a key for its pair masks and one for its letters."""

    mask: bytes
    letter: bytes


@dataclass
class Party:
    """A site's side of one sum."""

    rules: Rules
    name: str
    _mask: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)
    _letter: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)
    _seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _keys: dict[str, PublicKeys] = field(default_factory=dict, repr=False)
    _held: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    _revealed: bool = False

    def keys(self) -> PublicKeys:
        return PublicKeys(_raw(self._mask), _raw(self._letter))

    def shares(self, keys: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Letters to the other sites, each with its share of this site's seed and of its mask key."""
        rules = self.rules
        if len(keys) < rules.quorum or not set(keys) <= set(rules.sites) or keys.get(self.name) != self.keys():
            raise UserError(f"Expected the keys of at least {rules.quorum} known sites, got {len(keys)}.")
        if len({k.mask for k in keys.values()} | {k.letter for k in keys.values()}) != 2 * len(keys):
            raise WireError("Two sites published the same key.")
        self._keys = dict(keys)
        seeds = split_secret(self._seed, rules.sites, rules.quorum)
        masks = split_secret(self._mask.private_bytes_raw(), rules.sites, rules.quorum)
        self._held[self.name] = (seeds[self.name], masks[self.name])
        return {other: self._seal(other, seeds[other], masks[other]) for other in keys if other != self.name}

    def masked(self, letters: Mapping[str, bytes], values: npt.ArrayLike, noise: NoiseStream) -> Vector:
        """This site's numbers on the grid, plus its noise share, plus all masks. Only with letters from a quorum."""
        rules = self.rules
        for sender, letter in letters.items():
            self._held[sender] = self._open(sender, letter)
        if len(self._held) < rules.quorum:
            raise UserError(f"Letters from {len(self._held)} of {rules.quorum} sites: too few to take part.")
        steps = on_grid(rules, values) + discrete_gaussian(rules.share_deviation, rules.length, noise)
        total = steps.astype(np.uint64) + expand(self._own_mask_key(), rules.length)
        for other in sorted(set(self._held) - {self.name}):
            total = total + pair_mask(rules, self._mask, self._keys[other].mask, me=self.name, other=other)
        return total

    def reveal(self, sent: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Shares for the server: of the seed of each site that sent numbers, of the mask key of each that did not."""
        if self._revealed:
            raise UserError("Shares are revealed once: a second, different question would open a single site.")
        if len(set(sent)) < self.rules.quorum or not set(sent) <= set(self._held):
            raise UserError(f"Only {len(set(sent))} of {self.rules.quorum} sites sent numbers; nothing is revealed.")
        self._revealed = True
        return {name: ("seed", seed) if name in sent else ("mask", mask) for name, (seed, mask) in self._held.items()}

    def _own_mask_key(self) -> bytes:
        return own_mask_key(self.rules, self._seed)

    def _seal(self, other: str, seed: int, mask: int) -> bytes:
        body = seed.to_bytes(66, "big") + mask.to_bytes(66, "big")
        nonce = secrets.token_bytes(12)
        return nonce + AESGCM(self._letter_key(other)).encrypt(nonce, body, f"{self.name}>{other}".encode())

    def _open(self, sender: str, letter: bytes) -> tuple[int, int]:
        if sender not in self._keys:
            raise WireError("A letter came from a site without a key.")
        try:
            key = self._letter_key(sender)
            body = AESGCM(key).decrypt(letter[:12], letter[12:], f"{sender}>{self.name}".encode())
        except (InvalidTag, ValueError) as error:
            raise WireError(f"The letter of site '{sender}' cannot be opened.") from error
        return int.from_bytes(body[:66], "big"), int.from_bytes(body[66:], "big")

    def _letter_key(self, other: str) -> bytes:
        pair = "/".join(sorted((self.name, other)))
        return agree(self._letter, self._keys[other].letter, f"prismfl letter {self.rules.label} {pair}")


@dataclass
class Collector:
    """The server's side of one sum: it sees keys, sealed letters, masked numbers and shares."""

    rules: Rules
    keys: dict[str, PublicKeys] = field(default_factory=dict)
    took_part: tuple[str, ...] = ()
    _numbers: dict[str, Vector] = field(default_factory=dict)

    def take(self, site: str, masked: Vector) -> None:
        if site not in self.rules.sites or masked.dtype != np.uint64 or masked.shape != (self.rules.length,):
            raise WireError(f"Site '{site}' sent something other than {self.rules.length} masked numbers.")
        if site in self._numbers:
            raise WireError(f"Site '{site}' sent its numbers twice.")
        self._numbers[site] = masked

    @property
    def sent(self) -> tuple[str, ...]:
        return tuple(sorted(self._numbers))

    def open(self, revealed: Mapping[str, Mapping[str, tuple[str, int]]]) -> npt.NDArray[np.float64]:
        """The sum, in the units of the sites, from the shares that a quorum has revealed."""
        rules = self.rules
        total = np.zeros(rules.length, dtype=np.uint64)
        for site in self.sent:
            total = total + self._numbers[site]
            seed = join_secret(self._shares(revealed, site, "seed"), rules.sites, rules.quorum)
            total = total - expand(own_mask_key(rules, seed), rules.length)
        for gone in sorted(set(self.took_part) - set(self.sent)):
            raw = join_secret(self._shares(revealed, gone, "mask"), rules.sites, rules.quorum)
            key = X25519PrivateKey.from_private_bytes(raw)
            if _raw(key) != self.keys[gone].mask:
                raise WireError(f"The shares of site '{gone}' do not fit its key.")
            for site in self.sent:
                # What the missing site would have added to cancel the survivor's mask.
                total = total + pair_mask(rules, key, self.keys[site].mask, me=gone, other=site)
        return total.astype(np.int64).astype(np.float64) * rules.grid

    def _shares(self, revealed: Mapping[str, Mapping[str, tuple[str, int]]], site: str, kind: str) -> dict[str, int]:
        return {holder: told[site][1] for holder, told in revealed.items() if told.get(site, ("", 0))[0] == kind}


def own_mask_key(rules: Rules, seed: bytes) -> bytes:
    info = f"prismfl own mask {rules.label}".encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(seed)


def on_grid(rules: Rules, values: npt.ArrayLike) -> Integers:
    """A site's sum in integer steps; what does not fit is refused, never clipped in silence."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if numbers.shape != (rules.length,) or not np.isfinite(numbers).all():
        raise UserError(f"Expected {rules.length} finite numbers for the secure sum, got {numbers.shape}.")
    if np.abs(numbers).max() > rules.largest:
        raise UserError(f"Expected numbers up to {rules.largest:g} for the secure sum, got {np.abs(numbers).max():g}.")
    return np.rint(numbers / rules.grid).astype(np.int64)


def _raw(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
