"""Whether noise drowns what is learnt: how long it is against the longest way that clipped updates can go.

From public numbers alone, so that a run says it before it spends anything. Noise and way both grow with the clip, and
over the steps of a whole budget both grow alike; what is left is the noise multiplier, the size of the network and how
many records or clients there are.
"""

from __future__ import annotations

import math

CHANCE = 0.5  # beyond this the noise decides: networks were at chance
USEFUL = 0.2  # below this they learnt


def noise_share(sigma: float, numbers: int, *, steps: int, units: float, sites: float = 1.0) -> float:
    """The length of the noise of all steps over the length of the way, if every step goes the same way.

    A step adds up clipped updates of `units` records (or clients), with noise of `sigma` clips on each of the
    `numbers`; `sites` do so independently and are averaged.
    """
    return sigma * math.sqrt(numbers / (steps * sites)) / units


def warn_clients(sigma: float, numbers: int, *, rounds: int, clients: int) -> list[str]:
    """What a client-level run says before it starts if its noise drowns its clients, and what would help."""
    share = noise_share(sigma, numbers, steps=rounds, units=clients)
    if share <= CHANCE:
        return []
    needed = math.ceil(clients * share / USEFUL)
    return [
        f"noise drowns {clients} clients: on {numbers} numbers it is {share:.3g} times as long as all their clipped "
        f"updates together, so expect chance; about {needed} clients a round would do, or fewer numbers "
        "(a smaller model), or protection of records (dp-fedavg, prism)."
    ]


def warn_records(share: float, what: str, *, chance: float = CHANCE) -> list[str]:
    """What a run with noise on each site says before it starts if the noise drowns `what` it asks its records for."""
    if share <= chance:
        return []
    more = share / chance * CHANCE / USEFUL
    return [
        f"noise drowns the {what}: it is {share:.3g} times as long as what the records add to them, so expect chance; "
        f"about {more:.2g} times the records would do, or a larger epsilon, or fewer numbers (a smaller model), or "
        "prism, which asks for less."
    ]
