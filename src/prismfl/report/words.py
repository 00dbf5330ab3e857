"""The guarantee in plain words: what is protected, from whom, and what is not. One place, so no page softens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismfl.privacy.guessing import guess_words, most_right, percent
from prismfl.sources import NO_PROTECTION

__all__ = ["NO_PROTECTION"]
Facts = Mapping[str, Any]


def kind(g: Facts) -> str:
    """What stands where the guarantee stands: full, simulation (the noise was seeded), nothing, none, or unknown."""
    if not g.get("known"):
        return "unknown"
    if not g["private"]:
        return "none"
    if g["nothing_leaves"]:
        return "nothing"
    if g.get("epsilon_total", g["epsilon"]) is None:
        return "none"
    return "simulation" if g.get("simulation") else "full"


def short(g: Facts) -> str:
    """The guarantee in a table's cell."""
    return {
        "unknown": "unknown",
        "none": "none",
        "nothing": "nothing leaves",
        "simulation": NO_PROTECTION,
        "full": "differential privacy",
    }[kind(g)]


def headline(g: Facts) -> str:
    """The guarantee of a run in one sentence."""
    found = kind(g)
    if found == "unknown":
        return "The cost of this run cannot be read, so nothing is promised."
    if found == "nothing":
        return "Nothing left the sites: epsilon is 0."
    if found == "none" and g["private"]:
        by_itself = f"this run by itself: epsilon {g['epsilon']:.3g}"
        return f"No differential privacy: the model started from one without a guarantee ({by_itself})."
    if found == "none":
        return "No differential privacy: epsilon is infinite."
    if found == "simulation":
        return f"Simulation: no protection. With secret noise it would be {_epsilon(g)}."
    return f"Every {unit_words(g['unit'])} is protected: {_epsilon(g)}."


def _epsilon(g: Facts) -> str:
    """Epsilon of all that the shown model depends on, and of this run where they differ."""
    total = g.get("epsilon_total", g["epsilon"])
    if total == g["epsilon"]:
        return f"epsilon {total:.3g} at delta {g['delta']:g}"
    return f"epsilon {total:.3g} in all at delta {g['delta']:g} (this run alone: {g['epsilon']:.3g})"


def unit_words(unit: str) -> str:
    """The unit of privacy in plain words."""
    return {"record": "record", "client": "client (a whole site)"}.get(unit, f"{unit} with all its records")


def relation_words(relation: str) -> str:
    """What may happen to one unit between neighbouring data sets, in plain words."""
    return {"add-remove": "added or removed", "replace-one": "replaced by another"}.get(relation, relation)


def meaning(g: Facts) -> str:
    """What the numbers mean for one person."""
    found = kind(g)
    if found == "unknown":
        return "Read what is missing below, and take the run to its end before anybody relies on it."
    if found == "none":
        return (
            "What left the sites was computed from the exact records. It may reveal single records to whoever sees it: "
            "an attacker's guess whether a record was used can be right every time."
        )
    if found == "nothing":
        return "No message carried anything that depends on a record, so nobody outside a site learns anything from it."
    if found == "simulation":
        return (
            "The noise was drawn from a seed. Whoever knows or guesses the seed can take the noise off and sees what "
            "the exact records gave, so this run is for experiments on public data. If the same run drew its noise "
            f"from the operating system: {_promise(g)}"
        )
    return _promise(g)


def _promise(g: Facts) -> str:
    allows, what = g["allows"], f"one {unit_words(g['unit'])}"
    right, any_run = allows["right_guess"], most_right(g.get("epsilon_total", g["epsilon"]), g["delta"])
    bound = "" if any_run - right < 0.0005 else f": by this run's own noise (epsilon alone: {percent(any_run)} %)"
    return (
        f"Whoever sees everything that left learns almost the same whether or not any {what} was used. Somebody "
        f"{guess_words(right, 'it')}{bound}. With at most 1 % false alarms, at most "
        f"{100 * allows['tpr_at_0.01']:.1f} % of those who were used can be named."
    )


def protected(g: Facts) -> list[tuple[str, str]]:
    """Question and answer, for the table beside the headline."""
    found = kind(g)
    if found == "unknown":
        return []
    if found == "none":
        return [("Unit", "none"), ("From whom", "nobody"), ("Epsilon", "∞ (no DP guarantee)")]
    mark = f"; {NO_PROTECTION}" if found == "simulation" else ""
    rows = [("Guarantee", NO_PROTECTION)] if mark else []
    rows.append(("Unit", f"one {unit_words(g['unit'])}"))
    rows.append(("Relation", f"{g['relation']}: {relation_words(g['relation'])}"))
    rows.append(("From whom", f"nobody; with secret noise: {against(g)}" if mark else against(g)))
    rows.append(("Epsilon, delta", f"{g['epsilon']:.4g}, {g['delta']:g} (whole run, tight accounting{mark})"))
    total = g.get("epsilon_total", g["epsilon"])
    if total != g["epsilon"]:
        rows.append(("Epsilon in all", f"{total:.4g}: this run and the earlier runs that the model starts from{mark}"))
    if g.get("epsilon_rdp") is not None:
        rows.append(("Cross-check", f"{g['epsilon_rdp']:.4g} by Rényi accounting, an upper bound"))
    if g.get("target") is not None:
        rows.append(("Budget asked for", f"{g['target']:g}"))
    return [*rows, ("Mechanisms", str(g["words"]))]


def against(g: Facts) -> str:
    """From whom the guarantee protects."""
    if g.get("level") == "client":
        return "everybody except the hub, which sees each client's exact update"
    return "the server, the other sites, and everybody who sees what was sent"


def not_protected(g: Facts, noise: str | None) -> list[str]:
    """The limits of the guarantee, in the same size of type as the guarantee."""
    if kind(g) == "none":
        return ["Nothing is protected by differential privacy in this run."]
    lines = [
        "What holds for many records of a site (say, how common a diagnosis is): differential privacy hides one "
        "contribution, not the properties of the whole.",
        "Who takes part, when messages are sent, how large they are, and whether a site failed.",
        "The public configuration: declared numbers of records, classes, bounds and settings.",
        "What is published about the same records outside of this ledger.",
    ]
    if g.get("unit") == "record":
        lines.append("A person with several records: k records are protected about k times less than one.")
    if g.get("level") == "client":
        lines.append("Anything from the hub itself, and single records within a client.")
    if noise is not None and noise.startswith("seeded"):
        lines.insert(0, "Anything, from somebody who knows the seed: the noise was seeded, for simulation only.")
    return lines
