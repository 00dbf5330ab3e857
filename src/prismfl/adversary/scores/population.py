"""How well a class's look, a hidden column, a site's property or a class that a site does not hold was found.

Only members faring worse than others would be a breach of record-level differential privacy; a class's common look and
a site's properties are not what it hides, and the words of each result say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from prismfl.adversary.attacks.inversion import Predict, Scores
from prismfl.adversary.scores import Found, Scored, Sheet
from prismfl.adversary.scores.membership import auc, auc_interval

SHOWN = 8
CLASS_WORDS = (
    "An image of what a class has in common. No promise of differential privacy covers that, and none is broken."
)
ROW_WORDS = "Members against others: only a gap between them would be about a record rather than about the population."
SITE_WORDS = "Record-level differential privacy does not promise against property inference."
GAN_WORDS = "Record-level differential privacy does not promise to hide what a class has in common."


@dataclass(frozen=True)
class ClassMeans:
    """The truth of an inverted classifier: the mean picture of each class, of records that nobody has attacked."""

    classes: tuple[str, ...]
    means: torch.Tensor = field(repr=False)


@dataclass(frozen=True)
class ColumnValues:
    """The truth of an inverted table: the value of each hidden column in each row, members first.

    The control knows the first `known` members by heart.
    """

    names: tuple[str, ...]
    values: torch.Tensor = field(repr=False)
    members: int
    known: int


def inverted(guess: torch.Tensor, control: torch.Tensor | None, truth: ClassMeans | ColumnValues) -> Scored:
    """Images of classes against their mean pictures, or guessed columns against their true values."""
    assert control is not None
    if isinstance(truth, ClassMeans):
        return _class_images(guess, control, truth)
    return _columns(guess, control, truth)


def _class_images(guess: torch.Tensor, control: torch.Tensor, truth: ClassMeans) -> Scored:
    rows, names = [], truth.classes
    for c, image in enumerate(guess):
        like = likeness(image, truth.means)
        rows.append({"class": names[c], "likeness": round(float(like[c]), 3), "most like": names[int(like.argmax())]})
    right = sum(row["class"] == row["most like"] for row in rows)
    seen = sum(int(likeness(image, truth.means).argmax() == c) for c, image in enumerate(control))
    words = f"{right} of {len(rows)} images look most like their class. {CLASS_WORDS}"
    found = {"kind": "inversion", "rows": rows, "right": right, "words": words, "control": {"right": seen}}
    return Scored(found, Sheet(torch.cat([guess, truth.means]), len(guess)))


def likeness(image: torch.Tensor, means: torch.Tensor) -> npt.NDArray[np.float64]:
    """Correlation of an image with each class's mean image."""
    flat = torch.cat([image.flatten()[None], means.flatten(1)]).double()
    found: npt.NDArray[np.float64] = torch.corrcoef(flat)[0, 1:].numpy()
    return found


def _columns(guess: torch.Tensor, control: torch.Tensor, truth: ColumnValues) -> Scored:
    rows: list[Found] = []
    for name, values, mine, by_heart in zip(truth.names, truth.values, guess, control):
        right, known = mine == values, by_heart == values
        gap = attribute_advantage(right[: truth.members], right[truth.members :])
        most = attribute_advantage(known[: truth.known], known[truth.members :])
        rounded = {k: round(v, 3) for k, v in gap.items()}
        rows.append({"column": name, **rounded, "control": round(most["advantage"], 3)})
    worst = max(rows, key=lambda row: float(row["advantage"]))
    words = f"Largest gap: {worst['advantage']:+.3f}, column '{worst['column']}'. {ROW_WORDS}"
    return Scored({"kind": "inversion", "rows": rows, "words": words})


def attribute_advantage(right_members: torch.Tensor, right_others: torch.Tensor) -> dict[str, float]:
    """How much more often the attribute of a member is guessed than that of a record which was never used."""
    members, others = float(right_members.double().mean()), float(right_others.double().mean())
    return {"members": members, "others": others, "advantage": members - others}


@dataclass(frozen=True)
class RichSites:
    """The truth of property inference: the first half of the victims are rich in records of `name`."""

    name: str
    sites: int
    records: int


def property_told(guess: Scores, control: Scores | None, truth: RichSites) -> Scored:
    """How well sites with the property were told from sites without it, beside the control."""
    assert control is not None
    n, name = truth.sites, truth.name
    area, most = auc(guess[:n], guess[n:]), auc(control[:n], control[n:])
    low, high = auc_interval(area, n, n)
    row = {"property": f"half of the records are '{name}'", "sites": 2 * n, "records": truth.records}
    row |= {"AUC": round(area, 3), "from": round(low, 3), "to": round(high, 3), "control": round(most, 3)}
    words = f"AUC {area:.2f} ({low:.2f} to {high:.2f}) for a site rich in '{name}'. {SITE_WORDS}"
    return Scored({"kind": "property", "rows": [row], "words": words})


@dataclass(frozen=True)
class HiddenClasses:
    """The truth of drawn classes: which they are, how many of their records the site holds, held-out records of each,
    and an independent judge."""

    labels: tuple[int, ...]
    names: tuple[str, ...]
    held: tuple[int, ...]
    real: tuple[torch.Tensor, ...] = field(repr=False)
    judge: Predict = field(repr=False)
    rounds: int = 0


def judged_pictures(guess: torch.Tensor, control: torch.Tensor | None, truth: HiddenClasses) -> Scored:
    """Shares of drawn pictures that the judge takes for the hidden class; beside it, from an untrained model."""
    assert control is not None
    rows: list[Found] = []
    for i, (label, name, held) in enumerate(zip(truth.labels, truth.names, truth.held)):
        shares = [
            round(float((truth.judge(made[i]).argmax(1) == label).float().mean()), 2) for made in (guess, control)
        ]
        rows.append({"class": name, "held": held, "judged so": shares[0], "untrained": shares[1]})
    mean, least = (sum(row[name] for row in rows) / len(rows) for name in ("judged so", "untrained"))
    words = (
        f"{100 * mean:.0f} % of the drawn pictures pass for the class the site does not hold "
        f"({100 * least:.0f} % without training), from the models of {truth.rounds} rounds. {GAN_WORDS}"
    )
    found = {"kind": "gan", "rows": rows, "share": mean, "untrained": least, "words": words}
    return Scored(found, Sheet(_beside(guess, truth.real), 2 * SHOWN))


def _beside(guess: torch.Tensor, real: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A row a class: held-out records of the class on the left, what was drawn on the right."""
    rows = []
    for drawn, records in zip(guess, real):
        seen = records[:SHOWN]
        rows += [seen, drawn.new_zeros(SHOWN - len(seen), *drawn.shape[1:]), drawn[:SHOWN]]
    return torch.cat(rows)
