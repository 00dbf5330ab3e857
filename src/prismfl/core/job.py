"""Everything public that defines a run: what it costs, what it sends, what a secure sum of it adds up."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from prismfl.core.method import Method, Settings, Shapes, Summed
from prismfl.core.payloads import Gradient, Items, JsonDict, Weights
from prismfl.core.task import Task
from prismfl.errors import BoundaryError, BudgetError, UserError
from prismfl.kernels.parts import step_bytes
from prismfl.privacy.cost import Cost
from prismfl.privacy.shares import Rules, Secrecy
from prismfl.rng import Key


@dataclass(frozen=True)
class Job:
    """Everything public that defines a run."""

    run: str
    method: Method
    settings: Settings
    task: Task
    seed: int
    secure: Secrecy | None = None

    def __post_init__(self) -> None:
        if self.secure is not None:
            self.sum_rules(0)

    @property
    def key(self) -> Key:
        """The key of the run's seed."""
        return Key.seed(self.seed)

    @cached_property
    def shapes(self) -> Shapes:
        """The dtypes and shapes of the items that a site sends."""
        return self.method.shapes(self.settings, self.task)

    @cached_property
    def digest(self) -> str:
        """Of all that shapes a computation besides the records: method, settings, public facts."""
        # Simulated noise follows from this text: a key that is gone stays, so that committed runs can be repeated.
        task = repr(replace(self.task, public=None)).removesuffix(")") + ", site_classes=None)"
        facts = [self.method.name, self.settings.model_dump(mode="json"), task, self.seed, repr(self.secure)]
        if self.task.encoder is not None:
            facts.append(self.task.encoder.digest)
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()

    def simulated_noise(self, place: str, round: int) -> Key:
        """Noise that follows from the seed, for simulation only. Runs that differ in anything (another epsilon of a
        sweep, another method) share none of it; the same run again, over any transport and by any name, is the same."""
        return self.key.child("noise", self.digest, place, round)

    def plan(self) -> Cost:
        """The cost of the whole run, as the method plans it."""
        return self.method.plan(self.settings, self.task)

    @property
    def step_bytes(self) -> int:
        """The least memory that a private step is sure to fit in; 0 where no network is learnt in such steps."""
        if self.method.guarantee != "site":
            return 0
        learnt = [name for name, kind in self.method.leaves.items() if issubclass(kind, Weights | Gradient)]
        return step_bytes(sum(math.prod(shape) for name in learnt for _, shape in self.shapes[name].values()))

    def specs(self, site: str) -> Mapping[str, JsonDict]:
        """The words that a site's items carry, exactly; an item that is not named carries none."""
        return {} if self.method.specs is None else self.method.specs(self.settings, self.task, site)

    def round_costs(self, round: int) -> tuple[Cost, Cost]:
        """What a release of this round may say that it cost: a site's first one, or a later one."""
        return self.round_cost(round, first=True), self.round_cost(round, first=False)

    def round_cost(self, round: int, *, first: bool) -> Cost:
        """What a site pays for a round, charged before it begins; `first` where it remembers nothing of the run."""
        if not 0 <= round < self.settings.rounds:
            raise BudgetError(f"Refused: round {round + 1} is not in the plan of {self.settings.rounds} rounds.")
        if self.method.guarantee == "client":
            plan = self.site_plan()
            return plan if not plan.private else replace(self, settings=self._one_round()).site_plan()
        if self.method.round_cost is not None:
            return self.method.round_cost(self.settings, self.task, round, first)
        return self.method.plan(self._one_round(), self.task)

    def _one_round(self) -> Settings:
        return self.settings.model_copy(update={"rounds": 1})

    def site_plan(self) -> Cost:
        """What the run costs a site's own records, towards the server.

        At client level that is no guarantee at all: the hub is trusted. In a secure sum one record moves its site's
        clipped vector by at most twice the bound, so each round costs a record Gaussian noise of half the multiplier.
        """
        if self.method.guarantee != "client":
            return self.plan()
        if self.secure is None:
            return Cost.non_private(self.task.unit, self.task.relation)
        sigma, task = self.summed().sigma / 2, self.task
        return Cost.gaussian(sigma, times=self.settings.rounds, unit=task.unit, relation=task.relation)

    def summed(self) -> Summed:
        """What a secure sum of this run adds up."""
        if self.method.summed is None or self.method.guarantee is None:
            raise UserError(
                f"Method '{self.method.name}' needs more than a sum of its sites' statistics, so it has no secure sum; "
                "prism, prism-head, dp-marginals, prism-client and dp-fedavg-client have."
            )
        if self.task.participation < 1:
            raise UserError(f"A secure sum asks every site: expected participation 1, got {self.task.participation}.")
        found = self.method.summed(self.settings, self.task)
        shapes = self.shapes[found.item]
        return found if found.tensors else replace(found, tensors=tuple(sorted(shapes)))

    def flat(self, items: Items) -> torch.Tensor:
        """What a secure sum adds up of a site's items, as one vector."""
        found = self.summed()
        tensors = items[found.item].tensors
        return torch.cat([tensors[name].flatten().to(torch.float64) for name in found.tensors])

    def sum_rules(self, round: int) -> Rules:
        """The rules of a round's secure sum, from public numbers alone."""
        if self.secure is None:
            raise BoundaryError("This run has no secure sums.")
        found = self.summed()
        shapes = self.shapes[found.item]
        length = sum(math.prod(shapes[name][1]) for name in found.tensors)
        return Rules.fit(
            self.task.sites,
            self.secure,
            length=length,
            bound=found.bound,
            sigma=found.sigma,
            label=f"{self.run}/{round}",
        )
