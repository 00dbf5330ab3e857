"""Whom a site believes in a secure sum: keys it got from the others themselves, and how many of them it trusts.

The server carries everything and may lie about all of it: who takes part, what they said, what others were told. A site
counts only what is signed by a key that it holds, for exactly the sum that it was told of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from prismfl.errors import PrismError
from prismfl.privacy.shares import Rules

DOMAIN = b"prismfl-sum-1\n"
"""What every signature of a secure sum begins with: none can be passed off as one of something else."""


class RosterError(PrismError):
    """A site takes no part in a secure sum: it does not know the others, or cannot count on so many of them."""

    code = "sum-refused"


@dataclass(frozen=True)
class Roster:
    """A site's own view of who there is. `config` is the digest of the run's config, as the site itself read it.

    `honest` is how many of the sites it knows, this one among them, follow the protocol and tell the server nothing.
    """

    name: str
    signer: Ed25519PrivateKey = field(repr=False)
    peers: Mapping[str, Ed25519PublicKey] = field(repr=False)
    config: str
    honest: int = 1

    def admit(self, rules: Rules) -> None:
        """Refuse a sum with a site that is not known here, or with less noise from here than this site must add."""
        keys = self.keys
        unknown = [site for site in rules.sites if site not in keys]
        if unknown:
            raise RosterError(
                f"The run names {len(unknown)} sites whose keys are not held here, such as '{str(unknown[0])[:40]}'. "
                "If you know them, get their keys/sign.pub from themselves, not from the server, and put each into "
                "peers/ as NAME.pub."
            )
        if self.name not in rules.sites or len({keys[site] for site in rules.sites}) != len(rules.sites):
            raise RosterError("The run does not name this site, or names two sites that have one key in peers/.")
        self._believe(rules)

    def _believe(self, rules: Rules) -> None:
        """Whoever is not honest may tell the server all, and the server may say that any site has dropped out: of a
        quorum, only those beyond the dishonest ones are sure to add their share."""
        known = len(self.keys)
        if self.honest > known:
            raise RosterError(f"site.toml has honest = {self.honest}, but only {known} sites are known here.")
        dishonest = known - self.honest
        if rules.sharing == 1 or dishonest <= rules.colluding:
            return
        raise RosterError(
            f"In this run each site adds 1/{rules.sharing} of the noise (quorum {rules.quorum}, colluding "
            f"{rules.colluding}) and counts on others for the rest. site.toml says that {self.honest} of the {known} "
            f"sites known here are honest, so {dishonest} may help the server. Take part only if the run has colluding "
            f">= {dishonest}, or colluding = {rules.quorum - 1} (each site adds all the noise), or set `honest` higher."
        )

    @property
    def keys(self) -> dict[str, str]:
        """The signing keys of all known sites, this one's from its own private key."""
        raw = {site: key.public_bytes_raw().hex() for site, key in self.peers.items()}
        return {**raw, self.name: self.signer.public_key().public_bytes_raw().hex()}

    def bind(self, rules: Rules) -> Rules:
        """The rules under a label that is the digest of all that was agreed: sites that were told different things
        derive different masks and cannot be combined."""
        keys = self.keys
        facts = [asdict(rules), {site: keys[site] for site in rules.sites}, self.config]
        return replace(rules, label=hashlib.sha256(DOMAIN + _canonical(facts)).hexdigest())

    def sign(self, rules: Rules, what: str, words: Any) -> bytes:
        """This site's signature of some words, bound to the sum and to what they are."""
        return self.signer.sign(_message(rules.label, self.name, what, words))

    def signed(self, rules: Rules, site: str, what: str, words: Any, signature: bytes) -> bool:
        """Whether a site of this sum has signed these words, under the key that is held here."""
        return site in rules.sites and signed_by(self.keys[site], rules.label, site, what, words, signature)


def signed_by(key: str, label: str, site: str, what: str, words: Any, signature: bytes) -> bool:
    """Whether this is a site's signature of these words under a public key (in hex)."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, _message(label, site, what, words))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(label: str, site: str, what: str, words: Any) -> bytes:
    return DOMAIN + _canonical([what, label, site, words])


def _canonical(words: Any) -> bytes:
    return json.dumps(words, sort_keys=True, allow_nan=False).encode()
