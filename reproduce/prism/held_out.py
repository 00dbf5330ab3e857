"""Data that nobody looked at while PRISM's automatic settings were designed: python reproduce/prism/held_out.py.

Kannada-MNIST, the alphabets of Omniglot and PneumoniaMNIST as a stranger brings them, an npz file each; five sites,
IID, epsilon 1, nothing but defaults (and once with the pretrained encoder). The figures are looked at once, at the end.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from prismfl import runtime
from prismfl.data.datasets import data_directory
from prismfl.data.manifest import FILES, read_checked
from prismfl.data.stored import read_idx, read_npz
from prismfl.runs import choosing, simulate

OUT = Path(__file__).parent / "results_held_out.json"
Arrays = dict[str, Any]


def kannada(folder: Path) -> Arrays:
    """Ten digits; the last fifth is the test part."""
    labels = "public/kannada-mnist/y_kannada_MNIST_test-idx1-ubyte.gz"
    x = read_idx(read_checked(folder, "kannada", *FILES["kannada"]))
    y = read_idx((folder / labels).read_bytes())
    return divided(x, y)


def alphabets(folder: Path) -> Arrays:
    """Which of eight alphabets a character is from."""
    found = read_npz(read_checked(folder, "omniglot", *FILES["omniglot"]))
    return divided(found["images"], found["alphabet"])


def pneumonia(folder: Path) -> Arrays:
    """The official training and test parts."""
    found = read_npz(read_checked(folder, "pneumonia", *FILES["pneumonia"]))
    parts = {"train": "train", "test": "test"}
    x = {f"x_{a}": found[f"{b}_images"] for a, b in parts.items()}
    return {**x, **{f"y_{a}": found[f"{b}_labels"][:, 0].astype(np.int64) for a, b in parts.items()}}


def divided(x: Any, y: Any) -> Arrays:
    """A fifth, by a fixed shuffle, as the test part."""
    order = np.random.default_rng(0).permutation(len(y))
    cut = len(y) // 5
    test, train = order[:cut], order[cut:]
    y = np.asarray(y, dtype=np.int64)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


SETS = {"kannada": kannada, "omniglot-alphabets": alphabets, "pneumonia": pneumonia}
WAYS = {"prism": {}, "dp-fedavg": {}, "prism-head on efficientnet-lite0": {"encoder": "efficientnet-lite0"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    runtime.tune()
    folder = data_directory()
    assert folder is not None, "set PRISMFL_DATA"
    for seed in args.seeds:
        for name, read in SETS.items():
            for way, more in WAYS.items():
                done = json.loads(args.out.read_text()) if args.out.exists() else {}
                if (row := f"{name}, {way}, seed {seed}") in done:
                    continue
                done[row] = run(read(folder), method=way.split()[0], seed=seed, **more)
                args.out.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
                print(row, {k: v["accuracy"] for k, v in done[row]["models"].items()}, flush=True)


def run(arrays: Arrays, **asked: Any) -> Arrays:
    """One run with nothing but defaults."""
    started, said = time.time(), []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "theirs.npz"
        np.savez(place, **arrays)
        classes = [str(i) for i in range(int(arrays["y_train"].max()) + 1)]
        facts = {"data": str(place), "classes": classes, "image_size": 28, "channels": 1, "sites": 5, "epsilon": 1.0}
        facts |= {"records": len(arrays["y_train"]) // 5, "ledger": str(Path(scratch) / "ledger")}
        config, method = choosing.configure({**facts, **asked, "tuning": "auto", "out": str(Path(scratch) / "run")})
        result = simulate.run(config, method=method, tell=said.append).as_dict()
    kept = ("accuracy", "bytes_up", "bytes_down", "models", "recommended", "encoder", "epsilon")
    return {**{key: result[key] for key in kept}, "minutes": round((time.time() - started) / 60, 2), "why": said}


if __name__ == "__main__":
    main()
