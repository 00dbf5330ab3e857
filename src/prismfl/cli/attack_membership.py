"""Membership attacks of `prismfl attack`: on a run, or on synthetic data that any tool has made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismfl.cli import terminal
from prismfl.errors import UserError

if TYPE_CHECKING:
    import torch

NAMES = (
    "membership",
    "loss",
    "gradient-norm",
    "lira",
    "lira-offline",
    "rmia",
    "nearest",
    "calibrated",
    "domias",
    "copies",
    "decoder",
)
"""`membership` is all of them."""


def attack_members(path: Path, name: str, *, records: int, shadows: int, seed: int) -> dict[str, Any]:
    """One membership attack, or all, on a run; the results go to RUN/attacks/."""
    from prismfl import runtime
    from prismfl.adversary.audits.membership import ATTACKS, Suite, shown
    from prismfl.runs.reopen import reopen

    run = reopen(path)
    runtime.tune(run.config.threads)
    with terminal.progress() as progress:
        suite = Suite(run, records=records, shadows=shadows, seed=seed, progress=progress)
        found = [suite.attack(one) for one in (ATTACKS if name == "membership" else (name,))]
    files = []
    (path / "attacks").mkdir(exist_ok=True)
    for result in found:
        run.directory.write_json(f"attacks/{result['attack']}.json", result)
        files.append(str(path / "attacks" / f"{result['attack']}.json"))
    return {"run": str(path), "attack": name, "results": found, "rows": [shown(f) for f in found], "files": files}


def attack_foreign(synthetic: Path, members: Path, others: Path, *, seed: int) -> dict[str, Any]:
    """The attacks on synthetic data by themselves: .npz, .npy or CSV files of records of one shape."""
    from prismfl.adversary.audits.membership import attack_set, shown

    made, inside, outside = (read_rows(p) for p in (synthetic, members, others))
    found = attack_set(made, inside, outside, seed=seed)
    return {
        "synthetic": str(synthetic),
        "attack": "synthetic",
        "results": found,
        "rows": [shown(f) for f in found],
        "files": [],
    }


def read_rows(path: Path) -> torch.Tensor:
    """Records from an array file (x of an .npz) or the numeric columns of a CSV."""
    import numpy as np
    import torch

    if not path.is_file():
        raise UserError(f"No file '{path}'.")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if "x" not in arrays:
                    raise UserError(f"'{path}' has no array 'x'; it has {', '.join(arrays.files) or 'none'}.")
                values = arrays["x"]
        elif path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            values = _csv(path)
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"'{path}' cannot be read as records: use .npz with an array x, .npy, or CSV.") from None
    rows = torch.from_numpy(np.ascontiguousarray(values)).float()
    if rows.dim() < 2 or not len(rows):
        raise UserError(f"'{path}' holds no records: its shape is {tuple(rows.shape)}.")
    if not bool(torch.isfinite(rows).all()):
        raise UserError(f"'{path}' holds values that are not finite.")
    return rows


def _csv(path: Path) -> Any:
    """All columns, which must be numbers: the three files must be encoded alike, and only their maker knows how."""
    import csv

    import numpy as np

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise UserError(f"'{path}' has no rows below its header.")
    columns = []
    for name in rows[0]:
        values = [row[name] or "" for row in rows]
        try:
            columns.append(np.asarray([float(v or "nan") for v in values]))
        except ValueError:
            raise UserError(
                f"Column '{name}' of '{path}' is not numeric; encode it the same way in all three files."
            ) from None
    return np.stack(columns, axis=1)
