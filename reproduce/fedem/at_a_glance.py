"""FedEM in one figure, from the results at hand: python reproduce/fedem/at_a_glance.py [--out FOLDER].

What an attacker makes of one record's gradient, how much it resembles the record, and what the model is worth. Pictures
are rows of the sheet of run.py's attack (iDLG, one record a batch, round 0); numbers are of results-mnist-methods.json
and utility-mnist.json. Writes at-a-glance.png and at-a-glance.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.image
from figures import SINGLE, long_runs
from matplotlib.figure import Figure

HERE = Path(__file__).parent
SHEET = "mnist-methods-idlg-batch-1-round-0.png"
SHOWN = {  # a row's label in the results, and its words in the figure
    "FedSGD": "FedSGD:\nthe gradient as it is",
    "FedEM, radius 8/255, N = 2": "FedEM, the paper's\nradius 8/255",
    "FedEM, radius 255/255, N = 2": "FedEM, 32 times\nthat radius",
    "Clip 1 + noise 0.005, no account": "clip and noise,\nnot accounted",
    "ldp-fedsgd, epsilon 8": "clip and noise,\nepsilon 8",
}


def facts(folder: Path) -> list[dict[str, Any]]:
    """What each row leaks and what its model is worth after 30 epochs."""
    results, runs = json.loads((folder / "results-mnist-methods.json").read_text()), long_runs(folder, "mnist")
    sheet, found = order(folder), []
    for row in results["rows"]:
        if row["label"] in SHOWN:
            place = sheet.index(row["label"])
            score, run = row["attacks"][SINGLE], runs[row["label"]]
            found.append(
                {
                    "label": row["label"], "sheet_row": place, "accuracy": round(run.mean, 2), "epochs": run.epochs,
                    "seeds": len(run.accuracies), "ssim": score["ssim"], "found": score["recovered"],
                    "records": score["records"],
                }
            )  # fmt: skip
    return sorted(found, key=lambda row: list(SHOWN).index(row["label"]))


def order(folder: Path) -> list[str]:
    """What the rows of the sheet show, as its caption in README.md says."""
    _, _, rest = (folder / "README.md").read_text().partition(f"]({SHEET})\n\n{SINGLE}; rows: ")
    return rest.partition(".\n")[0].split("; ")


def draw(rows: list[dict[str, Any]], folder: Path, path: Path) -> None:
    sheet = matplotlib.image.imread(folder / SHEET)
    high = (sheet.shape[0] - 2) / len(order(folder))
    figure = Figure(figsize=(10.5, 6.0))
    axes = figure.subplots(len(rows) + 1, 3, width_ratios=[3.0, 1.6, 1.6])
    strips = [(0, "the records", None), *((r["sheet_row"], SHOWN[r["label"]], r) for r in rows)]
    for (place, words, row), (picture, leak, worth) in zip(strips, axes):
        top = round(place * high)
        picture.imshow(sheet[top : top + round(high)], cmap="grey", vmin=0, vmax=1)
        picture.set_xticks([])
        picture.set_yticks([])
        picture.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9)
        for axis in (leak, worth):
            axis.set_axis_off()
            axis.set_xlim(0, 1.45)
        if row is None:
            picture.set_title("what an attacker finds", fontsize=10)
            leak.set_title("likeness to the record (SSIM)", fontsize=10)
            worth.set_title("test accuracy, %", fontsize=10)
            continue
        leak.barh(0, max(0.0, row["ssim"]), color="tab:red", height=0.5)
        text = f"{row['ssim']:.2f}, {row['found']} of {row['records']} found"
        leak.text(max(0.0, row["ssim"]) + 0.03, 0, text, va="center", fontsize=9)
        worth.barh(0, row["accuracy"] / 100, color="tab:blue", height=0.5)
        worth.text(row["accuracy"] / 100 + 0.03, 0, f"{row['accuracy']:.1f}", va="center", fontsize=9)
    figure.suptitle("At the paper's radius FedEM hides nothing from this attack; clip and noise do", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    out: Path = parser.parse_args().out
    rows = facts(HERE)
    (out / "at-a-glance.json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, HERE, out / "at-a-glance.png")


if __name__ == "__main__":
    main()
