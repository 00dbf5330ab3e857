"""The report: one HTML file that opens anywhere, without a network, and its JSON twin."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from prismfl.atomic import write_atomically
from prismfl.report import sections
from prismfl.report.charts import Axis, around, dots, simple_rows
from prismfl.report.tables import size_words

Facts = Mapping[str, Any]


def write(runs: Sequence[Facts], path: Path) -> tuple[Path, Path]:
    """The page at `path` and its twin beside it, with the suffix .json."""
    twin = path.with_suffix(".json")
    raw = twin_bytes(runs)
    write_atomically(twin, raw)
    write_atomically(path, render(runs, digest=hashlib.sha256(raw).hexdigest()).encode())
    return path, twin


def twin_bytes(runs: Sequence[Facts]) -> bytes:
    return (json.dumps({"runs": list(runs)}, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def render(runs: Sequence[Facts], *, digest: str) -> str:
    """The whole page. With several runs, a comparison comes first and each run has its own part."""
    first = runs[0]
    title = f"Privacy report: {first['setting']['method']} on {first['setting']['data']}"
    if len(runs) > 1:
        title += f" and {len(runs) - 1} more"
    parts = [_comparison(runs)] if len(runs) > 1 else []
    single = len(runs) == 1
    parts += [
        _run(f, [o for o in runs if o is not f], digest=digest, prefix="" if single else f"r{i + 1}-")
        for i, f in enumerate(runs)
    ]
    onsite = any(f["edition"] == "on-site" for f in runs)
    return Template(template("page.html")).substitute(
        title=escape(title),
        css=template("page.css"),
        banner='<p class="banner" role="note">On-site edition: holds private pictures or counts. Do not send.</p>'
        if onsite
        else "",
        body="".join(parts),
        written=escape(str(first["written"])),
        version=escape(str(first["prismfl"])),
    )


def template(name: str) -> str:
    return (files("prismfl.report") / name).read_text()


def _run(facts: Facts, others: Sequence[Facts], *, digest: str, prefix: str) -> str:
    setting = facts["setting"]
    where = "{data}, {split} split, {sites} sites, model {model}, seed {seed}".format(**setting)
    body = [
        ("guarantee", "The guarantee", sections.guarantee(facts)),
        ("checks", "Checks", sections.check_list(facts)),
        ("releases", "What left the sites", sections.releases(facts)),
        ("ledger", "The ledgers", sections.ledger(facts)),
        ("accuracy", "How useful it is", sections.utility(facts, others)),
        ("pictures", "Pictures", sections.pictures(facts)),
        ("partition", "How the records lie", sections.partition(facts)),
        ("attacks", "Attacks", sections.attacks(facts)),
        ("audit", "Audit", sections.audit(facts)),
        ("bytes", "Bytes sent", sections.traffic(facts)),
        ("config", "Configuration and versions", sections.configuration(facts)),
        ("signature", "Signature", sections.signature(facts, digest)),
    ]
    links = "".join(f'<li><a href="#{prefix}{ident}-section">{escape(name)}</a></li>' for ident, name, _ in body)
    made = "".join(
        f'<section id="{prefix}{ident}-section" class="s-{ident}"><h2>{escape(name)}</h2>'
        f"{_scoped(content, prefix)}</section>"
        for ident, name, content in body
    )
    created = str(facts["run"]["created"] or "")[:16].replace("T", " ")
    return (
        f'<article aria-labelledby="{prefix}title"><header class="run"><p class="kicker">Privacy report</p>'
        f'<h1 id="{prefix}title">{escape(str(setting["method"]))} <span>on {escape(str(setting["data"]))}</span></h1>'
        f'<p class="where">{escape(where)}</p><p class="quiet">run {escape(str(facts["run"]["id"]))}, '
        f"{escape(created)} UTC, {escape(str(facts['run']['status']))}</p></header>"
        f'<nav aria-label="Sections of {escape(str(setting["method"]))}"><ul>{links}</ul></nav>{made}</article>'
    )


def _scoped(content: str, prefix: str) -> str:
    """Ids must differ between the runs of one page."""
    if not prefix:
        return content
    for mark in ('id="', 'aria-labelledby="'):
        content = content.replace(mark, mark + prefix)
    return content


def _comparison(runs: Sequence[Facts]) -> str:
    rows = []
    for f in runs:
        t, score = f["traffic"], f["utility"]["accuracy"]
        seconds = f["seconds"]
        rows.append(
            [
                sections.run_name(f),
                ", ".join(f["guarantee"]["leaves"]) or "nothing",
                "-" if score is None else f"{score:.1f} %",
                size_words(t["up"] + t["down"]),
                "-" if seconds is None else f"{seconds:.0f} s",
                str(f["run"]["status"]),
            ]
        )
    table = simple_rows(["run", "what leaves", "accuracy", "bytes", "time", "status"], rows)
    return (
        '<section class="comparison" id="comparison"><h2>The runs side by side</h2><div class="pair">'
        f'{plane(runs)}<div class="scroll" tabindex="0">{table}</div></div></section>'
    )


def plane(runs: Sequence[Facts], ident: str = "plane") -> str:
    """Privacy against utility: epsilon on a log axis, runs without a guarantee at its far end."""
    known = [f for f in runs if f["utility"]["accuracy"] is not None and f["guarantee"].get("known")]
    finite = [f["guarantee"]["epsilon"] for f in known if f["guarantee"]["epsilon"]]
    if not known:
        return ""
    low, high = min([*finite, 1.0]) / 2, max([*finite, 1.0]) * 8
    rows = []
    for f in known:
        epsilon = f["guarantee"]["epsilon"]
        rows.append((sections.run_name(f), high if epsilon is None else max(epsilon, low), f["utility"]["accuracy"]))
    span = around([row[2] for row in rows], floor=0, ceiling=100)
    axis = Axis("epsilon (right edge: no guarantee)", low, high, log=True)
    return dots(ident, "Privacy and utility", rows, x=axis, y=Axis("accuracy %", *span))
