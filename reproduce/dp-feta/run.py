"""Reproduces the DP-FETA table: python reproduce/dp-feta/run.py [--only mnist dp-feta] [--out results.json].

Each row is a preset (presets/dp-feta) as `prismfl run` takes it. Finished rows are kept in the results file and are not
run again; a row that was interrupted goes on from the last part of its training. Every row has the same compute: about
8 minutes of one core. With `--sweep` the diffusion rows of MNIST are run at other lengths, to see where the order
turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl import runtime
from prismfl.core.door import PrivateRecords
from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records
from prismfl.data.datasets import load
from prismfl.data.pictures import save_grid
from prismfl.methods.generators import dp_feta
from prismfl.methods.generators.central import Central
from prismfl.metrics.fidelity import Features, fidelity, learn_features
from prismfl.rng import Key
from prismfl.runs import planning, records, simulate
from prismfl.runs.config import read
from prismfl.runs.directory import RunDirectory

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "dp-feta"
COMPARED = 2000
PUBLISHED = {  # accuracy in percent at epsilon 1 and 10: benchmark re-runs, days on a GPU
    ("dp-feta", "mnist"): {1: 95.6, 10: 98.1},
    ("dp-feta", "fashion-mnist"): {1: 81.7, 10: 87.3},
    ("dpdm", "mnist"): {1: 89.2, 10: 97.7},
    ("dpdm", "fashion-mnist"): {1: 76.4, 10: 85.6},
    ("dp-merf", "mnist"): {1: 80.3, 10: 81.3},
    ("dp-merf", "fashion-mnist"): {1: 62.2, 10: 62.2},
}
SWEEP = (("dp-feta", 1), ("dp-feta", 20), ("dp-feta", 240), ("dpdm", 25), ("dpdm", 300))


def preset(
    data: str,
    method: str,
    epsilon: float,
    *,
    sites: int = 1,
    split: str = "iid",
    steps: int | None = None,
    network: str = "unet",
) -> dict[str, Any]:
    """A row's settings.

    dpdm has no warm-up, so its time goes to more DP-SGD steps. With five sites the compute is divided among them, and
    dp-feta's first round adds up their central images.
    """
    words = [data, *([method] if method != "dp-feta" else []), *([split, f"sites{sites}"] if sites > 1 else [])]
    words += [f"eps{epsilon:g}", *([f"steps{steps}"] if steps is not None else [])]
    words += [network] if network != "unet" else []
    return read(PRESETS / f"{'-'.join(words)}.toml")


def rows() -> list[dict[str, Any]]:
    """Every cell of the table, most wanted first."""
    both = ("mnist", "fashion-mnist")
    cells = [preset(data, "dp-merf", 1) for data in both]
    cells += [
        preset(data, method, epsilon, network="frequencies")
        for data in both
        for epsilon in (10, 1)
        for method in ("dp-feta", "dpdm")
    ]
    cells += [preset(data, method, epsilon) for data in both for epsilon in (1, 10) for method in ("dp-feta", "dpdm")]
    for data in both:
        cells += [preset(data, "dp-merf", 10), preset(data, "dp-gan", 1), preset(data, "dp-gan", 10)]
    for split in ("fedlap", "iid"):
        cells.append(preset("mnist", "dp-feta", 1, sites=5, split=split, network="frequencies"))
        cells += [preset("mnist", method, 1, sites=5, split=split) for method in ("dp-merf", "dp-feta", "dpdm")]
    return cells


def sweep() -> list[dict[str, Any]]:
    """Shorter and longer diffusion rows on MNIST at epsilon 1."""
    return [preset("mnist", method, 1, steps=steps) for method, steps in SWEEP]


def name_of(cell: dict[str, Any]) -> str:
    words = [cell["data"], cell["method"], f"eps{cell['epsilon']:g}", f"sites{cell['sites']}", cell["split"]]
    if cell["settings"]["steps"] != next((c for c in rows() if _same(c, cell)), cell)["settings"]["steps"]:
        words.append(f"steps{cell['settings']['steps']}")
    return " ".join([*words, *([network] if (network := _network(cell)) != "unet" else [])])


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    alike = all(one[k] == other[k] for k in ("data", "method", "epsilon", "sites", "split"))
    return alike and _network(one) == _network(other)


def _network(cell: dict[str, Any]) -> str:
    return str(cell["settings"].get("network", "unet"))


@lru_cache(maxsize=2)
def features_of(data: str) -> Features:
    found = load(data)
    return learn_features(found.x_train[:20_000], found.y_train[:20_000], classes=10, key=Key.seed(0), epochs=2)


class Bar:
    """One line a round: how far it is, how long still."""

    def __init__(self) -> None:
        self.started, self.first = time.process_time(), -1

    def __call__(self, what: str, done: int, total: int) -> None:
        if not what.startswith("round"):
            return
        self.first = done if self.first < 0 else self.first
        passed, fresh = time.process_time() - self.started, done - self.first
        left = f"{passed / fresh * (total - done) / 60:.1f} CPU min left" if fresh else "starting"
        print(f"  {what} ({done} of {total}): {left}", flush=True)


def run_cell(cell: dict[str, Any], folder: Path, pictures: Path) -> dict[str, Any]:
    started, resumed = time.process_time(), (folder / "config.json").exists()
    if resumed:
        result = simulate.resume(folder, progress=Bar()).as_dict()
    else:
        config = planning.configure({**cell, "seed": 0, "out": str(folder)})
        result = simulate.run(config, progress=Bar()).as_dict()
    minutes = (time.process_time() - started) / 60
    del result["run_dir"]
    made = np.load(folder / "gen" / "gen.npz")
    x = torch.from_numpy(made["x"]).float()
    measure = features_of(cell["data"])
    close = fidelity(measure, real=load(cell["data"]).x_test[:COMPARED], made=x[:COMPARED])
    show(cell, folder, pictures)
    return {
        "name": name_of(cell), "cpu_minutes": round(minutes, 1), "resumed": resumed,
        "settings": cell["settings"], **result,
        "fidelity": {k: round(v, 4) for k, v in close.as_dict().items()}, "features": measure.name,
    }  # fmt: skip


def show(cell: dict[str, Any], folder: Path, pictures: Path) -> None:
    """Small pictures: the samples, how they grew, and the central images."""
    name = name_of(cell).replace(" ", "_")
    if cell["sites"] > 1:
        return
    shutil.copy(folder / "gen" / "sample.png", pictures / f"{name}.png")
    state = RunDirectory.open(folder).load_state()
    history = state.items.get("history") if state else None
    if isinstance(history, SyntheticSet) and cell["data"] == "mnist":
        save_grid(history.x, history.hard_y, pictures / f"{name}_history.png", classes=tuple("0123456789"), columns=12)
    if cell["method"] == "dp-feta" and _network(cell) == "unet":
        save_central(cell, pictures / f"{name}_central.png")


def save_central(cell: dict[str, Any], path: Path) -> None:
    """The run's own central images: the same first questions with the same simulated noise."""
    config = planning.configure({**cell, "seed": 0})
    method = planning.find_method(config.method)
    task = planning.task_of(config, records.spec_of(config), method)
    cfg = planning.resolve(config, task, method)
    assert isinstance(cfg, dp_feta.Config)
    data = load(cell["data"])
    noise = Key.seed(0).child("noise", "site-0", 0).noise()
    door = PrivateRecords(Records(data.x_train, data.y_train), declared=task.records, classes=10, noise=noise)
    central = dp_feta.central_of(cfg, task)
    assert isinstance(central, Central)
    x, y = central.images(central.ask(door))
    save_grid(x, y, path, classes=data.spec.classes)


def gap(cell: dict[str, Any], accuracy: float) -> str:
    known = PUBLISHED.get((cell["method"], cell["data"]), {}).get(cell["epsilon"])
    return "" if known is None or cell["sites"] > 1 else f", published {known} ({accuracy - known:+.1f})"


def table(done: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    head = "| data | method | epsilon | sites | accuracy | published | distance | precision | recall | coverage | min |"
    lines = [head, "|---" * 11 + "|"]
    for row in sorted(done, key=lambda r: (r["sites"] > 1, r["data"] != "mnist", r["name"].split()[2], r["name"])):
        words, close = row["name"].split(), row["fidelity"]
        known = PUBLISHED.get((row["method"], row["data"]), {}).get(int(words[2][3:])) if row["sites"] == 1 else None
        sites = "1" if row["sites"] == 1 else f"{row['sites']} {row['split']}"
        method = " ".join([row["method"], *words[5:]])
        gained = "" if known is None else f"{known} ({row['accuracy'] - known:+.1f})"
        lines.append(
            f"| {row['data']} | {method} | {words[2][3:]} | {sites} | {row['accuracy']:.1f} | {gained} | "
            f"{close['frechet']:.1f} | {close['precision']:.2f} | {close['recall']:.2f} | {close['coverage']:.2f} | "
            f"{row['cpu_minutes']:.1f}{'+' if row.get('resumed') else ''} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row must contain, e.g. mnist dp-feta eps1")
    parser.add_argument("--sweep", action="store_true", help="other lengths of training instead of the table")
    parser.add_argument("--table", action="store_true", help="print the results as Markdown and run nothing")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--runs", type=Path, default=Path("runs/dp-feta"), help="run directories, to resume from")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.out.read_text())))
        return
    runtime.tune()
    for cell in sweep() if args.sweep else rows():
        name = name_of(cell)
        done = json.loads(args.out.read_text()) if args.out.exists() else []
        if not set(args.only) <= set(name.split()) or any(row["name"] == name for row in done):
            continue
        print(name, flush=True)
        row = run_cell(cell, args.runs / name.replace(" ", "_"), HERE)
        done = [*(json.loads(args.out.read_text()) if args.out.exists() else []), row]
        args.out.write_text(json.dumps(done, indent=1) + "\n")
        print(
            f"{name}: {row['accuracy']:.2f} %{gap(cell, row['accuracy'])}, distance {row['fidelity']['frechet']:.1f}, "
            f"{row['cpu_minutes']:.1f} CPU min",
            flush=True,
        )


if __name__ == "__main__":
    main()
