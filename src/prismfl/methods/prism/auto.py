"""PRISM's automatic settings: from public numbers, and rehearsed on public images at the noise that the run will have.

The rehearsal makes classes of public images: the features of each are moved by a shift that its class drew, more along
leading directions than along later ones, and the release of such records is made with the sites, the records and the
noise of the run. Every rank is scored by the closed-form head on images that were held back, and the middle one of
those that are nearly as good as the best is taken. No private record is used, so it costs nothing. Looked at while it
was designed: digits, MNIST, Fashion-MNIST, CIFAR-10, CelebA-Hair and PneumoniaMNIST (training parts). How far apart
classes lie, and how their shift falls off, are fixed numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from prismfl.core.method import Chosen, Wanted
from prismfl.core.task import Task
from prismfl.methods.prism import head, statistics
from prismfl.methods.prism.auto_parts import auto_parts
from prismfl.methods.prism.embeddings import embed
from prismfl.methods.prism.encoder import PublicFeatures, encoder
from prismfl.methods.prism.head import HeadConfig, Pooled, lda_head, pool
from prismfl.methods.prism.rehearsal import (
    APART,
    AWAY,
    CENTRE,
    CLEAR,
    FALL,
    HELD,
    HIDDEN,
    MEANS,
    MEANS_ALONE,
    RANKS,
    SECOND,
    SHOWN,
    Stage,
    accuracy,
    pick,
    played_release,
)
from prismfl.nets.linear import fit_linear
from prismfl.nets.patches import Frame
from prismfl.privacy import account
from prismfl.rng import Key


def auto(asked: Wanted) -> Chosen:
    """Everything about a release and what is made of it that the user did not give."""
    task, given = asked.task, dict(asked.given)
    if task.parts is not None:
        return auto_parts(asked)
    if task.public is None or len(task.public) < 100:
        return Chosen({}, ("no public images to rehearse on: the plain defaults are used",))
    centre = CENTRE if given.get("rounds", 1) == 1 and not asked.secure else 0.0
    found: dict[str, Any] = {"spectrum": "cleaned", "quantile": 0.0, "centring": centre, **picture_settings(task)}
    found |= given
    stage = stage_of(asked, found)
    if "networks" not in given:
        found |= {key: value for key, value in networks_for(stage, found).items() if key not in given}
    drowns = hidden(stage) and not {"covariance", "share_covariance"} & given.keys()
    found = {**(MEANS_ALONE if drowns else {"share_means": MEANS, "share_covariance": SECOND}), **found}
    scores = dict(rehearse(stage, found, given))
    rank = pick(scores, chance=100.0 / stage.classes)
    chosen = {"covariance": rank, **found, "rank": rank}
    models = played_models(stage, chosen)
    chosen["deliver"] = given.get("deliver", max(models, key=lambda name: models[name]))
    play = f"{stage.sites} x {stage.records} records, {stage.classes} classes, sigma {stage.sigma:.3g}"
    alone = " (the noise would hide a second moment: the public one is taken)" if drowns else ""
    words = (
        f"rank {rank}: {scores[rank]:.1f} % in a rehearsal on public images ({play}); best of all "
        f"{max(scores.values()):.1f} %",
        f"shares of the squared sensitivity: means {found['share_means']}, second moments {found['share_covariance']}"
        + alone,
        f"{chosen['networks']} random networks are matched by {chosen['images']} images a class"
        if chosen["networks"]
        else f"no random network would have a signal: {chosen['images']} public images a class, labelled by the head",
        f"the model to take: {chosen['deliver']} ("
        + ", ".join(f"{name} {score:.1f} %" for name, score in models.items())
        + " in the rehearsal; pictures are not rehearsed)",
    )
    return Chosen({key: value for key, value in chosen.items() if key not in given}, words)


def head_auto(asked: Wanted) -> Chosen:
    """The same for the head alone, which needs no random networks and no pictures."""
    found = auto(Wanted({"networks": 0, **asked.given}, asked.task, asked.epsilon, asked.secure))
    settings = {key: value for key, value in found.settings.items() if key in HeadConfig.model_fields}
    return Chosen({"networks": 0, **settings}, found.words[:2] if asked.task.parts is None else found.words[:3])


def local_auto(asked: Wanted) -> Chosen:
    """The same for a site that makes its images by itself: its own records have to carry them."""
    return auto(replace(asked, task=replace(asked.task, sites=asked.task.sites[:1]), secure=False))


def client_auto(asked: Wanted) -> Chosen:
    """The same where the hub adds the noise: a site has no centre of its own."""
    found = auto(replace(asked, given={"centring": 0.0, **asked.given}))
    return replace(found, settings={key: value for key, value in found.settings.items() if key != "centring"})


def picture_settings(task: Task) -> dict[str, Any]:
    """How pictures are started and labelled, from the shape and the number of classes.

    Photographs are best taken as they are and labelled by the head; drawings have to be moved to what was released.
    """
    colour, classes, side = task.shape[0] == 3, len(task.classes), task.shape[1]
    found: dict[str, Any] = {
        "patch": 5 if side >= 16 else 3,
        "near": 0.25,
        "public_copies": 1,
        "crop": 1.0,
    }
    if colour:
        found |= {"share_networks": 0.1, "images": max(10, min(20, 200 // classes)), "steps": 100}
        found |= {"labels": "soft", "public_share": 0.9, "temperature": 2.0}
        return found | {"train_steps": 3000, "train_batch": 32}
    found |= {"views": 0.5, "images": max(10, min(60, 600 // classes)), "steps": 200}
    return found | {"labels": "half", "public_share": 0.6, "blends": 1, "centre": False, "train_steps": 1500}


def stage_of(asked: Wanted, settings: Mapping[str, Any]) -> Stage:
    """Public images along the leading public directions, and the numbers of the run."""
    task = asked.task
    assert task.public is not None
    cfg = _release_part({**settings, "rank": settings.get("rank", RANKS[-1]), "networks": 0, "sigma": 1.0})
    features = encoder(cfg, task)
    shown = task.public[:SHOWN].to(task.device)
    frame = features.frame
    with torch.no_grad():
        looked = torch.cat([features.look(part) for part in torch.split(shown, 64)])
        rows = (((looked - frame.mean) / frame.std) @ frame.basis).cpu()
    sigma = account.gaussian_sigma(asked.epsilon, task.delta) * (2.0 if task.relation == "replace-one" else 1.0)
    sites, records = len(task.sites), task.records
    if asked.secure:  # one noise for the whole federation
        sites, records = 1, sites * records
    return Stage(features, rows, sites, records, len(task.classes), sigma)


def _release_part(settings: Mapping[str, Any]) -> HeadConfig:
    """Those of the settings that say what is released and how the head reads it."""
    return HeadConfig(**{key: value for key, value in settings.items() if key in HeadConfig.model_fields})


def hidden(stage: Stage) -> bool:
    """Whether the noise hides a second moment even along the fewest directions: then none is worth its share.

    The edge of its spectrum beside the variance that a row of length one has along each of them.
    """
    rank, records = RANKS[0], stage.sites * stage.records
    edge = stage.sigma * math.sqrt(2.0 * rank * stage.sites / SECOND) / records
    return edge * rank > HIDDEN


def networks_for(stage: Stage, settings: Mapping[str, Any]) -> dict[str, Any]:
    """As many random networks as the noise leaves a signal for: their class means are a vector of that many parts. If
    there is none for a single one, pictures stay as they are and the head alone says what they show."""
    share = float(settings.get("share_networks", 0.3))
    width = int(settings.get("network_features", 64))
    records = stage.sites * stage.records / stage.classes
    noise = stage.sigma * math.sqrt(stage.sites) / records / math.sqrt(share)
    most = (CLEAR / noise) ** 2 / width
    if most < 1:
        return {"networks": 0, "labels": "soft"}
    return {"networks": int(max(4, min(8 if share <= 0.1 else 32, most)))}


def rehearse(stage: Stage, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """Each rank with the accuracy (percent) of its head; one that was given is the only one."""
    width = stage.rows.shape[1]
    ranks = [min(int(given["rank"]), width)] if "rank" in given else [rank for rank in RANKS if rank <= width]
    for rank in ranks or [width]:
        asked = {"covariance": rank, **settings, "rank": rank}
        cfg = _release_part({**asked, "sigma": stage.sigma * stage.scale})
        scores = [_played(stage, cfg, key) for key in _KEYS]
        yield rank, sum(scores) / len(scores)


_KEYS = tuple(Key.seed(i).child("rehearsal") for i in range(2))


def played_models(stage: Stage, settings: Mapping[str, Any]) -> dict[str, float]:
    """The accuracy (percent) of each model that needs no pictures."""
    cfg = _release_part({**settings, "sigma": stage.sigma * stage.scale})
    count = int(settings.get("embeddings", 100))
    found: dict[str, list[float]] = {"head": [], "linear": []}
    for key in _KEYS:
        pooled, u, y = _rehearsed(stage, cfg, key)
        made = {"head": lda_head(cfg, pooled), "linear": fit_linear(*embed(pooled, count, key))}
        for name, model in made.items():
            found[name].append(accuracy(model, u, y))
    return {name: sum(scores) / len(scores) for name, scores in found.items()}


def _played(stage: Stage, cfg: HeadConfig, key: Key) -> float:
    """The accuracy of the head that one simulated release of public images gives."""
    pooled, u, y = _rehearsed(stage, cfg, key)
    return accuracy(lda_head(cfg, pooled), u, y)


def _rehearsed(stage: Stage, cfg: HeadConfig, key: Key) -> tuple[Pooled, torch.Tensor, torch.Tensor]:
    """What the server would read out of one simulated release, and held-back rows with their classes."""
    generator, n = key.torch(), stage.count
    rank = cfg.rank
    layout = statistics.layout_of(cfg, rank)
    pick = torch.randint(len(stage.rows), (n + HELD,), generator=generator)
    y = torch.randint(stage.classes, (n + HELD,), generator=generator)
    rows = stage.rows[pick] + _shifts(stage, generator)[y]
    clip = float(stage.rows[:, :rank].norm(dim=1).quantile(cfg.quantile))
    u = rows[:, :rank] / rows[:, :rank].norm(dim=1, keepdim=True).clamp_min(max(clip, 1e-6))
    enc = PublicFeatures((), stage.features.look, cut(stage.features.frame, stage.rows, rank=rank, clip=clip))
    releases = [
        played_release(cfg, layout, u[part], y[part], classes=stage.classes, generator=generator)
        for part in (slice(i, n, stage.sites) for i in range(stage.sites))
    ]
    pooled = pool(cfg, layout, releases, enc, usual=n / stage.sites / stage.classes, records=None)
    return pooled, u[n:], y[n:]


def _shifts(stage: Stage, generator: torch.Generator) -> torch.Tensor:
    """Where each class lies: all of them away from the public images, and each by itself."""
    width, spread = stage.rows.shape[1], stage.rows.std(0)
    power = torch.arange(1, width + 1).float().pow(-FALL)
    part = (power / power.sum() * APART**2 / 2).sqrt() * spread
    away = AWAY * spread * torch.randn(width, generator=generator)
    return away + torch.randn(stage.classes, width, generator=generator) * part


def cut(frame: Frame, rows: torch.Tensor, *, rank: int, clip: float) -> Frame:
    """The first directions of a frame, with the clip that they alone would have."""
    clip = max(clip, 1e-6)
    unit = frame.unit[:rank] * (frame.clip / clip) ** 2
    values = rows[:, :rank].var(0) / clip**2
    return Frame(frame.mean, frame.std, frame.basis[:, :rank], values=values, unit=unit, clip=clip)


HEAD = replace(head.METHOD, auto=head_auto)
