"""`prismfl help`: the how-to pages, offline. They lie in docs/how-to, and in a wheel as prismfl/pages."""

from __future__ import annotations

import difflib
import re
import sys
from importlib import resources
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.errors import UserError

SHORT = {"public": "public-images", "methods": "which-method"}
"""Topics that are called otherwise than their pages."""
FIRST = ("own-data", "schema", "splits", "public", "methods")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def topics() -> dict[str, str]:
    """The text of every page by its topic, those of own data first."""
    folder = resources.files("prismfl") / "pages"
    names = {page: short for short, page in SHORT.items()}
    found = {
        names.get(stem, stem): page.read_text("utf-8")
        for page in folder.iterdir()
        if page.name.endswith(".md") and (stem := page.name.removesuffix(".md"))
    }
    order = [name for name in FIRST if name in found] + sorted(found.keys() - set(FIRST))
    return {name: found[name] for name in order}


def help(
    topic: Annotated[
        str | None,
        typer.Argument(
            autocompletion=lambda incomplete: [name for name in topics() if name.startswith(incomplete)],
            help="What about (default: the list of topics).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a how-to page: own-data, schema, splits, public, methods and others."""
    known = topics()
    if topic is None:
        rows = [{"topic": name, "page": text.partition("\n")[0].lstrip("# ")} for name, text in known.items()]
        terminal.rows("prismfl help TOPIC", rows, "table")
        return
    name = {page: short for short, page in SHORT.items()}.get(topic, topic)
    if name not in known:
        near = difflib.get_close_matches(topic, [*known, *SHORT.values()], n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}."
        raise UserError(f"No page on '{topic}' in prismfl help; {hint}")
    text = _LINK.sub(r"\1", known[name])  # a link leads nowhere in a terminal
    if not sys.stdout.isatty():
        terminal.out(text.rstrip())
        return
    from rich.markdown import Markdown

    terminal.show(Markdown(text))
