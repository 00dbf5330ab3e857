"""What there is, as rows: methods, data sets, and the records of each class that a split deals to a site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismfl.data import DATASETS, available, public_names, summary
from prismfl.data import plot as plot_split
from prismfl.methods import METHODS
from prismfl.runs.config import RunConfig
from prismfl.runs.records import dealt, read_data

Rows = list[dict[str, Any]]


def method_rows() -> Rows:
    """A row for every method: its guarantee, whether it chooses its settings, what it does, its paper."""
    return [
        {
            "method": m.name,
            "guarantee": m.guarantee or "none",
            "settings": "plain" if m.auto is None else "auto",
            "what it does": m.summary,
            "paper": m.paper,
        }
        for m in METHODS.values()
    ]


def data_rows(data_dir: str | None) -> Rows:
    """A row for every known data set, and whether it is at hand."""
    return [
        {
            "data": spec.name,
            "kind": spec.kind,
            "shape": "x".join(map(str, spec.shape)),
            "classes": len(spec.classes),
            "records": spec.train_size,
            "at hand": "yes" if there else "no",
            "where": where,
        }
        for spec, there, where in available(data_dir)
    ]


def public_words() -> str:
    """Which public images a run may ask for by name."""
    more = [name for name in public_names() if name not in DATASETS]
    return f"Public images (--public): a folder, any image set above, or {', '.join(more)}."


def split_rows(config: RunConfig, *, plot: Path | None = None) -> Rows:
    """A row a site, as the split of a config deals its data; with `plot`, a picture as well. Those of own data are
    exact: they stay on the site."""
    dataset = read_data(config)
    labels, classes = dataset.y_train.numpy(), dataset.spec.classes
    parts = dealt(config, dataset)
    if plot is not None:
        plot_split(parts, labels, classes, plot)
    return [
        {"site": f"site-{i}", **{c: int(n) for c, n in zip(classes, row)}, "all": int(row.sum())}
        for i, row in enumerate(summary(parts, labels, classes))
    ]
