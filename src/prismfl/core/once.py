"""One release of one data holder: the step that every way out without a federation takes.

`prismfl synth` and `Synthesizer.fit`, for images and for tables, come through here: the data are declared on the user's
one ledger by name, records and units, the plan is reserved, and the release takes the same step as a site's in a
federation. What comes back says what this release cost and what the data have paid in all.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl.core.job import Job
from prismfl.core.records import Records, unit_prints
from prismfl.core.release import Release
from prismfl.core.rounds import Host, initial_state, receive, site_step
from prismfl.errors import UserError
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import LEDGER_FILE, ledger_path
from prismfl.sources import DEPLOYMENT, NO_PROTECTION


@dataclass(frozen=True)
class Holder:
    """Whose records these are: their prints and the name they are declared under; without one, the prints alone."""

    records: Records
    prints: Sequence[bytes]
    name: str | None = None


@dataclass(frozen=True)
class Made:
    """A release, and what is on the ledger after it."""

    release: Release
    ledger: Path
    total: dict[str, Any]

    def guarantee(self) -> str:
        """What is promised for the release, in words."""
        return "differential privacy" if self.release.noise == DEPLOYMENT else NO_PROTECTION


def release_once(
    job: Job, holder: Holder, *, ledger: Path | None = None, cap: float | None = None, deployed: bool = True
) -> Made:
    """The one release of a job with one site and one round, charged before a record is used.

    It counts on the user's one ledger, or on the one in the folder `ledger`.
    """
    (site,) = job.task.sites
    job = replace(job, run=f"{job.run}@{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    path = ledger_path() if ledger is None else ledger.resolve() / LEDGER_FILE
    plan = job.plan()
    limit = None if cap is None else Cap(cap, job.task.delta, plan.unit, plan.relation)
    with Ledger.open(path) as book, tempfile.TemporaryDirectory() as scratch:
        name = holder.name or f"arrays-{hashlib.sha256(b''.join(sorted(holder.prints))).hexdigest()[:16]}"
        dataset = book.dataset(name, records=holder.prints, units=unit_prints(holder.records), cap=limit)
        refuse_seeded(book.cap(dataset), deployed=deployed)
        book.reserve(job.run, dataset, plan)
        host = Host(site, lambda: holder.records, book, dataset, Path(scratch), deployed=deployed)
        try:
            state = initial_state(job)
            release = receive(job, state, site, site_step(job, state, host))
            book.confirm(release.id)
        finally:  # what was charged stays charged; what was only reserved is free again
            book.close(job.run, forget=True)
        return Made(release, path, book.total_so_far(dataset, job.task.delta))


def refuse_seeded(cap: Cap | None, *, deployed: bool) -> None:
    """Noise that follows from a seed would spend nothing of a cap and tell everything."""
    if cap is not None and not deployed:
        raise UserError(
            f"The data have a cap of {cap.describe()}, and seeded noise protects nobody; leave out the seed."
        )
