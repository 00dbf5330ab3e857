"""What is asked about own data before they are used: each question with the reason for it and what is proposed."""

from __future__ import annotations

from typing import Any

from prismfl.data.column_words import HOW, parse_column
from prismfl.data.layout import DataLayout, rounded
from prismfl.data.schemes import parse_split
from prismfl.errors import UserError
from prismfl.privacy.guessing import OFTEN_LESS, guess_words, most_right, percent
from prismfl.runs.config import RunConfig
from prismfl.runs.interview import Inquiry, names, one_of, positive, whole

OFFERED = (0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULTS = RunConfig()


def label_question(layout: DataLayout) -> Inquiry:
    """Which column is predicted."""
    return Inquiry(
        "label",
        "--label COLUMN",
        "Which column is to be predicted?",
        "It is what the model says of a record, so it is no feature.",
        read=one_of(layout.names),
    )


def unit_question(layout: DataLayout, declared: str | None = None) -> Inquiry:
    """Whom the promise protects."""
    ids = layout.ids if layout.form == "npz" else layout.names
    return Inquiry(
        "unit",
        "--unit COLUMN",
        "What is protected: record, or a column that names the person",
        "The promise is for one unit; where a person has several records, name the column that says whose they are.",
        declared or "record",
        one_of(ids, "record"),
    )


def classes_question(proposed: list[str] | None) -> Inquiry:
    """The classes in their order."""
    return Inquiry(
        "classes",
        "--classes a,b",
        "Which classes are there, in order?",
        "They decide how many numbers leave a site, so they are declared and never taken from the records.",
        proposed,
        names,
    )


def size_question(proposed: int | None) -> Inquiry:
    """Pixels a side."""
    return Inquiry(
        "image_size",
        "--image-size 28",
        "How many pixels a side?",
        "All images are brought to one public size, so that no shape depends on a record.",
        proposed,
        whole(8, 1024),
    )


def channels_question(proposed: int | None) -> Inquiry:
    """Grey or colour."""
    return Inquiry(
        "channels",
        "--channels 1",
        "Grey (1) or colour (3)?",
        "The same for every image, for the same reason.",
        proposed,
        lambda words: int(one_of(("1", "3"))(words)),
    )


def sites_question() -> Inquiry:
    """How many sites."""
    return Inquiry(
        "sites",
        "--sites 5",
        "How many sites are simulated?",
        "Here your data are dealt to them; in a real federation each site holds its own.",
        DEFAULTS.sites,
        whole(1),
    )


def split_question(layout: DataLayout) -> Inquiry:
    """How records are dealt to the sites."""
    column = " or natural(COLUMN)" if layout.form != "folders" else ""
    return Inquiry(
        "split",
        "--split iid",
        f"How are records dealt: iid, dirichlet(0.3), pathological(2){column}",
        "Sites that differ are harder; natural(COLUMN) deals by an id such as a hospital.",
        DEFAULTS.split,
        lambda words: str(parse_split(words)),
    )


def test_question(layout: DataLayout) -> Inquiry:
    """Which records are for testing."""
    table = layout.form == "table"
    return Inquiry(
        "test",
        "--test 0.2",
        f"Which records are for testing: a share{' or a column that marks them' if table else ''}",
        "Accuracy is measured on records that nothing was learnt from; it stays on this site.",
        DEFAULTS.test,
        lambda words: words if table and words in layout.names else _share(words),
    )


def records_question(about: int | None, *, sites: int | None, test: float) -> Inquiry:
    """How many records a site has."""
    return Inquiry(
        "records",
        "--records 1000",
        "About how many records (people, where they are the unit) has a site, rounded?",
        "Noise and sampling follow from this number, so it is public: a round one tells nobody who is in it.",
        None if about is None or sites is None else rounded(about * (1 - test) / sites),
        whole(1),
    )


def public_question() -> Inquiry:
    """Which public images."""
    return Inquiry(
        "public",
        "--public procedural",
        "Which public images: a folder, a data set's name, or procedural",
        "Synthetic images start from them; drawn ones (procedural) need no files and show nobody.",
        "procedural",
    )


def epsilon_question(delta: float, unit: str) -> Inquiry:
    """The budget, in words that say what somebody who guesses can gain."""
    others = ", ".join(f"{e:g}: {percent(most_right(e, delta))} %" for e in OFFERED)
    what = "a record" if unit == "record" else f"a person ({unit})"
    return Inquiry(
        "epsilon",
        "--epsilon 1",
        "How much may be learnt about one of them: epsilon",
        f"At epsilon 1 {guess_words(most_right(1.0, delta), what)} ({others}). {OFTEN_LESS}.",
        1.0,
        positive,
    )


def column_question(name: str, proposal: str | None) -> Inquiry:
    """What a column of a table may hold."""

    def read(words: str) -> Any:
        parse_column(name, words)
        return words

    return Inquiry(
        f"column {name}",
        f"--column {name}=LOW..HIGH",
        f"Column '{name}'",
        f"Bounds and categories are public, from a code book say: {HOW}.",
        proposal,
        read,
    )


def _share(words: str) -> float:
    found = positive(words)
    if found >= 1:
        raise UserError(f"Expected a share below 1, as in 0.2, got '{words}'.")
    return found
