"""Why FedEM's accuracy falls with training: accuracy on a site's own records, as they are and as FedEM perturbs them.

    python reproduce/fedem/why.py --data-dir DATA --out OUT          # after utility.py, whose models it reads

A perturbation is made with the record's label. A model that gets everything right on perturbed records and less on the
same records unperturbed has learnt to read the label off the perturbation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from run import EPOCH, Bench, main_rows, model_file

from prismfl import runtime
from prismfl.methods.gradients import fedem

RECORDS = 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    runtime.tune(1)
    bench = Bench("mnist", args.data_dir, 0)
    x, y = bench.parts[0].x[:RECORDS], bench.parts[0].y[:RECORDS]
    found = {}
    for row in main_rows("mnist"):
        file = model_file(args.out, "mnist", row.label, 0)
        if not file.exists():
            continue
        params, cfg = torch.load(file, weights_only=True), bench.settings(row, rounds=EPOCH)
        pictures = {"as they are": x}
        if isinstance(cfg, fedem.Perturbing):
            start = fedem.first_shift(x.shape, cfg, torch.Generator().manual_seed(0))
            pictures["random start only"] = x + fedem.project(start, cfg)
            shift = fedem.perturbation(bench.classifier, params, x, y, cfg=cfg, start=start)
            pictures["perturbed"] = x + shift
        right = {name: bench.classifier.logits(params, seen).argmax(1) == y for name, seen in pictures.items()}
        found[row.label] = {name: round(100.0 * float(value.float().mean()), 1) for name, value in right.items()}
        print(row.label, found[row.label], flush=True)
    (args.out / "why.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
