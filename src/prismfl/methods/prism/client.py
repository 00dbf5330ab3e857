"""prism-client: PRISM with whole clients protected, by noise at a trusted hub.

What leaves a site: the exact sums of its records' feature vectors, to the hub only (no guarantee towards the hub). Each
site's statistic is clipped as a whole; the hub adds noise once, unit = client, and the synthesis runs on the noisy sum.
With secure aggregation between the sites and the hub, the hub sees the sum alone.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Items, Method, PrivateSum, Shapes, Site, State, Summed
from prismfl.core.payloads import Statistics, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.methods.prism import head as prism_head
from prismfl.methods.prism import prism
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import clipped_moments, triangle
from prismfl.rng import Key


class Config(prism.Config):
    rounds: int = Field(1, ge=1, le=1, description="one release")
    clip: float = Field(1.0, gt=0, description="bound on a site's whole statistic, in declared site sizes")


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    enc = prism_head.encoder(cfg, site.task)
    plan = prism_head.layout(cfg, enc.rank)
    records, parts = site.records.exact(), []
    for x, y in zip(torch.split(records.x, 500), torch.split(records.y, 500)):
        rows = prism_head.record_rows(enc, plan, x)
        scale = plan.moment / plan.means**2 if plan.second else 0.0
        parts.append(
            clipped_moments(
                rows,
                y,
                classes=len(site.task.classes),
                second=plan.second,
                scale=scale,
                bound=1.0,
                share=torch.ones(len(y)),
            )
        )
    sums = sum((p[0] for p in parts), start=torch.zeros(len(site.task.classes), plan.width, dtype=torch.float64))
    moment = sum((p[1] for p in parts), start=torch.zeros(plan.second, plan.second, dtype=torch.float64))
    # In units of the declared size, so that an ordinary site's statistic has norm about one half to one.
    return {
        "statistics": Statistics(
            {"sums": (sums / site.task.records).float(), "moment": (triangle(moment) / site.task.records).float()}
        )
    }, {}


def server(cfg: Config, task: Task, state: State, hub: PrivateSum, key: Key) -> Items:
    enc = prism_head.encoder(cfg, task)
    plan = prism_head.layout(cfg, enc.rank)
    like = {k: torch.zeros(shape) for k, (_, shape) in shapes(cfg, task)["statistics"].items()}
    noisy = hub.noisy(lambda items: items["statistics"].tensors, like, bound=cfg.clip, sigma=cfg.noise)
    total = {k: v * task.records for k, v in noisy.items()}
    # The noise at the hub is that of one release whose records weigh clip * declared size.
    level = cfg.model_copy(update={"sigma": cfg.noise * cfg.clip * task.records})
    pooled = prism_head.pool(level, plan, [total], enc, usual=task.records * len(task.sites) / len(task.classes))
    head = prism_head.lda_head(level, pooled)
    x, y = prism.synthesise(cfg, task, enc, pooled, key.child("images"))
    params = prism.train_fresh(cfg, task, enc, head, x=x.float() / 255.0, y=y, key=key.child("model"))
    return {"model": Weights(params), "synthetic": SyntheticSet.of(x, y), "head": Statistics(head)}


def plan(cfg: Config, task: Task) -> Cost:
    return Cost.gaussian(cfg.noise, times=cfg.rounds, unit="client", relation="add-remove")


def summed(cfg: Config, task: Task) -> Summed:
    return Summed("statistics", bound=cfg.clip, sigma=cfg.noise)


def shapes(cfg: Config, task: Task) -> Shapes:
    """As `prism`, without the account of what was spent: the hub keeps that."""
    return {"statistics": {k: v for k, v in prism_head.shapes(cfg, task)["statistics"].items() if k != "spent"}}


METHOD = Method(
    name="prism-client",
    summary="PRISM with noise at a trusted hub; protects whole clients",
    paper="PRISM-FL (abstract)",
    settings=Config,
    leaves={"statistics": Statistics},
    guarantee="client",
    init=prism_head.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    needs_public=True,
    kinds=("image",),
    summed=summed,
    tiny=prism.METHOD.tiny,
)
