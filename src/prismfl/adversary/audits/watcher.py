"""The strongest attacker that differential privacy must withstand, beside the doors that every run uses.

Differential privacy covers every noisy answer, not only what a method makes of them. So this attacker sees all of
them, and knows what each canary would have added; it writes that down and guesses who is in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from prismfl.core.door import Rows
from prismfl.core.payloads import Items
from prismfl.core.records import Records
from prismfl.core.trial import Question, Vector, Watch
from prismfl.kernels.loss import Loss
from prismfl.privacy import mechanisms
from prismfl.privacy.mechanisms import Params
from prismfl.rng import Key

MOST_NUMBERS = 16_384  # coordinates of an answer that the attacker looks at: enough, and bounded in memory
CHUNK = 64
NOISELESS = 1e-5  # stands for sigma = 0 in the attacker's weights


@dataclass
class Notebook:
    """What the answers say about each canary, as one linear estimate over all of them.

    Each answer is modelled as the sum over canaries of (in or out) times its contribution, plus noise of the stated
    scale; the notes are the normal equations of that model. `truth` (who is in) is for the scorer alone: what is left
    of an answer without the canaries that are in must be noise of the stated size.
    """

    canaries: Records = field(repr=False)
    truth: torch.Tensor = field(repr=False)
    normal: torch.Tensor = field(init=False, repr=False)
    right: torch.Tensor = field(init=False, repr=False)
    answers: int = 0
    squares: float = 0.0
    numbers: int = 0

    def __post_init__(self) -> None:
        m = len(self.canaries)
        self.normal = torch.zeros(m, m, dtype=torch.float64)
        self.right = torch.zeros(m, dtype=torch.float64)

    def note(
        self,
        parts: torch.Tensor,
        answer: torch.Tensor,
        *,
        scale: float,
        rate: float = 1.0,
        rows: torch.Tensor | None = None,
        gaussian: bool = True,
    ) -> None:
        """One noisy answer: `parts[i]` is what canary `rows[i]` adds to it if it is in and drawn (at `rate`)."""
        if not len(parts):
            return
        index = torch.arange(len(self.right)) if rows is None else rows
        parts = parts.to(torch.float64)
        if rate == 1.0 and gaussian and scale > 0.0:
            rest = answer.to(torch.float64).flatten() - parts[self.truth[index]].sum(0)
            self.squares += float((rest / scale).square().sum())
            self.numbers += rest.numel()
        scale = scale or NOISELESS * float(parts.norm(dim=1).max().clamp(min=1e-30))
        # Who was drawn is noise to the attacker as well: its variance, spread evenly over the coordinates.
        drawing = 0.5 * rate * (1.0 - rate) * float(parts.square().sum()) / parts.shape[1]
        weight, parts = 1.0 / (scale**2 + drawing), rate * parts
        self.normal[index[:, None], index[None, :]] += weight * (parts @ parts.T)
        self.right[index] += weight * (parts @ answer.to(torch.float64).flatten())
        self.answers += 1

    def scores(self) -> npt.NDArray[np.float64]:
        """Best linear estimate of in (above 0) or out (below), a canary being in with probability one half."""
        m = len(self.right)
        centred = self.right - self.normal @ torch.full((m,), 0.5, dtype=torch.float64)
        prior = 4.0 * torch.eye(m, dtype=torch.float64)
        found: npt.NDArray[np.float64] = torch.linalg.solve(self.normal + prior, centred).numpy()
        return found


class Watcher(Watch):
    """Works out what each canary would have added to an answer. `rows` are the canaries that can lie behind this door;
    at the hub the canaries are whole clients, of whom `everyone` would have sent something."""

    def __init__(
        self, book: Notebook, *, rows: torch.Tensor | None = None, everyone: dict[str, Items] | None = None
    ) -> None:
        self.book, self.everyone = book, everyone or {}
        self.rows = torch.arange(len(book.canaries)) if rows is None else rows

    @property
    def canaries(self) -> Records:
        """The canaries that can lie behind this door."""
        return self.book.canaries.take(self.rows)

    def of_class(self, label: int) -> Watcher:
        """A canary of another class adds nothing to this one's answers."""
        return Watcher(self.book, rows=self.rows[self.canaries.y == label])

    def summed(self, rows: Rows, answer: torch.Tensor, asked: Question) -> None:
        """Note what each canary would have added to a noisy sum."""
        own, seen = self.canaries, _looked_at(answer.numel())
        parts = torch.cat([rows(own.x[i : i + CHUNK], own.y[i : i + CHUNK]).cpu() for i in range(0, len(own), CHUNK)])
        parts = parts * _factors(parts, asked.bound, asked.kind)[:, None]
        self._note(parts[:, seen], answer.flatten()[seen], asked)

    def moments(self, rows: Rows, answer: tuple[torch.Tensor, torch.Tensor], asked: Question) -> None:
        """Note what each canary would have added to the noisy sums of the classes and to the second moments."""
        sums, moment = answer
        apart = moment.dim() == 3  # a second moment for each class
        matrices = [mechanisms.triangle(m.double()) for m in (moment if apart else moment[None])]
        flat = torch.cat([sums.double().flatten(), *matrices])
        seen, own, found = _looked_at(flat.numel()), self.canaries, []
        for i in range(0, len(own), CHUNK):
            block, labels = rows(own.x[i : i + CHUNK], own.y[i : i + CHUNK]).cpu().double(), own.y[i : i + CHUNK]
            spread = torch.zeros(len(block), *sums.shape, dtype=torch.float64)
            spread[torch.arange(len(block)), labels] = block
            squares = [mechanisms.triangle(asked.scale * torch.outer(row, row)) for row in block[:, : asked.second]]
            own_place = torch.zeros(len(block), len(matrices), len(matrices[0]), dtype=torch.float64)
            own_place[torch.arange(len(block)), labels if apart else 0] = torch.stack(squares)
            whole = torch.cat([spread.flatten(1), own_place.flatten(1)], dim=1)
            found.append((whole * _factors(whole, asked.bound, "gaussian")[:, None])[:, seen])
        self._note(torch.cat(found), flat[seen], asked)

    def gradient(self, loss: Loss, params: Params, answer: Params, asked: Question) -> None:
        """Note what each canary would have added to a noisy gradient."""
        own = self.canaries
        inputs: tuple[torch.Tensor, ...] = (own.x, own.y)
        if asked.draws is not None and asked.normals:  # the very numbers that the door drew: the attacker is told them
            inputs += (asked.draws.normal(own.identities, asked.normals),)
        parts = record_gradients(loss, params, inputs, clip=asked.bound, kind=asked.kind)
        flat = torch.cat([answer[n].flatten().double() for n in params])[_looked_at(_size(params))]
        self._note(parts, flat * asked.rate * asked.declared, asked)

    def clients(self, vector: Vector, like: Params, answer: Params, asked: Question) -> None:
        """Note what each client would have added to the hub's noisy sum."""
        rows = []
        for items in self.everyone.values():
            values = vector(items)
            rows.append(torch.cat([values[n].flatten() for n in like]))
        parts, seen = torch.stack(rows), _looked_at(_size(like))
        parts = parts * _factors(parts, asked.bound, "gaussian")[:, None]
        self._note(parts[:, seen], torch.cat([answer[n].flatten() for n in like])[seen], asked)

    def _note(self, parts: torch.Tensor, answer: torch.Tensor, asked: Question) -> None:
        scale, gaussian = asked.bound * asked.sigma, asked.kind == "gaussian"
        self.book.note(parts, answer, scale=scale, rate=asked.rate, rows=self.rows, gaussian=gaussian)


def record_gradients(
    loss: Callable[..., torch.Tensor],
    params: Params,
    batch: tuple[torch.Tensor, ...],
    *,
    clip: float,
    kind: str,
) -> torch.Tensor:
    """Each canary's clipped gradient, at the coordinates that are looked at; computed on its own, not by the door."""
    per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *(0 for _ in batch)))
    seen, found = _looked_at(_size(params)), []
    for i in range(0, len(batch[0]), CHUNK):
        grads = per_record(dict(params), *(part[i : i + CHUNK] for part in batch))
        flat = torch.cat([grads[n].flatten(1) for n in params], dim=1)
        found.append(flat[:, seen] * _factors(flat, clip, kind)[:, None])
    return torch.cat(found) if found else torch.zeros(0, len(seen))


def _factors(rows: torch.Tensor, bound: float, kind: str) -> torch.Tensor:
    norms = torch.linalg.vector_norm(rows.double(), ord=mechanisms.NORM_ORDER[kind], dim=1)
    factors = (bound / norms.clamp(min=1e-30)).clamp(max=1.0)
    return torch.where(torch.isfinite(norms), factors, torch.zeros_like(factors)).to(rows.dtype)


def _looked_at(size: int) -> torch.Tensor:
    if size <= MOST_NUMBERS:
        return torch.arange(size)
    return torch.randperm(size, generator=Key.seed(0).child("coordinates", size).torch())[:MOST_NUMBERS].sort().values


def _size(params: Params) -> int:
    return sum(p.numel() for p in params.values())
