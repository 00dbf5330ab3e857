"""What else a release may tell: a class's typical image, a hidden attribute of a row, a property of a whole site.

- `class_image`: Fredrikson et al. 2015: the input that the model takes for a class with the greatest confidence.
- `attribute_guesses`: Fredrikson et al. 2014, Yeom et al. 2018: the value of a hidden column that fits the label best.
- `property_scores`: Ateniese et al. 2015: tells sites with a property from sites without it by what they released.

Record-level differential privacy does not promise anything against the last: a property that holds for many records is
not hidden by protecting each of them. Nor does it stop the first from finding what the class has in common; what must
not happen is that members fare worse than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.rng import Key

Predict = Callable[[torch.Tensor], torch.Tensor]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeenClassifier:
    """A model of pictures that tells its classes."""

    predict: Predict
    shape: tuple[int, ...]
    classes: int
    key: Key


@dataclass(frozen=True)
class HiddenColumn:
    """A column to guess: the features that make it up, and what they hold for each of its values."""

    name: str
    features: tuple[int, ...]
    values: torch.Tensor = field(repr=False)


@dataclass(frozen=True)
class SeenRows:
    """A model of a table, and rows with their labels, of which one column at a time is hidden."""

    predict: Predict
    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    hidden: tuple[HiddenColumn, ...]


@dataclass(frozen=True)
class SeenReleases:
    """Releases of victims as flat rows, and of the attacker's own example sites with a property and without it."""

    with_it: torch.Tensor = field(repr=False)
    without: torch.Tensor = field(repr=False)
    victims: torch.Tensor = field(repr=False)


def invert(seen: SeenClassifier | SeenRows) -> torch.Tensor:
    """An image of each class; or of a table, for each hidden column, the number of the value guessed for each row."""
    if isinstance(seen, SeenClassifier):
        found = [class_image(seen.predict, seen.shape, c, key=seen.key.child(c)) for c in range(seen.classes)]
    else:
        found = [
            attribute_guesses(seen.predict, seen.x, seen.y, columns=hidden.features, values=hidden.values)
            for hidden in seen.hidden
        ]
    return torch.stack(found).cpu()


def by_property(seen: SeenReleases) -> Scores:
    """The victims' `property_scores` from what was seen."""
    return property_scores(seen.with_it, seen.without, seen.victims)


def class_image(
    predict: Predict,
    shape: tuple[int, ...],
    label: int,
    *,
    key: Key,
    steps: int = 200,
    lr: float = 0.05,
    smooth: float = 0.02,
) -> torch.Tensor:
    """An image in [0, 1] that the model is sure is of class `label`, kept smooth."""
    logit = (0.1 * torch.randn(1, *shape, generator=key.torch())).requires_grad_()
    optimiser = torch.optim.Adam([logit], lr=lr)
    target = torch.tensor([label])
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        image = torch.sigmoid(logit)
        loss = F.cross_entropy(predict(image), target) + smooth * _roughness(image)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return torch.sigmoid(logit).detach()[0]


def attribute_guesses(
    predict: Predict, x: torch.Tensor, y: torch.Tensor, *, columns: Sequence[int], values: torch.Tensor
) -> torch.Tensor:
    """For each row, which of `values` (one row of column contents a value) gives its true label the least loss.

    What stands in `columns` of `x` is not looked at.
    """
    if values.shape[1] != len(columns):
        raise UserError(f"Expected values of {len(columns)} columns, got {values.shape[1]}.")
    losses = []
    with torch.no_grad():
        for value in values:
            guess = x.clone()
            guess[:, list(columns)] = value.to(guess)
            losses.append(F.cross_entropy(predict(guess), y, reduction="none"))
    return torch.stack(losses).argmin(0)


def property_scores(
    with_it: torch.Tensor, without: torch.Tensor, targets: torch.Tensor, *, ridge: float = 1.0
) -> Scores:
    """How much each target release (a flat row) looks like those of sites with the property: a linear discriminant.

    The attacker made `with_it` and `without` from sites of its own.
    """
    for name, rows in (("with", with_it), ("without", without)):
        if len(rows) < 2:
            raise UserError(f"Expected at least 2 example sites {name} the property, got {len(rows)}.")
    a, b = with_it.double(), without.double()
    centre = (a.mean(0) + b.mean(0)) / 2
    rows = torch.cat([a - a.mean(0), b - b.mean(0)])
    # Solved in the span of the examples, which are far fewer than the numbers in a release.
    gram = rows @ rows.T / len(rows)
    scale = float(gram.diagonal().mean()) * ridge + 1e-12
    step = a.mean(0) - b.mean(0)
    inner = torch.linalg.solve(gram + scale * torch.eye(len(rows), dtype=torch.float64), rows @ step / len(rows))
    direction = (step - rows.T @ inner) / scale
    found: Scores = ((targets.double() - centre) @ direction).numpy()
    return found


def _roughness(image: torch.Tensor) -> torch.Tensor:
    """Total variation, per pixel; 0 for rows of a table."""
    if image.dim() != 4:
        return image.sum() * 0.0
    across, down = (
        (image[..., 1:] - image[..., :-1]).abs().mean(),
        (image[..., 1:, :] - image[..., :-1, :]).abs().mean(),
    )
    rough: torch.Tensor = (across + down) * float(image[0].numel() ** 0.5)
    return rough
