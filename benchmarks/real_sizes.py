"""Class folders of 224x224 colour photographs at 128 pixels: wall time and peak memory of the commands.

    python benchmarks/real_sizes.py [--images 10000] [--only head synth images]

The photographs are drawn: dead leaves with a disc, a square, a cross or stripes on them, which is their class, as JPEG.
Each command is a process of its own; the time runs from its start to its end, the memory is the most it ever held
(`getrusage` of that process). Wanted for 10,000 of them on two cores: at most 15 minutes and 3 GB each, for `head`
(five sites, through EfficientNet-Lite0) and for `synth`. `images` is PRISM itself with a fresh network, at small
settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from alternate import in_own_process, save, say, table
from PIL import Image

SIDE, SEEN, SITES, CLASSES = 224, 128, 5, ("disc", "square", "cross", "stripes")
GROUNDS = 256
SMALL = ("images=10", "steps=50", "train_steps=50", "copies=4")


def draw_photographs(folder: Path, count: int) -> None:
    """Leaves, turned and lit anew for each photograph, with the mark of its class anywhere in any colour."""
    from prismfl.data.procedural import draw

    grounds = (draw("leaves", shape=(3, SIDE, SIDE), count=GROUNDS, seed=1) * 255).astype(np.uint8)
    rng = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
    for i in range(count):
        ground = np.rot90(grounds[rng.integers(GROUNDS)].transpose(1, 2, 0), rng.integers(4))
        ground = np.roll(ground, tuple(rng.integers(SIDE, size=2)), (0, 1)) * rng.uniform(0.7, 1.0)
        shown = np.where(_mark(i % len(CLASSES), rng)[..., None], rng.integers(0, 256, 3), ground)
        shown = np.clip(shown + rng.normal(0, 4, shown.shape), 0, 255).astype(np.uint8)
        Image.fromarray(shown).save(folder / CLASSES[i % len(CLASSES)] / f"{i:05d}.jpg", quality=90)


def _mark(kind: int, rng: np.random.Generator) -> Any:
    y, x = np.mgrid[:SIDE, :SIDE] - rng.integers(70, SIDE - 70, size=(2, 1, 1))
    size = rng.integers(45, 65)
    inside = (abs(x) < size) & (abs(y) < size)
    marks = (x**2 + y**2 < size**2, inside, inside & ((abs(x) < size / 4) | (abs(y) < size / 4)), inside & (y % 16 < 8))
    return marks[kind]


def commands(data: Path, out: Path, count: int) -> dict[str, list[str]]:
    one = ["--data", str(data), "--epsilon", "1", "--sites", str(SITES), "--set", f"records={count * 4 // 5 // SITES}"]
    size = ["--set", f"image_size={SEEN}", "--set", "channels=3"]
    small = [part for setting in SMALL for part in ("--set", setting)]
    head = ["run", "-m", "prism-head", "--set", "encoder=efficientnet-lite0", *one, *size, "-o", str(out / "head")]
    return {
        "head": head,
        "synth": ["synth", str(data), "--epsilon", "1", *size, "-o", str(out / "synth")],
        "images": ["run", "-m", "prism", *one, *size, *small, "-o", str(out / "images")],
    }


def measured(arguments: list[str], ledger: Path) -> dict[str, Any]:
    """Seconds, CPU seconds and megabytes of one command, and what it printed."""
    told = ledger.with_suffix(".json")
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        environment = {**os.environ, "PRISMFL_LEDGER": str(ledger)}
        os.execve(sys.executable, [sys.executable, "-m", "prismfl", *arguments, "--format", "json"], environment)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"prismfl {' '.join(arguments)} failed.")
    seconds = time.perf_counter() - start
    return {
        "wall s": round(seconds, 1),
        "CPU s": round(used.ru_utime + used.ru_stime, 1),
        "peak MB": round(used.ru_maxrss / 1024),
        "accuracy %": json.loads(told.read_text(encoding="utf-8")).get("accuracy"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", default=["head", "synth", "images"])
    parser.add_argument("--data", type=Path, help="photographs that are there already")
    parser.add_argument("--draw", type=Path, help="draw them here, and no more")
    given = parser.parse_args()
    if given.draw is not None:
        draw_photographs(given.draw, given.images)
        say(json.dumps(str(given.draw)))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        out, data = Path(folder), given.data or Path(folder) / "photographs"
        if given.data is None:  # in a process of its own: a child would begin with this one's peak
            in_own_process(__file__, "--draw", str(data), "--images", str(given.images))
        for name, arguments in commands(data, out, given.images).items():
            if name in given.only:
                rows.append({"command": name, "images": given.images, **measured(arguments, out / f"ledger-{name}")})
                say(table(rows[-1:]))
    if given.images >= 10_000:
        save("real_sizes", {"side": SIDE, "seen": SEEN, "sites": SITES, "small": SMALL, "rows": rows})


if __name__ == "__main__":
    main()
