"""The card that goes with an exported model or synthetic set: what it is, what it promises and does not, and digests.

It is made from the sharing edition of a run's facts, so of own data nothing that was measured on records is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.report import words
from prismfl.report.editions import STAYS, SharedFacts, name_of, share
from prismfl.report.facts import collect
from prismfl.report.tables import model_words
from prismfl.runs.exporting import MODELS, SETS, Notes, export_model, export_set
from prismfl.runs.opened import Run, open_run, read_config
from prismfl.runs.public_facts import PublicFacts, read_facts
from prismfl.sources import DEPLOYMENT, NO_PROTECTION, SIMULATION
from prismfl.version import __version__

MOST_CLASSES = 50
FOR = "Meant for: research, and as an aid to people who check what it says on records like those it was learnt from."
FOR_A_SET = "Meant for: training and testing models and pipelines where the records themselves may not be seen."
NOT_FOR = (
    "Decisions about a person by this alone. It was tested, if at all, on held-out records of the same source: on "
    "other scanners, clinics, years or populations it may do worse, and worse for some groups than for others.",
    "Classes beside the declared ones: every record gets one of them, however unlike it is.",
    "Probabilities as they stand: they are not calibrated.",
)
NOT_OF_A_SET = (
    "Conclusions about single persons: no synthetic record is anybody's.",
    "Rare cases and small groups: noise hides them first.",
    "Anything that the records' class labels and the released statistics do not tell; see the page on limits.",
)


def export(path: Path, to: str, out: Path, *, model: str | None = None) -> dict[str, Any]:
    """Writes a model or the synthetic set of a finished run with its card; what was written, in words."""
    if to not in (*MODELS, *SETS):
        raise UserError(f"Expected --to {', '.join((*MODELS, *SETS))}, got '{to}'.")
    run = open_run(path)
    facts, known = share(collect(path)), read_facts(run.directory, read_config(run.directory)[1])
    if to in MODELS:
        chosen = run.model if model is None else run.model_named(model)
        written = export_model(
            chosen,
            to,
            out,
            notes=notes(facts, name=chosen.name),
            card=lambda digests: card(run, facts, known, digests=digests, model=chosen.name),
        )
        return {"model": chosen.name, **written}
    if model is not None:
        raise UserError(f"Expected no --model with --to {to}, which is the synthetic set.")
    made = run.synthetic if run.status == "finished" else None
    if made is None:
        raise UserError(f"'{path}' holds no synthetic set; method '{run.config.method}' makes none, or it did not end.")
    written = export_set(made, known, to, out, card=lambda digests: card(run, facts, known, digests=digests))
    return {"records": len(made.hard_y), **written}


def notes(facts: SharedFacts, *, name: str) -> Notes:
    """What an exported file says of itself."""
    return {
        "prismfl": __version__,
        "model": name,
        "method": plain(facts["setting"]["method"]),
        "guarantee": words.headline(facts["guarantee"]),
        "noise": noise_words(facts["noise"]),
        "digest": plain(facts["digest"]),
    }


def card(
    run: Run, facts: SharedFacts, known: PublicFacts, *, digests: Mapping[str, str], model: str | None = None
) -> str:
    """The card as Markdown: of a `model`, or of the synthetic set."""
    what = "Synthetic set" if model is None else f"Model '{model}'"
    parts = [
        f"# {what} of {plain(facts['setting']['method'])} on {plain(facts['setting']['data'])}",
        _about(facts, known, model),
        _guarantee(facts),
        _looked_through(facts, known),
        *([] if model is None else [_scores(run, facts, model)]),
        f"## Intended use and limits\n\n{FOR_A_SET if model is None else FOR}\n\nNot meant for:\n\n"
        + _list(NOT_OF_A_SET if model is None else NOT_FOR),
        _origin(facts, digests),
    ]
    return "\n\n".join(parts) + "\n"


def _about(facts: SharedFacts, known: PublicFacts, model: str | None) -> str:
    name = str(facts["setting"]["method"])
    method = METHODS.get(name)
    classes = ", ".join(plain(c) for c in known.classes[:MOST_CLASSES])
    if len(known.classes) > MOST_CLASSES:
        classes += f", ... ({len(known.classes)} in all)"
    rows = [("Method", f"{plain(name)}: {method.summary}" if method else plain(name))]
    rows += [("Paper", method.paper)] if method else []
    if model is not None:
        images = "images (n, {}, {}, {}) in [0, 1]".format(*known.shape) if len(known.shape) == 3 else ""
        rows.append(("Input", images or f"encoded rows (n, {known.shape[0]})"))
        rows.append(("Output", "a logit for each class, in this order; softmax gives probabilities"))
    rows.append(("Classes", classes))
    rows.append(("Learnt at", f"{plain(facts['setting']['sites'])} sites, {plain(facts['setting']['split'])}"))
    return _table(rows)


def _guarantee(facts: SharedFacts) -> str:
    g, noise = facts["guarantee"], facts["noise"]
    rows = [*words.protected(g), ("Noise", noise_words(noise))]
    rows = [("Unit", words.unit_words(g["unit"])), *rows] if "unit" in g and not words.protected(g) else rows
    return "\n\n".join(
        [
            "## Certificate",
            f"**{words.headline(g)}** {words.meaning(g)}",
            _table([(name, plain(value)) for name, value in rows]),
            "Not protected:",
            _list(words.not_protected(g, noise)),
        ]
    )


def noise_words(noise: str | None) -> str:
    """Where the noise came from; a seed protects nobody."""
    if noise == SIMULATION:
        return f"seeded; {NO_PROTECTION}"
    return noise if noise == DEPLOYMENT else "unknown"


def _looked_through(facts: SharedFacts, known: PublicFacts) -> str:
    rows = []
    if known.encoder is not None:
        rows.append(("Public encoder", plain(name_of(known.encoder))))
        rows.append(("Trained on", plain(known.trained_on or "not said")))
        rows.append(("Encoder SHA-256", plain(known.encoder_digest or "not kept")))
    if known.public is not None:
        rows.append(("Public images", plain(facts["config"].get("public") or "procedural (drawn)")))
        rows.append(("Images SHA-256", plain(known.public)))
    if not rows:
        return "## Public knowledge\n\nNo public encoder and no public images had a part in it."
    lead = "" if known.encoder is not None else "No pretrained encoder had a part in it.\n\n"
    return f"## Public knowledge\n\n{lead}{_table(rows)}"


def _scores(run: Run, facts: SharedFacts, model: str) -> str:
    if facts["own_data"]:
        return f"## Scores\n\nMeasured on own records, so they are not here: what is exact {STAYS}."
    result = run.result
    models = {} if result is None else result.models
    if not models:
        return "## Scores\n\nThe run measured none."
    best = result.recommended if result is not None else None
    rows = []
    for name, scores in sorted(models.items()):
        marks = [mark for mark, true in (("this one", name == model), ("recommended", name == best)) if true]
        rows.append((plain(name), model_words(scores) + (f" ({', '.join(marks)})" if marks else "")))
    return "## Scores\n\nOn the held-out part of the data.\n\n" + _table([("Model", "Accuracy"), *rows])


def _origin(facts: SharedFacts, digests: Mapping[str, str]) -> str:
    versions = ", ".join(f"{plain(k)} {plain(v)}" for k, v in facts["environment"].items())
    rows = [
        ("Exported by", f"prismfl {__version__}"),
        ("Run with", versions or "unknown"),
        ("Run", f"{plain(facts['run']['id'])}, {plain(facts['run'].get('created'))}"),
        ("Final state SHA-256", plain(facts["digest"])),
    ]
    rows += [(f"{plain(name)} SHA-256", digest) for name, digest in digests.items()] if len(digests) == 1 else []
    return "## Software and digests\n\n" + _table(rows)


def plain(value: object) -> str:
    """A text from a run directory, which may come from anybody, as words on one line of a table and nothing more."""
    text = "".join(c if c.isprintable() else " " for c in str(value))[:2000]
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!" else c for c in text)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    head, *rest = [("", ""), *rows] if rows[0][0] != "Model" else rows
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {a} | {b} |" for a, b in rest)])


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
