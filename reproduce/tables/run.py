"""dp-marginals beside today's copula, real records and dpmm's AIM and MST: same splits, same evaluators.

PRISMFL_DATA=DATA python reproduce/tables/run.py [--with adult 1.9] [--only adult/dp-marginals/1.9/10/iid/0]

A row is called data/method/epsilon/sites/split/seed (data/real/seed for real records). Without a word every row of
`rows` that is not in the file yet is made, what matters most first; `--with` takes those that have all these parts.
`dp-marginals-two` is dp-marginals in two exchanges; `dp-marginals-secure` is dp-marginals through `prismfl.Federation`
with a secure sum over all sites, from start to end. `--export WORK` and `--score WORK`: see central.py.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Iterator
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
SEEDS = (0, 1, 2)
MARGINALS, TWO, SECURE, COPULA_OF = "dp-marginals", "dp-marginals-two", "dp-marginals-secure", "dp-copula"
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


def rows() -> Iterator[str]:
    """The rows that there shall be, what matters most first."""
    cells = (("1", "iid"), ("10", "iid"))
    for seed, data in product(SEEDS, NAMES):
        yield f"{data}/real/{seed}"
        for method, (sites, split) in product((MARGINALS, COPULA_OF), cells):
            yield f"{data}/{method}/1.9/{sites}/{split}/{seed}"
    for seed, (sites, split), data in product(SEEDS, (("10", "skewed"), ("50", "iid")), NAMES):
        yield f"{data}/{MARGINALS}/1.9/{sites}/{split}/{seed}"
    for data in NAMES:
        yield f"{data}/{SECURE}/1.9/10/iid/0"
    for epsilon, data, (sites, split), method in product(("0.2", "1", "5"), NAMES, cells, (MARGINALS, COPULA_OF)):
        yield f"{data}/{method}/{epsilon}/{sites}/{split}/0"
    for (sites, split), data in product((("10", "skewed"), ("50", "iid")), NAMES):
        yield f"{data}/{COPULA_OF}/1.9/{sites}/{split}/0"
    for data, (sites, split) in product(NAMES, cells):
        yield f"{data}/{TWO}/1.9/{sites}/{split}/0"
    for seed, data in product(SEEDS[1:], NAMES):
        yield f"{data}/{SECURE}/1.9/10/iid/{seed}"


def released(
    name: str, task: Task, parts: list[Records], columns: tuple[str, ...], *, epsilon: float, seed: int
) -> Any:
    """The server's items from one release of each site, and the settings."""
    method = METHODS["3dgl" if name == COPULA_OF else MARGINALS]
    given: dict[str, Any] = {"columns": columns}
    if name == COPULA_OF:
        given |= {**COPULA, "samples": len(task.sites) * task.records}
    if name == TWO:
        given["rounds"] = 2
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


def cpu() -> float:
    """Seconds of this process and of the one that fits the model."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


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
        started = cpu()
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
        seconds, made = cpu() - started, run.result.tables
    return {"useful": made["useful"], "faithful": made["faithful"], "cpu_seconds": round(seconds, 1)}


def one(name: str, method: str, *, epsilon: float, sites: int, split: str, seed: int) -> dict[str, Any]:
    found = source(name, seed)
    if method == "real":
        return scores(found, found.x, found.y)
    parts = partition(found.y.numpy(), sites, seed=seed, **SPLITS[split]) if sites > 1 else [np.arange(len(found.y))]
    if method == SECURE:
        return secured(found, parts, epsilon=epsilon, seed=seed)
    names = tuple(f"site-{i}" for i in range(sites))
    task = Task("own", (found.x.shape[1],), found.classes, names, max(1, len(found.y) // sites), "logreg", delta=DELTA)
    held = [Records(found.x[part], found.y[part]) for part in parts]
    started = cpu()
    items, settings = released(method, task, held, found.words, epsilon=epsilon, seed=seed)
    seconds = cpu() - started
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows alone")
    parser.add_argument("--with", nargs="+", default=[], dest="words", help="rows that have all these parts")
    parser.add_argument("--seeds", type=int, default=1, help="with --export: splits 0 to SEEDS - 1")
    parser.add_argument("--export", type=Path)
    parser.add_argument("--score", type=Path)
    asked = parser.parse_args()
    runtime.tune(1)
    if asked.export:
        return export(asked.export, list(NAMES), asked.seeds)
    if asked.score:
        return score(asked.score, asked.out)
    for row in asked.only or [row for row in rows() if set(asked.words) <= set(row.split("/"))]:
        if asked.out.exists() and row in json.loads(asked.out.read_text()):
            continue
        name, method, *told, seed = row.split("/")
        epsilon, sites, split = told or ("1.9", "1", "iid")
        keep(asked.out, row, one(name, method, epsilon=float(epsilon), sites=int(sites), split=split, seed=int(seed)))


if __name__ == "__main__":
    main()
