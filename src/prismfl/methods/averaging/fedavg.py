"""FedAvg (McMahan et al. 2017): sites train locally for some epochs, the server averages the models.

Paper: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", https://arxiv.org/abs/1602.05629.

What leaves: the model's weights, every round, with no guarantee. Differs from the paper: every site counts the same,
since the number of its records is not for the server to know.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prismfl.core.method import Fold, Folding, Inbox, Items, Method, Settings, Shapes, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.nets.classifier import batches, network
from prismfl.nets.training import cosine, step
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Averaging(Settings):
    """Settings of methods whose server combines models."""

    aggregate: robust.Aggregate = Field("clipped-mean", description=robust.HOW)


class Config(Averaging):
    """How long and how fast each site trains."""

    rounds: int = Field(10, ge=1, description="communication rounds")
    epochs: int = Field(5, ge=1, description="local epochs per round")
    batch: int = Field(64, ge=1, description="local batch size")
    lr: float = Field(0.1, gt=0, description="learning rate of the first round, falling along a cosine")
    mu: float = Field(0.0, ge=0, description="strength of the proximal term (FedProx)")


def init(cfg: Settings, task: Task, key: Key) -> Items:
    """A fresh model."""
    _, params = network(task, key=key.child("model"))
    return {"model": Weights(params)}


def train_locally(cfg: Config, state: State, site: Site, key: Key) -> tuple[Params, Params]:
    """The weights that came and the weights after local training on the exact records."""
    task = site.task
    classifier, _ = network(task, key=key)
    start = state.items["model"].to(task.device)
    records, params, order = site.records.exact(), dict(start), key.child("order").torch()
    lr = cosine(cfg.lr, state.round, cfg.rounds)
    for _ in range(cfg.epochs):
        for rows in batches(len(records), cfg.batch, order):
            gradient = classifier.gradient(params, records.x[rows], records.y[rows])
            params = step(params, add_proximal(gradient, params, start, cfg.mu), lr)
    return start, params


def add_proximal(gradient: Params, params: Params, start: Params, mu: float) -> Params:
    """The pull back to the server's weights; it involves no record, so it is added after any noise."""
    return gradient if mu == 0.0 else {k: g + mu * (params[k] - start[k]) for k, g in gradient.items()}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The model after local training."""
    _, params = train_locally(cfg, state, site, key)
    return {"model": Weights(params)}, {}


def server(cfg: Averaging, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The sites' models as one."""
    return {"model": Weights(robust.combine(cfg.aggregate, inbox, "model", base=state.items["model"].tensors))}


class _FoldedModel(robust.Combining):
    def server(self, key: Key) -> Items | None:
        model = self.value()
        return None if model is None else {"model": Weights(model)}


def fold(cfg: Averaging, task: Task, state: State) -> Folding | None:
    """The same from one model at a time; a middle of the sites needs them all."""
    if cfg.aggregate in ("median", "trimmed-mean"):
        return None
    rule: Literal["mean", "clipped-mean"] = "mean" if cfg.aggregate == "mean" else "clipped-mean"
    return _FoldedModel(rule, "model", base=state.items["model"].tensors)


def plan(cfg: Settings, task: Task) -> Cost:
    """No guarantee: what leaves comes from the exact records."""
    return Cost.non_private(task.unit, task.relation)


def model_shapes(task: Task) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The public shapes of the task's model."""
    return init(Config(), task, Key.seed(0))["model"].shapes()


def shapes(cfg: Settings, task: Task) -> Shapes:
    """One model."""
    return {"model": model_shapes(task)}


METHOD = Method(
    name="fedavg",
    summary="average of locally trained models",
    paper="McMahan et al. 2017, arXiv:1602.05629",
    settings=Config,
    leaves={"model": Weights},
    guarantee=None,
    init=init,
    client=client,
    server=server,
    fold=Fold(server, fold),
    plan=plan,
    shapes=shapes,
    tiny={"rounds": 2, "epochs": 1, "batch": 8},
)
