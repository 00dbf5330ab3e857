"""Large data and large networks on one site: records that are mapped from disk, and steps within a declared memory.

    nice -n 10 python benchmarks/large.py disk [--rounds 7]
    nice -n 10 python benchmarks/large.py network

`disk`: DP-SGD steps (expected batch 256, one hidden layer) over 1,000,000 rows of a table and over 100,000 colour
pictures of 32x32, mapped from a site's snapshot and held in memory, in turns: the ratio of the two, and the memory that
is not the file's pages. `network`: one step of a network of 25 million numbers (100 MB) on 64 records, by layers and
written out, under several declared memories: what it takes at its peak, and how long.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alternate import RESULTS, alternated, in_own_process, peak_of, ratio, save, say, table

SIZES = {"table": (1_000_000, (50,)), "pictures": (100_000, (3, 32, 32))}
STEPS, BATCH = 10, 256
NETWORKS = {"layer by layer": "mlp:31000", "written out": "mlp:31000", "convolutions": "lenet:237"}
MEMORIES = (2.0, 4.0, 8.0)


def snapshot(folder: Path, kind: str) -> None:
    """A site's data, as `site check` keeps them."""
    import torch

    from prismfl.core.records import Records
    from prismfl.site import data as site_data

    count, shape = SIZES[kind]
    config, random = site_of(folder, kind), torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (count,), generator=random)
    x = torch.rand(count, *shape, generator=random)
    records = Records((x * 255).to(torch.uint8) if kind == "pictures" else x, y)
    prints = [i.to_bytes(32) for i in range(count)]  # printing a table takes minutes, once: not what is measured here
    site_data.keep(folder, config, site_data.SiteData(site_data.facts(config), records, prints))


def site_of(folder: Path, kind: str) -> Any:
    from prismfl.site.config import SiteConfig

    high = 255.0 if kind == "pictures" else 1.0
    facts = {"image_size": 32, "channels": 3} if kind == "pictures" else {"features": 50}
    classes, bounds = ["0", "1"], (0.0, high)
    return SiteConfig(
        name="n", data=str(folder / "data.npz"), classes=classes, bounds=bounds, methods=[], releases=[], **facts
    )


def steps_of(records: Any, shape: tuple[int, ...]) -> Callable[[], object]:
    from prismfl.core.door import PrivateRecords
    from prismfl.nets.classifier import build
    from prismfl.rng import Key

    door = PrivateRecords(records, declared=len(records), classes=2, noise=Key.seed(0).noise())
    classifier, params = build("mlp", shape, 2, key=Key.seed(0))

    def steps() -> None:
        for _ in range(STEPS):
            door.noisy_gradient(classifier.record_loss, params, batch=BATCH, clip=1.0, sigma=1.0)

    return steps


def disk(kind: str, rounds: int) -> dict[str, Any]:
    """In this process: mapped records beside a copy of them in memory."""
    from prismfl import runtime
    from prismfl.core.records import Records
    from prismfl.site import data as site_data

    runtime.tune()
    count, shape = SIZES[kind]
    with tempfile.TemporaryDirectory() as folder:
        in_own_process(__file__, "snapshot", "--kind", kind, "--folder", folder)
        before, start = _own(), time.perf_counter()
        mapped = site_data.load(Path(folder), site_of(Path(folder), kind)).records
        _ = mapped.identities
        named, took = _own() - before, time.perf_counter() - start
        steps_of(mapped, shape)()
        after = _own() - before
        held = Records(mapped.x.clone(), mapped.y.clone(), None, mapped.named)
        sides = {"mapped": steps_of(mapped, shape), "in memory": steps_of(held, shape)}
        wall = alternated(sides, rounds=rounds, clock=time.perf_counter)
    return {
        "data": kind,
        "records": count,
        "MB on disk": round(held.x.nbytes / 1e6),
        "MB of its own once opened and named": round(named / 1e6),
        "and after steps": round(after / 1e6),
        "seconds to open and name": round(took, 1),
        "ms a step, mapped": 1000 * sorted(wall["mapped"])[rounds // 2] / STEPS,
        "ms a step, in memory": 1000 * sorted(wall["in memory"])[rounds // 2] / STEPS,
        "ratio": ratio(wall, "mapped", "in memory"),
    }


def _own() -> float:
    """Bytes of this process that are not pages of a file."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return float(lines["RssAnon"].split()[0]) * 1024


def network(how: str, memory: float) -> dict[str, Any]:
    """One step in this process."""
    import torch

    from prismfl import runtime
    from prismfl.core.door import PrivateRecords
    from prismfl.core.records import Records
    from prismfl.kernels import per_record
    from prismfl.kernels.parts import step_bytes
    from prismfl.nets.classifier import build
    from prismfl.rng import Key

    runtime.tune()
    if how == "written out":
        per_record.sequence_of = lambda *_: None
    shape = (1, 28, 28)
    classifier, params = build(NETWORKS[how], shape, 10, key=Key.seed(0))
    x, y = torch.rand(64, *shape), torch.arange(64) % 10
    door = PrivateRecords(Records(x, y), declared=64, classes=10, noise=Key.seed(0).noise(), memory=int(memory * 2**30))
    start = time.perf_counter()
    peak = peak_of(lambda: door.noisy_gradient(classifier.record_loss, params, batch=64, clip=1.0, sigma=1.0))
    numbers = sum(p.numel() for p in params.values())
    return {
        "gradients": how,
        "million numbers": round(numbers / 1e6, 1),
        "declared GB": memory,
        "least GB": round(step_bytes(numbers) / 2**30, 2),
        "peak GB": round(peak / 1024, 2),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("disk", "network", "snapshot"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kind", choices=list(SIZES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "snapshot":
        snapshot(given.folder, given.kind)
        say("{}")
    elif given.cell:
        sys.stdout.write(json.dumps(network(given.cell[0], float(given.cell[1]))) + "\n")
    else:
        file = RESULTS / "large.json"
        kept = json.loads(file.read_text()) if file.exists() else {}
        kept.pop("machine", None)
        if given.what == "disk":
            rows = [disk(kind, given.rounds) for kind in SIZES]
        else:
            cells = [(how, memory) for how in NETWORKS for memory in MEMORIES]
            rows = [in_own_process(__file__, "network", "--cell", how, str(memory)) for how, memory in cells]
        save("large", {**kept, given.what: rows})
        say(table(rows))


if __name__ == "__main__":
    main()
