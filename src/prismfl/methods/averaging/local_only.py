"""Local training only: each site learns from its own records and sends nothing. The floor of every comparison.

Paper: none. What leaves: nothing. Its accuracy is the mean over the sites' own models.
"""

from __future__ import annotations

from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, OwnSite, Settings, Shapes, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.task import Task
from prismfl.nets.classifier import network
from prismfl.nets.training import fit
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(Settings):
    """How long and how fast each site trains for itself."""

    epochs: int = Field(20, ge=1, description="local epochs")
    batch: int = Field(64, ge=1, description="local batch size")
    lr: float = Field(0.05, gt=0, description="learning rate, falling along a cosine")


def init(cfg: Config, task: Task, key: Key) -> Items:
    """Nothing is sent down."""
    return {}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Nothing leaves."""
    return {}, {}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Nothing came."""
    return {}


def adopt(cfg: Config, state: State, site: OwnSite, key: Key) -> Items:
    """The site's own model, which stays there."""
    task = site.task
    classifier, params = network(task, key=key.child("model"))
    params = fit(
        classifier,
        params,
        x=site.records.x.to(task.device),
        y=site.records.y.to(task.device),
        epochs=cfg.epochs,
        batch=cfg.batch,
        lr=cfg.lr,
        key=key,
    )
    return {"model": Weights(params)}


def plan(cfg: Config, task: Task) -> Cost:
    """Nothing leaves, so nothing is spent."""
    return Cost.zero(task.unit, task.relation)


def shapes(cfg: Config, task: Task) -> Shapes:
    """Nothing leaves."""
    return {}


METHOD = Method(
    name="local-only",
    summary="each site alone; nothing leaves (floor)",
    paper="",
    settings=Config,
    leaves={},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    adopt=adopt,
    model_at="sites",
    tiny={"epochs": 1, "batch": 8},
)
