"""Which runs may stand in one chart: those on the same data, with the same unit, relation and delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Facts = Mapping[str, Any]


class Group(NamedTuple):
    """What runs of one chart have in common. Epsilons of unlike units, relations or deltas are unlike things."""

    data: str
    unit: str
    relation: str
    delta: str

    def words(self) -> str:
        """The group as a heading."""
        parts = [f"per {self.unit}" if self.unit else "", self.relation, f"delta {self.delta}" if self.delta else ""]
        return ", ".join(part for part in (self.data, *parts) if part)


def group_of(facts: Facts) -> Group:
    """The group of a run. The unit that was charged counts, where it is known: a client-level run has another."""
    setting, promised = facts["setting"], facts["guarantee"]
    known = promised if promised.get("known") else {}
    return make_group({key: known.get(key) or setting.get(key) for key in ("unit", "relation", "delta")}, setting)


def make_group(promise: Mapping[str, Any], setting: Mapping[str, Any]) -> Group:
    """The group from the values of a result or a config; what is absent is left blank."""
    delta = promise.get("delta")
    shown = f"{delta:g}" if isinstance(delta, (int, float)) else str(delta or "")
    return Group(str(setting.get("data")), str(promise.get("unit") or ""), str(promise.get("relation") or ""), shown)


def grouped(runs: Sequence[Facts]) -> dict[Group, list[Facts]]:
    """The runs by group, in the order in which the groups first come."""
    found: dict[Group, list[Facts]] = {}
    for facts in runs:
        found.setdefault(group_of(facts), []).append(facts)
    return found


def beside(facts: Facts, runs: Sequence[Facts]) -> list[Facts]:
    """The other runs that may stand in a chart with this one."""
    return [other for other in runs if other is not facts and group_of(other) == group_of(facts)]
