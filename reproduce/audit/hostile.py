"""A hostile server against the sites of every method with a guarantee: writes hostile.json and its table in README.md.

python reproduce/audit/hostile.py [--processes]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from prismfl.adversary.audits.hostile import Row, audit_hostile, audited, save
from prismfl.methods import METHODS

HERE = Path(__file__).parent
BEGIN, END = "<!-- hostile -->\n", "<!-- end of hostile -->\n"


def main() -> None:
    started, file = time.process_time(), HERE / "hostile.json"
    rows: list[Row] = []
    for method in METHODS.values():
        for kind in method.kinds if audited(method) else ():
            rows.append(audit_hostile(method, kind=kind))
            print(f"{rows[-1].method}: {'held' if rows[-1].passed else 'BROKE'}, {rows[-1].seconds:.0f} s", flush=True)
    print(f"{(time.process_time() - started) / 60:.1f} minutes of processor time", flush=True)
    if "--processes" in sys.argv:
        from prismfl.adversary.audits.hostile_processes import OVER_PROCESSES, audit_processes

        rows += [audit_processes(METHODS[name], lambda line: print(line, flush=True)) for name in OVER_PROCESSES]
    save(rows, file)
    readme = HERE / "README.md"
    head, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(f"{head}{BEGIN}{table(json.loads(file.read_text()))}{END}{rest.partition(END)[2]}")


def table(rows: list[dict]) -> str:
    names = list(rows[0]["cells"])
    order = ["weights", "rounds", "settings", "facts", "limits", "rosters", "codes", "influence"]
    names.sort(key=order.index)
    lines = [f"| method | {' | '.join(names)} | s |", f"|---{'|---' * len(names)}|---|"]
    for row in rows:
        cells = [_cell(row["cells"].get(name)) for name in names]
        lines.append(f"| {row['method']} | {' | '.join(cells)} | {row['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def _cell(cell: dict | None) -> str:
    if cell is None:
        return "-"
    verdict = "held" if not cell["broke"] else f"BROKE: {cell['broke'][0]}"
    return f"{verdict}, {cell['questions']}/{cell['charges']}"


if __name__ == "__main__":
    main()
