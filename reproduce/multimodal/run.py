"""Texts and patients: python reproduce/multimodal/run.py [--only xray-reports 1] [--seeds 0 1 2].

Five sites, no setting given: `auto` chooses. Finished rows are kept in results.json and are not run again. The row
"none" of drawn patients has the same settings as epsilon 5 and no noise: what the statistic itself is worth. "large" is
one site of 4,000 patients, for its time and bytes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import prismfl
from prismfl import runtime
from prismfl.data import load
from prismfl.data.grammar import every_sentence
from prismfl.metrics.text_leakage import exposed, neighbour_auc

HERE = Path(__file__).parent
OUT = HERE / "results.json"
DATA = ("xray-reports", "medical-abstracts", "pneumonia-reports", "drawn-patients")
BUDGETS = ("1", "5", "0.2", "none", "large")
CHOSEN = (
    "rank",
    "covariance",
    "spectrum",
    "quantile",
    "centring",
    "share_means",
    "share_covariance",
    "images",
    "steps",
)
ATTACKED = 500  # members, and as many others


def names() -> list[tuple[str, str, int]]:
    """Data, budget and seed of every row, most wanted first."""
    every = [(data, budget, seed) for budget in BUDGETS for seed in (0, 1, 2) for data in DATA]
    alone = {"none": "drawn-patients", "large": "drawn-patients"}
    return [row for row in every if alone.get(row[1], row[0]) == row[0] and not (row[1] == "large" and row[2])]


def row(data: str, budget: str, seed: int, rows: dict[str, Any]) -> dict[str, Any]:
    """One run, judged and attacked."""
    asked: dict[str, Any] = {"epsilon": 1.0} if budget == "large" else {}
    if not asked:
        asked = {"epsilon": float(budget)} if budget != "none" else _without_noise(rows[f"{data} 5 {seed}"])
    sites = 1 if budget == "large" else 5
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        place = Path(folder) / "run"
        result = prismfl.run(method="prism", data=data, sites=sites, seed=seed, out=str(place), **asked)
        seconds = time.process_time() - begun
        settings = json.loads((place / "config.json").read_text())["settings"]
        lines = [json.loads(line) for line in (place / "gen" / "patients.jsonl").read_text().splitlines()]
    texts = [line["text"] or "" for line in lines]
    found = load(data)
    assert found.spec.parts is not None
    part = found.spec.parts.find("text")
    assert part is not None
    public = list(every_sentence(part.vocabulary))
    members, others = (found.spec.parts.texts(x[:ATTACKED].numpy()) for x in (found.x_train, found.x_test))
    return {
        "models": {name: scores["accuracy"] for name, scores in result.models.items()},
        "parts": result.parts,
        "epsilon": result.epsilon,
        "kilobytes_a_site": round(result.bytes_up / sites / 1000, 1),
        "cpu_seconds": round(seconds, 1),
        "settings": {name: settings[name] for name in CHOSEN},
        "neighbour_auc": round(neighbour_auc(texts, members, others), 3),
        "neighbour_auc_of_copies": round(neighbour_auc(members, members, others), 3),
        "private_phrases": exposed(texts, members, public),
    }


def _without_noise(like: dict[str, Any]) -> dict[str, Any]:
    return {**like["settings"], "networks": 0, "sigma": 0.0, "tuning": "fixed"}


def main() -> None:
    """Every row that is not there yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    given = parser.parse_args()
    runtime.tune(1)
    rows: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for data, budget, seed in names():
        name = f"{data} {budget} {seed}"
        if name in rows or seed not in given.seeds or any(word not in name.split() for word in given.only):
            continue
        rows[name] = row(data, budget, seed, rows)
        OUT.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
        print(name, rows[name]["models"], rows[name]["parts"], flush=True)


if __name__ == "__main__":
    main()
