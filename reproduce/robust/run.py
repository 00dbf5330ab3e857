"""One hostile site of five: accuracy with it, without it, and of five honest ones. Writes results.json and README.md.

python reproduce/robust/run.py [--only METHOD]

Settings are presets/robust, seed 0. Rows that are in results.json already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Items, Payload, Weights
from prismfl.core.release import Release
from prismfl.core.rounds import Host, adopt_step, initial_state, receive, site_step, surviving_step
from prismfl.data.spec import Dataset
from prismfl.errors import WireError
from prismfl.runs import planning, records, result, simulate
from prismfl.runs.config import read
from prismfl.runs.hosts import open_hosts
from prismfl.transport.in_process import Outcome

HERE = Path(__file__).parent
BAD = "site-4"
PRESETS = HERE.parents[1] / "presets" / "robust"
RUNS = ("dp-fedavg", "prism-head", "prism", "prism-local", "3dgl")
Forge = Callable[[str, str, torch.Tensor], torch.Tensor]


def times(factor: float) -> Forge:
    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or name == "spent":
            return tensor
        return (factor * tensor.double()).clamp(-3e38, 3e38).to(tensor.dtype)

    return forge


def filled(value: float) -> Forge:
    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.full_like(tensor, value) if tensor.is_floating_point() and name != "spent" else tensor

    return forge


def rolled(factor: float) -> Forge:
    """Everything of a class under the name of the next one; a model's outputs likewise."""

    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if item == "synthetic":  # images stay where they are, so that their places and labels agree
            return tensor.roll(len(tensor) // 10, 0) if name == "x" else (factor * tensor).to(tensor.dtype)
        if item == "model" and tensor.shape[0] == 10:
            return factor * tensor.roll(1, 0)
        if name in ("sums", "counts"):
            return factor * tensor.roll(1, 0)
        return tensor

    return forge


ATTACKS: dict[str, Forge] = {
    "-1x": times(-1.0),
    "100x": times(100.0),
    "-100x": times(-100.0),
    "1e30": filled(1e30),
    "3e38": filled(3e38),
    "labels rolled": rolled(1.0),
    "labels rolled x4": rolled(4.0),
    "labels rolled x10": rolled(10.0),
}
COLUMNS = ("five honest", "honest four", *ATTACKS)
BACKWARDS = "update x -2"  # as long as the clip at the server lets through


def forged(items: Items, forge: Forge, attack: str) -> Items:
    out: dict[str, Payload] = {}
    for item, payload in items.items():
        tensors = dict(payload.tensors)
        if item == "generator" and attack.startswith("labels rolled"):
            tensors = next_class(tensors, {"x4": 4.0, "x10": 10.0}.get(attack.rpartition(" ")[2], 1.0))
        else:
            tensors = {name: forge(item, name, t) for name, t in tensors.items()}
        out[item] = type(payload)(tensors, payload.spec)
    return out


def next_class(tensors: dict[str, torch.Tensor], factor: float) -> dict[str, torch.Tensor]:
    """Each decoder under the number of the next class; sizes times a factor."""
    out = {}
    for name, tensor in tensors.items():
        kind, part, rest = [*name.split(".", 2), "", ""][:3]
        out[name] = tensors[f"{kind}.{(int(part) - 1) % 10}.{rest}"] if part.isdigit() else factor * tensor.roll(1)
    return out


@dataclass
class Bench:
    """A method's run whose honest releases are made once, where one round is all there is."""

    job: Job
    hosts: list[Host]
    dataset: Dataset
    sent: dict[str, bytes]

    @classmethod
    def open(cls, method: str, folder: Path) -> Bench:
        config = planning.configure({**read(PRESETS / f"{method}.toml"), "seed": 0, "out": str(folder / "run")})
        found, dataset = planning.find_method(method), records.read_data(config)
        settings = planning.resolve(config, planning.task_of(config, dataset.spec, found), found)
        job, dataset = simulate._job("robust", config, settings, lambda line: None)
        parts = records.split_records(config, dataset, job)
        hosts, _ = open_hosts(job, config, dataset, parts, folder=folder)
        return cls(job, hosts, dataset, {})

    def score(self, attack: str) -> tuple[float, list[str]]:
        """Accuracy in percent and who was left out."""
        job, state, left_out = self.job, initial_state(self.job), set()
        for _ in range(job.settings.rounds):
            inbox = {}
            for host in self.hosts:
                try:
                    inbox[host.name] = receive(job, state, host.name, self._bytes(state, host, attack)).items
                except WireError:
                    left_out.add(host.name)
            state, dropped = surviving_step(job, state, inbox)
            left_out |= set(dropped)
        at_sites = job.method.model_at == "sites"
        own = {host.name: adopt_step(job, state, host) for host in self.hosts} if at_sites else {}
        scores = simulate.scores_of(job, result.predictor(job), Outcome(state, own), self.dataset)
        return sum(scores) / len(scores), sorted(left_out)

    def _bytes(self, state: State, host: Host, attack: str) -> bytes:
        if host.name == BAD and attack == "honest four":
            return b""
        raw = self.sent.get(host.name) or site_step(self.job, state, host)
        if self.job.settings.rounds == 1:
            self.sent[host.name] = raw
        if host.name != BAD or attack == "five honest":
            return raw
        release = Release.decode(raw)
        if attack == BACKWARDS:
            start, sent = state.items["model"].tensors, release.items["model"].tensors
            items: Items = {"model": Weights({k: start[k] - 2.0 * (v - start[k]) for k, v in sent.items()})}
        else:
            items = forged(release.items, ATTACKS[attack], attack)
        return replace(release, items=items).encode()


def scores(method: str, attacks: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A row an attack; a run of several rounds is a new one each time."""
    bench: Bench | None = None
    for attack in attacks:
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            if bench is None or bench.job.settings.rounds > 1:
                kept = tempfile.mkdtemp() if bench is None else folder
                bench = Bench.open(method, Path(kept))
            try:
                accuracy, left_out = bench.score(attack)
                row: dict[str, Any] = {"accuracy": round(accuracy, 1), "left_out": left_out}
            except Exception as error:  # a run that one site can end is a row too
                row = {"accuracy": None, "error": type(error).__name__}
        yield attack, {**row, "cpu_seconds": round(time.process_time() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(RUNS))
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    runtime.tune(1)
    file = args.out / "results.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for method in [args.only] if args.only else RUNS:
        rows = done.setdefault(method, {})
        attacks = [a for a in (*COLUMNS, *([BACKWARDS] if method == "dp-fedavg" else [])) if a not in rows]
        for attack, row in scores(method, attacks):
            rows[attack] = row
            sys.stdout.write(f"{method} {attack}: {row}\n")
            sys.stdout.flush()
            file.write_text(json.dumps(done, indent=1) + "\n")
    readme = args.out / "README.md"
    if readme.exists():
        head, _, rest = readme.read_text().partition("<!-- table -->\n")
        _, _, tail = rest.partition("<!-- end -->\n")
        readme.write_text(f"{head}<!-- table -->\n{table(done)}<!-- end -->\n{tail}")


def table(done: dict[str, Any]) -> str:
    columns = (*COLUMNS, BACKWARDS)
    lines = ["| method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for method, rows in ((method, done[method]) for method in RUNS if method in done):
        cells = []
        for column in columns:
            row = rows.get(column)
            mark = "*" if row and column != "honest four" and row.get("left_out") else ""
            cells.append("-" if row is None else "fails" if row["accuracy"] is None else f"{row['accuracy']:.1f}{mark}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
