"""The plan of a sweep and what its runs came to, read and left as they are.

A folder may come from anybody: no code that it names is imported, and only runs in it are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from prismfl.errors import PrismError, UserError
from prismfl.files import inside as run_files
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.opened import read_config, read_result

PLAN, RESULTS = "sweep.json", "sweep_results.json"
FINISHED, FAILED, UNFINISHED, WAITING = "finished", "failed", "unfinished", "waiting"
LEVEL = 0.95


class SweepCell(BaseModel):
    """One run of a sweep: its folder's name and what differs from the others. No epsilon: the method takes none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._@-]{0,200}$")
    method: str
    encoder: str | None = None
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False)
    seed: int | None = None


class SweepPlan(BaseModel):
    """Every run of a sweep, and what was asked of each method besides: the same command gives the same plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    asked: dict[str, RunConfig]
    cells: tuple[SweepCell, ...] = Field(min_length=1, max_length=10_000)

    def config(self, cell: SweepCell, folder: Path) -> RunConfig:
        """What is asked of one run."""
        own = {"epsilon": cell.epsilon, "seed": cell.seed, "encoder": cell.encoder, "out": str(folder / cell.name)}
        return self.asked[cell.method].model_copy(update=own)


@dataclass(frozen=True)
class CellState:
    """How a run of a sweep stands: its result once it is finished, the reason if it failed."""

    cell: SweepCell
    status: str
    reason: str | None = None
    result: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        return {**self.cell.model_dump(), "status": self.status, "reason": self.reason}


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds a sweep."""
    return (folder / PLAN).is_file()


def read_plan(folder: Path) -> SweepPlan:
    """The plan that a folder holds."""
    try:
        stored = run_files.read_json(folder, PLAN)
    except FileNotFoundError:
        raise UserError(f"'{folder}' holds no sweep (it has no {PLAN}).") from None
    if not isinstance(stored, dict):
        raise UserError(f"'{folder / PLAN}' is not a JSON object.")
    plan: SweepPlan = validate(SweepPlan, stored, str(folder / PLAN))
    unknown = sorted({cell.method for cell in plan.cells} - set(plan.asked))
    if unknown or len({cell.name for cell in plan.cells}) < len(plan.cells):
        raise UserError(f"'{folder / PLAN}' is not as prismfl writes it: a run is there twice, or asks for nothing.")
    return plan


def states_of(folder: Path, plan: SweepPlan) -> list[CellState]:
    """How every run of a sweep stands."""
    reasons = _reasons(folder)
    return [state_of(folder, cell, plan, reason=reasons.get(cell.name)) for cell in plan.cells]


def state_of(folder: Path, cell: SweepCell, plan: SweepPlan, *, reason: str | None = None) -> CellState:
    """How a run stands. `reason` is why it failed when it was last tried."""
    path = folder / cell.name
    if not path.is_dir():
        return CellState(cell, FAILED if reason else WAITING, reason)
    try:
        directory = opened_cell(path, plan.config(cell, folder))
        if directory.status == FINISHED:
            return CellState(cell, FINISHED, result=read_result(directory).as_dict())
    except PrismError as error:
        return CellState(cell, FAILED, reason or str(error))
    return CellState(cell, FAILED if reason else UNFINISHED, reason)


def opened_cell(path: Path, asked: RunConfig) -> RunDirectory:
    """The run in a cell's folder. Another run than the planned one is an error: nobody's code is taken from there."""
    directory = RunDirectory.open(path)
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise UserError(f"'{path}' lies outside the sweep's folder.")
    _, found = read_config(directory)
    same = ["method", "data", "split", "sites", "epsilon", "delta"]
    same += ["model"] if asked.model is not None else []  # else the run has chosen the one that fits the data
    same += ["seed"] if asked.seed is not None else []
    same += ["encoder"] if asked.encoder not in (None, "auto") else []
    for key in same:
        if getattr(found, key) != getattr(asked, key):
            differs = f"{key} {getattr(found, key)}, not {getattr(asked, key)}"
            raise UserError(f"'{path}' holds another run than the sweep's ({differs}); move it away.")
    return directory


def _reasons(folder: Path) -> dict[str, str]:
    """Why runs failed, as the sweep noted it."""
    try:
        told = run_files.read_json(folder, RESULTS)
        found = [cell for cell in told["cells"] if cell["status"] == FAILED]
        return {str(cell["name"]): str(cell["reason"])[:500] for cell in found}
    except (OSError, UserError, LookupError, TypeError):
        return {}


def rows_of(states: Sequence[CellState]) -> list[dict[str, Any]]:
    """A row a method, encoder and epsilon: means over finished seeds, spread and interval of accuracy."""
    groups: dict[tuple[Any, ...], list[CellState]] = {}
    for state in states:
        groups.setdefault((state.cell.method, state.cell.encoder, state.cell.epsilon), []).append(state)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[CellState]) -> dict[str, Any]:
    cell, done = group[0].cell, [s.result for s in group if s.status == FINISHED and s.result is not None]
    row: dict[str, Any] = {
        "method": cell.method,
        "encoder": cell.encoder,
        "epsilon_asked": cell.epsilon,
        "seeds": len(done),
        "seeds_planned": len(group),
        "failed": sum(s.status == FAILED for s in group),
    }
    if not done:
        return row
    first, scores = done[0], _numbers(done, lambda r: r["accuracy"])
    totals = [r.get("epsilon_total", r["epsilon"]) for r in done]
    return row | {
        # The asked name tells two sides of one encoder apart; "auto" and nothing are what the run made of them.
        "encoder": first.get("encoder") if cell.encoder in (None, "auto") else cell.encoder,
        "pretrained_on": first.get("pretrained_on"),
        **{key: first.get(key) for key in ("guarantee", "noise", "unit", "relation", "delta")},
        "epsilon": None if first["epsilon"] is None else max(r["epsilon"] or 0.0 for r in done),
        "epsilon_total": None if None in totals else max(totals),
        "accuracy": _mean(scores),
        "accuracy_sd": round(stdev(scores), 4) if len(scores) > 1 else None,
        "accuracy_half_width": half_width(scores),
        "balanced_accuracy": _mean(_numbers(done, lambda r: _of_model(r, "balanced_accuracy"))),
        "auc": _mean(_numbers(done, lambda r: _of_model(r, "auc"))),
        "bytes": round(mean(r["bytes_up"] + r["bytes_down"] for r in done)),
        "seconds": _mean(_numbers(done, lambda r: r["seconds"])),
    }


def half_width(scores: Sequence[float], level: float = LEVEL) -> float | None:
    """Half of the interval of the mean over seeds, by the t-distribution. One seed has none."""
    if len(scores) < 2:
        return None
    from scipy.stats import t

    return round(float(t.ppf((1 + level) / 2, len(scores) - 1)) * stdev(scores) / math.sqrt(len(scores)), 4)


def _numbers(done: Sequence[Mapping[str, Any]], take: Callable[[Mapping[str, Any]], Any]) -> list[float]:
    values = (take(result) for result in done)
    return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _of_model(result: Mapping[str, Any], key: str) -> Any:
    """A score of the recommended model, or of the sites' own, where the run has measured it."""
    scores = (result.get("models") or {}).get(result.get("recommended")) or result.get("scores")
    return scores.get(key) if isinstance(scores, Mapping) else None


def _mean(values: Sequence[float]) -> float | None:
    return round(mean(values), 4) if values else None
