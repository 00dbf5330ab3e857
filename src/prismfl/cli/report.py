"""`prismfl report`: one page a person can read, check and sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format
from prismfl.errors import UserError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run directories, or folders with some below; the first is the subject, the others stand beside it. "
            "Or one sweep, or one table of `prismfl synth`."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The HTML file (default: report.html in the first run).")
    ] = None,
    on_site: Annotated[
        bool, typer.Option("--on-site", help="With exact figures of own records; marked, never to be sent.")
    ] = False,
    fmt: Format = "table",
) -> None:
    """Write a self-contained HTML report of runs, and its JSON twin.

    The sharing edition holds what was released and charged, or is public; what was measured on own records is in the
    on-site edition only.
    """
    from prismfl.report.comparison import runs_in
    from prismfl.report.dossier import dossier
    from prismfl.report.page import edition_of, write
    from prismfl.report.sections import checks
    from prismfl.report.table_page import is_table
    from prismfl.report.tables import simple_table
    from prismfl.runs.cells import is_sweep

    if any(is_table(path) for path in runs):
        return _table(runs, out, on_site=on_site, fmt=fmt)
    if any(is_sweep(path) for path in runs):
        return _sweep(runs, out, on_site=on_site, fmt=fmt)
    place, runs = runs[0], runs_in(runs)
    facts = [dossier(path, on_site=on_site) for path in runs]
    place = place if place.is_dir() else runs[0]
    page, twin = write(facts, out or place / ("report-on-site.html" if on_site else "report.html"))
    rows = [
        {"run": str(path), "check": what, "state": state, "words": words}
        for path, f in zip(runs, facts)
        for state, what, words in checks(f)
    ]
    done = {
        "edition": edition_of(facts),
        "page": str(page),
        "twin": str(twin),
        "checks": rows,
        "missing": [line["words"] for f in facts for line in f["missing"]],
    }
    terminal.emit(done, fmt, lambda: simple_table(f"wrote {page} and {twin.name} ({done['edition']} edition)", rows))


def _table(runs: list[Path], out: Path | None, *, on_site: bool, fmt: str) -> None:
    """The page of a synthetic table."""
    from prismfl.report.table_page import write_table_page
    from prismfl.report.tables import simple_table

    if len(runs) > 1 or on_site:
        raise UserError("A synthetic table has a page of its own, which may be shared: give one table, no --on-site.")
    place = out or runs[0].with_name(f"{runs[0].stem}.report.html")
    page, twin, facts = write_table_page(runs[0], place)
    rows = [{"check": what, "holds": "yes" if held else "no"} for what, held in facts["checks"].items()]
    done = {"edition": facts["edition"], "page": str(page), "twin": str(twin), "checks": rows}
    terminal.emit(done, fmt, lambda: simple_table(f"wrote {page} and {twin.name} ({facts['edition']} edition)", rows))


def _sweep(runs: list[Path], out: Path | None, *, on_site: bool, fmt: str) -> None:
    """The trade-off page of a sweep."""
    from prismfl.report.tradeoff import open_lines, sweep_facts, sweep_table, write_tradeoff

    if len(runs) > 1:
        raise UserError(f"A sweep has a page of its own; give one of the {len(runs)} folders.")
    facts = sweep_facts(runs[0], on_site=on_site)
    page, twin = write_tradeoff(facts, out or runs[0] / ("report-on-site.html" if on_site else "report.html"))
    terminal.say(f"wrote {page} and {twin.name} ({facts['edition']} edition)")
    done = {"edition": facts["edition"], "page": str(page), "twin": str(twin), "rows": facts["rows"]}
    terminal.emit(done, fmt, lambda: sweep_table(facts))
    for line in open_lines(facts):
        terminal.say(line)
