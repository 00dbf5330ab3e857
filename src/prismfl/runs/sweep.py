"""One method beside another over epsilons, seeds and encoders: a run a cell, each made as `simulate.run` makes it.

A sweep goes on where it stopped: finished runs are kept, unfinished ones are taken to their end, failed ones are tried
again. What cannot be is found before the first run.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismfl.core.method import Method
from prismfl.errors import PrismError, UserError, words_for_log
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs import simulate
from prismfl.runs.cells import (
    FAILED,
    FINISHED,
    PLAN,
    RESULTS,
    CellState,
    SweepCell,
    SweepPlan,
    is_sweep,
    opened_cell,
    read_plan,
    rows_of,
    state_of,
    states_of,
)
from prismfl.runs.choosing import choose
from prismfl.runs.config import RunConfig, check, written
from prismfl.runs.encoders import encoder_of
from prismfl.runs.hosts import own_ledger
from prismfl.runs.planning import Warn, is_own, resolve, task_of, tuned
from prismfl.runs.records import spec_of
from prismfl.stages import Progress

BROKEN = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(MemoryError, OSError, RuntimeError, TypeError, ValueError),
)
"""What a method may end in, beside our own errors: the other runs go on."""
MOST_CELLS = 10_000


@dataclass(frozen=True)
class Axes:
    """What a sweep goes over. An empty axis is what the config says."""

    methods: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    encoders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """A planned sweep: its folder, its runs, and their methods."""

    folder: Path
    plan: SweepPlan
    methods: Mapping[str, Method] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether it is over the user's own records, so that every run is charged."""
        return any(is_own(config) for config in self.plan.asked.values())


def listed(text: str | None, kind: Callable[[str], Any], option: str) -> tuple[Any, ...]:
    """The values of an option that takes several, with commas between them; each once."""
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    try:
        return tuple(dict.fromkeys(kind(part) for part in parts))
    except ValueError:
        raise UserError(f"Expected {option} as values with commas between them, got '{text}'.") from None


def planned(
    folder: Path, axes: Axes, *, file: Path | None = None, sets: Sequence[str] = (), given: Mapping[str, Any]
) -> Sweep:
    """The sweep that a command asks for. Whatever cannot be is an error, and nothing is made.

    A setting goes to the methods that have it; `METHOD.key=value` in `sets` is for that one.
    """
    for epsilon in axes.epsilons:
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise UserError(f"Expected --epsilon > 0, got {epsilon:g}.")
    words = axes.methods or (written(file, _of_no_method(sets), given).method,)
    chosen = dict(choose(name) for name in words)
    asked = {name: _asked(file, sets, given, method, chosen) for name, method in chosen.items()}
    cells = [cell for name, config in asked.items() for cell in _cells(name, chosen[name], config, axes)]
    open_ = dict.fromkeys(("epsilon", "seed", "encoder", "out"))
    bare = {name: config.model_copy(update={**open_, "method": name}) for name, config in asked.items()}
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names) or len(names) > MOST_CELLS:
        twice = next((name for name in names if names.count(name) > 1), f"{len(names)} runs")
        raise UserError(f"Expected at most {MOST_CELLS} runs with a name each, got '{twice}'; ask for fewer.")
    found = Sweep(folder, SweepPlan(asked=bare, cells=tuple(cells)), chosen)
    _check_folder(found)
    costs_of(found, found.plan.cells)
    return found


def _of_no_method(sets: Sequence[str]) -> list[str]:
    return [line for line in sets if line.partition("=")[0].count(".") == 0 or line.startswith("settings.")]


def _asked(
    file: Path | None, sets: Sequence[str], given: Mapping[str, Any], method: Method, chosen: Mapping[str, Method]
) -> RunConfig:
    """What is asked of one method: what all share as far as it has such a setting, and what is for it alone."""
    names = tuple(f"{known.name}." for known in chosen.values())
    shared = [line for line in sets if not line.startswith(names)]
    own = [f"settings.{line.removeprefix(method.name + '.')}" for line in sets if line.startswith(f"{method.name}.")]
    config = written(file, shared, given)
    known = {key for m in chosen.values() for key in m.settings.model_fields}
    for key in config.settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}."
            raise UserError(f"No method of the sweep has a setting '{key}'; {hint}")
    fitting = {key: value for key, value in config.settings.items() if key in method.settings.model_fields}
    config = config.model_copy(update={"settings": {**fitting, **written(None, own, {}).settings}})
    # On own records the seeds count repetitions; whoever knew a seed of the noise could take the noise off.
    noise = config.noise or ("operating-system" if is_own(config) else None)
    return config.model_copy(update={"noise": noise})


def _cells(words: str, method: Method, config: RunConfig, axes: Axes) -> Iterator[SweepCell]:
    """The runs of one method. One that takes no epsilon, or no encoder, runs once for all of them."""
    takes_epsilon = method.guarantee is not None and "sigma" in method.settings.model_fields
    epsilons = (axes.epsilons or (config.epsilon,)) if takes_epsilon else (None,)
    encoders = (axes.encoders or (config.encoder,)) if method.takes_encoder else (None,)
    seeds = axes.seeds or ((config.seed,) if config.seed is not None or is_own(config) else (0,))
    for encoder in encoders:
        for epsilon in epsilons:
            for seed in seeds:
                seen = encoder and re.sub(r"[^a-z0-9.@]+", "-", encoder.lower()).strip("-")[:60]
                parts = (seen, epsilon is not None and f"eps{epsilon:g}", seed is not None and f"seed{seed}")
                name = "_".join([method.name, *(part for part in parts if part)])
                yield SweepCell(name=name, method=words, encoder=encoder, epsilon=epsilon, seed=seed)


def costs_of(sweep: Sweep, cells: Sequence[SweepCell]) -> list[Cost]:
    """What runs cost in all, a cost a unit, from public numbers; a run that cannot be is an error."""
    found: dict[tuple[Any, ...], Cost] = {}
    total: dict[tuple[str, str], Cost] = {}
    spec = spec_of(next(iter(sweep.plan.asked.values())))
    for cell in cells:
        key, method = (cell.method, cell.encoder, cell.epsilon), sweep.methods[cell.method]
        if key not in found:
            config = sweep.plan.config(cell, sweep.folder)
            check(config)
            task = task_of(config, spec, method, encoder=encoder_of(config, method))
            config, _ = tuned(config.model_copy(update={"tuning": "fixed"}), task, method)
            found[key] = method.plan(resolve(config, task, method), task)
        cost = found[key]
        unit = (cost.unit, cost.relation)
        total[unit] = total[unit].beside(cost) if unit in total else cost
    return list(total.values())


def price_words(sweep: Sweep) -> str | None:
    """What the runs that have not begun will cost one's own records together; None where nobody pays."""
    coming = [cell for cell in sweep.plan.cells if not (sweep.folder / cell.name).is_dir()]
    if not sweep.own or not coming:
        return None
    delta = next(iter(sweep.plan.asked.values())).delta
    parts = []
    for cost in costs_of(sweep, coming):
        spent = f"epsilon about {account.epsilon(cost, delta):.3g}" if cost.private else "no guarantee at all"
        parts.append(f"{spent} per {cost.unit}")
    return f"{len(coming)} runs on your own records add up: {' and '.join(parts)} at delta {delta:g}"


def check_cap(sweep: Sweep) -> None:
    """Refuses runs on one's own records that do not fit under the cap together, before the first of them is charged."""
    coming = [cell for cell in sweep.plan.cells if not (sweep.folder / cell.name).is_dir()]
    if not sweep.own or len(coming) < 2:  # of one run its own start says it
        return
    asked = next(iter(sweep.plan.asked.values()))
    cap, spent = _stored_cap(asked)
    for cost in costs_of(sweep, coming):
        own = cap or (None if asked.cap is None else admission.Cap(asked.cap, asked.delta, cost.unit, cost.relation))
        if own is None or admission.holds(own, order=None, standing=[*spent, cost]):
            continue
        tight = f"epsilon {account.epsilon(cost, own.delta):.3g}" if cost.private else "no guarantee"
        raise UserError(
            f"{len(coming)} runs together ({tight} per {cost.unit}, beside {len(spent)} earlier charges) do not fit "
            f"under the cap of {own.describe()}; ask for fewer methods or --seeds, or a smaller --epsilon. Nothing was "
            "charged."
        )


def _stored_cap(config: RunConfig) -> tuple[admission.Cap | None, list[Cost]]:
    """The cap of one's own data on their ledger, and what they have paid."""
    place = own_ledger(config)
    if not place.exists():
        return None, []
    name = config.dataset or str(Path(config.data).resolve())
    with Ledger.open(place, create=False) as ledger:
        found = next((status for status in ledger.status() if name in status.names), None)
    return (None, []) if found is None else (found.cap, list(found.spent))


def _check_folder(sweep: Sweep) -> None:
    """The folder is new, empty, or this sweep's own."""
    folder = sweep.folder
    if is_sweep(folder):
        known = read_plan(folder)
        if known != sweep.plan:
            raise UserError(f"'{folder}' holds another sweep ({_difference(known, sweep.plan)}); choose another --out.")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"'{folder}' exists and holds no sweep; choose another with --out.")


def _difference(known: SweepPlan, asked: SweepPlan) -> str:
    for name in known.asked.keys() & asked.asked.keys():
        for key in RunConfig.model_fields:
            was, now = (getattr(plan.asked[name], key) for plan in (known, asked))
            if was != now:
                return f"{key} {was!r} there, {now!r} here"
    was, now = ({cell.name for cell in plan.cells} for plan in (known, asked))
    return f"its runs are others: '{min(was ^ now, default='their order')}'"


def go(
    sweep: Sweep,
    *,
    progress: Progress = lambda *_: None,
    warn: Warn = lambda _: None,
    tell: Warn = lambda _: None,
) -> list[CellState]:
    """Take every run to its end. Stopped at any moment, the same sweep goes on where it was."""
    folder, plan = sweep.folder, sweep.plan
    make_folder(folder, closed=sweep.own)
    with _alone(folder):
        if not is_sweep(folder):
            write_atomically(folder / PLAN, (plan.model_dump_json(indent=2) + "\n").encode())
        states = states_of(folder, plan)
        warned: set[str] = set()
        for i, state in enumerate(states):
            if state.status == FINISHED:
                continue
            tell(f"run {i + 1} of {len(states)}: {state.cell.name}{_left(states)}")
            states[i] = _done(sweep, state.cell, progress=_named(i, len(states), progress), warn=_once(warn, warned))
            if states[i].status == FAILED:
                warn(f"{state.cell.name} failed: {states[i].reason}")
            write_results(folder, states, own=sweep.own)
        write_results(folder, states, own=sweep.own)
    return states


def write_results(folder: Path, states: Sequence[CellState], *, own: bool) -> None:
    """The rows of the table and how each run stands, as one file."""
    value = {"own_data": own, "rows": rows_of(states), "cells": [state.as_dict() for state in states]}
    write_atomically(folder / RESULTS, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def _done(sweep: Sweep, cell: SweepCell, *, progress: Progress, warn: Warn) -> CellState:
    """One run to its end, or why it has none."""
    path, config = sweep.folder / cell.name, sweep.plan.config(cell, sweep.folder)
    try:
        _clear(path)
        if path.exists():
            opened_cell(path, config)
            simulate.resume(path, progress=progress, warn=warn)
        else:
            simulate.run(config, method=sweep.methods[cell.method], progress=progress, warn=warn)
    except (PrismError, *BROKEN) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        return CellState(cell, FAILED, _reason(error, own=sweep.own))
    return state_of(sweep.folder, cell, sweep.plan)


def _clear(path: Path) -> None:
    """A folder in which a run was not yet written down holds nothing: nothing was asked of any site."""
    if not path.is_dir() or (path / "config.json").exists():
        return
    if all(file.name == "run.json" or file.suffix == ".part" for file in path.iterdir()):
        shutil.rmtree(path)


def _reason(error: BaseException, *, own: bool) -> str:
    """One line. The words of an error over own records may quote one, so they are not written down."""
    if own:
        return words_for_log(error)
    words = " ".join(str(error).split())[:300]
    return words if isinstance(error, PrismError) else f"{type(error).__name__}: {words}"


def _left(states: Sequence[CellState]) -> str:
    """How long it may still take, as the finished runs of the same method did, else as all did."""
    took: dict[str, list[float]] = {}
    for state in states:
        if state.result is not None:
            took.setdefault(state.cell.method, []).append(float(state.result["seconds"]))
    if not took:
        return ""
    each = {name: sum(times) / len(times) for name, times in took.items()}
    usual = sum(map(sum, took.values())) / sum(map(len, took.values()))
    left = sum(each.get(state.cell.method, usual) for state in states if state.result is None)
    return f" (about {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} left)"


def _named(i: int, total: int, progress: Progress) -> Progress:
    return lambda what, done, of: progress(f"{i + 1} of {total}, {what}", done, of)


def _once(warn: Warn, warned: set[str]) -> Warn:
    """The same notice of many runs is told once."""

    def told(line: str) -> None:
        if line not in warned:
            warned.add(line)
            warn(line)

    return told


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One sweep at a time in a folder."""
    handle = os.open(folder / "sweep.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another sweep is at work in '{folder}'; wait for it, or choose another --out.") from None
        yield
    finally:
        os.close(handle)
