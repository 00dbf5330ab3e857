"""How long the command takes to answer: `prismfl --help`, beside an empty Python and beside `import torch`.

python benchmarks/startup.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

from alternate import alternated, children_cpu, save, say, table

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "prismfl --help": ["-m", "prismfl", "--help"],
    "prismfl run --help": ["-m", "prismfl", "run", "--help"],
    "import torch": ["-c", "import torch"],
}


def start(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


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
        {"command": name, "CPU s": statistics.median(cpu[name]), "wall s": statistics.median(wall[name])}
        for name in COMMANDS
    ]
    save("startup", {"rounds": rounds, "help imports torch": imports_torch(), "rows": rows})
    say(table(rows))


if __name__ == "__main__":
    main()
