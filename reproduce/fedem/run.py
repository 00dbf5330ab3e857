"""FedEM's table: accuracy and what gradient inversion recovers, for FedEM and the methods it is compared with.

    python reproduce/fedem/run.py --data-dir DATA --out reproduce/fedem            # about ten CPU minutes
    python reproduce/fedem/run.py --data-dir DATA --epochs 30 --only mnist         # the paper's length

Settings are presets/fedem and presets/fedem-ablation; rounds follow from --epochs. Training goes through the package's
own method functions and doors, without the run directory (no file a round), so that hundreds of one-batch rounds are
affordable. The attacks get the weights and the released gradient, nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.adversary.attack import ATTACKS
from prismfl.adversary.attacks.gradient_inversion import Effort, Problem, SeenGradients, stack
from prismfl.core.door import PrivateRecords
from prismfl.core.method import Settings, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.data.datasets import load
from prismfl.data.spec import Dataset
from prismfl.methods import METHODS
from prismfl.methods.gradients import fedem
from prismfl.metrics.leakage import CONTRAST, leakage, mse, ssim
from prismfl.nets.classifier import build
from prismfl.privacy import account
from prismfl.rng import Key
from prismfl.runs.config import RunConfig, read, validate

PRESETS = Path(__file__).parents[2] / "presets" / "fedem"
PLAIN = read(PRESETS / "mnist-fedsgd.toml")  # what all rows share: sites, records, batch, model
SITES, MODEL, BATCH, VICTIMS = PLAIN["sites"], PLAIN["model"], PLAIN["settings"]["batch"], 6
RECORDS = PLAIN["subset"] // SITES
EPOCH = RECORDS // BATCH + 1
DEEP = "tanh-convnet:8"
LONG, LONG_ROWS = 1000, ("FedSGD", "FedEM, radius 8")
PAPER = Effort(restarts=1, iterations=3000, tv=1e-5)
PAPER_ROWS = ("FedSGD", "FedEM, radius", "ldp", "Clip")


# Radii in the paper's unit, 1/255 of the normalised input; the presets have them in 1/255 of a pixel. The paper's
# versions differ in the norm: L-infinity with steps along the sign, L2 with steps of a length.
LABELS = (
    "FedSGD",
    "FedEM, radius 8/255, N = 2",
    "FedEM, radius 255/255, N = 2",
    "FedEM, L2 radius 255/255, N = 2",
    "ldp-fedsgd, epsilon 8",
)
MNIST_LABELS = (
    "FedEM, L2 radius 8/255, N = 2",
    "Gaussian noise 0.1, no account",
    "Gaussian noise 0.01, no account",
    "Laplace noise 0.05, no account",
    "Clip 1 + noise 0.005, no account",
    "fedem-dp, epsilon 8, radius 8/255, N = 1",
)
ABLATION = (
    *(f"FedEM, radius 8/255, N = {n}" for n in (1, 2, 5, 10)),
    *(f"FedEM, radius {rho}/255, N = 2" for rho in (26, 80)),
)


@dataclass(frozen=True)
class Row:
    """One line of the table: how it is called there, and its preset."""

    label: str
    method: str
    settings: dict[str, Any]
    epsilon: float | None
    delta: float

    @classmethod
    def of(cls, data: str, label: str, folder: Path = PRESETS) -> Row:
        found: RunConfig = validate(RunConfig, read(folder / f"{data}-{slug(label)}.toml"), label)
        return cls(label, found.method, found.settings, found.epsilon, found.delta)


def main_rows(data: str) -> list[Row]:
    return [Row.of(data, label) for label in (*LABELS, *(MNIST_LABELS if data == "mnist" else ()))]


def ablation_rows(data: str) -> list[Row]:
    return [Row.of(data, label, PRESETS.with_name("fedem-ablation")) for label in ABLATION]


def slug(label: str) -> str:
    return re.sub("[^a-z0-9.]+", "-", label.lower())


def model_file(out: Path, data: str, label: str, seed: int) -> Path:
    return out / "models" / f"{data}-{slug(label)}-{seed}.pt"


class Bench:
    """One data set dealt to IID sites, the six single victims and the batch of 32 that are attacked."""

    def __init__(self, data: str, data_dir: str, seed: int, model: str = MODEL) -> None:
        self.name, self.key, self.seed = data, Key.seed(seed), seed
        self.set: Dataset = load(data, data_dir=data_dir)
        order = torch.randperm(len(self.set.x_train), generator=self.key.child("deal").torch())
        self.parts = [self._records(order[i * RECORDS : (i + 1) * RECORDS]) for i in range(SITES)]
        spec = self.set.spec
        names = tuple(f"site-{i}" for i in range(SITES))
        self.task = Task(data, spec.shape, spec.classes, names, RECORDS, model)
        self.classifier, _ = build(model, spec.shape, len(spec.classes), key=self.key)

    def _records(self, rows: torch.Tensor) -> Records:
        return Records(self.set.x_train[rows], self.set.y_train[rows])

    def settings(self, row: Row, *, rounds: int, batch: int = BATCH) -> Settings:
        method = METHODS[row.method]
        settings = method.settings(**{**row.settings, "rounds": rounds, "batch": batch})
        if row.epsilon is None:
            return settings
        return settings.model_copy(
            update={
                "sigma": account.calibrate(
                    lambda sigma: method.plan(settings.model_copy(update={"sigma": sigma}), self.task),
                    row.epsilon,
                    row.delta,
                )
            }
        )

    def release(self, row: Row, cfg: Settings, state: State, records: Records, *, who: tuple[str, int]) -> Any:
        """What a site sends in a round; for a victim the door holds just the batch, so the batch is known."""
        declared = RECORDS if len(records) == RECORDS else len(records)
        noise = self.key.child("noise", *who).noise()
        door = PrivateRecords(records, declared=declared, classes=len(self.task.classes), noise=noise)
        site = Site(who[0], door, {}, self.task)
        return METHODS[row.method].client(cfg, state, site, self.key.child("client", *who))[0]

    def first(self, row: Row, *, rounds: int) -> State:
        cfg = self.settings(row, rounds=rounds)
        return State(0, dict(METHODS[row.method].init(cfg, self.task, self.key.child("init"))))

    def trained(self, row: Row, *, rounds: int, out: Path) -> tuple[State, float]:
        """The model that utility.py left, or else one trained now; and its accuracy."""
        file = model_file(out, self.name, row.label, self.seed)
        if file.exists():
            state = State(rounds, {"model": Weights(torch.load(file, weights_only=True))})
            return state, self.accuracy(state)
        cfg, state = self.settings(row, rounds=rounds), self.first(row, rounds=rounds)
        for _ in range(rounds):
            state = self.round(row, cfg, state)
        return state, self.accuracy(state)

    def round(self, row: Row, cfg: Settings, state: State) -> State:
        r, sites = state.round, zip(self.task.sites, self.parts)
        inbox = {site: self.release(row, cfg, state, part, who=(site, r)) for site, part in sites}
        server = METHODS[row.method].server
        return State(r + 1, dict(server(cfg, self.task, state, inbox, self.key.child("server", r))))

    def accuracy(self, state: State) -> float:
        params, right = state.items["model"].to("cpu"), 0
        with torch.no_grad():
            for i in range(0, len(self.set.x_test), 500):
                found = self.classifier.logits(params, self.set.x_test[i : i + 500]).argmax(1)
                right += int((found == self.set.y_test[i : i + 500]).sum())
        return round(100.0 * right / len(self.set.x_test), 2)

    def victims(self, batch: int) -> list[Records]:
        x, y = self.parts[0].x, self.parts[0].y
        if batch > 1:
            return [Records(x[:batch], y[:batch])]
        # One of each of six classes, so that the picture shows different things.
        rows = [int((y == c).nonzero()[0]) for c in range(VICTIMS)]
        return [Records(x[i : i + 1], y[i : i + 1]) for i in rows]

    def attack(
        self, row: Row, state: State, *, attack: str, batch: int, rounds: int, effort: Effort, labels: bool
    ) -> tuple[dict[str, Any], torch.Tensor]:
        cfg, victims = self.settings(row, rounds=rounds, batch=batch), self.victims(batch)
        sent = [self.release(row, cfg, state, v, who=(f"victim-{i}", 0)) for i, v in enumerate(victims)]
        params = state.items["model"].to("cpu")
        problem = Problem(
            self.classifier,
            params,
            stack([dict(items["gradient"].tensors) for items in sent]),
            batch,
            self.task.shape,
            len(self.task.classes),
            torch.stack([v.y for v in victims]) if labels else None,
            rescaled="clip" in row.settings,
        )
        found = ATTACKS[attack].run(SeenGradients(problem, effort, self.key.child("attack", attack)))
        truth = torch.cat([v.x for v in victims]), torch.cat([v.y for v in victims])
        x, y = found.x.flatten(0, 1), found.y.flatten()
        score = leakage((x, y), truth, data=self.name, features=(self.classifier, params)).as_dict()
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in score.items()}, x


def plans_of(bench: Bench, row: Row, *, rounds: int, depth: int) -> dict[str, tuple[bool, str, int, Effort]]:
    """Name -> against the trained model?, attack, records, effort. Labels are given for more than one record.

    Depth 0: one record; 1: also a batch of 32; 2: also a batch of 8, one record against the trained model, and for the
    rows that are compared first the long attack on 32 and the paper's (3000 steps, total variation 1e-5).
    """
    single, several = Effort(restarts=2, iterations=250), Effort(restarts=1, iterations=300)
    many = Effort(restarts=1, iterations=200, tv=0.1)
    plans: dict[str, tuple[bool, str, int, Effort]] = {"idlg, batch 1, round 0": (False, "idlg", 1, single)}
    if depth >= 1:
        plans["inverting, batch 32, round 0"] = (False, "inverting", BATCH, many)
    if depth >= 2:
        plans["idlg, batch 1, trained"] = (True, "idlg", 1, single)
        plans["idlg, batch 8, round 0"] = (False, "idlg", 8, several)
    long = replace(many, iterations=LONG) if row.label.startswith(LONG_ROWS) and depth >= 2 else None
    if long is not None:
        plans[f"inverting, batch 32, {LONG} steps"] = (False, "inverting", BATCH, long)
    paper = row.label.startswith(PAPER_ROWS) and depth >= 2
    if paper:
        plans["inverting as published, batch 32"] = (False, "inverting", BATCH, PAPER)
    cfg = bench.settings(row, rounds=rounds)
    if bench.task.model != MODEL:
        # Far dearer than the LeNet: the paper's attack alone, one record a batch.
        alone = Effort(restarts=1, iterations=200, tv=0.1)
        plans = {"inverting, batch 1, round 0": (False, "inverting", 1, alone)}
        if isinstance(cfg, fedem.Perturbing):
            knowing = replace(alone, against=cfg, starts=2)
            plans["adaptive inverting, batch 1, round 0"] = (False, "inverting", 1, knowing)
        return plans
    if isinstance(cfg, fedem.Perturbing):
        plans["adaptive idlg, batch 1, round 0"] = (False, "idlg", 1, replace(single, against=cfg))
        if depth >= 2:
            knowing = replace(many, against=cfg, starts=2)
            plans["adaptive inverting, batch 32, round 0"] = (False, "inverting", BATCH, knowing)
        if long is not None:
            knowing = replace(long, against=cfg, starts=2)
            plans[f"adaptive inverting, batch 32, {LONG} steps"] = (False, "inverting", BATCH, knowing)
        if paper:
            knowing = replace(PAPER, against=cfg, starts=2)
            plans["adaptive inverting as published, batch 32"] = (False, "inverting", BATCH, knowing)
    return plans


def reference(bench: Bench) -> dict[str, Any]:
    """What a picture that knows nothing scores: every pixel the mean grey of the victims' data set."""
    x = torch.cat([v.x for v in bench.victims(BATCH)])
    grey = torch.full_like(x, float(bench.set.x_test.mean()))
    return {
        "mse_normalised": round(float(mse(grey, x, contrast=CONTRAST[bench.name]).mean()), 4),
        "ssim": round(float(ssim(grey, x).mean()), 4),
    }


def table(
    bench: Bench, rows: list[Row], *, rounds: int, depth: int, out: Path, kind: str, only: tuple[str, ...] = ("",)
) -> None:
    """Every row's accuracy and scores, saved as they come; what is there already is kept, what is missing is added."""
    path, images = out / f"results-{bench.name}-{kind}.json", out / "pictures" / f"{bench.name}-{kind}.pt"
    fresh = {"data": bench.name, "seed": bench.seed, "rounds": rounds, "grey picture": reference(bench), "rows": []}
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else fresh
    pictures: dict[str, Any] = torch.load(images, weights_only=True)["found"] if images.exists() else {}
    truth = {b: torch.cat([v.x for v in bench.victims(b)]) for b in (1, 8, BATCH)}
    for row in rows:
        line = next((line for line in done["rows"] if line["label"] == row.label), None)
        began, cpu = time.time(), time.process_time()
        first, last = bench.first(row, rounds=rounds), None
        if line is None:
            accuracy = None
            if kind != "tanh":
                last, accuracy = bench.trained(row, rounds=rounds, out=out)
            line = {
                "label": row.label,
                "method": row.method,
                "settings": bench.settings(row, rounds=rounds).model_dump(mode="json"),
                "epsilon": row.epsilon,
                "accuracy": accuracy,
                "attacks": {},
                "seconds": 0.0,
                "cpu_seconds": 0.0,
            }
            done["rows"].append(line)
        for name, (trained, attack, size, effort) in plans_of(bench, row, rounds=rounds, depth=depth).items():
            if name in line["attacks"] or not name.startswith(only):
                continue
            if trained and last is None:
                last, _ = bench.trained(row, rounds=rounds, out=out)
            state = last if trained and last is not None else first
            score, found = bench.attack(
                row, state, attack=attack, batch=size, rounds=rounds, effort=effort, labels=size > 1
            )
            line["attacks"][name] = score
            pictures.setdefault(row.label, {})[name] = found
            line["seconds"] = round(line["seconds"] + time.time() - began, 1)
            line["cpu_seconds"] = round(line["cpu_seconds"] + time.process_time() - cpu, 1)
            began, cpu = time.time(), time.process_time()
            path.write_text(json.dumps(done, indent=1) + "\n")
            torch.save({"truth": truth, "found": pictures}, images)
            print(bench.name, kind, row.label, name, score, line["cpu_seconds"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=3.0, help="of 3000 records a site (the paper: 30)")
    parser.add_argument("--ablation-epochs", type=float, default=1.0)
    parser.add_argument("--only", choices=["mnist", "fashion-mnist", "cifar10", "tanh", "ablation"], default=None)
    parser.add_argument("--rows", nargs="+", default=[""], help="only rows whose label starts so")
    parser.add_argument("--attacks", nargs="+", default=[""], help="only attacks whose name starts so")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runtime.tune(1)
    (args.out / "pictures").mkdir(parents=True, exist_ok=True)
    for data, share in (("mnist", 1.0), ("fashion-mnist", 2 / 3), ("cifar10", 1 / 3)):
        if args.only in (None, data):
            bench, rounds = Bench(data, args.data_dir, args.seed), int(args.epochs * share * EPOCH)
            depth = 2 if data == "mnist" else 1
            chosen = [row for row in main_rows(data) if row.label.startswith(tuple(args.rows))]
            attacks = tuple(args.attacks)
            table(bench, chosen, rounds=rounds, depth=depth, out=args.out, kind="methods", only=attacks)
        if data == "cifar10" and args.only in (None, "tanh"):
            bench = Bench(data, args.data_dir, args.seed, DEEP)
            chosen = [row for row in main_rows(data) if row.label.startswith(("FedSGD", "FedEM, radius 8", "ldp"))]
            table(bench, chosen, rounds=EPOCH, depth=0, out=args.out, kind="tanh")
        if data == "mnist" and args.only in (None, "ablation"):
            bench, rounds = Bench(data, args.data_dir, args.seed), int(args.ablation_epochs * EPOCH)
            table(bench, ablation_rows(data), rounds=rounds, depth=0, out=args.out, kind="ablation")


if __name__ == "__main__":
    main()
