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

from prismfl.errors import UserError
from prismfl.files.atomic import write_atomically
from prismfl.report import sections, words
from prismfl.report.charts import Axis, around, colour_of, dots, simple_rows
from prismfl.report.editions import ELSEWHERE, ON_SITE, SHARING, STAYS, Edition, OnSiteFacts, SharedFacts
from prismfl.report.groups import beside, grouped
from prismfl.report.tables import encoder_words, size_words

Facts = Mapping[str, Any]


BANNERS = {
    ON_SITE: ("banner", f"On-site edition: {STAYS}. Exact figures of records may be here. Do not send."),
    SHARING: ("banner sharing", "Sharing edition: what was released and charged, or is public."),
}


def write(runs: Sequence[Edition], path: Path) -> tuple[Path, Path]:
    """The page at `path` and its twin beside it, with the suffix .json. An on-site page says so in its name."""
    raw = twin_bytes(runs)
    return write_pair(path, render(runs, digest=hashlib.sha256(raw).hexdigest()), raw, edition=edition_of(runs))


def write_pair(path: Path, html: str, raw: bytes, *, edition: str) -> tuple[Path, Path]:
    """A page and the bytes of its twin, under a name that says whether they may leave the site."""
    if (ON_SITE in path.name) != (edition == ON_SITE):
        told = "keeps 'on-site' in its file name" if edition == ON_SITE else "has no 'on-site' in its file name"
        raise UserError(f"The {edition} edition {told}, got '{path.name}'; choose another with --out.")
    twin = path.with_suffix(".json")
    write_atomically(twin, raw)
    write_atomically(path, html.encode())
    return path, twin


def edition_of(runs: Sequence[Edition]) -> str:
    """The edition of all the runs of a page; facts of neither or of both make none."""
    kinds = {type(facts) for facts in runs}
    if kinds == {OnSiteFacts}:
        return ON_SITE
    if kinds == {SharedFacts}:
        return SHARING
    raise UserError("A page is of one edition: give facts that were all shared (editions.share), or all on-site ones.")


def twin_bytes(runs: Sequence[Edition]) -> bytes:
    """The JSON twin of a page: its edition and the facts of its runs."""
    value = {"edition": edition_of(runs), "runs": list(runs)}
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def render(runs: Sequence[Edition], *, digest: str) -> str:
    """The whole page. With several runs, a comparison comes first and each run has its own part."""
    first, edition = runs[0], edition_of(runs)
    title = f"Privacy report: {first['setting']['method']} on {first['setting']['data']}"
    if len(runs) > 1:
        title += f" and {len(runs) - 1} more"
    parts = [_comparison(runs)] if len(runs) > 1 else []
    single = len(runs) == 1
    parts += [
        _run(f, beside(f, runs), digest=digest, prefix="" if single else f"r{i + 1}-") for i, f in enumerate(runs)
    ]
    return framed(title, "".join(parts), edition=edition, facts=first)


def framed(title: str, body: str, *, edition: str, facts: Facts) -> str:
    """A whole page around its body: style, banner, and when it was written by which version."""
    style, line = BANNERS[edition]
    return Template(template("page.html")).substitute(
        title=escape(f"{title} ({edition} edition)"),
        css=template("page.css"),
        banner=f'<p class="{style}" role="note">{line}</p>',
        body=body,
        written=escape(str(facts["written"])),
        version=escape(str(facts["prismfl"])),
    )


def template(name: str) -> str:
    """The text of a file that lies beside this module."""
    return (files("prismfl.report") / name).read_text()


def _run(facts: Facts, others: Sequence[Facts], *, digest: str, prefix: str) -> str:
    setting = facts["setting"]
    where = "{data}, {split} split, {sites} sites, model {model}".format(**setting)
    where += f", seed {setting['seed']}" if setting.get("seed") is not None else ""
    body = [
        ("guarantee", "The guarantee", sections.guarantee(facts)),
        ("checks", "Checks", sections.check_list(facts)),
        ("releases", "What left the sites", sections.releases(facts)),
        ("ledger", "The ledgers", sections.ledger(facts)),
        ("accuracy", "How useful it is", sections.utility(facts, others)),
        ("next", "What to try next", sections.what_next(facts)),
        ("pictures", "What the run delivers", sections.pictures(facts)),
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
        f'<article aria-labelledby="{prefix}title"><header class="run">'
        f'<p class="kicker">Privacy report, {escape(str(facts["edition"]))} edition</p>'
        f'<h1 id="{prefix}title">{escape(str(setting["method"]))} <span>on {escape(str(setting["data"]))}</span></h1>'
        f'<p class="where">{escape(where)}</p><p class="quiet">run {escape(str(facts["run"]["id"]))}, '
        f"{escape(created)} UTC, {escape(str(facts['run']['status']))}{_took(facts)}</p></header>"
        f'<nav aria-label="Sections of {escape(str(setting["method"]))}"><ul>{links}</ul></nav>{made}</article>'
    )


def _took(facts: Facts) -> str:
    """How long the run took, all its parts together; nothing where the edition does not say it."""
    seconds = facts["seconds"]
    return "" if seconds is None else f", {time_words(seconds)} in all"


def time_words(seconds: float) -> str:
    """A time for people."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.{0 if seconds >= 10 else 1}f} s"


def _scoped(content: str, prefix: str) -> str:
    """Ids must differ between the runs of one page."""
    if not prefix:
        return content
    for mark in ('id="', 'aria-labelledby="'):
        content = content.replace(mark, mark + prefix)
    return content


def _comparison(runs: Sequence[Facts]) -> str:
    """The runs side by side: a part for each group, since unlike data and units have no common chart."""
    found = grouped(runs)
    many = len(found) > 1
    parts = [
        (f'<h3 class="group">{escape(group.words())}</h3>' if many else "")
        + f'<div class="pair">{plane(members, "plane" if not i else f"plane-{i + 1}")}'
        + f'<div class="scroll" tabindex="0">{_compared(members)}</div></div>'
        for i, (group, members) in enumerate(found.items())
    ]
    note = "<p>Unlike data, units or deltas have a chart each: their figures do not compare.</p>" if many else ""
    return f'<section class="comparison" id="comparison"><h2>The runs side by side</h2>{note}{"".join(parts)}</section>'


def _compared(runs: Sequence[Facts]) -> str:
    rows, looked = [], any(encoder_words(f["setting"]) for f in runs)
    for f in sorted(runs, key=lambda f: f["setting"].get("pretrained_on") is not None):
        t, score = f["traffic"], f["utility"]["accuracy"]
        seconds = f["seconds"]
        rows.append(
            [
                sections.run_name(f),
                *([encoder_words(f["setting"]) or "none"] if looked else []),
                ", ".join(f["guarantee"]["leaves"]) or "nothing",
                words.short(f["guarantee"]),
                ELSEWHERE if "accuracy" in f["withheld"] else "-" if score is None else f"{score:.1f} %",
                size_words(t["up"] + t["down"]),
                ELSEWHERE if "seconds" in f["withheld"] else "-" if seconds is None else time_words(seconds),
                str(f["run"]["status"]),
            ]
        )
    encoder = ["public encoder"] if looked else []
    return simple_rows(["run", *encoder, "what leaves", "guarantee", "accuracy", "bytes", "time", "status"], rows)


def plane(runs: Sequence[Facts], ident: str = "plane") -> str:
    """Privacy against utility: epsilon on a log axis, runs without a guarantee at its far end."""
    known = [f for f in runs if f["utility"]["accuracy"] is not None and f["guarantee"].get("known")]
    finite = [e for f in known if (e := f["guarantee"]["epsilon_total"])]
    if not known:
        return ""
    low, high = min([*finite, 1.0]) / 2, max([*finite, 1.0]) * 8
    rows = []
    for f in known:
        epsilon = f["guarantee"]["epsilon_total"]
        rows.append((sections.run_name(f), high if epsilon is None else max(epsilon, low), f["utility"]["accuracy"]))
    span = around([row[2] for row in rows], floor=0, ceiling=100)
    axis = Axis("epsilon (right edge: no guarantee)", low, high, log=True)
    colours = [colour_of(str(f["setting"]["method"])) for f in known]
    short = [str(f["setting"]["method"]) for f in known]
    y = Axis("accuracy %", *span)
    return dots(ident, "Privacy and utility", rows, x=axis, y=y, colours=colours, short=short)
