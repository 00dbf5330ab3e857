"""Every table: python reproduce/all.py --status [TABLE ...], or --run [TABLE ...] [--older] [--minutes 60].

`--status` prints each row as run, missing, older than the code it tests (or of unknown code), or left out and why.
`--run` makes what is missing, one row after the other on one core at the lowest priority, and says what is left; it
can be stopped at any time and goes on where it was. With `--older`, rows of older or unknown code are made again.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rows import HERE, Found, Status, Table, Wanted, code_of, stamp, status, without

LOCK = Path("runs/reproduce.lock")
SEEDS = (0, 1, 2)
TO_DO = ("missing",)
AGAIN = ("missing", "older", "older, unknown")


@cache
def script(path: str) -> ModuleType:
    """A table's script as a module; those that import a neighbour find it."""
    file = HERE / path
    spec = importlib.util.spec_from_file_location(f"reproduce_{path}".replace("/", "_").replace("-", "_"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


@cache
def modules_of(method: str) -> tuple[str, ...]:
    """The modules that a method's functions and settings are in."""
    from prismfl.methods import METHODS

    found = METHODS[method]
    return tuple({f.__module__ for f in (found.settings, found.client, found.server, found.plan)})


# How finished rows are kept, and what each table shall have.


def by(*keys: str) -> Any:
    """Rows of a list, named by these fields."""
    return lambda value: {", ".join(str(row[k]) for k in keys): row for row in value}


def whole(value: Mapping[str, Found]) -> Mapping[str, Found]:
    """Rows kept by name."""
    return value


def inside(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Found]:
    """Rows two levels deep."""
    return {f"{a}, {b}": row for a, part in value.items() for b, row in part.items() if isinstance(row, dict)}


def feta() -> Iterator[Wanted]:
    module = script("dp-feta/run.py")
    for cell in (*module.rows(), *module.sweep()):
        name = module.name_of(cell)
        extra = ("--sweep",) if "steps" in name else ()
        yield Wanted(name, (cell["method"],), ("--only", *name.split(), *extra))


def fedlap() -> Iterator[Wanted]:
    module = script("fedlap/run.py")
    for rounds, seeds, data in ((1, SEEDS, module.DATA), (4, SEEDS[:1], ("mnist",)), (15, SEEDS[:2], module.DATA)):
        for seed in seeds:
            for one in data:
                for method in module.COMPARED if rounds != 4 else ("fedlap-dp",):
                    words = (one, method)
                    told = ("--only", *words, "--seeds", str(seed), "--rounds", str(rounds))
                    name = " ".join([*words, f"rounds{rounds}", f"seed{seed}"])
                    yield Wanted(name, (method,), told, longer=rounds)


def quick() -> Iterator[Wanted]:
    module = script("fedlap/quick.py")
    return (Wanted(method, (method,)) for method in (*module.EXACT, *module.PRIVATE))


def prism() -> Iterator[Wanted]:
    module = script("prism/run.py")
    files = {"mnist": "mnist", "fashion-mnist": "fashion", "cifar10": "cifar", "celeba-hair": "faces"}
    for cell in module.rows():
        method, data, split = cell["method"], cell["data"], cell["split"]
        kind = "iid" if split == "iid" and data == "mnist" else files[data]
        kind = "gradient" if method in module.GRADIENT else kind if method == "prism" else "heads"
        out = HERE / "prism" / f"results_{kind}.json"
        words = [data, method, split, f"eps{cell['epsilon']:g}", f"sites{cell['sites']}"]
        for seed in SEEDS:
            told = ("--only", *words, "--seeds", str(seed), "--out", str(out))
            yield Wanted(" ".join([*words, f"seed{seed}"]), (method,), told, results=out)


def ablation() -> Iterator[Wanted]:
    module = script("prism/ablation.py")
    return (Wanted(f"{what}, 0", (module.preset(what)["method"],)) for what in module.changes())


def prism_auto() -> Iterator[Wanted]:
    module = script("prism/auto.py")
    for seed in SEEDS:
        for path in sorted(module.PRESETS.glob("*.toml")):
            told = ("--only", *path.stem.split("_"), "--seeds", str(seed))
            yield Wanted(f"{path.stem}_seed{seed}", (module.read(path)["method"],), told)


def held_out() -> Iterator[Wanted]:
    module = script("prism/held_out.py")
    return (Wanted(f"{name}, {way}, seed 0", (way.split()[0],)) for name in module.SETS for way in module.WAYS)


def threedgl() -> Iterator[Wanted]:
    module = script("3dgl/run.py")
    for data in module.DATA:
        for seed in range(30, 33 if data == "adult" else 36):
            told = ("--out", str(HERE / "3dgl/results.json"), "--data", data, "--first", str(seed), "--seeds", "1")
            for part in dict.fromkeys(("one", "pool", *module.BEST[data])):
                yield Wanted(f"{data}/{seed}, {part}", ("3dgl",), (*told, "--parts", part))


def threedgl_rows(value: Any) -> dict[str, Found]:
    return inside({f"{data}/{seed}": parts for data, seeds in value.items() for seed, parts in seeds.items()})


def tables() -> Iterator[Wanted]:
    module = script("tables/run.py")
    for name in module.rows():
        method = name.split("/")[1]
        tested = {"real": (), module.COPULA_OF: ("3dgl",)}.get(method, (module.MARGINALS,))
        yield Wanted(name, tested, ("--only", name))
    for data in module.NAMES:
        for model in ("aim", "mst"):
            yield Wanted(f"{data}/{model}/1.9/1/iid/0", (), reason="dpmm runs in an environment of its own: central.py")


def robust() -> Iterator[Wanted]:
    module = script("robust/run.py")
    for method in module.RUNS:
        for column in (*module.COLUMNS, *([module.BACKWARDS] if method == "dp-fedavg" else [])):
            yield Wanted(f"{method}, {column}", (method,), ("--only", method))


def audits() -> Iterator[Wanted]:
    from prismfl.adversary.audits.trial import auditable
    from prismfl.methods import METHODS

    return (Wanted(name, (name,)) for name, method in METHODS.items() if auditable(method) is None)


def hostile() -> Iterator[Wanted]:
    from prismfl.adversary.audits.hostile import audited
    from prismfl.adversary.audits.hostile_processes import OVER_PROCESSES
    from prismfl.methods import METHODS

    for name, method in METHODS.items():
        for kind in method.kinds if audited(method) else ():
            yield Wanted(name if kind == method.kinds[0] else f"{name} ({kind})", (name,))
    for name in OVER_PROCESSES:
        yield Wanted(f"{name} (processes, TLS)", (name,), ("--processes",))


def multimodal() -> Iterator[Wanted]:
    for data, budget, seed in script("multimodal/run.py").names():
        yield Wanted(f"{data} {budget} {seed}", ("prism",), ("--only", data, budget, "--seeds", str(seed)))


def auto() -> Iterator[Wanted]:
    for name in script("auto/run.py").names():
        why = "plain defaults at one epsilon: not ended after 60 s" if name.endswith("fixed") else ""
        yield Wanted(name, (name.split("_")[0],), ("--only", *name.split("_")), reason=why)


def fedem_of(data: str) -> Iterator[Wanted]:
    for row in script("fedem/run.py").main_rows(data):
        yield Wanted(row.label, (row.method,), _fedem("--only", data, "--rows", row.label))


def fedem_tanh() -> Iterator[Wanted]:
    for row in script("fedem/run.py").main_rows("cifar10"):
        if row.label.startswith(("FedSGD", "FedEM, radius 8", "ldp")):
            yield Wanted(row.label, (row.method,), _fedem("--only", "tanh"), longer=10.0)


def fedem_ablation() -> Iterator[Wanted]:
    for row in script("fedem/run.py").ablation_rows("mnist"):
        yield Wanted(row.label, (row.method,), _fedem("--only", "ablation"))


def fedem_long(data: str) -> Iterator[Wanted]:
    for seed in (0, 1):
        for row in script("fedem/run.py").main_rows(data):
            told = _fedem("--data", data, "--seeds", str(seed), "--rows", row.label)
            yield Wanted(f"{row.label}, {seed}", (row.method,), told)


def _fedem(*words: str) -> tuple[str, ...]:
    return ("--data-dir", os.environ.get("PRISMFL_DATA", ""), "--out", str(HERE / "fedem"), *words)


def listed(value: Any) -> dict[str, Found]:
    return {row["label"]: row for row in value["rows"]}


def at_length(value: Any) -> dict[str, Found]:
    """Rows of the paper's thirty epochs; shorter ones are something else."""
    return dict(by("label", "seed")([row for row in value if row["epochs"] == 30]))


def every_table() -> list[Table]:
    """The tables, most wanted first."""

    def table(name: str, path: str, results: str | Iterable[str], rows: Any, wanted: Any, minutes: float) -> Table:
        folder = (HERE / path).parent
        files = [results] if isinstance(results, str) else results
        return Table(name, HERE / path, tuple(folder / f for f in files), rows, wanted, minutes)

    prisms = [f"results_{k}.json" for k in ("mnist", "fashion", "cifar", "faces", "iid", "heads", "gradient")]
    found = [
        table("dp-feta", "dp-feta/run.py", "results.json", by("name"), feta, 15),
        table("fedlap", "fedlap/run.py", "results.json", by("name"), fedlap, 20),
        table("fedlap-quick", "fedlap/quick.py", "results-quick.json", lambda v: by("method")(v["rows"]), quick, 0.5),
        table("prism", "prism/run.py", prisms, by("name"), prism, 8),
        table("prism-auto", "prism/auto.py", "results_auto.json", whole, prism_auto, 5),
        table("prism-ablation", "prism/ablation.py", "results_ablation.json", by("what", "seed"), ablation, 1),
        table("prism-held-out", "prism/held_out.py", "results_held_out.json", whole, held_out, 5),
        table("3dgl", "3dgl/run.py", "results.json", threedgl_rows, threedgl, 1),
        table("tables", "tables/run.py", "results.json", whole, tables, 1),
        table("robust", "robust/run.py", "results.json", inside, robust, 1),
        table("multimodal", "multimodal/run.py", "results.json", whole, multimodal, 0.5),
        table("auto", "auto/run.py", "results.json", whole, auto, 0.2),
        table("audit", "audit/run.py", "results.json", lambda v: v["methods"], audits, 1),
        table("hostile", "audit/hostile.py", "hostile.json", by("method"), hostile, 1),
        table("fedem-ablation", "fedem/run.py", "results-mnist-ablation.json", listed, fedem_ablation, 1),
        table("fedem-tanh", "fedem/run.py", "results-cifar10-tanh.json", listed, fedem_tanh, 1),
    ]
    for data in ("mnist", "fashion-mnist", "cifar10"):
        attacks = lambda data=data: fedem_of(data)  # noqa: E731
        long = lambda data=data: fedem_long(data)  # noqa: E731
        found.append(table(f"fedem-{data}", "fedem/run.py", f"results-{data}-methods.json", listed, attacks, 1))
        found.append(table(f"fedem-long-{data}", "fedem/utility.py", f"utility-{data}.json", at_length, long, 3))
    return found


# What is printed and what is run.


def show(found: list[Status]) -> None:
    """A line a row, and one for the whole."""
    for one in found:
        why = f": {one.row.reason}" if one.state == "left out" else ""
        print(f"{one.table.name:20} {one.state:15} {one.minutes:6.1f} min  {one.row.name}{why}")
    count = {state: sum(one.state == state for one in found) for state in dict.fromkeys(one.state for one in found)}
    print(f"{len(found)} rows: {', '.join(f'{n} {state}' for state, n in count.items())}; {left(found, TO_DO)}")


def left(found: list[Status], states: Iterable[str]) -> str:
    """How much of this is still to be run."""
    minutes = [one.minutes for one in found if one.state in set(states)]
    return f"left: {len(minutes)} rows, about {sum(minutes):.0f} minutes of one core"


def run(found: list[Status], *, states: tuple[str, ...], minutes: float) -> int:
    """One row after the other, at the lowest priority. Returns how many failed."""
    os.nice(19)
    LOCK.parent.mkdir(exist_ok=True)
    started, failed = time.monotonic(), 0
    waiting = [one for one in found if one.state in states]
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"Another queue is at work in this folder ({LOCK}); wait for it or stop it.") from None
        while waiting and (time.monotonic() - started) / 60 < minutes:
            one, *waiting = waiting
            print(
                f"{one.table.name}: {one.row.name} (about {one.minutes:.1f} min); {left(waiting, states)}", flush=True
            )
            failed += not make(one)
            # A script may have made several rows at once.
            done = {(table.name, name) for table in {w.table for w in waiting} for name in fresh(table)}
            waiting = [w for w in waiting if (w.table.name, w.row.name) not in done]
    print(left(waiting, states), flush=True)
    return failed


def fresh(table: Table) -> set[str]:
    """Rows of a table that are of today's code."""
    return {one.row.name for one in status(table, modules=modules_of) if one.state == "run"}


def make(one: Status) -> bool:
    """Runs one row's script and writes the digest of the code into what it made; an old row stays if it fails."""
    table, row, before = one.table, one.row, one.table.done()
    kept = {file: file.read_text() for file in table.results if file.exists()}
    if row.name in before:
        without(before[row.name][0], row.name, table.rows)
    known = {name: found for name, (_, found) in table.done().items()}
    codes = {wanted.name: code_of(wanted.methods, modules=modules_of) for wanted in table.wanted()}
    told = [sys.executable, str(table.script), *row.arguments]
    done = subprocess.run(told, env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}, check=False)
    made = {name: file for name, (file, found) in table.done().items() if known.get(name) != found}
    for name in made.keys() & codes.keys():  # a script may make several rows, or all of them again
        stamp(made[name], [name], codes[name], table.rows)
    if row.name not in made:
        if row.name in before:
            before[row.name][0].write_text(kept[before[row.name][0]])
        print(f"{table.name}: {row.name} was not made (exit code {done.returncode}).", flush=True)
    return row.name in made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="only these tables")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--status", action="store_true", help="print every row as it stands")
    what.add_argument("--run", action="store_true", help="make what is missing")
    parser.add_argument("--older", action="store_true", help="with --run: rows of older or unknown code as well")
    parser.add_argument("--rows", nargs="*", default=[], help="only rows that have all these words")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="with --run: begin no row after so many")
    args = parser.parse_args()
    known = {table.name: table for table in every_table()}
    if unknown := set(args.tables) - set(known):
        parser.error(f"no table '{sorted(unknown)[0]}'; there are {', '.join(known)}")
    found = [
        one
        for name in args.tables or known
        for one in status(known[name], modules=modules_of)
        if all(word in one.row.name for word in args.rows)
    ]
    if args.status:
        show(found)
    elif run(found, states=AGAIN if args.older else TO_DO, minutes=args.minutes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
