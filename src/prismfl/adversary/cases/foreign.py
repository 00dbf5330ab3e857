"""Synthetic data that any tool has made, with records that were used for it and records that were not."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from prismfl.adversary.cases.membership import Candidates
from prismfl.errors import UserError


def candidates(made: torch.Tensor, members: torch.Tensor, others: torch.Tensor) -> Candidates:
    """Half of `others` calibrates."""
    if len(others) < 4:
        raise UserError(f"Expected at least 4 non-members, got {len(others)}.")
    for name, rows in (("members", members), ("non-members", others)):
        if rows.shape[1:] != made.shape[1:]:
            shapes = ["x".join(map(str, r.shape[1:])) for r in (rows, made)]
            raise UserError(
                f"The {name} have shape {shapes[0]}, the synthetic records {shapes[1]}; they must be alike."
            )
    half = len(others) // 2
    x = torch.cat([members, others[:half]])
    return Candidates(x, torch.zeros(len(x), dtype=torch.int64), len(members), others[half:])


def read_rows(path: Path) -> torch.Tensor:
    """Records from an array file (x of an .npz) or the numeric columns of a CSV."""
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


def _csv(path: Path) -> npt.NDArray[np.float64]:
    """All columns, which must be numbers: the three files must be encoded alike, and only their maker knows how."""
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
