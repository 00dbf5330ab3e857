"""What to try next: one rule a function, from public numbers and what was released, or what an edition shows anyway.

A rule gets the facts of one edition. What that edition withholds is not there, so no advice can tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prismfl.methods.drowning import CHANCE, USEFUL, noise_share
from prismfl.report import words

Facts = Mapping[str, Any]
NOISY = 0.5  # beyond this noise-to-signal a site's statistics are poor
BETTER = 2.0  # points of accuracy that are worth a change
BYTES = 4  # of a number in a release


def advice(facts: Facts) -> list[str]:
    """Every line of advice that fits the run, the most important first."""
    return [line for rule in RULES for line in rule(facts)]


def _unfinished(facts: Facts) -> Iterator[str]:
    if facts["run"]["status"] != "finished":
        yield "The run is not finished: prismfl resume RUN goes on where it was cut off, and charges nothing twice."


def _seeded(facts: Facts) -> Iterator[str]:
    if words.kind(facts["guarantee"]) == "simulation":
        yield (
            "The noise was seeded, which protects nobody: on real records let it come from the operating system "
            '(noise = "operating-system", the default for your own data).'
        )


def _no_guarantee(facts: Facts) -> Iterator[str]:
    if words.kind(facts["guarantee"]) == "none":
        yield (
            "There is no guarantee: prism, prism-head and dp-fedavg have one, and this run shows what it would cost in "
            "accuracy."
        )


def _large_delta(facts: Facts) -> Iterator[str]:
    records, g = records_of(facts), facts["guarantee"]
    if records and g.get("known") and g.get("private") and g["delta"] > 1 / records:
        yield (
            f"Delta {g['delta']:g} is above one over {records} records: a mechanism that publishes one record whole "
            f"would pass. Take --delta {0.1 / records:.0e} or less."
        )


def _noisy_statistics(facts: Facts) -> Iterator[str]:
    found = facts.get("noise_to_signal")
    if found is not None and found > NOISY:
        shown = "100 or more" if found >= 100 else f"{found:.1f}"
        yield f"Noise-to-signal of one site's release {shown}: more records, a larger epsilon or a secure sum."


def _drowned(facts: Facts) -> Iterator[str]:
    share = share_of(facts)
    if share is None:
        return
    if facts["guarantee"].get("level") == "client":
        if share <= CHANCE:
            return
        clients = int(facts["setting"]["sites"])
        yield (
            f"Noise drowns the {clients} clients: it is {share:.1f} times as long as all their updates together. More "
            "clients, a smaller model (--model logreg), or protection of records instead of clients."
        )
    elif share > USEFUL:
        yield (
            f"Noise is {share:.1f} times as long as the way of the steps: a smaller model (--model logreg), a larger "
            "batch or a larger epsilon."
        )


def _linear_is_better(facts: Facts) -> Iterator[str]:
    scores = {row["name"]: row["accuracy"] for row in facts.get("models") or ()}
    network, simple = scores.get("network"), {n: s for n, s in scores.items() if n in ("head", "linear") and s}
    if network is not None and simple:
        best = max(simple, key=lambda name: simple[name])
        if simple[best] >= network + BETTER:
            yield (
                f"The {best} model has {simple[best]:.1f} %, the network {network:.1f} %: take the {best} model; a "
                "network needs more images (--images) or less noise."
            )


def _below_the_majority(facts: Facts) -> Iterator[str]:
    score, most = facts["utility"]["accuracy"], majority(facts)
    if score is not None and most is not None and score < most:
        yield (
            f"Accuracy {score:.1f} % is below the {most:.1f} % of always saying the most common class: read balanced "
            "accuracy and AUC, and take a larger epsilon or more records."
        )


Rule = Callable[[Facts], Iterator[str]]
RULES: tuple[Rule, ...] = (
    _unfinished,
    _seeded,
    _no_guarantee,
    _large_delta,
    _noisy_statistics,
    _drowned,
    _linear_is_better,
    _below_the_majority,
)


def records_of(facts: Facts) -> int | None:
    """The declared number of records of a site, or the most at any site where the edition shows how they lie."""
    declared = facts["config"].get("records")
    if isinstance(declared, int) and declared > 0:
        return declared
    sizes = [sum(row["counts"]) for row in (facts.get("partition") or {}).get("rows", ())]
    return max(sizes, default=0) or None


def share_of(facts: Facts) -> float | None:
    """How long the noise is against the way of the steps, for methods that send models or gradients; else None."""
    settings, releases, g = facts["config"].get("settings") or {}, facts["releases"], facts["guarantee"]
    sigma, rounds = settings.get("sigma"), settings.get("rounds")
    if not sigma or not rounds or not g.get("private") or not set(g.get("leaves", {}).values()) & {"weights"}:
        return None
    senders = len(facts["traffic"]["sites"]) or int(facts["setting"]["sites"])
    sent = facts["traffic"]["up"] / max(1, senders) / rounds  # bytes of one site in one round
    numbers, sites = int(sent / BYTES), int(facts["setting"]["sites"])
    if not numbers or not releases:
        return None
    if g.get("level") == "client":
        return noise_share(sigma, numbers, steps=rounds, units=sites)
    batch, steps = settings.get("batch"), settings.get("steps")
    if not batch or not steps:
        return None
    return noise_share(sigma, numbers, steps=rounds * steps, units=batch, sites=sites)


def majority(facts: Facts) -> float | None:
    """The share of the most common class in percent: of the held-out records, else of those that are shown."""
    matrix = (facts["utility"].get("scores") or {}).get("confusion")
    counts = [sum(row) for row in matrix] if matrix else []
    if not counts:
        rows = [row["counts"] for row in (facts.get("partition") or {}).get("rows", ())]
        counts = [sum(column) for column in zip(*rows)]
    return 100 * max(counts) / sum(counts) if sum(counts) else None
