"""The simulated sites of a run, each with its records and a ledger on which the plan is reserved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.rounds import Host, Hub
from prismfl.data import Dataset
from prismfl.errors import UserError
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import LEDGER_FILE, ledger_path
from prismfl.runs.config import RunConfig
from prismfl.runs.planning import (
    is_own,
)
from prismfl.runs.records import (
    Rows,
    raw_records,
    records_of,
    shown_records,
)

FILES_OF_A_LEDGER = 3  # SQLite's own, its log, and the log's index
OTHER_FILES = 256


def open_hosts(
    job: Job, config: RunConfig, dataset: Dataset, parts: Sequence[Rows], *, folder: Path
) -> tuple[list[Host], Hub | None]:
    """Each site with its records and ledger; the plan is reserved before any record is used.

    The user's own data are one data set on the user's one ledger, of which each simulated site holds a part.
    """
    plan = job.plan()
    client_level = job.method.guarantee == "client"
    cap = None if config.cap is None else Cap(config.cap, config.delta, plan.unit, plan.relation)
    own, deployed = is_own(config), config.noise == "operating-system"
    book = Ledger.open(own_ledger(config)) if own else None
    identity = "" if book is None else _declare_own(book, job, config, dataset, None if client_level else cap)
    ledgers = Path(config.ledger) if config.ledger else folder / "ledger"
    if book is None:
        runtime.allow_open_files(FILES_OF_A_LEDGER * (len(parts) + 1) + OTHER_FILES, f"{len(parts)} sites")
    hosts = []
    for name, rows in zip(job.task.sites, parts):
        records, place = records_of(dataset, rows), folder / "memory" / name
        if book is not None:
            hosts.append(Host(name, records, book, identity, place, part=name, deployed=deployed))
            continue
        ledger = Ledger.open(ledgers / f"{name}.sqlite")
        known = ledger.dataset(
            f"{config.data}/{name}",
            records=raw_records(shown_records(dataset, rows)),
            cap=None if client_level else cap,
        )
        ledger.reserve(job.run, known, job.site_plan())
        hosts.append(Host(name, records, ledger, known, place, deployed=deployed))
    if not client_level:
        return hosts, None
    ledger = Ledger.open(ledgers / "hub.sqlite")
    clients = ledger.dataset("clients", records=[name.encode() for name in job.task.sites], cap=cap)
    ledger.reserve(job.run, clients, plan)
    return hosts, Hub(ledger, clients, deployed=deployed)


def own_ledger(config: RunConfig) -> Path:
    """The one ledger of the user's own data."""
    return Path(config.ledger) / LEDGER_FILE if config.ledger else ledger_path()


def _declare_own(book: Ledger, job: Job, config: RunConfig, dataset: Dataset, cap: Cap | None) -> str:
    """The user's data on their ledger, by name, records and units, with the whole plan reserved."""
    name = config.dataset or str(Path(config.data).resolve())
    units = () if dataset.unit_train is None else (int(code).to_bytes(8, "little") for code in dataset.unit_train)
    prints = dataset.prints_train
    assert prints is not None, "a reader of own data fingerprints what it reads"
    identity = book.dataset(name, records=[*prints, *dataset.more_prints], units=units, cap=cap)
    plan, known = job.site_plan(), book.cap(identity)
    if known is not None and config.noise == "seeded" and plan.private and not plan.is_zero:
        raise UserError(
            f"The data have a cap of {known.describe()}, and seeded noise protects nobody; leave out the seed."
        )
    book.reserve(job.run, identity, plan)
    return identity
