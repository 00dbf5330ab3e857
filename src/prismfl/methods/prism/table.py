"""prism-table: the closed-form classifier of a table of numbers, from one release like PRISM's.

What leaves, once: noisy sums of the columns by class, noisy counts, and the noisy pooled second moment; one Gaussian
release of sensitivity 1. The public feature of a row is the row itself: columns in [-1, 1] by declared bounds, clipped
to a declared norm, and of a table with more than `rank` columns that many random public directions. The server answers
with linear discriminant analysis, the classes weighed by their released counts.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import nn

from prismfl.core.method import DPSettings, Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import Statistics
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods.prism.encoder import PublicFeatures
from prismfl.methods.prism.head import HeadConfig, lda_head, linear, pool
from prismfl.methods.prism.statistics import RowLayout, record_rows
from prismfl.nets.patches import Frame
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import triangle
from prismfl.rng import Key


class TableConfig(DPSettings):
    """What of a row is released, and how the closed-form head reads it."""

    rank: int = Field(64, ge=1, description="most directions kept; a table with more columns is turned to random ones")
    reach: float = Field(
        0.3, gt=0, le=1, description="rows are clipped to this part of the longest that the bounds allow, at least to 1"
    )
    share_means: float = Field(0.55, gt=0, description="share of the squared sensitivity: class means")
    share_covariance: float = Field(0.35, gt=0, description="share of the squared sensitivity: second moments")
    share_count: float = Field(0.1, gt=0, description="share of the squared sensitivity: counts")
    ridge: float = Field(0.3, gt=0, description="of the head, in noise levels")
    bank_seed: int = Field(0, description="seed of the random public directions")


class Box(nn.Module):
    """Rows with every column brought into [-1, 1], the declared domain."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The clipped rows."""
        return x.clamp(-1.0, 1.0)


def layout(cfg: TableConfig, task: Task) -> RowLayout:
    """Where each block of a row's vector lies, from public numbers alone."""
    rank = min(cfg.rank, task.shape[0])
    shares = (cfg.share_means, cfg.share_covariance, cfg.share_count)
    means, moment, count = (math.sqrt(share / sum(shares)) for share in shares)
    return RowLayout(rank, rank, 0, 1, means, moment, 0.0, count)


def features(cfg: TableConfig, task: Task) -> PublicFeatures:
    """The public feature of a row: itself, along at most `rank` directions, of norm at most 1."""
    width, rank = task.shape[0], min(cfg.rank, task.shape[0])
    basis = torch.eye(width)
    if rank < width:
        turned = torch.randn(width, rank, generator=Key.seed(cfg.bank_seed).child("prism-table").torch())
        basis = torch.linalg.qr(turned)[0]
    flat = torch.ones(rank) / rank
    clip = max(1.0, cfg.reach * math.sqrt(rank))
    frame = Frame(torch.zeros(width), torch.ones(width), basis, values=flat, unit=flat, clip=clip)
    return PublicFeatures((), Box(), frame)  # type: ignore[arg-type]


def init(cfg: TableConfig, task: Task, key: Key) -> Items:
    """Nothing to begin with."""
    if cfg.rounds != 1:
        raise UserError(f"prism-table is one exchange: expected rounds = 1, got {cfg.rounds}.")
    return {}


def client(cfg: TableConfig, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """One noisy answer of a site."""
    enc, form = features(cfg, site.task), layout(cfg, site.task)
    sums, moment = site.records.noisy_moments(
        lambda x, y: record_rows(enc, form, x), second=form.second, scale=form.scale, bound=1.0, sigma=cfg.noise
    )
    return {"statistics": Statistics({"sums": sums, "moment": triangle(moment)})}, {}


def server(cfg: TableConfig, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The head from all sites' statistics; it is the model."""
    released = [items["statistics"].tensors for _, items in sorted(inbox.items())]
    reading = HeadConfig(sigma=cfg.noise, ridge=cfg.ridge, aggregate="mean")
    enc, form = features(cfg, task), layout(cfg, task)
    pooled = pool(reading, form, released, enc, usual=len(task.sites) * task.records / len(task.classes))
    head = lda_head(reading, pooled)
    return {"model": Statistics({**head, "bias": head["bias"] + (pooled.counts / pooled.counts.sum()).log()})}


def models(cfg: TableConfig, task: Task, items: Items) -> dict[str, nn.Module]:
    """The head alone; in double precision, so that a row's score does not hang on the rows beside it."""
    return {"head": linear(features(cfg, task), items["model"].tensors, task.device).double()}


def predict(cfg: TableConfig, task: Task, items: Items, x: torch.Tensor) -> torch.Tensor:
    """Logits of rows by the head."""
    found: torch.Tensor = models(cfg, task, items)["head"](x.to(task.device).double())
    return found


def plan(cfg: TableConfig, task: Task) -> Cost:
    """One Gaussian answer."""
    return task.gaussian(cfg.noise)


def shapes(cfg: TableConfig, task: Task) -> Shapes:
    """A row of sums per class, and the upper triangle of the second moment."""
    form = layout(cfg, task)
    return {
        "statistics": {
            "moment": ("float32", (form.second * (form.second + 1) // 2,)),
            "sums": ("float32", (len(task.classes), form.width)),
        }
    }


METHOD = Method(
    name="prism-table",
    summary="closed-form classifier of a table from noisy class sums and second moments",
    paper="PRISM-FL (abstract)",
    settings=TableConfig,
    leaves={"statistics": Statistics},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    predict=predict,
    models=models,
    kinds=("table",),
)
