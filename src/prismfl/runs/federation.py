"""Several sites in a notebook: `Federation.from_arrays([(X1, y1), (X2, y2)], classes=2, records=500).run("prism")`.

The records are in hand instead of in a file; everything else is `prismfl.run`: the same plan, the same step of a site
through its door, the same lasting ledger, the same run directory.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.core.method import Method
from prismfl.data import DATASETS, Dataset, Schema, partition
from prismfl.data.found import Bounds, Found
from prismfl.data.in_memory import UNIT, columns_of, dataset_of, found_frame, found_site, joined, same_columns
from prismfl.data.schema import check_classes, plain
from prismfl.data.schema_file import parse_schema, read_schema
from prismfl.data.tables import Roles
from prismfl.errors import UserError
from prismfl.runs import bar, choosing, html, planning, simulate
from prismfl.runs.config import RunConfig
from prismfl.runs.names import NAME
from prismfl.runs.opened import Run, open_run
from prismfl.runs.planning import IN_MEMORY, Plan

FIXED = (
    "data", "data_dir", "schema_file", "label", "classes", "image_size", "channels", "unit", "subset", "sites", "split",
    "records", "dataset",
)  # fmt: skip
Classes = Sequence[Any] | int


@dataclass(frozen=True, eq=False, repr=False)  # no record in a traceback
class Federation:
    """Sites that each hold their own records, on this machine. Made by `from_arrays`, `from_frames` or `split`.

    `name` is what the data are declared as on the ledger, which knows their records under any name. Of the records
    nothing is shown but what was declared; `counts` is for whoever holds them.
    """

    dataset: Dataset
    name: str
    sites: int
    records: int
    how: str = "natural"
    unit: str = "record"

    @classmethod
    def from_arrays(
        cls,
        sites: Sequence[tuple[Any, Any]],
        *,
        classes: Classes | None = None,
        records: int | None = None,
        test: tuple[Any, Any] | None = None,
        bounds: Bounds | None = None,
        units: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> Federation:
        """Each (X, y) is a site: images (n, h, w), (n, c, h, w) or (n, h, w, c), or rows of numbers with `bounds`.

        `classes` are the declared classes: names, or how many; labels are names or whole numbers from 0. `records` is
        the declared, rounded number of training records a site. `test` is a test part (X, y); without it a fifth of
        the records is held out, each by its own content. `units` are the ids of the people behind the records, a list
        a site: then people are protected, not records.
        """
        _check_list(sites, "(X, y)")
        ids = [None] * len(sites) if units is None else list(units)
        if len(ids) != len(sites):
            raise UserError(f"Expected units for each of {len(sites)} sites, got {len(ids)}.")
        named = _classes(classes)
        size = _records(records)
        found = [
            found_site(site, f"site {number}", classes=named, bounds=bounds, units=one)
            for number, (site, one) in enumerate(zip(sites, ids), start=1)
        ]
        held = None if test is None else found_site(test, "the test part", classes=named, bounds=bounds)
        unit = None if units is None else UNIT
        return cls._made(joined(found, held), name or "arrays", len(sites), size, unit=unit, named=name is not None)

    @classmethod
    def from_frames(
        cls,
        frames: Sequence[Any],
        *,
        schema: Schema | Mapping[str, Any] | str | Path | None = None,
        label: str | None = None,
        classes: Classes | None = None,
        records: int | None = None,
        test: Any = None,
        unit: str | None = None,
        name: str | None = None,
    ) -> Federation:
        """Each frame is a site: one of pandas or polars, or a mapping of names to columns.

        `schema` declares the columns: a file, its content as a dict, or a `Schema`; `label` and `classes` go before
        what it says. `unit` is the column with the id of the person behind each record.
        """
        _check_list(frames, "frame")
        declared = _schema(schema)
        roles = Roles(label=label, unit=unit or declared.unit)
        named = None if classes is None else _classes(classes)
        size = _records(records)
        columns = [columns_of(frame, f"site {number}") for number, frame in enumerate(frames, start=1)]
        same_columns(columns)
        found = [
            found_frame(frame, f"site {number}", roles=roles, classes=named, schema=declared)
            for number, frame in enumerate(columns, start=1)
        ]
        held = None
        if test is not None:
            held = found_frame(
                test,
                "the test part",
                roles=replace(roles, unit=None),
                classes=named,
                schema=declared,
            )
        whole = joined(found, held)
        return cls._made(whole, name or "frames", len(frames), size, unit=roles.unit, named=name is not None)

    @classmethod
    def split(
        cls,
        X: Any,
        y: Any,
        how: str = "iid",
        *,
        sites: int = 5,
        seed: int = 0,
        classes: Classes | None = None,
        records: int | None = None,
        test: tuple[Any, Any] | None = None,
        bounds: Bounds | None = None,
        units: Any = None,
        name: str | None = None,
    ) -> Federation:
        """One (X, y) dealt over simulated sites: "iid", "dirichlet(0.3)", "pathological(2)" or "shards(2)".

        What a record is and the `seed` decide its site, whoever lies beside it. This seed is the split's alone: it
        makes no simulation of the noise.
        """
        one = None if units is None else [units]
        whole = cls.from_arrays(
            [(X, y)], classes=classes, records=records, test=test, bounds=bounds, units=one, name=name
        )
        dataset = whole.dataset
        if isinstance(sites, bool) or not isinstance(sites, int):
            raise UserError(f"Expected a whole number of sites, got {sites!r}.")
        parts = partition(
            dataset.y_train.numpy(),
            sites,
            split=how,
            seed=seed,
            classes=len(dataset.spec.classes),
            identity=dataset.identity,
        )
        homes = np.full(len(dataset.y_train), "", dtype=f"<U{len(str(sites))}")
        for number, rows in enumerate(parts):
            homes[rows] = str(number)
        spec = replace(dataset.spec, train_size=whole.records * sites)
        return replace(whole, dataset=replace(dataset, spec=spec, natural_train=homes), sites=sites, how=how)

    @classmethod
    def _made(cls, found: Found, name: str, sites: int, records: int, *, unit: str | None, named: bool) -> Federation:
        if not NAME.fullmatch(name) or name in DATASETS:
            raise UserError(
                f"Expected a name of lower-case letters, digits and dashes that is no data set's, got '{name}'."
            )
        dataset = dataset_of(found, name, records=records * sites, unit=unit)
        # Without a name the records alone say who they are: a name made of them would tell of them in config.json.
        known = name if named else f"{name}-{secrets.token_hex(8)}"
        return cls(dataset, known, sites, records, unit=unit or "record")

    def plan(self, method: str | Method = "prism", **options: Any) -> Plan:
        """What such a run would cost and send, from the declared facts alone. Takes what `run` takes."""
        config, chosen = self._asked(method, options)
        return planning.plan(config, chosen, choosing.choose_encoder(config, chosen), given=self.dataset.spec)

    def run(self, method: str | Method = "prism", **options: Any) -> Run:
        """Run a method over the sites and open what came of it: `.model`, `.synthetic`, `.table`, `.result`.

        `options` are those of `prismfl.run` (epsilon, delta, seed, cap, ledger, out, ...) and the method's own
        settings. The noise comes from the operating system and is charged to the lasting ledger; a `seed` makes a
        simulation without protection, and the result says so.
        """
        config, chosen = self._asked(method, options)
        encoder = choosing.choose_encoder(config, chosen)
        with bar.shown() as progress:
            result = simulate.run(config, method=chosen, encoder=encoder, given=self.dataset, progress=progress)
        return open_run(result.run_dir)

    def counts(self) -> list[dict[str, Any]]:
        """Training records of each class at each site, exactly: private, for whoever holds them."""
        homes, labels = self.dataset.natural_train, self.dataset.y_train.numpy()
        assert homes is not None
        rows = []
        for number in range(self.sites):
            found = np.bincount(labels[homes == str(number)], minlength=len(self.classes)).tolist()
            rows.append({"site": f"site-{number}", **dict(zip(self.classes, found))})
        return rows

    @property
    def classes(self) -> tuple[str, ...]:
        """The declared classes."""
        return self.dataset.spec.classes

    def _asked(self, method: str | Method, options: Mapping[str, Any]) -> tuple[RunConfig, Method]:
        for key in FIXED:
            if key in options:
                raise UserError(f"Expected no '{key}' here: the federation was made with it.")
        spec = self.dataset.spec
        own = {"data": IN_MEMORY + spec.name, "classes": list(spec.classes), "unit": self.unit, "sites": self.sites}
        told = {"split": self.how, "records": self.records, "dataset": self.name}
        return choosing.configure({**options, **own, **told, "method": method})

    def _facts(self) -> list[tuple[str, object]]:
        shape = self.dataset.spec.shape
        form = f"images of {' x '.join(map(str, shape))}" if len(shape) == 3 else f"rows of {shape[0]} numbers"
        return [
            ("sites", f"{self.sites} ({self.how})"),
            ("records", form),
            ("records a site (declared)", self.records),
            ("classes", ", ".join(self.classes)),
            ("protects", self.unit),
        ]

    def __repr__(self) -> str:
        return f"<Federation {'; '.join(f'{name}: {value}' for name, value in self._facts())}>"

    def _repr_html_(self) -> str:
        return html.facts_table(f"Federation {self.dataset.spec.name}", self._facts())


def _check_list(given: object, what: str) -> None:
    if not isinstance(given, list | tuple) or not given:
        got = "none" if isinstance(given, list | tuple) else type(given).__name__
        raise UserError(f"Expected a list with one {what} a site, got {got}.")


def _classes(classes: Classes | None) -> tuple[str, ...]:
    if classes is None:
        raise UserError(
            "Expected declared classes: give classes=[...] or their number; they are never taken from data."
        )
    if isinstance(classes, str | bool):
        raise UserError(f"Expected a list of classes or their number, got {classes!r}.")
    counted = range(int(classes)) if isinstance(classes, int | np.integer) else classes
    names = tuple(plain(one) for one in counted)
    check_classes(names)
    return names


def _records(records: int | None) -> int:
    if records is None:
        raise UserError("Expected a declared (public, rounded) number of training records a site: give records=1000.")
    if isinstance(records, bool) or not isinstance(records, int | np.integer) or records < 1:
        raise UserError(f"Expected a whole number of at least 1 as records, got {records!r}.")
    return int(records)


def _schema(given: Schema | Mapping[str, Any] | str | Path | None) -> Schema:
    if given is None:
        raise UserError("Expected declared columns: give schema=, a file, a dict or a prismfl.data.Schema.")
    if isinstance(given, Schema):
        return given
    return read_schema(given) if isinstance(given, str | Path) else parse_schema(given, where="schema=")
