"""How much of the records behind a gradient an inversion shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from prismfl.adversary.attacks.gradient_inversion import Reconstruction
from prismfl.adversary.scores import Found, Scored, Sheet
from prismfl.adversary.view import Target
from prismfl.metrics.leakage import leakage, match
from prismfl.nets.classifier import Classifier

MOST_PICTURES = 8


@dataclass(frozen=True)
class Behind:
    """The truth of an inversion: the records (x, y) behind each attacked gradient."""

    targets: tuple[Target, ...]
    batches: tuple[tuple[torch.Tensor, torch.Tensor], ...] = field(repr=False)
    data: str
    classifier: Classifier
    adversary: str


def reconstructed(guess: Reconstruction, control: Reconstruction | None, truth: Behind) -> Scored:
    """A row a victim; originals and reconstructions side by side, where they are pictures."""
    rows, pictures = [], []
    for i, (target, (x, y)) in enumerate(zip(truth.targets, truth.batches)):
        rows.append(_row(target, (guess.x[i], guess.y[i]), (x, y), float(guess.mismatch[i]), truth))
        if len(x) and x.dim() == 4:
            pictures += _pairs(guess.x[i], x)
    sheet = Sheet(torch.stack(pictures), 2, scale=3) if pictures else None
    return Scored({"words": _words(rows, truth.adversary), "rows": rows}, sheet)


def _row(
    target: Target,
    found: tuple[torch.Tensor, torch.Tensor],
    batch: tuple[torch.Tensor, torch.Tensor],
    mismatch: float,
    truth: Behind,
) -> Found:
    row: Found = {
        "site": target.sites[0] if len(target.sites) == 1 else f"{len(target.sites)} others",
        "sites": list(target.sites),
        "round": target.round,
        "gradient": "exact" if target.exact else "from weights",
        "mismatch": round(mismatch, 6),
    }
    if not len(batch[0]):
        return {**row, "records": 0}
    score = leakage(found, batch, data=truth.data, features=(truth.classifier, target.model)).as_dict()
    return {**row, **{k: round(v, 4) if isinstance(v, float) else v for k, v in score.items()}}


def _pairs(x: torch.Tensor, truth: torch.Tensor) -> list[torch.Tensor]:
    """Original and reconstruction side by side, for the first few records of a victim."""
    rows, partners = match(x, truth)
    return [image for i, j in list(zip(rows, partners))[:MOST_PICTURES] for image in (truth[j], x[i])]


def _words(rows: list[Found], adversary: str) -> str:
    """The line that a report shows."""
    found, records = sum(row.get("recovered", 0) for row in rows), sum(row.get("records", 0) for row in rows)
    likeness = [row["ssim"] for row in rows if isinstance(row.get("ssim"), float)]
    alike = f", mean SSIM {sum(likeness) / len(likeness):.2f}" if likeness else ""
    return f"{found} of {records} attacked records found by the {adversary}{alike}"
