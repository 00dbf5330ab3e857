"""A run that starts from another's model: its first state, and what the earlier run adds to its cost and its noise.

The same for a simulation and for a federation. There the server sends the model down as it sends any other, and each
site's own ledger adds both runs up where they were made from the same records.
"""

from __future__ import annotations

from pathlib import Path

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.rounds import initial_state
from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.runs.directory import RunDirectory
from prismfl.runs.planning import Warn
from prismfl.sources import DEPLOYMENT, SIMULATION


def started_from(start: str | None, job: Job, warn: Warn) -> State:
    """The first state: the method's own, or with the model that an earlier run ended with."""
    state = initial_state(job)
    if start is None:
        return state
    earlier = RunDirectory.open(Path(start))
    ended = earlier.load_state() if earlier.status == "finished" else None
    if ended is None or "model" not in ended.items or "model" not in state.items:
        raise UserError(f"'{start}' has no finished model for '{job.method.name}' to start from.")
    if ended.items["model"].shapes() != state.items["model"].shapes():
        raise UserError(f"The model in '{start}' is not a {job.task.model}; use the same --model in both runs.")
    cost = total_of(earlier)
    words = f"cost epsilon {account.epsilon(cost, job.task.delta):.3g}" if cost.private else "has no guarantee"
    warn(f"the model to start from {words}, beside what this run costs; the result states both together.")
    return State(0, {**state.items, "model": ended.items["model"]})


def total_of(directory: RunDirectory) -> Cost:
    """All that a finished run's model depends on."""
    told = directory.read_json("result.json")
    if told.get("cost_total") is not None:
        return Cost.from_json(told["cost_total"])
    costs = [Cost.from_json(entry) for entry in directory.read_json("ledger.json").values()]
    return max(costs, key=lambda cost: account.epsilon(cost, float(told["delta"])))


def whole_noise(own: str, start: str | None) -> str:
    """Where the noise came from that the final model depends on: a seed anywhere in the chain leaves no protection."""
    if start is None or own == SIMULATION:
        return own
    earlier = RunDirectory.open(Path(start)).read_json("result.json")
    return DEPLOYMENT if earlier.get("noise") == DEPLOYMENT or not earlier.get("own_data", True) else SIMULATION


def whole_cost(cost: Cost, start: str | None) -> Cost:
    """A run's cost and that of the run it started from."""
    if start is None:
        return cost
    earlier = total_of(RunDirectory.open(Path(start)))
    if (earlier.unit, earlier.relation) != (cost.unit, cost.relation):
        return Cost.non_private(cost.unit, cost.relation)  # unlike units never add: nothing can be said of both
    return earlier.beside(cost)
