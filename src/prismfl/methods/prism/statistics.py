"""What PRISM releases: noisy sums of public features, by class, in one Gaussian answer of the door.

What leaves a site, once: noisy sums over its records, by class, of features made from public images only (a bank of
random networks, a dictionary of public patches), a noisy count, and the noisy pooled second moment of the patch
features; one Gaussian release of sensitivity 1. What is made of it is in `head` (a closed-form classifier) and `prism`
(public images that match it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, model_validator

from prismfl.core.method import DPSettings, Items, Shapes, Site, State, Summed
from prismfl.core.payloads import Statistics
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods import robust
from prismfl.methods.prism import centring
from prismfl.methods.prism.encoder import FeatureSettings, PublicFeatures, encoder
from prismfl.nets.smaller import smaller
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import from_triangle, triangle
from prismfl.rng import Key

LEAST_SIDE = 8  # a random network halves its maps twice and needs more than one pixel to norm


class ReleaseSettings(FeatureSettings, DPSettings):
    """What is released: which public features, and how the sensitivity and the budget are divided."""

    covariance: int = Field(256, ge=0, description="leading directions whose second moment is released")
    share_networks: float = Field(0.3, ge=0, description="share of the squared sensitivity: random networks")
    share_means: float = Field(0.2, ge=0, description="share of the squared sensitivity: means of patch features")
    share_covariance: float = Field(0.45, ge=0, description="share of the squared sensitivity: second moments")
    share_count: float = Field(0.05, gt=0, description="share of the squared sensitivity: counts")
    budget: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description="fixed: equal parts over the rounds; adaptive: growing parts, until the statistics are clear",
    )
    enough: float = Field(0.1, gt=0, description="adaptive: a site stops when noise-to-signal falls below this")
    centring: float = Field(
        0.0, ge=0, lt=1, description="share of the squared budget: the site's own centre, which rows are measured from"
    )

    @model_validator(mode="after")
    def _centred_once(self) -> ReleaseSettings:
        if self.centring and self.rounds > 1:
            raise ValueError(f"centring is for one exchange: expected rounds = 1, got {self.rounds}")
        return self

    @property
    def answer_noise(self) -> float:
        """The noise of the statistics: sigma over the square root of what the centre leaves of the squared budget."""
        return self.noise / math.sqrt(1.0 - self.centring)


@dataclass(frozen=True)
class RowLayout:
    """Where each block of a record's vector lies and how much of the sensitivity it takes. Squared factors sum to 1."""

    rank: int
    second: int
    networks: int
    features: int
    means: float
    moment: float
    nets: float
    count: float

    @property
    def width(self) -> int:
        """Numbers in a record's row."""
        return self.rank + self.networks * self.features + 1

    @property
    def scale(self) -> float:
        """The factor on q q', which the door forms from the row's own scaled entries q; hence the division."""
        return self.moment / self.means**2 if self.second else 0.0


def row_layout(cfg: ReleaseSettings, task: Task) -> RowLayout:
    """The layout that these settings give a record of this task; from public numbers alone."""
    if task.parts is not None:
        cfg = cfg.model_copy(update={"networks": 0})  # random networks look at pictures alone
    return layout_of(cfg, _public_rank(cfg, task))


def layout_of(cfg: ReleaseSettings, rank: int) -> RowLayout:
    """The same for a known number of directions."""
    second = min(cfg.covariance, rank)
    shares = (
        cfg.share_means,
        cfg.share_covariance if second else 0.0,
        cfg.share_networks if cfg.networks else 0.0,
        cfg.share_count,
    )
    means, moment, nets, count = (math.sqrt(s / sum(shares)) for s in shares)
    return RowLayout(rank, second, cfg.networks, cfg.network_features, means, moment, nets, count)


def _public_rank(cfg: ReleaseSettings, task: Task) -> int:
    """How many directions there are: as many as asked, or as the dictionary has features. (Of an encoder's layers, as
    many as asked: directions that it lacks are zeros.)"""
    if cfg.layers or task.encoder is not None:
        return cfg.rank
    colour = 3 * min(cfg.colour, task.shape[1]) ** 2 if task.shape[0] == 3 and cfg.colour else 0
    return min(cfg.rank, 2 * cfg.atoms * cfg.pool**2 + colour)


def record_rows(
    enc: PublicFeatures, layout: RowLayout, x: torch.Tensor, look: centring.Coordinates | None = None
) -> torch.Tensor:
    """One record's row: patch coordinates, random-network features, the count. The door adds the outer product."""
    with torch.no_grad():
        blocks, seen = [layout.means * (look or enc.coordinates)(x)], smaller(x) if enc.nets else x
        blocks += [layout.nets / math.sqrt(layout.networks) * net(seen) for net in enc.nets]
        return torch.cat([*blocks, torch.full((len(x), 1), layout.count, device=x.device)], 1)


def parts_of_budget(cfg: ReleaseSettings) -> list[float]:
    """Each exchange's part of the squared budget; they sum to one. Adaptive: each is twice the one before."""
    raw = [2.0**r if cfg.budget == "adaptive" else 1.0 for r in range(cfg.rounds)]
    return [part / sum(raw) for part in raw]


def noise_to_signal(layout: RowLayout, sums: torch.Tensor, sigma: float) -> float:
    """The median over classes that are clearly there of (noise in a class's sum) / (the sum itself), from a release."""
    counts = sums[:, -1] / layout.count
    there = counts > 2.0 * sigma / layout.count
    if not bool(there.any()):
        return math.inf
    ratio = sigma * math.sqrt(layout.width) / sums[there, :-1].norm(dim=1).clamp_min(1e-9)
    return float(ratio.median())


def next_statistics(cfg: ReleaseSettings, round: int, site: Site) -> tuple[Statistics, Statistics]:
    """This exchange's release, joined with the site's earlier ones: what leaves, and what the site remembers.

    Under `adaptive` a site whose joined release is clear enough, judged by that release alone, asks no more: it sends
    what it has sent before. Stopping early does not lower the charge, which was made for the plan.
    """
    before, part = site.memory.get("statistics"), parts_of_budget(cfg)[round]
    sigma = cfg.noise / math.sqrt(part)
    if before is not None and cfg.budget == "adaptive":
        spent = float(before.tensors["spent"])
        layout = row_layout(cfg, site.task)
        if noise_to_signal(layout, before.tensors["sums"], cfg.noise / math.sqrt(spent)) <= cfg.enough:
            site.records.forfeit(sigma=sigma, times=1)
            same = Statistics(before.tensors)
            return same, same
    fresh = release_statistics(cfg.model_copy(update={"sigma": sigma}), site).tensors
    if before is None:
        joined = {**fresh, "spent": torch.tensor([part])}
    else:
        old, spent = before.tensors, float(before.tensors["spent"])
        joined = {k: (spent * old[k] + part * fresh[k]) / (spent + part) for k in fresh}
        joined["spent"] = torch.tensor([spent + part])
    return Statistics(joined), Statistics(joined)


def release_statistics(cfg: ReleaseSettings, site: Site) -> Statistics:
    """One noisy answer of a site; before it, where centring has a share, one about where its records lie."""
    enc = encoder(cfg, site.task)
    layout = row_layout(cfg, site.task)
    look, more = enc.coordinates, {}
    if cfg.centring:
        seen, sigma = centring.remembered(look), cfg.noise / math.sqrt(cfg.centring)
        answer = site.records.noisy_sum(lambda x, y: _for_centre(seen, x), bound=1.0, sigma=sigma)
        centre = centring.centre_of(answer, sigma=sigma)
        look, more = lambda x: centring.around(seen(x), centre.to(x.device)), {"centre": centre}
    sums, moment = site.records.noisy_moments(
        lambda x, y: record_rows(enc, layout, x, look),
        second=layout.second,
        scale=layout.scale,
        bound=1.0,
        sigma=cfg.answer_noise,
    )
    return Statistics({**more, "sums": sums, "moment": triangle(moment)})


def _for_centre(look: centring.Coordinates, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return centring.with_count(look(x))


def init(cfg: ReleaseSettings, task: Task, key: Key) -> Items:
    """Nothing to begin with: the features come from the task's public images. What they cannot see is refused here,
    before anything is charged."""
    if task.kind == "image" and min(task.shape[1:]) < LEAST_SIDE:
        raise UserError(
            f"The public features look at images of at least {LEAST_SIDE} pixels a side, got "
            f"{task.shape[1]}x{task.shape[2]}; declare image_size={LEAST_SIDE} or more."
        )
    if task.parts is not None and 0 < cfg.covariance < cfg.rank:
        raise UserError(
            "What the parts of a record have in common is in the second moment of all directions: expected covariance "
            f">= rank, got {cfg.covariance} and {cfg.rank}."
        )
    return {}


def client(cfg: ReleaseSettings, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The statistics leave, and stay as well: a later exchange is joined to them."""
    leaves, stays = next_statistics(cfg, state.round, site)
    return {"statistics": leaves}, {"statistics": stays}


def plan(cfg: ReleaseSettings, task: Task) -> Cost:
    """Every exchange, also where an adaptive site stops early."""
    rounds = (round_cost(cfg, task, round, False) for round in range(cfg.rounds))
    return sum(rounds, start=Cost.zero(task.unit, task.relation))


def round_cost(cfg: ReleaseSettings, task: Task, round: int, first: bool) -> Cost:
    """One Gaussian answer at the noise of this exchange's part of the budget; with a centre, two."""
    cost = task.gaussian(cfg.answer_noise / math.sqrt(parts_of_budget(cfg)[round]))
    return task.gaussian(cfg.noise / math.sqrt(cfg.centring)) + cost if cfg.centring else cost


def summed(cfg: ReleaseSettings, task: Task) -> Summed:
    """The server needs no more than the sum of the sites' statistics, where there is one exchange."""
    if cfg.rounds != 1:
        raise UserError(f"PRISM's secure sum is one exchange: expected rounds = 1, got {cfg.rounds}.")
    if cfg.centring:
        raise UserError(f"PRISM's secure sum is one answer: expected centring = 0, got {cfg.centring}.")
    return Summed("statistics", bound=1.0, sigma=cfg.noise, tensors=("moment", "sums"))


def shapes(cfg: ReleaseSettings, task: Task) -> Shapes:
    """A row of sums per class, the upper triangle of the second moment, and the part of the budget that is spent."""
    layout = row_layout(cfg, task)
    more = {"centre": ("float32", (layout.rank,))} if cfg.centring else {}
    return {
        "statistics": {
            **more,
            "moment": ("float32", (layout.second * (layout.second + 1) // 2,)),
            "spent": ("float32", (1,)),
            "sums": ("float32", (len(task.classes), layout.width)),
        }
    }


def possible(cfg: ReleaseSettings, task: Task, state: State, site: str, items: Items) -> str | None:
    """Counts of declared records, class sums as long as their counts allow, moments likewise; all plus noise."""
    tensors, layout = items["statistics"].tensors, row_layout(cfg, task)
    spent = float(tensors["spent"])
    if not _can_have_spent(cfg, state.round, spent):
        return f"it says that {spent:.6g} of the budget is spent"
    if "centre" in tensors and float(tensors["centre"].double().norm()) > centring.LONGEST + 1e-3:
        return "its centre is longer than a row"
    sigma = cfg.answer_noise / math.sqrt(spent)
    sums, moment = tensors["sums"].double(), tensors["moment"].double()
    counts = sums[:, -1] / layout.count
    return robust.first_fault(
        lambda: robust.count_fault(counts, task, sigma / layout.count), lambda: _sums_fault(layout, sums, moment, sigma)
    )


def _sums_fault(layout: RowLayout, sums: torch.Tensor, moment: torch.Tensor, sigma: float) -> str | None:
    """A record's row has norm 1 at most, of which the count takes a fixed part."""
    doubt = robust.noise_norm(len(sums), sigma / layout.count)
    room = math.sqrt(1.0 - layout.count**2)
    most = room * (sums[:, -1] / layout.count + doubt).clamp(min=0.0) + robust.noise_norm(sums.shape[1], sigma) + 1e-3
    if bool((torch.linalg.vector_norm(sums[:, :-1], dim=1) > 1.001 * most).any()):
        return "sums of a class are longer than its count allows"
    total = float(sums[:, -1].sum()) / layout.count + math.sqrt(len(sums)) * doubt
    limit = layout.moment * max(0.0, total) + robust.noise_norm(max(1, moment.numel()), sigma) + 1e-3
    if float(torch.linalg.vector_norm(moment)) > 1.001 * limit:
        return "second moments are larger than its counts allow"
    trace = float(from_triangle(moment, layout.second).trace()) if layout.second else 0.0
    if trace < -robust.SURE * sigma * math.sqrt(max(1, layout.second)) * 1.001 - 1e-3:
        return f"second moments have the trace {trace:.3g}, below zero"
    return None


def _can_have_spent(cfg: ReleaseSettings, last: int, spent: float) -> bool:
    """A sum of some of the parts so far: a site may have missed exchanges, or have stopped."""
    units = 2**cfg.rounds - 1 if cfg.budget == "adaptive" else cfg.rounds
    most = 2 ** (last + 1) - 1 if cfg.budget == "adaptive" else last + 1
    count = round(min(max(spent * units, 0.0), most + 1.0))
    return 1 <= count <= most and abs(spent * units - count) <= 1e-4 * count + 1e-5


def advice(cfg: ReleaseSettings, task: Task) -> list[str]:
    """The noise to expect, before anything is spent: from the declared size, as if every class were equally common."""
    layout = row_layout(cfg, task)
    ratio = (
        cfg.noise * math.sqrt(layout.width) * len(task.classes) / task.records / math.hypot(layout.means, layout.nets)
    )
    if ratio <= 0.5:
        return []
    return [
        f"expected noise-to-signal of a class at one site is {ratio:.1f}: one site's statistics will be poor; "
        "use a larger epsilon, fewer networks or a smaller rank, or more records a site."
    ]


TINY = {
    "networks": 3,
    "network_width": 4,
    "network_features": 8,
    "atoms": 6,
    "patch": 3,
    "pool": 2,
    "rank": 12,
    "covariance": 8,
}
