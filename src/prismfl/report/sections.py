"""The sections of the report, from plain facts to HTML. No number is computed here that is not in the facts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from prismfl.report import words
from prismfl.report.advice import advice
from prismfl.report.charts import (
    DASHES,
    NO_METHOD,
    Axis,
    Series,
    around,
    bars,
    colour_of,
    heat,
    lines,
    simple_rows,
    whole,
)
from prismfl.report.delivered import deliverables
from prismfl.report.editions import ELSEWHERE
from prismfl.report.scores import parts_part, scores_part, tables_part
from prismfl.report.tables import encoder_words, size_words

Facts = Mapping[str, Any]
SHOWN_RELEASES = 12
LISTED_RELEASES = 600
LOWEST_RATE = 1e-3


def guarantee(facts: Facts) -> str:
    """The verdict, what is protected and what leaves a site, and beside it what is not protected."""
    g = facts["guarantee"]
    kind = {"unknown": "none", "nothing": "full"}.get(words.kind(g), words.kind(g))
    rows = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in words.protected(g))
    limits = "".join(f"<li>{escape(line)}</li>" for line in words.not_protected(g, facts["noise"]))
    what = "What secret noise would protect" if kind == "simulation" else "What is protected"
    looked = encoder_words(facts["setting"])
    if looked:
        rows += f"<dt>Public encoder</dt><dd>{escape(looked)}</dd>"
    leaves = ", ".join(f"{name} ({kind_})" for name, kind_ in g["leaves"].items()) or "nothing"
    return (
        f'<div class="verdict {kind}"><p class="headline">{escape(words.headline(g))}</p>'
        f"<p>{escape(words.meaning(g))}</p>{_meter(g)}</div>"
        f'<div class="two"><div><h3>{what}</h3><dl>{rows}<dt>What leaves a site</dt>'
        f"<dd>{escape(leaves)}</dd><dt>Noise from</dt><dd>{escape(facts['noise'] or 'not recorded')}</dd></dl></div>"
        f'<div><h3>What is not protected</h3><ul class="limits">{limits}</ul></div></div>'
    )


def _meter(g: Facts) -> str:
    """Between a coin and certainty: where the best possible guess lies."""
    if words.kind(g) in ("unknown", "simulation"):
        return ""
    best = 100.0 if words.kind(g) == "none" else 100 * g["allows"]["right_guess"]
    place = 2 * (best - 50)
    label = f"Best possible guess whether one {words.unit_words(g['unit'])} was used: {best:.1f} percent"
    return (
        f'<div class="meter" role="img" aria-label="{escape(label)}"><div class="rail"><span class="fill" '
        f'style="width:{place:.1f}%"></span><b style="left:{place:.1f}%">{best:.1f} %</b></div>'
        '<div class="ends"><span>50 % a coin</span><span>100 % certainty</span></div></div>'
    )


def checks(facts: Facts) -> list[tuple[str, str, str]]:
    """(state, what, words): pass, fail, open. What a reader would otherwise have to look up."""
    g, found = facts["guarantee"], []
    done = facts["run"]["status"] == "finished"
    found.append(("pass" if done else "fail", "Run finished", facts["run"]["status"]))
    chain = facts["ledger"]["chain"]
    found.append(
        ("pass", "Ledgers verify", _chains(chain)) if chain else ("open", "Ledgers verify", "no ledger could be read")
    )
    kind = words.kind(g)
    if kind == "none":
        found.append(("fail", "Differential privacy", "none: epsilon is infinite"))
    elif kind == "simulation":
        found.append(("fail", "Differential privacy", words.NO_PROTECTION))
    if g.get("known") and g["private"] and g.get("target") is not None:
        inside = g["epsilon"] <= g["target"] + 1e-9
        state = "open" if kind == "simulation" and inside else "pass" if inside else "fail"
        mark = f" ({words.NO_PROTECTION})" if kind == "simulation" else ""
        found.append((state, "Within the budget", f"{g['epsilon']:.4g} of {g['target']:g}{mark}"))
    found.append(_attack_check(facts))
    found.append(_audit_check(facts))
    if facts["noise"]:
        found.append(("open" if facts["noise"].startswith("seeded") else "pass", "Noise", facts["noise"]))
    return found


def _chains(chain: Sequence[Facts]) -> str:
    """How many ledgers were verified; a sharing edition of own data does not count their entries."""
    entries = [row["entries"] for row in chain if "entries" in row]
    return f"{len(chain)} ledgers, {f'{sum(entries)} entries, ' if entries else ''}every hash chain whole"


def _attack_check(facts: Facts) -> tuple[str, str, str]:
    if "attacks" in facts["withheld"]:
        return "open", "Attacks against the bound", ELSEWHERE
    judged = [a for a in facts["attacks"] if a.get("within_bound") is not None]
    if not judged:
        return "open", "Attacks against the bound", "no attack with a bound was run"
    broken = [str(a.get("attack", a["name"])) for a in judged if not a["within_bound"]]
    if broken:
        return "fail", "Attacks against the bound", f"above what the guarantee allows: {', '.join(broken)}"
    return "pass", "Attacks against the bound", f"{len(judged)} attacks, none above what the guarantee allows"


def _audit_check(facts: Facts) -> tuple[str, str, str]:
    audits = facts["audits"]
    if "audits" in facts["withheld"]:
        return "open", "Audit", ELSEWHERE
    if not audits:
        return "open", "Audit", "no audit was run"
    broken = [str(a.get("audit", a["name"])) for a in audits if a.get("passed") is False]
    if broken:
        return "fail", "Audit", f"measured more leakage than claimed: {', '.join(broken)}"
    return "pass", "Audit", f"{len(audits)} audits, every lower bound below the claim"


def check_list(facts: Facts) -> str:
    """The checks with their signs, and what is missing from the report."""
    signs = {"pass": "✓", "fail": "✗", "open": "?"}
    said = {"pass": "passed", "fail": "failed", "open": "open"}
    items = "".join(
        f'<li class="{state}"><span class="sign" aria-hidden="true">{signs[state]}</span><span><b>{escape(what)}</b>'
        f'<span class="quiet"> ({said[state]})</span><br>{escape(text)}</span></li>'
        for state, what, text in checks(facts)
    )
    return f'<ul class="checks">{items}</ul>{_missing(facts)}'


def _missing(facts: Facts) -> str:
    if not facts["missing"]:
        return ""
    items = "".join(f"<li>{escape(line['words'])}</li>" for line in facts["missing"])
    return f'<div class="note"><h3>What is missing from this report</h3><ul>{items}</ul></div>'


def releases(facts: Facts) -> str:
    """Every release on the ledgers with its cost and digest; a long list is folded, and cut at `LISTED_RELEASES`."""
    rows = facts["releases"]
    if not rows:
        return "<p>No release is on a ledger: nothing was charged, or the ledgers are not at hand.</p>"
    head = ["site", "round", "size", "cost", "SHA-256 of the bytes", "arrived"]
    cells = [
        [
            r["site"],
            str(r["round"]),
            size_words(r["bytes"]),
            r["words"],
            r["digest"],
            "yes" if r["confirmed"] else "not confirmed",
        ]
        for r in sorted(rows, key=lambda r: (r["round"], r["site"]))
    ]
    total = sum(r["bytes"] for r in rows)
    text = (
        f"<p>{len(rows)} releases, {size_words(total)} in all. Each was charged before it left, and can be checked by "
        "its digest.</p>"
    )
    first = _wide(simple_rows(head, cells[:SHOWN_RELEASES]), "releases")
    if len(cells) <= SHOWN_RELEASES:
        return text + first
    rest = _wide(simple_rows(head, cells[SHOWN_RELEASES:LISTED_RELEASES]), "releases")
    beyond = len(cells) - LISTED_RELEASES
    more = f"<p>{beyond} further releases are in the JSON twin.</p>" if beyond > 0 else ""
    count = min(len(cells), LISTED_RELEASES) - SHOWN_RELEASES
    return f"{text}{first}<details><summary>The other {count} releases</summary>{rest}</details>{more}"


def _wide(table: str, kind: str = "") -> str:
    return f'<div class="scroll {kind}" tabindex="0">{table}</div>'


def ledger(facts: Facts) -> str:
    """The spending by rounds, the state of the ledgers, and that their chains were verified."""
    rows, chain = facts["ledger"]["status"], facts["ledger"]["chain"]
    if not rows:
        return _spent(facts) + "<p>The ledgers are not at hand.</p>"
    table = _wide(simple_rows(list(rows[0]), [[str(v) for v in row.values()] for row in rows]))
    text = f"<p>Verified when this page was made: {_chains(chain)}.</p>"
    if words.kind(facts["guarantee"]) == "simulation":
        text += f"<p><b>{words.NO_PROTECTION}</b>: what is charged here was noise from a seed.</p>"
    return f'<div class="pair">{_spent(facts)}<div>{table}{text}</div></div>'


def _spent(facts: Facts) -> str:
    rounds, target = facts["utility"]["rounds"], facts["guarantee"].get("target")
    points = tuple((float(r["round"]), float(r["epsilon"])) for r in rounds if r.get("epsilon") is not None)
    if len(points) < 2 or not points[-1][1]:
        return ""
    series, top = [Series("spent", points, colour=_colour(facts))], points[-1][1]
    if target is not None:
        series.append(Series("budget", ((points[0][0], target), (points[-1][0], target)), bound=True))
        top = max(top, target)
    axis = whole("round", points[0][0], points[-1][0])
    return lines("spent", "Epsilon spent after each round", series, x=axis, y=Axis("epsilon", 0, top * 1.1))


def _colour(facts: Facts) -> int:
    """Whatever is drawn of one run has its method's colour; patterns tell its lines apart."""
    return colour_of(str(facts["setting"]["method"]))


def utility(facts: Facts, others: Sequence[Facts]) -> str:
    """Accuracy on held-out records, beside every other run on this page and beside guessing."""
    if "accuracy" in facts["withheld"]:
        return _withheld("Accuracy on held-out records")
    runs = [facts, *others]
    known = [f for f in runs if f["utility"]["accuracy"] is not None]
    if not known:
        return tables_part(facts) or "<p>This run has no accuracy on record.</p>"
    rows = [(run_name(f), f["utility"]["accuracy"]) for f in known]
    colours = [_colour(f) for f in known]
    bars_ = [(name, value, f"{value:.1f} %") for name, value in rows]
    if facts["utility"]["classes"]:
        chance = 100 / facts["utility"]["classes"]
        colours.append(NO_METHOD)
        bars_.append(("guessing at random", chance, f"{chance:.1f} %"))
    parts = [bars("accuracy", "Accuracy on held-out records", bars_, label="run", high=100.0, colours=colours)]
    series = [
        Series(
            run_name(f),
            tuple((float(r["round"]), float(r["accuracy"])) for r in f["utility"]["rounds"]),
            colour=_colour(f),
        )
        for f in runs
        if len(f["utility"]["rounds"]) > 1 and all(r.get("accuracy") is not None for r in f["utility"]["rounds"])
    ]
    if series:
        last = max(s.points[-1][0] for s in series)
        low, high = around([p[1] for s in series for p in s.points], floor=0, ceiling=100)
        drawn = lines(
            "learning", "Accuracy after each round", series, x=whole("round", 1, last), y=Axis("accuracy %", low, high)
        )
        parts.append(drawn)
    worst = facts["utility"]["accuracy_min"]
    if worst is not None and worst != facts["utility"]["accuracy"]:
        parts.append(f"<p>The sites' own models differ; the worst has {worst:.1f} %.</p>")
    alone = (
        ""
        if others
        else "<p class='quiet'>Give more runs to <code>prismfl report</code> to see them beside this one.</p>"
    )
    return f'<div class="pair">{"".join(parts)}</div>{scores_part(facts)}{tables_part(facts)}{parts_part(facts)}{alone}'


def what_next(facts: Facts) -> str:
    """Advice from public numbers and what was released."""
    found = "".join(f"<li>{escape(line)}</li>" for line in advice(facts))
    return (
        f'<ul class="limits">{found}</ul>' if found else "<p>Nothing stands out in the public numbers of this run.</p>"
    )


def _withheld(what: str) -> str:
    return (
        f"<p>{what}: <b>{ELSEWHERE}</b>. It is exact and was never charged, so it is not in this edition. "
        "Where it may be seen: <code>prismfl report RUN --on-site</code>.</p>"
    )


def run_name(facts: Facts) -> str:
    """The method and its epsilon, as a run is called in charts."""
    g = facts["guarantee"]
    if not g.get("known"):
        budget = "ε unknown"
    elif words.kind(g) == "none":
        budget = "ε = ∞"
    else:
        budget = f"ε = {g.get('epsilon_total', g['epsilon']):.3g}"
        budget += " (simulation)" if words.kind(g) == "simulation" else ""
    return f"{facts['setting']['method']}, {budget}"


def pictures(facts: Facts) -> str:
    """What the run delivers, in words and pictures; those that must stay on the site are stamped so."""
    return (
        deliverables(facts, _picture)
        or "<p>Nothing is delivered: the server holds no state, or the models stay at the sites.</p>"
    )


def _picture(picture: Facts) -> str:
    mark = ' class="private"' if picture["private"] else ""
    label = '<strong class="stamp">on site only, do not send</strong> ' if picture["private"] else ""
    return (
        f"<figure{mark}><figcaption>{label}{escape(picture['title'])}</figcaption>"
        f'<img alt="{escape(picture["title"])}" src="data:image/png;base64,{picture["png"]}"></figure>'
    )


def partition(facts: Facts) -> str:
    """The records of each class at each site, or why this edition does not show them."""
    split = facts["partition"]
    if not split:
        return (
            "<p>How the records lie at the sites is theirs to know, so it is not in this edition. "
            "Where it may be seen: <code>prismfl report RUN --on-site</code>.</p>"
        )
    return heat(split["title"], split["classes"], [(row["site"], row["counts"]) for row in split["rows"]])


def attacks(facts: Facts) -> str:
    """The attacks on this run: curves and a table for membership, a line for each other kind."""
    if "attacks" in facts["withheld"]:
        return _withheld("Attacks on this run's records")
    found = facts["attacks"]
    if not found:
        return (
            "<p>No attack was run on this run. <code>prismfl attack RUN</code> does, and the next report shows it.</p>"
        )
    member = [a for a in found if a.get("roc")]
    parts = []
    if member:
        parts += [
            '<div class="pair">',
            _roc(member, _colour(facts)),
            _aucs(member, facts["guarantee"], _colour(facts)),
            "</div>",
            _member_table(member),
        ]
    rest = [a for a in found if not a.get("roc")]
    if rest:
        parts.append(_wide(simple_rows(["attack", "outcome"], [[_attack_name(a), _outcome(a)] for a in rest])))
    return "".join(parts)


def _attack_name(attack: Facts) -> str:
    return str(attack.get("attack", attack["name"]))


def _roc(member: Sequence[Facts], colour: int) -> str:
    series = [
        Series(_attack_name(a), _log_points(a["roc"], 1.0 / a["others"]), colour=colour, dash=i)
        for i, a in enumerate(member[:DASHES])
    ]
    limit = next((a["bound"] for a in member if a.get("bound")), None)
    if limit:
        series.append(Series("what the guarantee allows", _log_points(limit), bound=True))
    axis = Axis("false-positive rate", LOWEST_RATE, 1.0, log=True)
    return lines(
        "roc",
        "Members found against false alarms",
        series,
        x=axis,
        y=Axis("true-positive rate", LOWEST_RATE, 1.0, log=True),
    )


def _log_points(curve: Facts, least: float = LOWEST_RATE) -> tuple[tuple[float, float], ...]:
    """The part of a curve that a log-log plot can show and that the number of records can resolve."""
    pairs = [(max(float(f), LOWEST_RATE), float(t)) for f, t in zip(curve["fpr"], curve["tpr"]) if f >= least]
    kept = {f: max(t, LOWEST_RATE) for f, t in pairs}  # later points at one rate are the higher ones
    return tuple(sorted(kept.items()))


def _aucs(member: Sequence[Facts], g: Facts, colour: int) -> str:
    rows = [(_attack_name(a), a["auc"], f"{a['auc']:.3f}") for a in member]
    if g.get("known"):
        allowed = g["allows"]["auc"]
        rows.append(("most that the guarantee allows", allowed, f"{allowed:.3f}"))
    colours = [colour] * len(member) + [NO_METHOD]
    title = "Area under the curve (0.5: no better than a coin)"
    return bars("auc", title, rows, label="attack", high=1.0, colours=colours)


def _member_table(member: Sequence[Facts]) -> str:
    head = ["attack", "AUC (95 % interval)", "found at 1 % alarms", "found at 0.1 % alarms", "control", "verdict"]
    rows = []
    for a in member:
        rates = {
            r["fpr"]: f"{100 * r['tpr']:.1f} % ({100 * r['low']:.1f} to {100 * r['high']:.1f})" for r in a["rates"]
        }
        control = a.get("control") or {}
        verdict = {True: "within the bound", False: "ABOVE the bound", None: "no bound"}[a.get("within_bound")]
        rows.append(
            [
                _attack_name(a),
                f"{a['auc']:.3f} ({a['auc_low']:.3f} to {a['auc_high']:.3f})",
                rates.get(0.01, "-"),
                rates.get(0.001, "-"),
                f"AUC {control['auc']:.3f}" if "auc" in control else "-",
                verdict,
            ]
        )
    note = (
        "<p class='quiet'>The control is the same attack on a model or set that memorises: it must succeed, or the "
        "attack's failure here would say nothing. A curve may touch the dashed line by chance where few alarms are "
        "counted; the verdict compares the ends of the intervals.</p>"
    )
    return _wide(simple_rows(head, rows)) + note


def _outcome(attack: Facts) -> str:
    """A line for attacks of other kinds: their plain words, or their single values."""
    if attack.get("unreadable"):
        return "the result file is damaged"
    for key in ("words", "reason", "summary"):
        if attack.get(key):
            return str(attack[key])
    flat = {k: v for k, v in attack.items() if k not in ("name", "attack") and isinstance(v, (int, float, str, bool))}
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in flat.items()) or "-"


def audit(facts: Facts) -> str:
    """The audits of this run: epsilon claimed, measured from below, and measured without noise."""
    if "audits" in facts["withheld"]:
        return _withheld("Audits of this run")
    found = facts["audits"]
    if not found:
        return (
            "<p>No audit was run. <code>prismfl audit RUN</code> measures the leakage from below; it must not exceed "
            "the claim.</p>"
        )
    head = ["audit", "claimed epsilon", "measured, at least", "control without noise", "verdict"]
    rows = [
        [
            str(a.get("audit", a["name"])),
            _epsilon(a.get("claimed")),
            _epsilon(a.get("lower")),
            _epsilon(a.get("control")),
            "passed" if a.get("passed") else "FAILED",
        ]
        for a in found
    ]
    chart = ""
    for a in found[:1]:
        values = [
            ("measured lower bound", a.get("lower")),
            ("claimed", a.get("claimed")),
            ("control", a.get("control")),
        ]
        shown = [(n, float("inf") if v is None else float(v), _epsilon(v)) for n, v in values]
        title, colours = (
            "Epsilon: measured, claimed, and with the noise switched off",
            [_colour(facts), NO_METHOD, NO_METHOD],
        )
        chart = bars("audit-bars", title, shown, label="what", colours=colours)
    text = (
        "<p>Marked records were put in or left out by a coin, the method was run, and an attacker who sees every noisy "
        "answer guessed which. From the number of right guesses follows an epsilon that the method cannot be below, "
        "with 95 % confidence.</p>"
    )
    return f"{text}{chart}{_wide(simple_rows(head, rows))}"


def _epsilon(value: Any) -> str:
    if value is None:
        return "∞"
    return "-" if isinstance(value, str) else f"{value:.3g}"


def traffic(facts: Facts) -> str:
    """The bytes that each site sent and received, and how they grew over the rounds."""
    t = facts["traffic"]
    if not t["rounds"]:
        return "<p>No message is on record.</p>"
    rows = [[r["site"], size_words(r["up"]), size_words(r["down"])] for r in t["sites"]]
    rows.append(["all", size_words(t["up"]), size_words(t["down"])])
    table = _wide(simple_rows(["site", "sent", "received"], rows))
    if len(t["rounds"]) < 2:
        return table
    up, down = 0, 0
    sent: list[tuple[float, float]] = []
    received: list[tuple[float, float]] = []
    for r in t["rounds"]:
        up, down = up + r["up"], down + r["down"]
        sent.append((float(r["round"]), up / 1e6))
        received.append((float(r["round"]), down / 1e6))
    top = max(up, down) / 1e6 * 1.08
    drawn = lines(
        "bytes",
        "Sent in all, after each round",
        [
            Series("from the sites", tuple(sent), colour=_colour(facts)),
            Series("to the sites", tuple(received), colour=_colour(facts), dash=1),
        ],
        x=whole("round", t["rounds"][0]["round"], t["rounds"][-1]["round"]),
        y=Axis("MB", 0, top),
    )
    return f'<div class="pair">{drawn}<div>{table}</div></div>'


def configuration(facts: Facts) -> str:
    """The run's config, the settings of its method, and the versions it ran with, as tables."""
    config = {k: v for k, v in facts["config"].items() if k not in ("settings", "data_dir", "out", "ledger")}
    settings = facts["config"].get("settings", {})
    blocks = [
        ("Run", config),
        (f"Settings of {facts['setting']['method']}", settings),
        ("Versions", facts["environment"]),
    ]
    tables = []
    for title, values in blocks:
        rows = [[k, _plain(v)] for k, v in sorted(values.items())]
        if rows:
            tables.append(f"<div><h3>{escape(title)}</h3>{_wide(simple_rows(['name', 'value'], rows))}</div>")
    return f'<div class="three">{"".join(tables)}</div>'


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def signature(facts: Facts, digest: str) -> str:
    """The form to sign, with the digests of the JSON twin and of the run's final state."""
    lines_ = "".join(
        f'<div class="line"><span>{label}</span></div>' for label in ("Name", "Role", "Place and date", "Signature")
    )
    boxes = "".join(f"<li>{text}</li>" for text in ("approved", "approved with the conditions below", "refused"))
    mark = f" ({words.NO_PROTECTION})" if words.kind(facts["guarantee"]) == "simulation" else ""
    return (
        f"<p>I have read this report on run <code>{escape(str(facts['run']['id']))}</code>{mark}; the run is</p>"
        f'<ul class="boxes">{boxes}</ul><div class="line tall"><span>Conditions or reasons</span></div>'
        f'<div class="sign-grid">{lines_}</div>'
        f'<p class="quiet">This page and its JSON twin belong together: SHA-256 of the twin '
        f"<code>{digest}</code>; of the run's final state "
        f"<code>{escape(str(facts['digest'] or 'not finished'))}</code>.</p>"
    )
