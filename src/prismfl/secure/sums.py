"""Sums that the server can read only as a whole: pairwise masks, shares for dropouts, and noise from every site.

After Bonawitz et al. 2017 (double masking) with the distributed discrete Gaussian of Kairouz et al. 2021; written for
few sites (each pair agrees on a key) and for statistics (integers modulo 2^k), against a server that lies and up to
`colluding` sites that tell it what they know. Here is one site's arithmetic; who the others are, and that all were told
the same, is signed (`roster.py`, `secure.py`). Five steps:

1. every site publishes two X25519 keys (`keys`);
2. it sends each other site, encrypted, a Shamir share of its own mask's seed and of its private mask key (`shares`);
3. it sends its numbers plus noise plus masks (`masked`); the masks of sites that are there cancel in the sum;
4. it puts its name to one list of those who sent numbers, itself among them (`confirm`);
5. once a quorum has signed the same list, the survivors reveal for every site *either* the share of its own mask (it
   sent numbers) *or* of its mask key (it dropped out), never both (`reveal`); with a quorum of shares the server
   removes what has not cancelled (`Collector`).

Noise: each site adds an integer share of variance (sigma * bound)^2 / (quorum - colluding). Below the quorum nothing
can be read, so what can be read always holds at least the promised noise, whoever drops out. Where the server lies, two
lists could be signed by a quorum each unless 2 quorum > sites + colluding, so less is refused; only where each site
adds all the noise (quorum - colluding = 1) nothing hangs on it. `noise_of` says how much noise it was;
`naive_shortfall` says what sharing it over all enrolled sites would have lacked.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from prismfl.errors import UserError, WireError
from prismfl.privacy.shares import Rules, noisy_steps, on_grid
from prismfl.rng import NoiseStream
from prismfl.secure.masking import PRIME, Vector, agree, derive, expand, join_secret, split_secret


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
    """A site's side of one sum. Asked the same thing again, it answers the same; `words` keep it over a restart."""

    rules: Rules
    name: str
    _mask: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)
    _letter: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)
    _seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _keys: dict[str, PublicKeys] = field(default_factory=dict, repr=False)
    _letters: dict[str, bytes] = field(default_factory=dict, repr=False)
    _held: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    _sent: bool = False
    _confirmed: tuple[str, ...] = ()

    def words(self) -> dict[str, Any]:
        """Everything this party knows, secrets included: for the site's own disk."""
        return {
            "mask": self._mask.private_bytes_raw().hex(),
            "letter": self._letter.private_bytes_raw().hex(),
            "seed": self._seed.hex(),
            "keys": {name: [k.mask.hex(), k.letter.hex()] for name, k in self._keys.items()},
            "letters": {name: letter.hex() for name, letter in self._letters.items()},
            "held": {name: [f"{seed:x}", f"{mask:x}"] for name, (seed, mask) in self._held.items()},
            "sent": self._sent,
            "confirmed": list(self._confirmed),
        }

    @classmethod
    def from_words(cls, rules: Rules, name: str, words: Mapping[str, Any]) -> Party:
        """The party that `words` were written of."""
        mask, letter = (X25519PrivateKey.from_private_bytes(bytes.fromhex(words[k])) for k in ("mask", "letter"))
        return cls(
            rules,
            name,
            mask,
            letter,
            bytes.fromhex(words["seed"]),
            {n: PublicKeys(*(bytes.fromhex(k) for k in pair)) for n, pair in words["keys"].items()},
            {n: bytes.fromhex(letter) for n, letter in words["letters"].items()},
            {n: (int(seed, 16), int(mask, 16)) for n, (seed, mask) in words["held"].items()},
            words["sent"],
            tuple(words["confirmed"]),
        )

    def keys(self) -> PublicKeys:
        """The public keys of this site for this sum."""
        return PublicKeys(_raw(self._mask), _raw(self._letter))

    def shares(self, keys: Mapping[str, PublicKeys]) -> dict[str, bytes]:
        """Letters to the other sites, each with its share of this site's seed and of its mask key."""
        rules = self.rules
        if self._keys:
            if dict(keys) != self._keys:
                raise UserError("Letters are written once: the keys are not those that this site was told before.")
            return dict(self._letters)
        if len(keys) < rules.quorum or not set(keys) <= set(rules.sites) or keys.get(self.name) != self.keys():
            raise UserError(f"Expected the keys of at least {rules.quorum} known sites, got {len(keys)}.")
        if len({k.mask for k in keys.values()} | {k.letter for k in keys.values()}) != 2 * len(keys):
            raise WireError("Two sites published the same key.")
        self._keys = dict(keys)
        seeds = split_secret(self._seed, rules.sites, rules.quorum)
        masks = split_secret(self._mask.private_bytes_raw(), rules.sites, rules.quorum)
        self._held[self.name] = (seeds[self.name], masks[self.name])
        others = [other for other in keys if other != self.name]
        self._letters = {other: self._seal(other, seeds[other], masks[other]) for other in others}
        return dict(self._letters)

    def take(self, letters: Mapping[str, bytes]) -> None:
        """Read the letters of a quorum, once."""
        found = {sender: self._open(sender, letter) for sender, letter in letters.items()}
        own = {self.name: self._held[self.name]} if self.name in self._held else {}
        if self.name in found or len(found | own) < self.rules.quorum:
            raise UserError(f"Letters from {len(found | own)} of {self.rules.quorum} sites: too few to take part.")
        if len(self._held) > 1 and self._held != found | own:
            raise UserError("Letters are read once: these are not the ones that this site was given before.")
        self._held = found | own

    def masked(self, letters: Mapping[str, bytes], values: npt.ArrayLike, noise: NoiseStream | None) -> Vector:
        """This site's numbers on the grid, plus its noise share, plus all masks. Only with letters from a quorum.

        Without `noise` the numbers hold their share already.
        """
        rules = self.rules
        self.take(letters)
        steps = on_grid(rules, values) if noise is None else noisy_steps(rules, values, noise)
        total = steps.astype(np.uint64) + expand(self._own_mask_key(), rules.length)
        for other in sorted(set(self._held) - {self.name}):
            total = total + pair_mask(rules, self._mask, self._keys[other].mask, me=self.name, other=other)
        self._sent = True
        return total

    def confirm(self, sent: Sequence[str]) -> dict[str, Any]:
        """What this site signs, once: whose keys it was told, whose letters it read, and who sent numbers."""
        if self._confirmed and self._confirmed != tuple(sorted(sent)):
            raise UserError("One list is confirmed, once: a second, different one would open a single site.")
        if not self._sent or self.name not in sent:
            raise UserError("This site has sent no numbers, or is said to have sent none; it confirms nothing.")
        if len(set(sent)) < self.rules.quorum or len(set(sent)) != len(sent) or not set(sent) <= set(self._held):
            raise UserError(f"Only {len(set(sent))} of {self.rules.quorum} sites sent numbers; nothing is revealed.")
        self._confirmed = tuple(sorted(sent))
        keys = {name: [k.mask.hex(), k.letter.hex()] for name, k in self._keys.items()}
        return {"keys": keys, "letters": sorted(self._held), "sent": sorted(sent)}

    def reveal(self, sent: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Shares for the server: of the seed of each site that sent numbers, of the mask key of each that did not."""
        self.confirm(sent)
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
        seed, mask = int.from_bytes(body[:66], "big"), int.from_bytes(body[66:], "big")
        if len(body) != 132 or not (seed < PRIME and mask < PRIME):
            raise WireError(f"The letter of site '{sender}' does not hold two shares.")
        return seed, mask

    def _letter_key(self, other: str) -> bytes:
        pair = "/".join(sorted((self.name, other)))
        return agree(self._letter, self._keys[other].letter, f"prismfl letter {self.rules.label} {pair}")


@dataclass
class Collector:
    """The server's side of one sum: it sees keys, sealed letters, masked numbers and shares."""

    rules: Rules
    keys: dict[str, PublicKeys] = field(default_factory=dict)
    took_part: tuple[str, ...] = ()
    _sent: list[str] = field(default_factory=list)
    _total: Vector = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def take(self, site: str, masked: Vector) -> None:
        """Add a site's masked numbers to the total; a second time is refused."""
        if site not in self.rules.sites or masked.dtype != np.uint64 or masked.shape != (self.rules.length,):
            raise WireError(f"Site '{site}' sent something other than {self.rules.length} masked numbers.")
        if site in self._sent:
            raise WireError(f"Site '{site}' sent its numbers twice.")
        self._total = masked.copy() if not self._sent else self._total + masked
        self._sent.append(site)

    @property
    def sent(self) -> tuple[str, ...]:
        """The sites whose numbers are in the total, sorted."""
        return tuple(sorted(self._sent))

    def open(self, revealed: Mapping[str, Mapping[str, tuple[str, int]]]) -> npt.NDArray[np.float64]:
        """The sum, in the units of the sites, from the shares that a quorum has revealed."""
        rules = self.rules
        total = self._total
        for site in self.sent:
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
    """The key of a site's own mask in this sum, from its seed."""
    return derive(seed, f"prismfl own mask {rules.label}")


def _raw(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
