"""prism-head: the closed-form classifier from PRISM's release, without any image.

What leaves: the same statistics as `prism`, once. It tests the release and is the floor that the images must approach:
linear discriminant analysis with the released means and covariance.
"""

from __future__ import annotations

import torch

from prismfl.method import Inbox, Items, Method, State, Task
from prismfl.methods import prism
from prismfl.payloads import Statistics
from prismfl.rng import Key


def server(cfg: prism.HeadConfig, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    _, pooled = prism.read_releases(cfg, task, inbox)
    return {"model": Statistics(prism.lda_head(cfg, pooled))}


def predict(cfg: prism.HeadConfig, task: Task, items: Items, x: torch.Tensor) -> torch.Tensor:
    return prism.head_scores(prism.encoder(cfg, task), items["model"].tensors, x.to(task.device))


METHOD = Method(
    name="prism-head",
    summary="closed-form classifier from PRISM's release (no images)",
    paper="PRISM-FL (abstract)",
    settings=prism.HeadConfig,
    leaves={"statistics": Statistics},
    guarantee="site",
    init=prism.init,
    client=prism.client,
    server=server,
    plan=prism.plan,
    shapes=prism.shapes,
    predict=predict,
    needs_public=True,
    kinds=("image",),
    summed=prism.summed,
    tiny=prism.TINY,
)
