"""PRISM's automatic settings for texts and for records of several parts: the rehearsal of `auto`, part by part.

Public records are made classes as there: the features of each part are moved by a shift of the class, and ranks are
scored by the closed-form head at the noise of the run. Public parts are drawn by themselves and have no labels, so how
much each part has to say cannot be rehearsed: their shares are equal unless they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.prism import statistics
from prismfl.methods.prism.embeddings import embed
from prismfl.methods.prism.encoder import PublicFeatures, blocked, chosen_layers
from prismfl.methods.prism.head import HeadConfig, lda_head, pool
from prismfl.methods.prism.rehearsal import (
    AWAY,
    CENTRE,
    FALL,
    HELD,
    MEANS,
    RANKS,
    SECOND,
    SHOWN,
    Stage,
    accuracy,
    played_release,
)
from prismfl.nets.block_frame import BlockFrame
from prismfl.nets.encoders.parted import Parted
from prismfl.nets.linear import fit_linear
from prismfl.privacy import account
from prismfl.rng import Key

SYNTHETIC, WITHOUT_PICTURES = 400, 2000  # records that are made, over all classes; texts are cheap
APART = 3.0  # how far two classes lie apart, in standard deviations within them, over all directions
MOST_RANK = 128
STEPS = 10  # for which public pictures are moved
_KEYS = tuple(Key.seed(i).child("rehearsal") for i in range(2))


def auto_parts(asked: Wanted) -> Chosen:
    """Everything about the release of such records that the user did not give."""
    task, given = asked.task, dict(asked.given)
    if task.public is None or len(task.public) < 100:
        return Chosen({}, ("no public records to rehearse on: the plain defaults are used",))
    centre = CENTRE if given.get("rounds", 1) == 1 and not asked.secure else 0.0
    found: dict[str, Any] = {"spectrum": "cleaned", "quantile": 0.0, "centring": centre, "networks": 0}
    found |= {"share_means": MEANS, "share_covariance": SECOND, "steps": STEPS}
    made = WITHOUT_PICTURES if task.parts is None or task.parts.find("image") is None else SYNTHETIC
    found |= {"images": max(50, made // len(task.classes)), **given}
    sigma = account.gaussian_sigma(asked.epsilon, task.delta) * (2.0 if task.relation == "replace-one" else 1.0)
    sites, records = (1, len(task.sites) * task.records) if asked.secure else (len(task.sites), task.records)
    ranks = [int(given["rank"])] if "rank" in given else _ranks(task)
    scores, heads = {}, {}
    assert isinstance(task.encoder, Parted)
    look = chosen_layers(_release_part({**found, "rank": RANKS[0], "sigma": 1.0}), task.encoder)
    shown = task.public[:SHOWN].to(task.device)
    with torch.no_grad():
        looked = torch.cat([look(part) for part in torch.split(shown, 250)])
    for rank in ranks:
        cfg = _release_part({**found, "rank": rank, "covariance": given.get("covariance", rank), "sigma": 1.0})
        frame = blocked(cfg, task.encoder, look.by_part(shown), looked)
        rows = frame.unclipped(looked).cpu()
        stage = Stage(PublicFeatures((), look, frame), rows, sites, records, len(task.classes), sigma)
        played = [_played(stage, cfg, key) for key in _KEYS]
        heads[rank] = {name: sum(one[name] for one in played) / len(played) for name in played[0]}
        scores[rank] = heads[rank]["head"]
    rank = max(scores, key=lambda rank: scores[rank])
    chosen = {**found, "rank": rank, "covariance": given.get("covariance", rank)}
    chosen["deliver"] = given.get("deliver", max(heads[rank], key=lambda name: heads[rank][name]))
    names = ", ".join(part.name for part in task.parts or ())
    shares = "as given" if given.get("part_shares") else "equal (there are no public pairs to rehearse on)"
    words = (
        f"rank {rank}: {scores[rank]:.1f} % in a rehearsal on public records ({sites} x {records} records, "
        f"{len(task.classes)} classes, sigma {sigma:.3g}); best of all {max(scores.values()):.1f} %",
        f"shares of the squared sensitivity: means {found['share_means']}, second moments {found['share_covariance']}",
        f"shares of the parts ({names}): {shares}",
        f"the model to take: {chosen['deliver']}",
    )
    return Chosen({key: value for key, value in chosen.items() if key not in given}, words)


def _ranks(task: Task) -> list[int]:
    """Numbers of directions to try: no more than the parts have, and all of them where they are few."""
    assert task.encoder is not None
    assert task.public is not None
    most = sum(rows.shape[1] for rows in task.encoder.activations(task.public[:1]).values())
    return [rank for rank in RANKS if rank < min(most, MOST_RANK)] + [min(most, MOST_RANK)]


def _release_part(settings: Mapping[str, Any]) -> HeadConfig:
    return HeadConfig(**{key: value for key, value in settings.items() if key in HeadConfig.model_fields})


def _played(stage: Stage, cfg: HeadConfig, key: Key) -> dict[str, float]:
    """The accuracy (percent) of the models that one simulated release of public records gives."""
    frame, generator, n = stage.features.frame, key.torch(), stage.count
    assert isinstance(frame, BlockFrame)
    told = cfg.model_copy(update={"sigma": stage.sigma * stage.scale})
    layout = statistics.layout_of(told, cfg.rank)
    chosen = torch.randint(len(stage.rows), (n + HELD,), generator=generator)
    y = torch.randint(stage.classes, (n + HELD,), generator=generator)
    u = frame.clipped(stage.rows[chosen] + _shifts(stage, frame, generator)[y])
    releases = [
        played_release(told, layout, u[part], y[part], classes=stage.classes, generator=generator)
        for part in (slice(i, n, stage.sites) for i in range(stage.sites))
    ]
    pooled = pool(told, layout, releases, stage.features, usual=n / stage.sites / stage.classes, records=None)
    made = {"head": lda_head(told, pooled), "linear": fit_linear(*embed(pooled, 100, key))}
    return {name: accuracy(model, u[n:], y[n:]) for name, model in made.items()}


def _shifts(stage: Stage, frame: BlockFrame, generator: torch.Generator) -> torch.Tensor:
    """Where each class lies, in each part as far apart as in any other: over all directions that a part has, of which
    the frame may keep fewer."""
    spread, width = stage.rows.std(0), stage.rows.shape[1]
    power = torch.cat([torch.arange(1, rank + 1).float().pow(-FALL) for rank in frame.ranks])
    every = [torch.arange(1, min(width, MOST_RANK) + 1).float().pow(-FALL).sum() for width in frame.widths]
    total = torch.cat([whole.expand(rank) for whole, rank in zip(every, frame.ranks)])
    part = (power / total * APART**2 / (2 * len(frame.ranks))).sqrt() * spread
    away = AWAY * spread * torch.randn(width, generator=generator)
    return away + torch.randn(stage.classes, width, generator=generator) * part
