"""dp-marginals beside today's copula, real records and dpmm's AIM and MST: same splits, same evaluators.

PRISMFL_DATA=DATA python reproduce/tables/run.py --out reproduce/tables/results.json [--data adult,mushroom]
    [--epsilon 1.9] [--sites 1,10] [--seeds 1] [--split iid,skewed] [--methods dp-marginals,dp-copula,real]

`dp-marginals-secure` is dp-marginals through `prismfl.Federation` with a secure sum over all sites, from start to end.
Rows that are in the file already are left alone. `--export WORK` and `--score WORK`: see central.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sources import NAMES, Source, encoded, plain, source

import prismfl
from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.method import State, Wanted
from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.core.trial import ask_once
from prismfl.data import partition
from prismfl.files.atomic import write_atomically
from prismfl.methods import METHODS
from prismfl.metrics.judged import faithful, useful
from prismfl.nets.columns import Columns
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

DELTA = 1e-4
SPLITS: dict[str, dict[str, Any]] = {"iid": {"split": "iid"}, "skewed": {"split": "dirichlet", "alpha": 0.3}}
# Today's copula as in reproduce/3dgl: one release of sums for all classes, added over the sites.
COPULA = {
    "synthesizers": ("dp-copula",),
    "queries": 10,
    "start": 5,
    "rate": 1.0,
    "count_share": 0.4,
    "pool": "merged",
    "balance": "noised",
}


def released(
    name: str, task: Task, parts: list[Records], columns: tuple[str, ...], *, epsilon: float, seed: int
) -> Any:
    """The server's items from one release of each site, and the settings."""
    method = METHODS["3dgl" if name == "dp-copula" else name]
    given: dict[str, Any] = {"columns": columns}
    if name == "dp-copula":
        given |= {**COPULA, "samples": len(task.sites) * task.records}
    if method.auto is not None:
        given |= method.auto(Wanted(given, task, epsilon)).settings

    def cost(sigma: float) -> Cost:
        return method.plan(method.settings(**given, sigma=sigma), task)

    settings = method.settings(**given, sigma=account.calibrate(cost, epsilon, DELTA))
    job, state = Job("tables", method, settings, task, seed), State(0, method.init(settings, task, Key.seed(seed)))
    for _ in range(settings.rounds):
        inbox, spent = {}, Cost.zero()
        for site, records in zip(task.sites, parts):
            noise = Key.seed(seed).child("noise", job.digest, site, state.round).noise()
            found = ask_once(job, state, records, noise, key=Key.seed(seed).child("client", site), site=site)
            inbox[site], spent = found.answer[0], found.cost
        assert spent == job.round_cost(state.round, first=True), "the meter must equal the plan"
        server = Key.seed(seed).child("server", state.round)
        state = State(state.round + 1, dict(method.server(settings, task, state, inbox, server)))
    return state.items, settings


def scores(found: Source, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    classes = len(found.classes)
    columns = Columns.parse(found.words)
    return {
        "useful": useful(x, y, found.x_test, found.y_test, classes=classes),
        "faithful": faithful(x, y, found.x_test, found.y_test, columns=columns, classes=classes),
    }


def secured(found: Source, parts: list[Any], *, epsilon: float, seed: int) -> dict[str, Any]:
    """A whole run of sites whose tables are added up in a secure sum: the server reads nothing but the sum."""
    with tempfile.TemporaryDirectory() as folder:
        federation = prismfl.Federation.from_arrays(
            [(found.x[part].numpy(), found.y[part].numpy()) for part in parts],
            classes=len(found.classes),
            records=max(1, len(found.y) // len(parts)),
            test=(found.x_test.numpy(), found.y_test.numpy()),
            bounds=(-1.0, 1.0),
        )
        started = time.process_time()
        run = federation.run(
            "dp-marginals",
            epsilon=epsilon,
            delta=DELTA,
            seed=seed,
            columns=found.words,
            secure={"quorum": len(parts)},
            ledger=f"{folder}/ledger",
            out=f"{folder}/run",
        )
        seconds, made = time.process_time() - started, run.result.tables
    return {"useful": made["useful"], "faithful": made["faithful"], "cpu_seconds": round(seconds, 1)}


def one(name: str, method: str, *, epsilon: float, sites: int, split: str, seed: int) -> dict[str, Any]:
    found = source(name, seed)
    if method == "real":
        return scores(found, found.x, found.y)
    parts = partition(found.y.numpy(), sites, seed=seed, **SPLITS[split]) if sites > 1 else [np.arange(len(found.y))]
    if method == "dp-marginals-secure":
        return secured(found, parts, epsilon=epsilon, seed=seed)
    names = tuple(f"site-{i}" for i in range(sites))
    task = Task("own", (found.x.shape[1],), found.classes, names, max(1, len(found.y) // sites), "logreg", delta=DELTA)
    held = [Records(found.x[part], found.y[part]) for part in parts]
    started = time.process_time()
    items, settings = released(method, task, held, found.words, epsilon=epsilon, seed=seed)
    seconds = time.process_time() - started
    made = items["synthetic"]
    assert isinstance(made, SyntheticSet)
    told = {k: v for k, v in settings.model_dump(mode="json").items() if k in ("bins", "pair_cells", "sigma")}
    return {**scores(found, made.x, made.y), "cpu_seconds": round(seconds, 1), "settings": told}


def keep(out: Path, row: str, result: dict[str, Any]) -> None:
    known = json.loads(out.read_text()) if out.exists() else {}
    known[row] = result
    write_atomically(out, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
    trees = result["useful"]["boosted trees"]
    line = result["useful"]["logistic regression"]
    print(row, f"AUC {line['auc']:.2f} {trees['auc']:.2f}", f"tv {result['faithful']['tv_2']}", flush=True)


def export(work: Path, names: list[str], seeds: int) -> None:
    work.mkdir(parents=True, exist_ok=True)
    for name, seed in product(names, range(seeds)):
        found = source(name, seed)
        np.savez(
            work / f"{name}.{seed}.train.npz",
            values=plain(found, found.x),
            labels=found.y.numpy(),
            words=np.array(found.words),
            classes=len(found.classes),
        )


def score(work: Path, out: Path) -> None:
    known = json.loads(out.read_text()) if out.exists() else {}
    for file in sorted(work.glob("*.*.*.npz")):
        parts = file.name.removesuffix(".npz").split(".", 3)
        if len(parts) < 4:
            continue
        name, seed, model, epsilon = parts
        row = f"{name}/{model}/{float(epsilon):g}/1/iid/{seed}"
        if row not in known:
            made, found = np.load(file), source(name, int(seed))
            result = scores(found, encoded(found, made["values"]), torch.from_numpy(made["labels"]).long())
            keep(out, row, {**result, "cpu_seconds": round(float(made["seconds"]), 1)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--methods", default="real,dp-copula,dp-marginals")
    parser.add_argument("--epsilon", default="1.9")
    parser.add_argument("--sites", default="1,10")
    parser.add_argument("--split", default="iid")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--score", type=Path)
    asked = parser.parse_args()
    runtime.tune(1)
    names = asked.data.split(",")
    if asked.export:
        return export(asked.export, names, asked.seeds)
    if asked.score:
        return score(asked.score, asked.out)
    cells = product(range(asked.seeds), asked.epsilon.split(","), asked.sites.split(","), asked.split.split(","))
    for (seed, epsilon, sites, split), name, method in product(cells, names, asked.methods.split(",")):
        row = (
            f"{name}/real/{seed}" if method == "real" else f"{name}/{method}/{float(epsilon):g}/{sites}/{split}/{seed}"
        )
        if int(sites) == 1 and (split != "iid" or method == "dp-marginals-secure"):
            continue
        if not asked.out.exists() or row not in json.loads(asked.out.read_text()):
            keep(asked.out, row, one(name, method, epsilon=float(epsilon), sites=int(sites), split=split, seed=seed))


if __name__ == "__main__":
    main()
