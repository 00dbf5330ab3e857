"""The audit of every method on its tiny setting: writes results.json and the table in README.md.

python reproduce/audit/run.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from prismfl import runtime
from prismfl.adversary.audits.one_run import audit_method
from prismfl.adversary.audits.own_files import audit_files
from prismfl.adversary.audits.steps import audit_steps
from prismfl.adversary.audits.trial import auditable
from prismfl.adversary.audits.two_worlds import audit_two_worlds
from prismfl.methods import METHODS

HERE = Path(__file__).parent
WORLDS = ("dp-fedavg", "fedem-dp")


def main() -> None:
    runtime.tune(1)
    file = HERE / "results.json"
    done = json.loads(file.read_text()) if file.exists() else {"methods": {}, "skipped": {}, "steps": [], "worlds": {}}
    if not done["steps"]:
        done["steps"] = [step.as_dict() for step in audit_steps()]
    if not done.get("files"):
        done["files"] = [step.as_dict() for step in audit_files()]
    for name, method in METHODS.items():
        reason = auditable(method)
        if reason is not None:
            done["skipped"][name] = reason
            continue
        if name in done["methods"]:
            continue
        started = time.monotonic()
        done["methods"][name] = audit_method(method).as_dict()
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        file.write_text(json.dumps(done, indent=2, sort_keys=True) + "\n")
    for name in WORLDS:
        if name not in done["worlds"]:
            done["worlds"][name] = audit_two_worlds(METHODS[name]).as_dict()
    file.write_text(json.dumps(done, indent=2, sort_keys=True) + "\n")
    readme = HERE / "README.md"
    text = readme.read_text()
    head, _, rest = text.partition("<!-- table -->\n")
    _, _, tail = rest.partition("<!-- end -->\n")
    readme.write_text(f"{head}<!-- table -->\n{table(done)}<!-- end -->\n{tail}")


def table(done: dict) -> str:
    lines = [
        "| method | claimed epsilon | measured, at least | mu claimed | mu estimated "
        "| control, no noise | right of 1000 | verdict | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, a in sorted(done["methods"].items(), key=lambda item: (item[1]["claimed"] is None, item[0])):
        mu = "-" if a["claimed_mu"] is None else f"{a['claimed_mu']:.2f}"
        estimate = "-" if a["estimate_mu"] is None else "{:.2f} to {:.2f}".format(*a["estimate_mu"])
        control = "-" if a["control"] is None else f"{a['control']:.2f}"
        claimed = "∞" if a["claimed"] is None else f"{a['claimed']:.2f}"
        verdict = "passed" if a["passed"] else "FAILED"
        lines.append(
            f"| {name} | {claimed} | {a['lower']:.2f} | {mu} | {estimate} "
            f"| {control} | {a['right']} | {verdict} | {a['seconds']:.0f} |"
        )
    lines += [
        f"| {name} | - | - | - | - | - | - | skipped: {why} | - |" for name, why in sorted(done["skipped"].items())
    ]
    lines += ["", "| mechanism | mu claimed | mu measured (99.9 % limits) | verdict |", "|---|---|---|---|"]
    for s in [*done["steps"], *done["files"]]:
        verdict = "passed" if s["passed"] else "FAILED"
        lines.append(f"| {s['mechanism']} | {s['claimed']:.2f} | {s['low']:.2f} to {s['high']:.2f} | {verdict} |")
    lines += ["", "| two worlds | claimed | at least | mu claimed | mu estimated |", "|---|---|---|---|---|"]
    for name, a in done["worlds"].items():
        estimate = "{:.2f} to {:.2f}".format(*a["estimate_mu"])
        lines.append(f"| {name} | {a['claimed']:.2f} | {a['lower']:.2f} | {a['claimed_mu']:.2f} | {estimate} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
