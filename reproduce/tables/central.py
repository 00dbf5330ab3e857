"""AIM and MST of dpmm on all records in one place: the yardstick. Runs in an environment of its own, without prismfl.

python -m venv V && V/bin/pip install dpmm==0.1.9          # numpy 1.26, pandas 2.1
python reproduce/tables/run.py --export WORK
V/bin/python reproduce/tables/central.py WORK [--model aim] [--epsilon 1.9] [--megabytes 10]
python reproduce/tables/run.py --score WORK
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from dpmm.pipelines.aim import AIMPipeline
from dpmm.pipelines.mst import MSTPipeline

MODELS = {"aim": AIMPipeline, "mst": MSTPipeline}
BINNING = 0.1  # of epsilon, where there are numbers; dpmm's default


def frame(values: np.ndarray, words: list[str], labels: np.ndarray, classes: int) -> tuple[pd.DataFrame, dict]:
    data, domain = {}, {}
    for k, word in enumerate(words):
        name = f"c{k}"
        if word in ("n", "m"):
            data[name] = values[:, k]
            domain[name] = {"lower": -1.0, "upper": 1.0}
        else:
            places = [-1, 1] if word == "b" else list(range(int(word[1:])))
            data[name] = pd.Categorical(values[:, k].astype(int), categories=places)
            domain[name] = {"categories": places}
    data["label"] = pd.Categorical(labels, categories=list(range(classes)))
    domain["label"] = {"categories": list(range(classes))}
    return pd.DataFrame(data), domain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", choices=sorted(MODELS), default="aim")
    parser.add_argument("--epsilon", type=float, default=1.9)
    parser.add_argument("--megabytes", type=float, default=None)
    parser.add_argument("--data", default="")
    asked = parser.parse_args()
    for file in sorted(asked.work.glob("*.train.npz")):
        name, seed = file.name.removesuffix(".train.npz").rsplit(".", 1)
        out = asked.work / f"{name}.{seed}.{asked.model}.{asked.epsilon:g}.npz"
        if out.exists() or (asked.data and name not in asked.data.split(",")):
            continue
        told = np.load(file)
        words = [str(word) for word in told["words"]]
        table, domain = frame(told["values"], words, told["labels"], int(told["classes"]))
        numbers = any(word in ("n", "m") for word in words)
        started = time.process_time()
        found = MODELS[asked.model](
            epsilon=asked.epsilon - (BINNING if numbers else 0.0),
            delta=1e-4,
            proc_epsilon=BINNING if numbers else None,
            max_model_size=asked.megabytes,
            n_jobs=1,
        )
        found.fit(table, domain, random_state=int(seed))
        made = found.generate(n_records=len(table), random_state=int(seed))
        values = np.stack([made[f"c{k}"].astype(float) for k in range(len(words))], 1)
        seconds = time.process_time() - started
        np.savez(out, values=values, labels=made["label"].astype(int), seconds=seconds, megabytes=asked.megabytes or 0)
        print(name, seed, asked.model, f"{seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
