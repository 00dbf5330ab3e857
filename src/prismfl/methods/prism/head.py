"""prism-head: the closed-form classifier from what PRISM releases (see `statistics`), without any image.

Paper: "PRISM-FL: Privacy-preserving Image Synthesis Mechanism for Federated Learning" (abstract).

The server pools the sites' statistics and answers with linear discriminant analysis from the released means and
covariance. That tests the release, and is the floor that the images of `prism` must approach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field

from prismfl.core.method import Fold, Folding, Inbox, Items, Method, State
from prismfl.core.payloads import Statistics
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.prism import centring, statistics
from prismfl.methods.prism.encoder import Linear, PublicFeatures, encoder
from prismfl.methods.prism.spectrum import cleaned, floor_of
from prismfl.methods.prism.stacked import Stacked, stack
from prismfl.methods.prism.statistics import RowLayout
from prismfl.privacy.mechanisms import from_triangle
from prismfl.rng import Key

APART = 0.15  # how far the classes' means differ along the mean of all records, of its length


class HeadConfig(statistics.ReleaseSettings):
    """What is released, and how the closed-form head reads it."""

    ridge: float = Field(
        0.3, gt=0, description="of the head: in noise levels (released covariance) or public variances"
    )
    spectrum: Literal["ridge", "cleaned"] = Field(
        "ridge", description="of the released covariance: a ridge on it, or its eigenvalues cleaned of the known noise"
    )
    aggregate: robust.Aggregate = Field(
        "clipped-mean",
        description="how sites are pooled; clipped-mean: by their counts, none beyond twice the declared records nor "
        "beyond all others of a class; median, trimmed-mean: of the class means of three sites and more",
    )


@dataclass(frozen=True, eq=False)
class Pooled:
    """What the server reads out of all releases.

    Of their noise: `level` is the edge of the covariance's spectrum, `noise` the deviation of its entries, `spread` the
    variance of each class's mean in every direction.
    """

    counts: torch.Tensor
    means: torch.Tensor
    nets: torch.Tensor
    within: torch.Tensor
    unreleased: torch.Tensor
    level: float
    noise: float
    spread: torch.Tensor


def pool(
    cfg: HeadConfig,
    layout: RowLayout,
    releases: Sequence[Params],
    enc: PublicFeatures,
    *,
    usual: float,
    records: float | None = None,
) -> Pooled:
    """Class means and the within-class covariance, by noisy counts only.

    A site's sums for a class are left out where its noisy count could be noise alone (below two standard deviations),
    unless that is so at every site, or the noise is so large that it would hide an ordinary class (of `usual` records)
    as well. Counts are floored at 1. With the declared `records` of a site, no site outweighs the others.
    """
    if cfg.centring:
        factors = {"means": layout.means, "moment": layout.moment, "count": layout.count}
        moved, origin = centring.together(releases, rank=layout.rank, **factors)
        told = cfg.model_copy(update={"sigma": cfg.answer_noise, "centring": 0.0})
        return _back(pool(told, layout, moved, enc, usual=usual, records=records), origin, layout.second)
    sums = stack(releases, "sums")
    counts = sums[:, :, -1] / layout.count
    cut = 2.0 * cfg.noise / layout.count
    keep = counts > (cut if cut <= 0.5 * usual else -math.inf)
    keep = keep | ~keep.any(0, keepdim=True)
    whole, part = _weights(cfg, layout, counts, keep, records)
    count = (counts * whole[:, None] * keep).sum(0).clamp_min(1.0)
    total = class_means(cfg, sums, counts, part)
    if cfg.spectrum == "cleaned":
        factor = _steadier(cfg, layout, total, count, part)
        count, total = count * factor, total / factor[:, None]
    means = total[:, : layout.rank] / layout.means
    nets = total[:, layout.rank :].reshape(len(count), layout.networks, layout.features) * (
        math.sqrt(layout.networks) / max(layout.nets, 1e-9)
    )
    within, unreleased = torch.diag(enc.frame.values.cpu()), enc.frame.unit.cpu().clone()
    unreleased[: layout.second] = 0.0
    level = noise = 0.0
    spread = (cfg.noise / layout.means) ** 2 * part.square().sum(0) / count.square()
    if layout.second:
        moments = stack(releases, "moment") * whole[:, None]
        moment = from_triangle(moments.sum(0), layout.second)
        second = moment / layout.moment / count.sum()
        lead = means[:, : layout.second]
        level = cfg.noise * math.sqrt(2.0 * layout.second * len(releases)) / layout.moment / float(count.sum())
        within[: layout.second, : layout.second] = second - (lead.T * (count / count.sum())) @ lead
        noise = level / math.sqrt(4.0 * layout.second)
        if cfg.spectrum == "cleaned":  # the noise of the means was taken off with their second moment
            within[: layout.second, : layout.second] += torch.eye(layout.second) * float(spread @ count / count.sum())
    return Pooled(count, means, nets, within, unreleased, level, noise, spread)


def _back(found: Pooled, origin: centring.Origin, second: int) -> Pooled:
    """What was measured from a centre, in the coordinates of the public features."""
    within, square = found.within.clone(), origin.unit**2
    within[:second, :second] *= square
    return replace(
        found,
        means=origin.centre + origin.unit * found.means,
        within=within,
        level=found.level * square,
        noise=found.noise * square,
        spread=found.spread * square,
    )


def _steadier(
    cfg: HeadConfig, layout: RowLayout, total: torch.Tensor, count: torch.Tensor, part: torch.Tensor
) -> torch.Tensor:
    """What the noisy counts are to be multiplied by.

    A count has a small share of the sensitivity, so it is noisy, and a mean that is divided by it is too long or too
    short as a whole. What all classes have in common tells of a class's size as well: its sum along the mean of all
    records. Both are weighed by their variances; the second one also by how far classes differ in that direction.
    """
    rows = total[:, : layout.rank] / layout.means
    centre = (rows * count[:, None]).sum(0) / count.sum()
    length = float(centre.square().sum())
    noise = part.square().sum(0) * cfg.noise**2
    if not length or not cfg.noise:
        return torch.ones_like(count)
    ratio = (rows @ centre) / length
    first, second = noise / layout.count**2, noise / (layout.means**2 * length) + (APART * count).square()
    factor = (1.0 / first + ratio / second) / (1.0 / first + 1.0 / second)
    return factor.clamp(0.2, 5.0)


def _weights(
    cfg: HeadConfig, layout: RowLayout, counts: torch.Tensor, keep: torch.Tensor, records: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a site's statistics count for: all of them together, and in the mean of each class."""
    if records is None or cfg.aggregate == "mean":
        return torch.ones(len(counts)), keep.to(counts.dtype)
    noise = cfg.noise / layout.count
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
    if cfg.spectrum == "cleaned" and pooled.noise and not bool(pooled.unreleased.any()):
        values, vectors = torch.linalg.eigh(within)
        clean = cleaned(values, noise=pooled.noise).clamp_min(floor_of(values, noise=pooled.noise))
        clean = clean + float(pooled.spread.median())  # a class mean is known no better than that
        found: torch.Tensor = vectors @ torch.diag(clean.rsqrt()) @ vectors.T
        return found
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
    norms = (pooled.means.T * weight).sum(0)
    if cfg.spectrum == "cleaned":  # noise makes every mean longer, and that of a rare class most
        norms = norms - pooled.spread * float(root.square().sum())
    return {"weight": weight, "bias": -0.5 * norms}


def head_of(cfg: HeadConfig, task: Task, pooled: Pooled) -> dict[str, torch.Tensor]:
    """The head of a task. Of texts and of records of several parts the released counts say how common a class is."""
    head = lda_head(cfg, pooled)
    if task.parts is not None:
        head["bias"] = head["bias"] + (pooled.counts / pooled.counts.sum()).log().float()
    return head


def head_scores(enc: PublicFeatures, head: Params, x: torch.Tensor) -> torch.Tensor:
    """The discriminant's logits of images."""
    found: torch.Tensor = linear(enc, head, x.device)(x)
    return found


def linear(enc: PublicFeatures, head: Params, device: str | torch.device) -> Linear:
    """A head as a module from images to logits."""
    return Linear(enc, head["weight"].to(device), head["bias"].to(device))


def read_releases(cfg: HeadConfig, task: Task, inbox: Inbox) -> tuple[PublicFeatures, Pooled]:
    """The pooled statistics of all sites, at the noise that the least informed of them has.

    A secure sum is one release of all sites together; it comes without an account of what was spent.
    """
    return read_statistics(cfg, task, [inbox[site]["statistics"].tensors for site in sorted(inbox)])


def read_statistics(cfg: HeadConfig, task: Task, released: Sequence[Params]) -> tuple[PublicFeatures, Pooled]:
    """The same from the sites' tensors, in the order of their names."""
    enc = encoder(cfg, task)
    layout = statistics.row_layout(cfg, task)
    least = min(float(r["spent"]) if "spent" in r else 1.0 for r in released)
    sites = 1 if "spent" in released[0] else len(task.sites)
    noisiest = cfg.model_copy(update={"sigma": cfg.noise / math.sqrt(max(least, 1e-6))})
    records = None if len(released) < 2 else float(task.records)
    usual = sites * task.records / len(task.classes)
    return enc, pool(noisiest, layout, released, enc, usual=usual, records=records)


def server(cfg: HeadConfig, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The head from all sites' statistics; it is the model."""
    _, pooled = read_releases(cfg, task, inbox)
    return {"model": Statistics(head_of(cfg, task, pooled))}


class _FoldedStatistics:
    """The statistics of all sites, held once."""

    def __init__(self, finish: Callable[[Sequence[Params], Key], Items]) -> None:
        self._finish, self._releases = finish, Stacked()

    def add(self, items: Items) -> None:
        self._releases.add(items["statistics"].tensors)

    def server(self, key: Key) -> Items | None:
        return self._finish(self._releases, key)


def folding(finish: Callable[[Sequence[Params], Key], Items]) -> Folding:
    """A step that holds the sites' statistics once, and ends with `finish`."""
    return _FoldedStatistics(finish)


def fold(cfg: HeadConfig, task: Task, state: State) -> Folding:
    """The head from statistics that come one by one."""
    return folding(
        lambda released, _: {"model": Statistics(head_of(cfg, task, read_statistics(cfg, task, released)[1]))}
    )


def predict(cfg: HeadConfig, task: Task, items: Items, x: torch.Tensor) -> torch.Tensor:
    """Logits of records by the head."""
    return head_scores(encoder(cfg, task), items["model"].tensors, x.to(task.device))


def models(cfg: HeadConfig, task: Task, items: Items) -> dict[str, torch.nn.Module]:
    """The head alone; nothing without the public images."""
    if task.public is None:
        return {}
    return {"head": linear(encoder(cfg, task), items["model"].tensors, task.device)}


METHOD = Method(
    name="prism-head",
    summary="closed-form classifier from PRISM's release (no images)",
    paper="PRISM-FL (abstract)",
    settings=HeadConfig,
    leaves={"statistics": Statistics},
    guarantee="site",
    init=statistics.init,
    client=statistics.client,
    server=server,
    fold=Fold(server, fold),
    plan=statistics.plan,
    round_cost=statistics.round_cost,
    shapes=statistics.shapes,
    possible=statistics.possible,
    predict=predict,
    models=models,
    takes_encoder=True,
    prepare=encoder,
    needs_public=True,
    kinds=("image", "text", "patient"),
    advice=statistics.advice,
    summed=statistics.summed,
    tiny=statistics.TINY,
)
