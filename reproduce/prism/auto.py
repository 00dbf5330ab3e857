"""The table of PRISM without tuning: python reproduce/prism/auto.py [--only mnist prism] [--seeds 0 1 2].

Every row is a preset of presets/prism-auto, which names data, split, sites, epsilon, public images and encoder, and no
setting: `auto` chooses. Finished rows are kept in results_auto.json and are not run again. The public features of a
record depend neither on epsilon nor on the sites, so this script keeps them between rows; the releases are the same
as without.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.methods.prism import encoder as features
from prismfl.runs import choosing, simulate
from prismfl.runs.config import read

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "prism-auto"
OUT = HERE / "results_auto.json"


BLOCK = 10_000


class Kept:
    """What a public look gave for each image that it has seen, in large blocks; one look at a time."""

    def __init__(self) -> None:
        self.place: dict[bytes, int] = {}
        self.blocks: list[torch.Tensor] = []
        self.look = ""

    def __call__(self, look: torch.nn.Module, digest: str, x: torch.Tensor) -> torch.Tensor:
        if digest != self.look:
            self.place, self.blocks, self.look = {}, [], digest
        names = [hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in x]
        new = list({name: i for i, name in enumerate(names) if name not in self.place}.values())
        for part in torch.split(torch.tensor(new, dtype=torch.int64), 64) if new else ():
            for i, row in zip(part.tolist(), look(x[part])):
                self._keep(names[i], row)
        return torch.stack([self.blocks[k // BLOCK][k % BLOCK] for k in (self.place[name] for name in names)])

    def _keep(self, name: bytes, row: torch.Tensor) -> None:
        k = len(self.place)
        if k % BLOCK == 0:
            self.blocks.append(torch.empty(BLOCK, len(row)))
        self.blocks[-1][k % BLOCK] = row
        self.place[name] = k


def keep_features() -> None:
    """Look at each record once, whatever the rank that its row is brought to."""
    kept, digests = Kept(), {}

    def coordinates(self: features.PublicFeatures, x: torch.Tensor) -> torch.Tensor:
        if id(self.look) not in digests:
            inner = getattr(self.look, "encoder", self.look)
            raw = b"".join(value.numpy().tobytes() for value in inner.state_dict().values())
            digests[id(self.look)] = hashlib.sha256(raw).hexdigest() + repr(getattr(self.look, "names", ""))
        if x.requires_grad:
            return torch.cat([self.frame(self.look(part)) for part in torch.split(x, 64)])
        with torch.no_grad():
            return self.frame(kept(self.look, digests[id(self.look)], x))

    features.PublicFeatures.coordinates = coordinates  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row's name must contain")
    parser.add_argument("--never", nargs="*", default=[], help="words that it must not contain")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    runtime.tune()
    keep_features()
    for seed in args.seeds:
        for path in sorted(PRESETS.glob("*.toml")):
            words = set(path.stem.split("_"))
            name = f"{path.stem}_seed{seed}"
            if set(args.only) <= words and not set(args.never) & words and name not in done(args.out):
                row = run_row(path, seed)
                args.out.write_text(json.dumps({**done(args.out), name: row}, indent=1, sort_keys=True) + "\n")
                print(name, {k: v["accuracy"] for k, v in row["models"].items()}, row["minutes"], "min", flush=True)


def run_row(path: Path, seed: int) -> dict[str, Any]:
    """One run; what it chose and what came of it."""
    started, said = time.time(), []
    with tempfile.TemporaryDirectory() as scratch:
        given = {**read(path), "seed": seed, "out": str(Path(scratch) / "run"), "tuning": "auto"}
        config, method = choosing.configure(given)
        result = simulate.run(config, method=method, tell=said.append).as_dict()
        chosen = json.loads((Path(scratch) / "run" / "config.json").read_text())["settings"]
    kept = ("method", "data", "split", "sites", "accuracy", "epsilon", "bytes_up", "bytes_down", "models", "encoder")
    return {
        **{key: result[key] for key in (*kept, "recommended", "pretrained_on")},
        "minutes": round((time.time() - started) / 60, 2),
        "why": said,
        "settings": chosen,
    }


def done(out: Path) -> dict[str, Any]:
    """The finished rows."""
    return json.loads(out.read_text()) if out.exists() else {}


if __name__ == "__main__":
    main()
