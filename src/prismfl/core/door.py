"""The door: the only file where private records become something that may leave a site.

A method never holds the records. It holds a `PrivateRecords` whose mechanisms answer *and* advance a meter; the
release takes the meter's reading. `exact()` opens the records and says so: the release is then non-private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from prismfl.core.records import Records, as_floats
from prismfl.errors import BoundaryError, UserError
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.kernels.loss import Loss, refuse_cross_record_layers, refuse_other_shapes
from prismfl.kernels.parts import MEMORY, at_a_time
from prismfl.kernels.per_record import equal_blocks, filled_up
from prismfl.kernels.row_by_row import RowByRow
from prismfl.privacy import mechanisms, shares
from prismfl.privacy.cost import Cost, Relation
from prismfl.privacy.shares import Rules
from prismfl.rng import NoiseStream, RecordDraws, identities
from prismfl.stages import track

CHUNK = 500
Rows = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def table_rows(places: Rows, sizes: Sequence[int], weights: Sequence[float]) -> Rows:
    """The rows of several histograms side by side, written out: one weight in each table."""

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cells = _cells(places(x, y).cpu(), sizes)
        out = torch.zeros(len(cells), sum(sizes), dtype=torch.float64)
        return out.scatter_(1, cells, torch.tensor(weights, dtype=torch.float64).expand(len(cells), -1))

    return rows


def _cells(places: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Places in each table as places in all tables side by side."""
    cells = torch.tensor(sizes)
    # As doubles: what is too large for a whole number would come back as one below zero.
    inside = torch.minimum(torch.nan_to_num(places.double()).clamp(min=0.0), (cells - 1).double())
    return inside.to(torch.int64) + cells.cumsum(0) - cells


def _shares(records: Records) -> torch.Tensor:
    """What each record counts for: 1, or its part of a unit that counts once."""
    if records.unit is None:
        return torch.ones(len(records), dtype=torch.float64)
    _, inverse, sizes = torch.unique_consecutive(records.unit, return_inverse=True, return_counts=True)
    share: torch.Tensor = 1.0 / sizes.double()[inverse]
    return share


@dataclass
class Meter:
    """What has been spent since the door was opened. Only the door advances it."""

    cost: Cost

    def add(self, cost: Cost) -> None:
        """Counts a cost on top of what was spent."""
        self.cost = self.cost + cost


class PrivateRecords:
    """A metered door to one site's records.

    `declared` is the public number of units that sampling rates and denominators are computed from; the true number
    never is. `classes` is the public number of classes. With `shared`, the one answer of a round holds only this
    site's share of the noise: it may leave in a secure sum alone, and costs what that sum costs. With `reference`,
    gradients go by the plain arithmetic alone, without fast kernels. A step takes at most `memory` bytes.
    """

    def __init__(
        self,
        records: Records,
        *,
        declared: int,
        classes: int,
        noise: NoiseStream,
        unit: str = "record",
        relation: Relation = "add-remove",
        device: str = "cpu",
        allow_exact: bool = True,
        shared: Rules | None = None,
        reference: bool = False,
        memory: int = MEMORY,
    ) -> None:
        if declared < 1:
            raise UserError(f"Expected a declared number of records >= 1, got {declared}.")
        if unit != "record" and records.unit is None:
            raise UserError(f"The privacy unit is '{unit}', but the records carry no such column.")
        self.declared, self.classes, self.unit, self.relation, self.device = declared, classes, unit, relation, device
        self.allow_exact, self.reference, self.memory = allow_exact, reference, memory
        self._shared, self._answered = shared, False
        self.noise_source = noise.source
        self.meter = Meter(Cost.zero(unit=unit, relation=relation))
        self._noise = noise
        self._records = records if unit != "record" or records.unit is None else Records(records.x, records.y)
        if self._records.unit is not None:
            order = torch.argsort(self._records.unit, stable=True)
            self._records = self._records.take(order)

    def rate(self, batch: float) -> float:
        """The public Poisson rate of an expected batch."""
        if not batch > 0:
            raise UserError(f"Expected a batch > 0, got {batch}.")
        return min(1.0, batch / self.declared)

    def noisy_sum(
        self, rows: Rows, *, bound: float, sigma: float, batch: float | None = None, kind: str = "gaussian"
    ) -> torch.Tensor:
        """Sum over units of the clipped rows `rows(x, y)`, plus noise: one release of L2 sensitivity `bound`."""
        rate = 1.0 if batch is None else self.rate(batch)
        sample = self._sample(rate, self._draws())
        total = self._clipped_sum(rows, sample, size=self._chunk(rate), bound=bound, kind=kind)
        answer = self._with_noise(total, bound=bound, sigma=sigma, kind=kind)
        self._charge(sigma, rate=rate, kind=kind)
        return answer.to(self._width)

    def noisy_histogram(self, *, sigma: float) -> torch.Tensor:
        """Noisy number of units in each declared class."""
        return self.noisy_sum(self._one_hot, bound=1.0, sigma=sigma)

    def noisy_tables(
        self,
        places: Rows,
        *,
        sizes: Sequence[int],
        weights: Sequence[float],
        bound: float,
        sigma: float,
        batch: float | None = None,
    ) -> torch.Tensor:
        """Several histograms in one release, side by side; `places(x, y)` is the cell of each in which a record lies.

        A record counts `weights[k]` in table k, so its whole row is exactly as long as the weights, which may not be
        longer than `bound`. Places outside a table count in its nearest cell. Rows are never written out.
        """
        if len(sizes) != len(weights) or min(sizes, default=0) < 1:
            raise UserError(f"Expected tables with cells, and a weight for each, got {len(sizes)} and {len(weights)}.")
        if not math.sqrt(math.fsum(w * w for w in weights)) <= bound:
            raise BoundaryError(f"Weights of tables are longer than the bound {bound} that was declared for them.")
        if self.reference:
            return self.noisy_sum(table_rows(places, sizes, weights), bound=bound, sigma=sigma, batch=batch)
        rate = 1.0 if batch is None else self.rate(batch)
        sample = self._sample(rate, self._draws())
        share, done = _shares(sample), 0
        blocks = self._rows_in_chunks(places, sample, self._chunk(rate))
        next(blocks)
        counts = torch.zeros(sum(sizes), dtype=torch.float64)
        for block in blocks:
            part = share[done : done + len(block)]
            cells = _cells(block, sizes)
            counts += torch.bincount(cells.flatten(), part.repeat_interleave(len(sizes)), minlength=len(counts))
            done += len(block)
        flat = counts * torch.tensor(weights, dtype=torch.float64).repeat_interleave(torch.tensor(sizes))
        answer = self._with_noise(flat, bound=bound, sigma=sigma)
        self._charge(sigma, rate=rate, kind="gaussian")
        return answer.to(self._width)

    def noisy_moments(
        self, rows: Rows, *, second: int, scale: float, bound: float, sigma: float, apart: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One joint release: sums of `rows(x, y)` by class, and the sum over all of scale * q q' (q: the first `second`
        entries of a row). The whole vector of a unit is clipped to `bound`. Returns (classes, width) and a matrix; with
        `apart` a matrix for each class.
        """
        share, size = _shares(self._records), self._chunk(1.0)
        blocks = self._rows_in_chunks(rows, self._records, size)
        width = next(blocks).shape[1]
        own = (self.classes,) if apart else ()
        sums, moment = torch.zeros(self.classes, width).double(), torch.zeros(*own, second, second).double()
        for i, block in enumerate(blocks):
            part = slice(i * size, (i + 1) * size)
            more = mechanisms.clipped_moments(
                block,
                self._records.y[part],
                classes=self.classes,
                second=second,
                scale=scale,
                bound=bound,
                share=share[part],
                apart=apart,
            )
            sums, moment = sums + more[0], moment + more[1]
        matrices = list(moment) if apart else [moment]
        flat = torch.cat([sums.flatten(), *(mechanisms.triangle(m) for m in matrices)])
        noisy = self._with_noise(flat, bound=bound, sigma=sigma)
        self._charge(sigma, rate=1.0, kind="gaussian")
        found = [mechanisms.from_triangle(v, second) for v in noisy[sums.numel() :].chunk(len(matrices))]
        matrix = torch.stack(found) if apart else found[0]
        return noisy[: sums.numel()].reshape(sums.shape).to(self._width), matrix.to(self._width)

    def noisy_gradient(
        self,
        loss: Loss,
        params: mechanisms.Params,
        *,
        batch: float,
        clip: float,
        sigma: float,
        normals: int = 0,
        kind: str = "gaussian",
    ) -> dict[str, torch.Tensor]:
        """One DP-SGD step's gradient: Poisson sample, clip each unit, sum, add noise, divide by the *expected* batch.

        With `normals`, the loss of a record has one more input: so many standard normal numbers of the record's own.
        They are the site's secret like the sample and the noise, and a method cannot hand in others.
        """
        refuse_cross_record_layers(loss.module)
        refuse_other_shapes(loss.module, params)
        self._refuse_shared("a gradient")
        rate = self.rate(batch)
        draws = self._draws()
        sample = self._sample(rate, draws)
        inputs: tuple[torch.Tensor, ...] = (as_floats(sample.x.to(self.device)), sample.y.to(self.device))
        if normals:
            inputs += (draws.normal(sample.identities, normals).to(self.device),)
        sums = clipped_gradient_sum(
            loss,
            params,
            batch=inputs,
            clip=clip,
            unit=sample.unit,
            kind=kind,
            reference=self.reference,
            expected=rate * self.declared,
            memory=self.memory,
        )
        names = list(params)
        flat = torch.cat([sums[n].flatten().to(torch.float64) for n in names])
        noisy = mechanisms.add_noise(flat, bound=clip, sigma=sigma, stream=self._noise, kind=kind)
        self._charge(sigma, rate=rate, kind=kind)
        parts = torch.split(noisy / (rate * self.declared), [params[n].numel() for n in names])
        return {n: part.reshape(params[n].shape).to(params[n].dtype) for n, part in zip(names, parts)}

    def forfeit(self, *, sigma: float, times: int, batch: float | None = None, kind: str = "gaussian") -> None:
        """Charge for planned queries that were not asked: stopping early never lowers the cost."""
        if times > 0:
            self._charge(sigma, rate=1.0 if batch is None else self.rate(batch), kind=kind, times=times)

    @contextmanager
    def by_class(self, declared: Sequence[int]) -> Iterator[list[PrivateRecords]]:
        """One door a declared class, under parallel composition: a record lies behind exactly one of them.

        `declared` are the class sizes, public or already noised. The costs are combined when the block ends.
        """
        self._refuse_shared("an answer by class")
        if len(declared) != self.classes:
            raise UserError(f"Expected {self.classes} declared class sizes, got {len(declared)}.")
        if self.unit != "record" or self.relation != "add-remove":
            raise UserError(
                "Class-wise training composes in parallel only for unit 'record' and relation 'add-remove', "
                f"got '{self.unit}' and '{self.relation}': one {self.unit} may lie in several classes."
            )
        doors = [
            PrivateRecords(
                self._records.take(torch.nonzero(self._records.y == c).flatten()),
                declared=max(1, int(size)),
                classes=self.classes,
                noise=self._noise,
                device=self.device,
                allow_exact=self.allow_exact,
                reference=self.reference,
                memory=self.memory,
            )
            for c, size in enumerate(declared)
        ]
        try:
            yield doors
        finally:
            self.meter.add(Cost.parallel([door.meter.cost for door in doors]))

    def exact(self) -> Records:
        """The raw records. From here on everything that leaves is non-private, and every table says so."""
        if not self.allow_exact:
            raise BoundaryError("This method promises a guarantee and may not open the exact records.")
        self.meter.add(Cost.non_private(unit=self.unit, relation=self.relation))
        return self._records.floats(self.device)

    @property
    def _width(self) -> torch.dtype:
        # A share of a secure sum is a whole number of steps, which float32 cannot hold.
        return torch.float32 if self._shared is None else torch.float64

    def _with_noise(self, total: torch.Tensor, *, bound: float, sigma: float, kind: str = "gaussian") -> torch.Tensor:
        rules = self._shared
        if rules is None:
            return mechanisms.add_noise(total, bound=bound, sigma=sigma, stream=self._noise, kind=kind)
        if self._answered or (kind, bound, sigma) != ("gaussian", rules.bound, rules.sigma):
            raise BoundaryError(
                "A secure sum is one Gaussian answer, with the bound and the noise it was declared with."
            )
        self._answered = True
        return torch.from_numpy(shares.noisy_steps(rules, total.cpu().numpy(), self._noise)).double() * rules.grid

    def _refuse_shared(self, what: str) -> None:
        if self._shared is not None:
            raise BoundaryError(f"A secure sum is one noisy sum; {what} cannot be part of it.")

    def _charge(self, sigma: float, *, rate: float, kind: str, times: int = 1) -> None:
        make = Cost.gaussian if kind == "gaussian" else Cost.laplace
        self.meter.add(make(sigma, rate=rate, times=times, unit=self.unit, relation=self.relation))

    def _draws(self) -> RecordDraws:
        """The records' own random numbers for one question."""
        return self._noise.by_record()

    def _sample(self, rate: float, draws: RecordDraws) -> Records:
        if rate == 1.0:
            return self._records
        unit = self._records.unit
        if unit is None:
            return self._records.take(mechanisms.poisson_indices(self._records.identities, rate=rate, draws=draws))
        ids, inverse = torch.unique_consecutive(unit, return_inverse=True)
        chosen = torch.zeros(len(ids), dtype=torch.bool)
        chosen[mechanisms.poisson_indices(identities(ids.cpu().numpy()), rate=rate, draws=draws)] = True
        return self._records.take(torch.nonzero(chosen[inverse]).flatten())

    def _one_hot(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y[:, None] == torch.arange(self.classes, device=y.device)).to(torch.float64)

    def _clipped_sum(self, rows: Rows, sample: Records, *, size: int, bound: float, kind: str) -> torch.Tensor:
        blocks = self._rows_in_chunks(rows, sample, size)
        if sample.unit is not None:
            ids, inverse = torch.unique_consecutive(sample.unit, return_inverse=True)
            blocks = iter([mechanisms.mean_by_unit(torch.cat(list(blocks))[1:], inverse, len(ids))])
        return sum((mechanisms.clip_rows(b, bound, kind=kind).sum(0) for b in blocks), start=torch.zeros(()))

    def _chunk(self, rate: float) -> int:
        """Records that `rows` sees at a time: from public numbers, since a record's own row may not depend on how many
        others there are; one by one under `reference`."""
        most = at_a_time(self._records.x.shape[1:], CHUNK)
        return 1 if self.reference else min(most, equal_blocks(rate * self.declared, most))

    def _rows_in_chunks(self, rows: Rows, sample: Records, size: int) -> Iterator[torch.Tensor]:
        """Rows of `size` records at a time, filled up with nothing, so that memory stays bounded.

        The first block is one row of zeros, as wide as the answer: an empty sample then has the same shape.
        """
        x = as_floats(torch.zeros(1, *sample.x.shape[1:], dtype=sample.x.dtype, device=self.device))
        yield torch.zeros_like(rows(x, torch.zeros(1, dtype=torch.int64, device=self.device)).cpu())
        parts = zip(torch.split(sample.x, size), torch.split(sample.y, size)) if len(sample) else ()
        for part in track(parts, "records", len(sample), each=lambda pair: len(pair[0])):
            x, y = (t.to(self.device) for t in filled_up(part, size))
            x = as_floats(x)
            # Through a network of a server's choice, too, a record's own row may not hang on its place among others.
            with RowByRow():
                row = rows(x, y)[: len(part[0])].cpu()
            yield row
