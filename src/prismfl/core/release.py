"""What leaves a site: the declared items, sealed, at the meter's reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismfl.core import wire
from prismfl.core.door import PrivateRecords
from prismfl.core.hub import PrivateShare
from prismfl.core.payloads import Items, Payload, decode, encode
from prismfl.errors import BoundaryError, WireError
from prismfl.privacy.cost import Cost


@dataclass(frozen=True)
class Release:
    """What leaves a site in one round: sealed items, what they cost, and where the noise came from."""

    run: str
    site: str
    round: int
    items: Mapping[str, Payload]
    cost: Cost
    noise: str

    @property
    def id(self) -> str:
        """The name of the release on the ledger: run, site and round."""
        return f"{self.run}/{self.site}/{self.round}"

    def encode(self) -> bytes:
        """The release as the bytes that cross."""
        header = {
            "run": self.run,
            "site": self.site,
            "round": self.round,
            "cost": self.cost.to_json(),
            "noise": self.noise,
        }
        return encode(self.items, header)

    @classmethod
    def decode(cls, raw: bytes) -> Release:
        """Inverse of `encode`; anything else is a `WireError` that quotes nothing."""
        items, h = decode(raw)
        if set(h) != {"run", "site", "round", "cost", "noise"}:
            raise WireError("Message is not a release.")
        run, site, noise = (wire.text(h[key], limit=500) for key in ("run", "site", "noise"))
        try:
            cost = Cost.from_json(h["cost"])
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise WireError("Message does not say what it cost.") from None
        wire.text(cost.unit)
        if any(times > 2**53 for branch in cost.branches for _, times in branch):
            raise WireError("Message does not say what it cost.")
        return cls(run, site, wire.whole(h["round"], limit=2**31), items, cost, noise)


def make_release(
    door: PrivateRecords | PrivateShare,
    items: Items,
    *,
    leaves: Mapping[str, type[Payload]],
    run: str,
    site: str,
    round: int,
) -> Release:
    """The one place where a release is made: exactly the declared items, at the meter's reading."""
    if set(items) != set(leaves):
        raise BoundaryError(f"The method declares {sorted(leaves)} as what leaves, but returned {sorted(items)}.")
    for name, payload in items.items():
        if type(payload) is not leaves[name]:
            raise BoundaryError(
                f"Item '{name}' is declared as {leaves[name].kind}, but the method returned {type(payload).__name__}."
            )
    return Release(run, site, round, dict(items), door.meter.cost, door.noise_source)
