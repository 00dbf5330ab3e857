"""How long the command takes to answer: help and a tiny run, beside an empty Python and beside `import torch`.

python benchmarks/startup.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from alternate import alternated, children_cpu, ratio, save, say, table

TINY = "run -m {} -d digits --model logreg --sites 2 --set rounds=1 --format json --out {{}}"
PRIVATE = TINY.format("dp-fedavg -e 4 --set steps=2 --set tuning=fixed")
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "prismfl --help": ["-m", "prismfl", "--help"],
    "prismfl run --help": ["-m", "prismfl", "run", "--help"],
    "import torch": ["-c", "import torch"],
    "a tiny run": ["-m", "prismfl", *TINY.format("fedavg --set epochs=1").split()],
    "a tiny private run": ["-m", "prismfl", *PRIVATE.split()],
}


def start(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = [argument.format(f"{folder}/run") for argument in arguments]
        subprocess.run([sys.executable, *told], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def imports_torch() -> bool:
    command = [sys.executable, "-X", "importtime", *COMMANDS["prismfl --help"]]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return any(line.rpartition("|")[2].strip() == "torch" for line in told.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    sides = {name: (lambda a=arguments: start(a)) for name, arguments in COMMANDS.items()}
    cpu = alternated(sides, rounds=rounds, clock=children_cpu)
    wall = alternated(sides, rounds=rounds, clock=time.perf_counter)
    rows: list[dict[str, Any]] = [
        {
            "command": name,
            "CPU s": statistics.median(cpu[name]),
            "wall s": statistics.median(wall[name]),
            "wall to import torch": ratio(wall, name, "import torch"),
        }
        for name in COMMANDS
    ]
    save("startup", {"rounds": rounds, "help imports torch": imports_torch(), "rows": rows})
    say(table(rows))


if __name__ == "__main__":
    main()
