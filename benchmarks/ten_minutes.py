"""Follows the two tutorials literally in a fresh environment, from `pip install` to the report, and times each step.

The commands are read from docs/tutorials/images.md and table.md: every fenced block without a language (the lines that
are commands), every TOML block (written to the file that the text before it names) and every Python block. Each page
begins in the folder of the sources. The scripts of the pages draw their data with another seed (`--seed`), so that the
records are none that the project has seen.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("images", "table")
TORCH = "pip install --quiet torch==2.13.0 -c constraints.txt"
COMMAND = re.compile(r"(?:\$ )?((?:prismfl|pip|python3?|export|head|cd|mkdir) .*)")
STAYS = ("export ", "cd ", ". ")  # what the lines after it need too


@dataclass(frozen=True)
class Step:
    """A command of a page, or a file that it says to write."""

    page: str
    command: str
    file: str | None = None
    text: str = ""


def steps_of(page: str, seed: int) -> list[Step]:
    """What a reader of a page does, in order."""
    found, prose, inside, body = [], "", None, []
    for line in (ROOT / "docs" / "tutorials" / f"{page}.md").read_text().splitlines():
        if not line.startswith("```"):
            if inside is None:
                prose += line + "\n"
            else:
                body.append(line)
        elif inside is None:
            inside, body = line.removeprefix("```").strip(), []
        else:
            found += block(page, inside, "\n".join(body) + "\n", prose, seed)
            inside, prose = None, ""
    return found


def block(page: str, language: str, body: str, prose: str, seed: int) -> list[Step]:
    if language == "python":
        drawn = re.sub(r"random\.seed\(\d+\)", f"random.seed({seed})", body)
        return [Step(page, "python drawn.py", "drawn.py", drawn)] if drawn != body else []
    if language == "toml":
        named = re.findall(r"`([\w.-]+\.toml)`", prose)
        file = named[-1] if named else "schema.toml" if "[[columns]]" in body else "prismfl.toml"
        return [Step(page, "", file, body)]
    if language not in ("", "console", "bash", "sh", "shell"):
        return []
    lines = [match[1] for line in body.splitlines() if (match := COMMAND.fullmatch(line.strip()))]
    return [Step(page, line) for line in lines if "-m venv" not in line]


def follow(folder: Path, seed: int) -> list[dict[str, object]]:
    """Every step in a copy of the sources; ends at the first that fails."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    begin, rows = [". .venv/bin/activate", "unset PYTHONPATH PRISMFL_TUNING"], []
    steps = [Step("images", f"{sys.executable} -m venv .venv"), Step("images", TORCH)]
    page, state, place = "", begin, folder
    for step in [*steps, *(step for page in PAGES for step in steps_of(page, seed))]:
        if step.page != page:
            page, state, place = step.page, [*begin], folder
        if step.file is not None:
            (place / step.file).write_text(step.text)
        if not step.command:
            continue
        started, before = time.monotonic(), state if (folder / ".venv").exists() else []
        done = subprocess.run(
            ["bash", "-c", "\n".join([*before, step.command])], cwd=folder, capture_output=True, text=True
        )
        seconds = round(time.monotonic() - started, 1)
        print(f"{step.page:8}{seconds:8.1f} s  {step.command}", flush=True)
        rows.append({"page": step.page, "command": step.command.replace(sys.executable, "python3"), "seconds": seconds})
        if done.returncode:
            raise SystemExit(f"It failed:\n{done.stdout}{done.stderr}")
        if step.command.startswith(STAYS):
            state.append(step.command.replace("$PWD", str(place)))
        if step.command.startswith("cd "):
            place /= step.command.removeprefix("cd ")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20261118)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "ten_minutes.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = follow(Path(folder), given.seed)
    total = round(sum(float(str(row["seconds"])) for row in rows), 1)
    print(f"{'in all':8}{total:8.1f} s")
    given.out.write_text(json.dumps({"seed": given.seed, "seconds": total, "steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
