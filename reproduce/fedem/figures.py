"""Tables and pictures from the results of run.py: the tables go into README.md between its two marks.

python reproduce/fedem/figures.py --out reproduce/fedem
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from prismfl.data.pictures import grid, save_sheet
from prismfl.metrics.leakage import match

EPOCH = 94
BEGIN, END = "<!-- tables: written by figures.py -->", "<!-- end of tables -->"
SINGLE, KNOWING = "idlg, batch 1, round 0", "adaptive idlg, batch 1, round 0"


@dataclass(frozen=True)
class Long:
    """The runs of utility.py of one row: their length and the accuracy of each seed."""

    epochs: int
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


def long_runs(out: Path, data: str) -> dict[str, Long]:
    path = out / f"utility-{data}.json"
    lines = json.loads(path.read_text()) if path.exists() else []
    found: dict[str, Long] = {}
    for line in lines:
        before = found[line["label"]].accuracies if line["label"] in found else ()
        found[line["label"]] = Long(line["epochs"], (*before, line["accuracy"]))
    return found


def utility_table(out: Path) -> str:
    """Accuracy by epoch of every long run, so that one sees whether it still moves."""
    lines = ["data | method | seed | accuracy % by epoch | CPU minutes", "--- | --- | --- | --- | ---"]
    for path in sorted(out.glob("utility-*.json"), key=lambda p: (len(p.name), p.name)):
        for line in json.loads(path.read_text()):
            curve = ", ".join(f"{epoch}: {value:.2f}" for epoch, value in line["by epoch"].items())
            minutes = f"{line['cpu_seconds'] / 60:.1f}"
            data = path.stem.removeprefix("utility-")
            lines.append(" | ".join([data, line["label"], str(line["seed"]), curve, minutes]))
    return "### accuracy at length\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"


def _accuracy(row: dict[str, Any], runs: dict[str, Long], epochs: int) -> str:
    if row["label"] in runs:
        run = runs[row["label"]]
        seeds = f", {len(run.accuracies)} seeds" if len(run.accuracies) > 1 else ""
        return f"{run.mean:.2f} ({run.epochs} epochs{seeds})"
    return "-" if row["accuracy"] is None else f"{row['accuracy']:.2f} ({epochs} epochs)"


def table(results: dict[str, Any], runs: dict[str, Long]) -> str:
    names = list(dict.fromkeys(name for row in results["rows"] for name in row["attacks"]))
    head = ["method", "epsilon", "accuracy %", *(f"{n}: MSE / SSIM / found" for n in names)]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in results["rows"]:
        budget = "∞, no guarantee" if row["epsilon"] is None else f"{row['epsilon']:g}"
        accuracy = _accuracy(row, runs, results["rounds"] // EPOCH)
        lines.append(" | ".join([row["label"], budget, accuracy, *(_cell(row, n) for n in names)]))
    grey = results["grey picture"]
    cpu = sum(row["cpu_seconds"] for row in results["rows"]) / 60
    about = (
        f"Attacks: seed {results['seed']}, {cpu:.1f} CPU minutes. A plain grey picture scores "
        f"MSE {grey['mse_normalised']:.2f}, SSIM {grey['ssim']:.2f}."
    )
    return "\n".join(f"| {line} |" for line in lines) + f"\n\n{about}\n"


def _cell(row: dict[str, Any], name: str) -> str:
    score = row["attacks"].get(name)
    if score is None:
        return "-"
    return f"{score['mse_normalised']:.3f} / {score['ssim']:.2f} / {score['recovered']} of {score['records']}"


def trade_off(results: dict[str, Any], runs: dict[str, Long], path: Path) -> None:
    """Accuracy against SSIM of what was found: good methods lie at the top left. Points are numbered, names beside."""
    figure = Figure(figsize=(10.5, 4.6))
    axes = figure.subplots()
    for i, row in enumerate(results["rows"], start=1):
        run = runs.get(row["label"], Long(results["rounds"] // EPOCH, (row["accuracy"],)))
        height, label = run.mean, f"{i}  {row['label']} ({run.epochs} epochs)"
        colour = "tab:green" if row["epsilon"] is not None else "tab:red"
        points = [row["attacks"][name]["ssim"] for name in (SINGLE, KNOWING) if name in row["attacks"]]
        axes.scatter(points[0], height, color=colour, s=30, zorder=3, label=label)
        if len(points) > 1:
            axes.scatter(points[1], height, facecolors="none", edgecolors=colour, s=90, zorder=3)
        spot = ((-14, 5), (5, 5), (-11, -12), (5, -13))[i % 4]
        axes.annotate(str(i), (points[0], height), xytext=spot, textcoords="offset points", fontsize=9)
    axes.axvline(0.9, color="grey", linestyle=":", linewidth=1)
    axes.set_xlim(-0.05, 1.05)
    axes.set_ylim(0, 104)
    axes.set_xlabel("leakage: SSIM of the recovered record, one record a batch (circle: adaptive attack)")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"{results['data']}: utility against leakage (green: differential privacy, red: none)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, handlelength=1, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def rows_of_pictures(stored: dict[str, Any], attack: str, batch: int, path: Path, *, columns: int) -> list[str]:
    """First row the truth, then a row a method; pictures stand under the record that they match. Returns the labels."""
    truth, labels = stored["truth"][batch], ["original"]
    sheet = [truth[:columns]]
    for label, found in stored["found"].items():
        if attack not in found:
            continue
        rows, partners = match(found[attack], truth)
        sheet.append(found[attack][rows[partners.argsort()]][:columns])
        labels.append(label)
    save_sheet(grid(torch.cat(sheet), columns), path)
    return labels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    parts = [utility_table(out)]
    for path in sorted(out.glob("results-*.json"), key=lambda p: ("mnist-m" not in p.name, p.name)):
        results = json.loads(path.read_text())
        name = path.stem.removeprefix("results-")
        runs = long_runs(out, results["data"]) if name.endswith("methods") else {}
        parts.append(f"### {name}\n\n{table(results, runs)}")
        pictures = out / "pictures" / f"{name}.pt"
        stored = torch.load(pictures, weights_only=True) if pictures.exists() else None
        if stored is not None:
            for attack, batch, columns in (
                (SINGLE, 1, 6),
                (KNOWING, 1, 6),
                ("idlg, batch 8, round 0", 8, 8),
                ("inverting, batch 32, round 0", 32, 12),
                ("inverting, batch 32, 1000 steps", 32, 12),
                ("inverting as published, batch 32", 32, 12),
                ("adaptive inverting as published, batch 32", 32, 12),
                ("inverting, batch 1, round 0", 1, 6),
            ):
                if not any(attack in found for found in stored["found"].values()):
                    continue
                file = f"{name}-{attack.replace(',', '').replace(' ', '-')}.png"
                labels = rows_of_pictures(stored, attack, batch, out / file, columns=columns)
                parts.append(f"![{attack}]({file})\n\n{attack}; rows: {'; '.join(labels)}.\n")
        if name.endswith("methods"):
            trade_off(results, runs, out / f"{name}-trade-off.png")
            parts.append(f"![accuracy against SSIM]({name}-trade-off.png)\n")
    readme = out / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(before + BEGIN + "\n\n" + "\n".join(parts) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
