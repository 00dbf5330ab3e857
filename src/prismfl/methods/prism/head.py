"""prism-head: what PRISM releases, and the closed-form classifier from it, without any image.

What leaves a site, once: noisy sums over its records, by class, of features made from public images only (a bank of
random networks, a dictionary of public patches), a noisy count, and the noisy pooled second moment of the patch
features; one Gaussian release of sensitivity 1. The server's linear discriminant analysis with the released means and
covariance tests that release, and is the floor that the images of `prism` must approach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field

from prismfl.core.method import DPSettings, Inbox, Items, Method, Shapes, Site, State, Summed
from prismfl.core.payloads import Statistics
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods import robust
from prismfl.nets.patches import Frame, Patches, fit_frame, learn_patches
from prismfl.nets.random_nets import RandomNet, random_nets
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import from_triangle, triangle
from prismfl.rng import Key


class HeadConfig(DPSettings):
    """What is released and how the closed-form head reads it."""

    networks: int = Field(32, ge=0, description="random networks whose class means are released")
    network_width: int = Field(16, ge=1)
    network_features: int = Field(64, ge=1, description="features of each random network")
    network_layers: int = Field(1, ge=1, le=3, description="how many of its last layers a random network answers from")
    views: float = Field(0.0, ge=0, le=1, description="how far each network's own fixed augmentation moves images")
    atoms: int = Field(128, ge=1, description="size of the public patch dictionary")
    patch: int = Field(5, ge=2, description="side of a patch in pixels")
    patch_stride: int = Field(1, ge=1)
    pool: int = Field(3, ge=1, description="patch codes are averaged over pool x pool fields")
    colour: int = Field(8, ge=0, description="coarse colour image of this side beside the codes (colour images only)")
    rank: int = Field(256, ge=1, description="leading public directions kept of the patch features")
    covariance: int = Field(256, ge=0, description="leading directions whose second moment is released")
    power: float = Field(0.4, ge=0, le=0.5, description="flattening of the public spectrum before the clip")
    quantile: float = Field(0.0, ge=0, le=1, description="the clip sits at this quantile of the public norms")
    share_networks: float = Field(0.3, ge=0, description="share of the squared sensitivity: random networks")
    share_means: float = Field(0.2, ge=0, description="the same: means of patch features")
    share_covariance: float = Field(0.45, ge=0, description="the same: second moments")
    share_count: float = Field(0.05, gt=0, description="the same: counts")
    budget: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description="fixed: equal parts over the rounds; adaptive: growing parts, until the statistics are clear",
    )
    enough: float = Field(0.1, gt=0, description="adaptive: a site stops when noise-to-signal falls below this")
    ridge: float = Field(
        0.3, gt=0, description="of the head: in noise levels (released covariance) or public variances"
    )
    aggregate: robust.Aggregate = Field(
        "clipped-mean",
        description="how sites are pooled; clipped-mean: by their counts, none beyond twice the declared records nor "
        "beyond all others of a class; median, trimmed-mean: of the class means of three sites and more",
    )
    bank_seed: int = Field(0, description="seed of the public networks and patches")


# What the public features depend on; the noise, the budget and the shares do not change them.
FEATURE_SETTINGS = (
    "networks", "network_width", "network_features", "network_layers", "views", "atoms", "patch", "patch_stride",
    "pool", "colour", "rank", "power", "quantile", "bank_seed",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Encoder:
    """Public features: the same on every site and at the server, from public images and a public seed."""

    nets: tuple[RandomNet, ...]
    patches: Patches
    frame: Frame

    def coordinates(self, x: torch.Tensor) -> torch.Tensor:
        # Few images at a time: the maps of patch codes then stay in the processor's cache.
        return torch.cat([self.frame(self.patches(part)) for part in torch.split(x, 64)])

    @property
    def rank(self) -> int:
        return self.frame.basis.shape[1]


@dataclass(frozen=True)
class _Public:
    """Public images as a dictionary key: compared by content."""

    digest: int
    images: torch.Tensor

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Public) and self.digest == other.digest


def encoder(cfg: HeadConfig, task: Task) -> Encoder:
    assert task.public is not None
    images = task.public.to(task.device)
    public = _Public(hash(images.cpu().numpy().tobytes()), images)
    return _encoder(HeadConfig(**{k: getattr(cfg, k) for k in FEATURE_SETTINGS}), public)


@lru_cache(maxsize=2)
def _encoder(cfg: HeadConfig, public: _Public) -> Encoder:
    key, images = Key.seed(cfg.bank_seed).child("prism"), public.images
    nets = random_nets(
        images[:1500],
        count=cfg.networks,
        width=cfg.network_width,
        features=cfg.network_features,
        depth=cfg.network_layers,
        views=cfg.views,
        key=key.child("nets"),
    )
    side = min(cfg.patch, images.shape[2] - 1)
    patches = learn_patches(
        images[:4000],
        atoms=cfg.atoms,
        side=side,
        stride=cfg.patch_stride,
        pool=cfg.pool,
        colour=min(cfg.colour, images.shape[2]),
        key=key.child("patches"),
    )
    with torch.no_grad():
        features = torch.cat([patches(part) for part in torch.split(images[:6000], 250)])
    return Encoder(nets, patches, fit_frame(features, rank=cfg.rank, power=cfg.power, quantile=cfg.quantile))


@dataclass(frozen=True)
class Layout:
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
        return self.rank + self.networks * self.features + 1


def layout(cfg: HeadConfig, rank: int) -> Layout:
    second = min(cfg.covariance, rank)
    shares = (
        cfg.share_means,
        cfg.share_covariance if second else 0.0,
        cfg.share_networks if cfg.networks else 0.0,
        cfg.share_count,
    )
    means, moment, nets, count = (math.sqrt(s / sum(shares)) for s in shares)
    return Layout(rank, second, cfg.networks, cfg.network_features, means, moment, nets, count)


def public_rank(cfg: HeadConfig, task: Task) -> int:
    """How many directions there are: as many as asked, or as the dictionary has features."""
    colour = 3 * min(cfg.colour, task.shape[1]) ** 2 if task.shape[0] == 3 and cfg.colour else 0
    return min(cfg.rank, 2 * cfg.atoms * cfg.pool**2 + colour)


def record_rows(enc: Encoder, plan: Layout, x: torch.Tensor) -> torch.Tensor:
    """One record's row: patch coordinates, random-network features, the count. The door adds the outer product."""
    with torch.no_grad():
        blocks = [plan.means * enc.coordinates(x)]
        blocks += [plan.nets / math.sqrt(plan.networks) * net(x) for net in enc.nets]
        return torch.cat([*blocks, torch.full((len(x), 1), plan.count, device=x.device)], 1)


def parts_of_budget(cfg: HeadConfig) -> list[float]:
    """Each exchange's part of the squared budget; they sum to one. Adaptive: each is twice the one before."""
    raw = [2.0**r if cfg.budget == "adaptive" else 1.0 for r in range(cfg.rounds)]
    return [part / sum(raw) for part in raw]


def noise_to_signal(cfg: HeadConfig, plan: Layout, sums: torch.Tensor, sigma: float) -> float:
    """The median over classes that are clearly there of (noise in a class's sum) / (the sum itself), from a release."""
    counts = sums[:, -1] / plan.count
    there = counts > 2.0 * sigma / plan.count
    if not bool(there.any()):
        return math.inf
    ratio = sigma * math.sqrt(plan.width) / sums[there, :-1].norm(dim=1).clamp_min(1e-9)
    return float(ratio.median())


def next_statistics(cfg: HeadConfig, round: int, site: Site) -> tuple[Statistics, Statistics]:
    """This exchange's release, joined with the site's earlier ones: what leaves, and what the site remembers.

    Under `adaptive` a site whose joined release is clear enough, judged by that release alone, asks no more: it sends
    what it has sent before. Stopping early does not lower the charge, which was made for the plan.
    """
    before, part = site.memory.get("statistics"), parts_of_budget(cfg)[round]
    sigma = cfg.noise / math.sqrt(part)
    if before is not None and cfg.budget == "adaptive":
        spent = float(before.tensors["spent"])
        form = layout(cfg, public_rank(cfg, site.task))
        if noise_to_signal(cfg, form, before.tensors["sums"], cfg.noise / math.sqrt(spent)) <= cfg.enough:
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


def release_statistics(cfg: HeadConfig, site: Site) -> Statistics:
    """One noisy answer of a site."""
    enc = encoder(cfg, site.task)
    plan = layout(cfg, enc.rank)
    # The door forms scale * q q' from the row's own scaled entries, hence the division by their factor squared.
    scale = plan.moment / plan.means**2 if plan.second else 0.0
    sums, moment = site.records.noisy_moments(
        lambda x, y: record_rows(enc, plan, x), second=plan.second, scale=scale, bound=1.0, sigma=cfg.noise
    )
    return Statistics({"sums": sums, "moment": triangle(moment)})


@dataclass(frozen=True, eq=False)
class Pooled:
    """What the server reads out of all releases."""

    counts: torch.Tensor
    means: torch.Tensor
    nets: torch.Tensor
    within: torch.Tensor
    unreleased: torch.Tensor
    level: float


def pool(
    cfg: HeadConfig,
    plan: Layout,
    releases: Sequence[Mapping[str, torch.Tensor]],
    enc: Encoder,
    *,
    usual: float,
    records: float | None = None,
) -> Pooled:
    """Class means and the within-class covariance, by noisy counts only.

    A site's sums for a class are left out where its noisy count could be noise alone (below two standard deviations),
    unless that is so at every site, or the noise is so large that it would hide an ordinary class (of `usual` records)
    as well. Counts are floored at 1. With the declared `records` of a site, no site outweighs the others.
    """
    sums = torch.stack([r["sums"] for r in releases])
    counts = sums[:, :, -1] / plan.count
    cut = 2.0 * cfg.noise / plan.count
    keep = counts > (cut if cut <= 0.5 * usual else -math.inf)
    keep = keep | ~keep.any(0, keepdim=True)
    whole, part = _weights(cfg, plan, counts, keep, records)
    count = (counts * whole[:, None] * keep).sum(0).clamp_min(1.0)
    total = class_means(cfg, sums, counts, part)
    means = total[:, : plan.rank] / plan.means
    nets = total[:, plan.rank :].reshape(len(count), plan.networks, plan.features) * (
        math.sqrt(plan.networks) / max(plan.nets, 1e-9)
    )
    within, unreleased = torch.diag(enc.frame.values.cpu()), enc.frame.unit.cpu().clone()
    unreleased[: plan.second] = 0.0
    level = 0.0
    if plan.second:
        moments = torch.stack([r["moment"] for r in releases]) * whole[:, None]
        moment = from_triangle(moments.sum(0), plan.second)
        second = moment / plan.moment / count.sum()
        lead = means[:, : plan.second]
        level = cfg.noise * math.sqrt(2.0 * plan.second * len(releases)) / plan.moment / float(count.sum())
        within[: plan.second, : plan.second] = second - (lead.T * (count / count.sum())) @ lead
    return Pooled(count, means, nets, within, unreleased, level)


def _weights(
    cfg: HeadConfig, plan: Layout, counts: torch.Tensor, keep: torch.Tensor, records: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a site's statistics count for: all of them together, and in the mean of each class."""
    if records is None or cfg.aggregate == "mean":
        return torch.ones(len(counts)), keep.to(counts.dtype)
    noise = cfg.noise / plan.count
    whole = robust.site_weights(counts, records=records, noise=noise)
    held = counts * whole[:, None] * keep
    return whole, keep * whole[:, None] * robust.class_weights(held, records=records, noise=noise)


def class_means(cfg: HeadConfig, sums: torch.Tensor, counts: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The mean row of each class over the sites, each site by its weight; or the middle of the sites' own means."""
    count = (counts * part).sum(0).clamp_min(1.0)
    means = (sums[:, :, :-1] * part[:, :, None]).sum(0) / count[:, None]
    if cfg.aggregate in ("median", "trimmed-mean"):
        for c in range(len(means)):
            there = (part[:, c] > 0) & (counts[:, c] >= 1.0)
            if int(there.sum()) >= 3:
                means[c] = robust.centre(cfg.aggregate, sums[there, c, :-1] / counts[there, c, None])
    return means


def whitening(cfg: HeadConfig, pooled: Pooled) -> torch.Tensor:
    """The inverse root of the covariance within classes: the released one where that exists."""
    within = pooled.within.double()
    # Directions without a released covariance have the public one, and a ridge in units of a public feature's variance.
    within += torch.diag(cfg.ridge * pooled.unreleased.double())
    values, vectors = torch.linalg.eigh(within)
    floor = cfg.ridge * pooled.level + 1e-4 * float(values[-1])
    root: torch.Tensor = vectors @ torch.diag((values.clamp_min(0.0) + floor).rsqrt()) @ vectors.T
    return root


def lda_head(cfg: HeadConfig, pooled: Pooled) -> dict[str, torch.Tensor]:
    """Linear discriminant from the released means and covariance."""
    root = whitening(cfg, pooled)
    weight = (root @ (root @ pooled.means.double().T)).float()
    return {"weight": weight, "bias": -0.5 * (pooled.means.T * weight).sum(0)}


def head_scores(enc: Encoder, head: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        parts = [
            enc.coordinates(part) @ head["weight"].to(x.device) + head["bias"].to(x.device)
            for part in torch.split(x, 250)
        ]
        return torch.cat(parts)


def init(cfg: HeadConfig, task: Task, key: Key) -> Items:
    return {}


def client(cfg: HeadConfig, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    leaves, stays = next_statistics(cfg, state.round, site)
    return {"statistics": leaves}, {"statistics": stays}


def read_releases(cfg: HeadConfig, task: Task, inbox: Inbox) -> tuple[Encoder, Pooled]:
    """The pooled statistics of all sites, at the noise that the least informed of them has.

    A secure sum is one release of all sites together; it comes without an account of what was spent.
    """
    enc = encoder(cfg, task)
    plan = layout(cfg, enc.rank)
    released = [items["statistics"].tensors for _, items in sorted(inbox.items())]
    least = min(float(r["spent"]) if "spent" in r else 1.0 for r in released)
    sites = 1 if "spent" in released[0] else len(task.sites)
    noisiest = cfg.model_copy(update={"sigma": cfg.noise / math.sqrt(max(least, 1e-6))})
    records = None if len(released) < 2 else float(task.records)
    usual = sites * task.records / len(task.classes)
    return enc, pool(noisiest, plan, released, enc, usual=usual, records=records)


def possible(cfg: HeadConfig, task: Task, state: State, site: str, items: Items) -> str | None:
    """Counts of declared records, class sums as long as their counts allow, moments likewise; all plus noise."""
    tensors, form = items["statistics"].tensors, layout(cfg, public_rank(cfg, task))
    spent = float(tensors["spent"])
    if not _can_have_spent(cfg, state.round, spent):
        return f"it says that {spent:.6g} of the budget is spent"
    sigma = cfg.noise / math.sqrt(spent)
    sums, moment = tensors["sums"].double(), tensors["moment"].double()
    counts = sums[:, -1] / form.count
    return robust.first_fault(
        lambda: robust.count_fault(counts, task, sigma / form.count), lambda: _sums_fault(form, sums, moment, sigma)
    )


def _sums_fault(form: Layout, sums: torch.Tensor, moment: torch.Tensor, sigma: float) -> str | None:
    """A record's row has norm 1 at most, of which the count takes a fixed part."""
    doubt = robust.noise_norm(len(sums), sigma / form.count)
    room = math.sqrt(1.0 - form.count**2)
    most = room * (sums[:, -1] / form.count + doubt).clamp(min=0.0) + robust.noise_norm(sums.shape[1], sigma) + 1e-3
    if bool((torch.linalg.vector_norm(sums[:, :-1], dim=1) > 1.001 * most).any()):
        return "sums of a class are longer than its count allows"
    total = float(sums[:, -1].sum()) / form.count + math.sqrt(len(sums)) * doubt
    limit = form.moment * max(0.0, total) + robust.noise_norm(max(1, moment.numel()), sigma) + 1e-3
    if float(torch.linalg.vector_norm(moment)) > 1.001 * limit:
        return "second moments are larger than its counts allow"
    trace = float(from_triangle(moment, form.second).trace()) if form.second else 0.0
    if trace < -robust.SURE * sigma * math.sqrt(max(1, form.second)) * 1.001 - 1e-3:
        return f"second moments have the trace {trace:.3g}, below zero"
    return None


def _can_have_spent(cfg: HeadConfig, last: int, spent: float) -> bool:
    """A sum of some of the parts so far: a site may have missed exchanges, or have stopped."""
    units = 2**cfg.rounds - 1 if cfg.budget == "adaptive" else cfg.rounds
    most = 2 ** (last + 1) - 1 if cfg.budget == "adaptive" else last + 1
    count = round(min(max(spent * units, 0.0), most + 1.0))
    return 1 <= count <= most and abs(spent * units - count) <= 1e-4 * count + 1e-5


def summed(cfg: HeadConfig, task: Task) -> Summed:
    if cfg.rounds != 1:
        raise UserError(f"PRISM's secure sum is one exchange: expected rounds = 1, got {cfg.rounds}.")
    return Summed("statistics", bound=1.0, sigma=cfg.noise, tensors=("moment", "sums"))


def server(cfg: HeadConfig, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    _, pooled = read_releases(cfg, task, inbox)
    return {"model": Statistics(lda_head(cfg, pooled))}


def predict(cfg: HeadConfig, task: Task, items: Items, x: torch.Tensor) -> torch.Tensor:
    return head_scores(encoder(cfg, task), items["model"].tensors, x.to(task.device))


def plan(cfg: HeadConfig, task: Task) -> Cost:
    """Every exchange, also where an adaptive site stops early."""
    rounds = (round_cost(cfg, task, round, False) for round in range(cfg.rounds))
    return sum(rounds, start=Cost.zero(task.unit, task.relation))


def round_cost(cfg: HeadConfig, task: Task, round: int, first: bool) -> Cost:
    return task.gaussian(cfg.noise / math.sqrt(parts_of_budget(cfg)[round]))


def advice(cfg: HeadConfig, task: Task) -> list[str]:
    """The noise to expect, before anything is spent: from the declared size, as if every class were equally common."""
    form = layout(cfg, public_rank(cfg, task))
    ratio = cfg.noise * math.sqrt(form.width) * len(task.classes) / task.records / math.hypot(form.means, form.nets)
    if ratio <= 0.5:
        return []
    return [
        f"expected noise-to-signal of a class at one site is {ratio:.1f}: one site's statistics will be poor; "
        "use a larger epsilon, fewer networks or a smaller rank, or more records a site."
    ]


def shapes(cfg: HeadConfig, task: Task) -> Shapes:
    form = layout(cfg, public_rank(cfg, task))
    return {
        "statistics": {
            "moment": ("float32", (form.second * (form.second + 1) // 2,)),
            "spent": ("float32", (1,)),
            "sums": ("float32", (len(task.classes), form.width)),
        }
    }


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

METHOD = Method(
    name="prism-head",
    summary="closed-form classifier from PRISM's release (no images)",
    paper="PRISM-FL (abstract)",
    settings=HeadConfig,
    leaves={"statistics": Statistics},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    round_cost=round_cost,
    shapes=shapes,
    possible=possible,
    predict=predict,
    needs_public=True,
    kinds=("image",),
    advice=advice,
    summed=summed,
    tiny=TINY,
)
