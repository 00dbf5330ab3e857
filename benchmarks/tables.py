"""dp-marginals by the clock: Adult at ten sites from start to end, 100,000 rows drawn, and a table of 100 columns that
grows from 10,000 rows to a million.

    python benchmarks/tables.py [--rows 10000 100000 1000000] [--only adult rows]

Needs the extra `tables` and, for Adult, PRISMFL_DATA. Each cell is a process of its own: wall and CPU seconds with
those of the process that fits the graphical model, and the most memory that either held. The load of the machine is
that at the start. Wanted on two cores: Adult in 2 minutes; 100,000 rows drawn in 10 s; a million rows of 100 columns in
10 minutes and 4 GB. The wide table is drawn: 60 numbers, 20 choices of five and 20 of two that follow four hidden ones.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from alternate import in_own_process, save, say, table

NUMBERS, CHOICES, PLACES, SIGNS = 60, 20, 5, 20
HIDDEN, DRAWN = 4, 100_000
WANTED = {"adult": 120.0, "drawn": 10.0, "rows": 600.0, "memory_mb": 4096.0}


def wide_table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Encoded records and labels, a part at a time: all of them at once in double precision would be the peak."""
    draws, width = np.random.default_rng(0), NUMBERS + CHOICES * PLACES + SIGNS
    turn = draws.normal(0, 1, (HIDDEN, NUMBERS + CHOICES + SIGNS))
    x, y = np.zeros((rows, width), dtype=np.float32), np.zeros(rows, dtype=np.int64)
    for start in range(0, rows, 50_000):
        hidden = draws.normal(0, 1, (min(50_000, rows - start), HIDDEN))
        seen = hidden @ turn / 2 + draws.normal(0, 1, (len(hidden), turn.shape[1]))
        part = x[start : start + len(hidden)]
        part[:, :NUMBERS] = np.tanh(seen[:, :NUMBERS] / 3)
        place = np.clip(np.floor(seen[:, NUMBERS : NUMBERS + CHOICES] + PLACES / 2), 0, PLACES - 1).astype(int)
        for k in range(CHOICES):
            part[np.arange(len(part)), NUMBERS + PLACES * k + place[:, k]] = 1.0
        part[:, -SIGNS:] = np.where(seen[:, -SIGNS:] > 0, 1.0, -1.0)
        y[start : start + len(hidden)] = hidden[:, 0] + draws.normal(0, 0.5, len(hidden)) > 1.0
    return x, y


def rows_cell(rows: int, folder: str) -> dict[str, Any]:
    """One release of the wide table, the model of it, and rows drawn from that."""
    from prismfl import Synthesizer

    x, y = wide_table(rows)
    words = ["n"] * NUMBERS + [f"c{PLACES}"] * CHOICES + ["b"] * SIGNS
    made = Synthesizer(1.0, method="dp-marginals", records=rows, classes=2, seed=0, ledger=folder, columns=tuple(words))
    clock, cpu = time.monotonic(), time.process_time()
    made.fit(x, y)
    released, spent = time.monotonic() - clock, time.process_time() - cpu
    clock = time.monotonic()
    made.sample(1000)
    fitted = time.monotonic() - clock
    clock = time.monotonic()
    made.sample(DRAWN)
    drawn = time.monotonic() - clock
    told = {name: getattr(made.settings, name) for name in ("bins", "pair_cells")}
    return {"release_seconds": released, "release_cpu": spent, "fit_seconds": fitted, "draw_seconds": drawn, **told}


def adult_cell(folder: str) -> dict[str, Any]:
    """A whole run, and then rows drawn from what it ended with."""
    import prismfl
    from prismfl.methods.generators import marginals
    from prismfl.rng import Key
    from prismfl.runs.reopen import reopen

    clock = time.monotonic()
    out = f"{folder}/run"
    prismfl.run("dp-marginals", data="adult", sites=10, epsilon=1.9, delta=1e-4, out=out)
    whole = time.monotonic() - clock
    run = reopen(Path(out))
    generator = run.state.items["generator"]
    clock = time.monotonic()
    marginals.sample(run.job.settings, run.job.task, generator, DRAWN, key=Key.seed(0))
    return {"run_seconds": whole, "draw_seconds": time.monotonic() - clock}


def cell(what: str) -> dict[str, Any]:
    """One measurement, with all that its process and the fitter's took."""
    load, clock = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        found = adult_cell(folder) if what == "adult" else rows_cell(int(what), folder)
    own, other = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    found |= {
        "seconds": time.monotonic() - clock,
        "cpu_seconds": own.ru_utime + own.ru_stime + other.ru_utime + other.ru_stime,
        "memory_mb": max(own.ru_maxrss, other.ru_maxrss) / 1024,
        "load": load,
    }
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--only", nargs="+", choices=["adult", "rows"], default=["adult", "rows"])
    parser.add_argument("--cell")
    asked = parser.parse_args()
    if asked.cell:
        return say(json.dumps(cell(asked.cell)))
    found: dict[str, Any] = {"wanted": WANTED}
    for what in asked.only:
        cells = ["adult"] if what == "adult" else [str(count) for count in asked.rows]
        rows = [{"cell": one, **in_own_process(str(Path(__file__)), "--cell", one)} for one in cells]
        found[what] = rows
        say(table(rows))
    save("tables", found)


if __name__ == "__main__":
    main()
