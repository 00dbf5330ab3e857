"""The guarantee in plain words: what is protected, from whom, and what is not. One place, so no page softens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]


def headline(g: Facts) -> str:
    if not g.get("known"):
        return "The cost of this run cannot be read, so nothing is promised."
    if not g["private"]:
        return "No differential privacy: epsilon is infinite."
    if g["nothing_leaves"]:
        return "Nothing left the sites: epsilon is 0."
    return f"Every {unit_words(g['unit'])} is protected: epsilon {g['epsilon']:.3g} at delta {g['delta']:g}."


def unit_words(unit: str) -> str:
    return {"record": "record", "client": "client (a whole site)"}.get(unit, f"{unit} with all its records")


def relation_words(relation: str) -> str:
    return {"add-remove": "added or removed", "replace-one": "replaced by another"}.get(relation, relation)


def meaning(g: Facts) -> str:
    """What the numbers mean for one person."""
    if not g.get("known"):
        return "Read what is missing below, and take the run to its end before anybody relies on it."
    if not g["private"]:
        return (
            "What left the sites was computed from the exact records. It may reveal single records to whoever sees it: "
            "an attacker's guess whether a record was used can be right every time."
        )
    if g["nothing_leaves"]:
        return "No message carried anything that depends on a record, so nobody outside a site learns anything from it."
    allows = g["allows"]
    return (
        f"Whoever sees everything that left learns almost the same whether or not any one {unit_words(g['unit'])} was "
        f"used. Somebody who must guess if it was, knowing all else, is right at most "
        f"{100 * allows['right_guess']:.1f} % of the time (a coin: 50 %), however clever the attack. With at most 1 % "
        f"false alarms, at most {100 * allows['tpr_at_0.01']:.1f} % of those who were used can be named."
    )


def protected(g: Facts) -> list[tuple[str, str]]:
    """Question and answer, for the table beside the headline."""
    if not g.get("known"):
        return []
    rows = [("Unit", f"one {unit_words(g['unit'])}"), ("Relation", f"{g['relation']}: {relation_words(g['relation'])}")]
    if not g["private"]:
        return [("Unit", "none"), ("From whom", "nobody"), ("Epsilon", "∞ (no DP guarantee)")]
    rows.append(("From whom", against(g)))
    rows.append(("Epsilon, delta", f"{g['epsilon']:.4g}, {g['delta']:g} (whole run, tight accounting)"))
    if g.get("epsilon_rdp") is not None:
        rows.append(("Cross-check", f"{g['epsilon_rdp']:.4g} by Rényi accounting, an upper bound"))
    if g.get("target") is not None:
        rows.append(("Budget asked for", f"{g['target']:g}"))
    return [*rows, ("Mechanisms", str(g["words"]))]


def against(g: Facts) -> str:
    if g.get("level") == "client":
        return "everybody except the hub, which sees each client's exact update"
    return "the server, the other sites, and everybody who sees what was sent"


def not_protected(g: Facts, noise: str | None) -> list[str]:
    """The limits of the guarantee, in the same size of type as the guarantee."""
    if g.get("known") and not g["private"]:
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
        lines.append("Anything, from somebody who knows the seed: the noise was seeded, for simulation only.")
    return lines
