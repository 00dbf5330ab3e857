"""Was this record used to train the model? Attacks that see a model (or only its scores) and candidate records.

- `loss_scores`: black box, Yeom et al. 2018: members have a smaller loss.
- `gradient_scores`: white box, Nasr et al. 2019: members have a smaller gradient.
- `lira_scores`: Carlini et al. 2022: the record's confidence against shadow models with and without it (online), or
  without it only (offline).
- `rmia_scores`: Zarifzadeh et al. 2024: the record's likelihood ratio against those of population records.

Every function returns one number a record; larger means "member".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional as F

from prismfl.adversary.attacks.inversion import Predict, Scores
from prismfl.errors import UserError
from prismfl.nets.classifier import IMAGE_MODELS, Classifier, Params, build
from prismfl.nets.training import cosine, fit, step
from prismfl.rng import Key

CHUNK = 500


@dataclass(frozen=True)
class Shadows:
    """Models that an attacker trained on known halves of the candidates: `used[s, i]` says whether s saw record i."""

    logits: torch.Tensor = field(repr=False)  # (shadows, records, classes)
    used: torch.Tensor = field(repr=False)  # (shadows, records), bool


@dataclass(frozen=True)
class SeenModel:
    """A model that answers (black box), candidate records, and shadow models once they are wanted.

    `population` are the rows of the candidates that the attacker knows to be nobody's in particular.
    """

    predict: Predict
    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    population: torch.Tensor = field(repr=False)
    train: Callable[[], Shadows] = field(repr=False)

    @cached_property
    def logits(self) -> torch.Tensor:
        """The model's answers for the candidates; asked for once."""
        return logits_of(self.predict, self.x)

    @cached_property
    def shadows(self) -> Shadows:
        """The shadow models; trained when first wanted."""
        return self.train()


@dataclass(frozen=True)
class SeenWeights:
    """A model that can be taken apart (white box), and candidate records."""

    classifier: Classifier
    params: Params = field(repr=False)
    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)


def by_loss(seen: SeenModel) -> Scores:
    """The candidates' `loss_scores` from what was seen."""
    return loss_scores(seen.predict, seen.x, seen.y)


def by_gradient(seen: SeenWeights) -> Scores:
    """The candidates' `gradient_scores` from what was seen."""
    return gradient_scores(seen.classifier, seen.params, seen.x, seen.y)


def by_lira(seen: SeenModel) -> Scores:
    """The candidates' `lira_scores`, by shadows with and without each record."""
    return lira_scores(seen.logits, seen.y, seen.shadows)


def by_lira_offline(seen: SeenModel) -> Scores:
    """The candidates' `lira_scores`, by shadows without each record only."""
    return lira_scores(seen.logits, seen.y, seen.shadows, offline=True)


def by_rmia(seen: SeenModel) -> Scores:
    """The candidates' `rmia_scores` against the known population."""
    return rmia_scores(seen.logits, seen.y, seen.shadows, population=seen.population)


def logits_of(predict: Predict, x: torch.Tensor) -> torch.Tensor:
    """Scores of the classes, a chunk at a time."""
    with torch.no_grad():
        return torch.cat([predict(x[i : i + CHUNK]).float().cpu() for i in range(0, len(x), CHUNK)])


def loss_scores(predict: Predict, x: torch.Tensor, y: torch.Tensor) -> Scores:
    """Minus the cross-entropy of each record."""
    return as_scores(-F.cross_entropy(logits_of(predict, x), y, reduction="none"))


def gradient_scores(
    classifier: Classifier, params: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> Scores:
    """Minus the norm of the loss's gradient at each record."""
    per_record = torch.func.vmap(torch.func.grad(classifier.record_loss), in_dims=(None, 0, 0))
    norms = []
    for i in range(0, len(x), CHUNK // 5):
        grads = per_record(dict(params), x[i : i + CHUNK // 5], y[i : i + CHUNK // 5])
        squares = sum((g.flatten(1).double() ** 2).sum(1) for g in grads.values())
        norms.append(torch.as_tensor(squares).sqrt())
    return as_scores(-torch.cat(norms))


def lira_scores(target: torch.Tensor, y: torch.Tensor, shadows: Shadows, *, offline: bool = False) -> Scores:
    """Log-likelihood ratio of the target's confidence under Gaussians fitted to the shadows' confidences.

    With few shadows the variances are those of all records together, as the paper advises.
    """
    seen, shown = confidence(target, y), torch.stack([confidence(one, y) for one in shadows.logits])
    used = shadows.used
    without, _ = _moments(shown, ~used)
    spread_out = _common_spread(shown, ~used, without)
    if offline:
        return as_scores((seen - without) / spread_out)
    within, counts = _moments(shown, used)
    spread_in = _common_spread(shown, used, within)
    ratio = _log_normal(seen, within, spread_in) - _log_normal(seen, without, spread_out)
    # A record that no shadow saw (or that all saw) has no pair of worlds to compare: fall back to the offline score.
    usable = (counts > 0) & ((~used).sum(0) > 0)
    return as_scores(torch.where(usable, ratio, (seen - without) / spread_out))


def rmia_scores(
    target: torch.Tensor,
    y: torch.Tensor,
    shadows: Shadows,
    *,
    population: torch.Tensor,
    gamma: float = 1.0,
    offline_a: float = 0.3,
) -> Scores:
    """The share of population records z that the record beats: Pr(x | target) / Pr(x) >= gamma Pr(z | target) / Pr(z).

    `population` are the row numbers of the candidates that serve as z. Pr(x) is the mean over the shadows that did not
    see x, moved towards what it would be had half of them seen it.
    """
    if not len(population):
        raise UserError("RMIA needs population records to compare with, got none.")
    mine = _chance(target, y)
    others = torch.stack([_chance(one, y) for one in shadows.logits])
    outside = (others * ~shadows.used).sum(0) / (~shadows.used).sum(0).clamp(min=1)
    typical = 0.5 * ((1 + offline_a) * outside + (1 - offline_a))
    ratio = mine / typical.clamp(min=1e-12)
    beaten = (ratio[:, None] >= gamma * ratio[population][None, :]).double().mean(1)
    # Ties of the share are broken by the ratio itself, too weakly to reorder shares.
    return as_scores(beaten + 1e-9 * torch.tanh(ratio))


def confidence(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """log(p / (1 - p)) of the true class, computed from the logits so that it never overflows."""
    logits = logits.double()
    true = logits.gather(1, y[:, None])[:, 0]
    rest = logits.scatter(1, y[:, None], -math.inf).logsumexp(1)
    return true - rest


def train_shadows(
    model: str,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    classes: int,
    shadows: int,
    key: Key,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 0.1,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Shadows:
    """`shadows` models, each trained on a random half of the candidates.

    Record i is used by exactly half of the shadows (up to one), so that both of its worlds are seen equally often.
    Dense networks train all at once in one vectorised loop; convolutions with weights of their own each are slower
    that way than one after the other, so those take turns.
    """
    if shadows < 2:
        raise UserError(f"Expected at least 2 shadow models, got {shadows}.")
    shape = tuple(x.shape[1:])
    made = [build(model, shape, classes, key=key.child("start", s)) for s in range(shadows)]
    classifier = made[0][0]
    used = _halves(shadows, len(x), key.child("halves").torch())
    plan = _Training(x, y, epochs=epochs, batch=batch, lr=lr, key=key)
    if model.partition(":")[0] in IMAGE_MODELS:
        logits = []
        for s, (_, start) in enumerate(made):
            progress("training shadow models", s, shadows)
            logits.append(plan.one(classifier, start, used[s], s))
        return Shadows(torch.stack(logits), used)
    return Shadows(plan.all(classifier, [p for _, p in made], used, progress), used)


@dataclass(frozen=True)
class _Training:
    """How shadows are trained: the same recipe for each."""

    x: torch.Tensor
    y: torch.Tensor
    epochs: int
    batch: int
    lr: float
    key: Key

    def one(self, classifier: Classifier, start: Params, used: torch.Tensor, number: int) -> torch.Tensor:
        params = fit(
            classifier,
            start,
            x=self.x[used],
            y=self.y[used],
            epochs=self.epochs,
            batch=self.batch,
            lr=self.lr,
            key=self.key.child("order", number),
        )
        return logits_of(lambda rows: classifier.logits(params, rows), self.x)

    def all(
        self,
        classifier: Classifier,
        starts: list[Params],
        used: torch.Tensor,
        progress: Callable[[str, int, int], None],
    ) -> torch.Tensor:
        params = {name: torch.stack([p[name] for p in starts]) for name in starts[0]}
        velocity = {name: torch.zeros_like(p) for name, p in params.items()}
        rows, order = [torch.nonzero(mask).flatten() for mask in used], self.key.child("order").torch()
        size = min(len(r) for r in rows)
        steps, done = self.epochs * math.ceil(size / self.batch), 0
        grad = torch.func.vmap(torch.func.grad(classifier.loss))
        for _ in range(self.epochs):
            shuffled = torch.stack([r[torch.randperm(len(r), generator=order)[:size]] for r in rows])
            for start in range(0, size, self.batch):
                chosen = shuffled[:, start : start + self.batch]
                grads = grad(params, self.x[chosen], self.y[chosen])
                velocity = {name: 0.9 * v + grads[name] for name, v in velocity.items()}
                params = step(params, velocity, cosine(self.lr, done, steps))
                done += 1
                progress("training shadow models", done, steps)
        together = torch.func.vmap(classifier.logits, in_dims=(0, None))
        with torch.no_grad():
            parts = [together(params, self.x[i : i + CHUNK]) for i in range(0, len(self.x), CHUNK)]
        return torch.cat(parts, dim=1)


def _halves(shadows: int, records: int, generator: torch.Generator) -> torch.Tensor:
    place = torch.rand(shadows, records, generator=generator).argsort(0)
    return place < shadows // 2


def _chance(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return logits.double().softmax(1).gather(1, y[:, None])[:, 0]


def _moments(values: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    count = mask.sum(0)
    return (values * mask).sum(0) / count.clamp(min=1), count


def _common_spread(values: torch.Tensor, mask: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    freedom = int((mask.sum(0) - 1).clamp(min=0).sum())
    total = (((values - means) ** 2) * mask).sum()
    return (total / max(1, freedom)).sqrt().clamp(min=1e-6)


def _log_normal(value: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    return -0.5 * ((value - mean) / spread) ** 2 - spread.log()


def as_scores(scores: torch.Tensor) -> Scores:
    """A tensor as an array of finite numbers: 0 for what is not a number, ±1e300 for infinities."""
    clean: Scores = np.nan_to_num(scores.detach().double().numpy(), nan=0.0, posinf=1e300, neginf=-1e300)
    return clean
