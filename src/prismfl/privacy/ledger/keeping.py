"""What the keeper of a ledger does by hand, on the record: set a data set's cap, close a run that was given up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prismfl.errors import UserError
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.balances import DatasetStatus
from prismfl.privacy.ledger.book import Ledger


def set_cap(path: Path, dataset: str, epsilon: float, delta: float | None = None) -> DatasetStatus:
    """A new cap for a data set, by its id or one of its names; without a `delta` that of the cap before, else 1e-5."""
    with Ledger.open(path, create=False) as ledger:
        status = _named(ledger.status(), dataset)
        terms = status.cap or (status.spent[0] if status.spent else None)
        before = status.cap.delta if status.cap else 1e-5
        new = Cap(epsilon, before if delta is None else delta)
        if terms is not None:
            new = Cap(new.epsilon, new.delta, terms.unit, terms.relation)
        ledger.set_cap(status.dataset, new, by_hand=True)
        return _named(ledger.status(), status.dataset)


def close_run(path: Path, run: str) -> None:
    """Close the one open run whose name begins so: what it released stays charged, what it only holds is free again."""
    with Ledger.open(path, create=False) as ledger:
        names = {name for status in ledger.status() for name in status.open_runs if name.startswith(run)}
        if len(names) != 1:
            raise UserError(f"Expected one open run whose name starts with '{run}', found {len(names)}.")
        ledger.close(names.pop(), forget=True)


def _named(found: Sequence[DatasetStatus], dataset: str) -> DatasetStatus:
    for status in found:
        if dataset == status.dataset or dataset in status.names:
            return status
    known = ", ".join(f"{status.dataset} ({', '.join(status.names)})" for status in found) or "none"
    raise UserError(f"No data set '{dataset}' in the ledger (known: {known}).")
