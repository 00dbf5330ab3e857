"""The simulated sites of a run, each with its records and a ledger on which the plan is reserved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.rounds import ROOM, Host, Hub, folding_of, initial_state
from prismfl.data import Dataset
from prismfl.errors import UserError
from prismfl.kernels.parts import MEMORY
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

OPEN_FILES = 256  # however many sites there are


def open_hosts(
    job: Job, config: RunConfig, dataset: Dataset, parts: Sequence[Rows], *, folder: Path, room: int = ROOM
) -> tuple[list[Host], Hub | None]:
    """Each site with its records and ledger; the plan is reserved before any record is used.

    The data are one data set on one ledger, of which each simulated site holds a part: the user's own data on the
    user's one ledger, named data on the run's own. Where `config.ledger` names a folder for named data, each site has
    a ledger there that outlives the run; so had every site of a run that an earlier version began.
    """
    runtime.allow_open_files(OPEN_FILES, f"{len(parts)} sites")
    client_level = job.method.guarantee == "client"
    plan = job.plan()
    cap = None if config.cap is None else Cap(config.cap, config.delta, plan.unit, plan.relation)
    ledgers = Path(config.ledger) if config.ledger else folder / "ledger"
    own = is_own(config)
    rows_of = dict(zip(job.task.sites, parts))
    if not own and (config.ledger or (ledgers / f"{job.task.sites[0]}.sqlite").exists()):
        hosts = [
            _alone(job, config, dataset, name=name, rows=rows, cap=None if client_level else cap, folder=folder)
            for name, rows in rows_of.items()
        ]
    else:
        if own:
            book = Ledger.open(own_ledger(config))
            identity = _declare_own(book, job, config, dataset, None if client_level else cap)
        else:
            book = Ledger.open(ledgers / LEDGER_FILE, lasting=False)
            shown = (record for rows in parts for record in raw_records(shown_records(dataset, rows)))
            identity = book.dataset(config.data, records=shown, cap=None if client_level else cap)
            book.reserve(job.run, identity, job.site_plan())
        keep = own or folding_of(job, initial_state(job), room=room) is None
        hosts = [
            Host(
                name,
                records_of(dataset, rows),
                book,
                identity,
                folder / "memory" / (name if job.secure else ""),  # secrets are each site's own, locks are all
                part=name,
                deployed=config.noise == "operating-system",
                keep=keep,
                step_memory=step_memory(config),
            )
            for name, rows in rows_of.items()
        ]
    if not client_level:
        return hosts, None
    ledger = Ledger.open(ledgers / "hub.sqlite", lasting=own or bool(config.ledger))
    clients = ledger.dataset("clients", records=[name.encode() for name in job.task.sites], cap=cap)
    ledger.reserve(job.run, clients, plan)
    return hosts, Hub(ledger, clients, deployed=config.noise == "operating-system")


def _alone(
    job: Job, config: RunConfig, dataset: Dataset, *, name: str, rows: Rows, cap: Cap | None, folder: Path
) -> Host:
    """A simulated site with a ledger of its own that lasts; it is open only while the site is at work."""
    ledger = Ledger.open((Path(config.ledger) if config.ledger else folder / "ledger") / f"{name}.sqlite")
    shown = raw_records(shown_records(dataset, rows))
    known = ledger.dataset(f"{config.data}/{name}", records=shown, cap=cap)
    ledger.reserve(job.run, known, job.site_plan())
    ledger.shut()
    return Host(
        name,
        records_of(dataset, rows),
        ledger,
        known,
        folder / "memory" / name,
        deployed=config.noise == "operating-system",
        step_memory=step_memory(config),
    )


def step_memory(config: RunConfig) -> int:
    """The bytes that a private step of a site may take."""
    return MEMORY if config.memory is None else int(config.memory * 2**30)


def check_memory(job: Job, config: RunConfig) -> None:
    """Refuse a network of which not even one record's step fits into the declared memory."""
    allowed, need = step_memory(config), job.step_bytes
    if need > allowed:
        raise UserError(
            f"A private step on a network of this size needs up to {need / 2**30:.2f} GB, and memory allows "
            f"{allowed / 2**30:.2f}; allow it with --set memory={math.ceil(need / 2**30 * 100) / 100:g}, or take a "
            "smaller --model."
        )


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
