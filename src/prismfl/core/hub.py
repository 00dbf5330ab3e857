"""The hub's door: noisy sums over clients, and a client's share of one. Unit = client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from prismfl.core.door import Meter
from prismfl.core.payloads import Items
from prismfl.errors import BoundaryError, UserError
from prismfl.privacy import mechanisms, shares
from prismfl.privacy.cost import Cost, Relation
from prismfl.privacy.shares import Rules
from prismfl.rng import NoiseStream


class PrivateSum:
    """The hub's door: what the sites sent may be used only as a noisy sum over clients (unit = client).

    The sites trust the hub with their contributions; everybody else sees what comes out of here.
    """

    def __init__(self, inbox: Mapping[str, Items], *, declared: int, noise: NoiseStream) -> None:
        if declared < 1:
            raise UserError(f"Expected a declared number of clients >= 1, got {declared}.")
        self.declared, self.noise_source = declared, noise.source
        self.meter = Meter(Cost.zero(unit="client", relation="add-remove"))
        self._inbox = inbox
        self._noise = noise

    def noisy(
        self,
        vector: Callable[[Items], Mapping[str, torch.Tensor]],
        like: mechanisms.Params,
        *,
        bound: float,
        sigma: float,
    ) -> dict[str, torch.Tensor]:
        """Sum over clients of `vector(items)`, each clipped as a whole to `bound`, plus noise. Shapes are `like`'s."""
        names = list(like)
        total = torch.zeros(sum(like[n].numel() for n in names), dtype=torch.float64)
        for site in sorted(self._inbox):
            values = vector(self._inbox[site])
            row = torch.cat([values[n].flatten().cpu().to(torch.float64) for n in names])
            total += mechanisms.clip_rows(row[None], bound)[0]
        noisy = mechanisms.add_noise(total, bound=bound, sigma=sigma, stream=self._noise)
        self.meter.add(Cost.gaussian(sigma, unit="client", relation="add-remove"))
        parts = torch.split(noisy, [like[n].numel() for n in names])
        return {n: p.reshape(like[n].shape).to(torch.float32) for n, p in zip(names, parts)}


class PrivateShare:
    """A client's own door into a secure sum of a client-level method: its whole vector, clipped and noised once.

    The method saw the exact records, but only the clipped vector leaves, masked, with this site's share of the noise. A
    record can turn that vector into any other of the bound, so it moves the sum by at most twice the bound.
    """

    def __init__(self, rules: Rules, noise: NoiseStream, *, unit: str, relation: Relation) -> None:
        self.noise_source, self.meter = noise.source, Meter(Cost.zero(unit=unit, relation=relation))
        self._rules, self._noise = rules, noise

    def noisy(self, vector: torch.Tensor) -> torch.Tensor:
        """The vector on the sum's grid, with the share of the noise."""
        rules = self._rules
        steps = shares.noisy_steps(rules, mechanisms.clip_rows(vector[None], rules.bound)[0].numpy(), self._noise)
        zero = self.meter.cost
        self.meter.add(Cost.gaussian(rules.sigma / 2, unit=zero.unit, relation=zero.relation))
        return torch.from_numpy(steps).double() * rules.grid


@dataclass(frozen=True)
class Opening:
    """A secure sum that was opened: its items, its rules, the noise that is in it, and where that came from."""

    total: Items
    rules: Rules
    held: float
    source: str


class OpenedSum(PrivateSum):
    """The hub's door to a secure sum: the clients have clipped and noised by themselves, the hub holds no single one.

    Charged is the noise that was promised, which is never more than what the sum holds.
    """

    def __init__(self, opening: Opening, *, declared: int) -> None:
        self.declared, self.noise_source = declared, opening.source
        self.meter = Meter(Cost.zero(unit="client", relation="add-remove"))
        self._opened, self._rules, self._held = opening.total, opening.rules, opening.held

    def noisy(
        self,
        vector: Callable[[Items], Mapping[str, torch.Tensor]],
        like: mechanisms.Params,
        *,
        bound: float,
        sigma: float,
    ) -> dict[str, torch.Tensor]:
        """The opened sum. It was clipped and noised with the declared numbers; asking for others is refused."""
        if (bound, sigma) != (self._rules.bound, self._held):
            raise BoundaryError("A secure sum is read with the bound and the noise it was made with.")
        self.meter.add(Cost.gaussian(self._rules.sigma, unit="client", relation="add-remove"))
        values = vector(self._opened)
        return {n: values[n].reshape(like[n].shape).to(torch.float32) for n in like}
