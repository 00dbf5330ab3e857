"""Before and after automatic settings: python reproduce/auto/run.py [--only dp-merf auto] [--seconds 60].

A row is a method with a guarantee on the embedded digits (five sites, IID, seed 0) at an epsilon, with its plain
defaults (`fixed`) or with what its rule chooses (`auto`). A row has so many seconds of processor time and is written
down as unfinished beyond that. Finished rows are kept in results.json and are not run again; the table in README.md is
written from them.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from prismfl import runtime
from prismfl.runs import choosing, simulate

HERE = Path(__file__).parent
OUT = HERE / "results.json"
METHODS = (
    "ldp-fedsgd", "fedem-dp", "feddm-dp", "fedlap-dp", "psg-sites", "psg", "3dgl", "ddp-vae", "dp-merf", "dp-gan",
    "dp-feta", "dpdm", "dp-central",
)  # fmt: skip
EPSILONS = {"dp-central": ("1", "3", "5")}
BEGIN, END = "<!-- written by run.py -->", "<!-- end -->"


def names() -> list[str]:
    """Every row: method, data, epsilon, settings."""
    return [
        f"{method}_digits_eps{epsilon}_{tuning}"
        for tuning in ("auto", "fixed")
        for method in METHODS
        for epsilon in EPSILONS.get(method, ("3", "1"))
        if tuning == "auto" or epsilon == "3"  # plain defaults are the same at any epsilon: one row shows them
    ]


def row(name: str) -> dict[str, Any]:
    """One run: what it chose and what came of it."""
    method, data, epsilon, tuning = name.split("_")
    runtime.tune()
    started, said, warned = time.process_time(), [], []
    with tempfile.TemporaryDirectory() as scratch:
        given = {
            "method": method, "data": data, "epsilon": float(epsilon.removeprefix("eps")), "sites": 5, "seed": 0,
            "tuning": tuning, "out": str(Path(scratch) / "run"),
        }  # fmt: skip
        config, found = choosing.configure(given)
        result = simulate.run(config, method=found, tell=said.append, warn=warned.append).as_dict()
        chosen = json.loads((Path(scratch) / "run" / "config.json").read_text())
    return {
        **{key: result[key] for key in ("accuracy", "epsilon", "bytes_up")},
        "seconds": round(time.process_time() - started, 1),
        "why": said,
        "warned": warned,
        "model": chosen["model"],
        "settings": chosen["settings"],
    }


def limited(name: str, seconds: int) -> dict[str, Any]:
    """The row in a process of its own, which ends after so many seconds of processor time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    command = [sys.executable, str(Path(__file__)), "--row", name]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)
    if done.returncode == 0:
        return dict(json.loads(done.stdout))
    if done.returncode > 0:
        raise SystemExit(f"{name} failed: {done.stderr.strip()[-400:]}")
    return {"unfinished_after": seconds}


def cell(found: dict[str, Any], name: str) -> str:
    """Accuracy, seconds and kB of a row."""
    if name not in found:
        return "not run"
    if "unfinished_after" in (one := found[name]):
        return f"not ended after {one['unfinished_after']} s"
    drowned = ", says it is drowned" if any("drowns" in line for line in one["warned"]) else ""
    return f"{one['accuracy']:.1f} % ({one['seconds']:.0f} s, {one['bytes_up'] / 1000:.0f} kB{drowned})"


def table(found: dict[str, Any]) -> str:
    """A line for each method."""
    lines = ["| method | fixed, epsilon 3 | auto, epsilon 3 | auto, epsilon 1 |", "|---|---|---|---|"]
    for method in METHODS:
        at = [f"{method}_digits_eps{e}_{t}" for e, t in (("3", "fixed"), ("3", "auto"), ("1", "auto"))]
        lines.append(f"| {method} | {' | '.join(cell(found, name) for name in at)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row's name must contain")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--row", help="run this one row here and print it")
    args = parser.parse_args()
    if args.row:
        json.dump(row(args.row), sys.stdout)
        return
    for name in names():
        if set(args.only) <= set(name.split("_")) and name not in done():
            found = limited(name, args.seconds)
            OUT.write_text(json.dumps({**done(), name: found}, indent=1, sort_keys=True) + "\n")
            print(name, cell({name: found}, name), flush=True)
    readme = HERE / "README.md"
    text = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table(done())}\n{END}", readme.read_text(), flags=re.DOTALL)
    readme.write_text(text)


def done() -> dict[str, Any]:
    """The finished rows."""
    return json.loads(OUT.read_text()) if OUT.exists() else {}


if __name__ == "__main__":
    main()
