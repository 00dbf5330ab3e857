"""prism-local: PRISM as its abstract has it, with the synthesis on each site and a peer-to-peer exchange of images.

Paper: "PRISM-FL: Privacy-preserving Image Synthesis Mechanism for Federated Learning" (abstract).

What leaves a site, once: a synthetic set for all declared classes. Behind it, all at the site: optionally a local
model trained with DP-SGD (`share` of the budget; 0 leaves it out), the noisy feature statistics, and public images
optimised to match them, labelled softly by the site's own head (and DP-SGD model). Every site then trains a model for
itself on its own records plus all sets it received; that model never leaves. The server's model is trained on the
pooled sets.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from prismfl.core.method import Inbox, Items, Method, OwnSite, Shapes, Site, State
from prismfl.core.payloads import SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.prism import auto, prism, statistics
from prismfl.methods.prism.encoder import encoder
from prismfl.methods.prism.head import head_scores, lda_head, pool
from prismfl.nets.augment import affine
from prismfl.nets.classifier import network
from prismfl.nets.distil import train_fresh
from prismfl.nets.training import descend
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(prism.Config):
    """As `prism`, with the share of the budget that a DP-SGD model takes."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    aggregate: Literal["mean", "clipped-mean"] = Field("clipped-mean", description=robust.HOW)
    share: float = Field(0.0, ge=0, lt=1, description="share of the squared budget that DP-SGD training takes")
    sgd_steps: int = Field(60, ge=1, description="DP-SGD steps of the local model")
    sgd_batch: float = Field(256, gt=0, description="expected batch of a step")
    sgd_clip: float = Field(1.0, gt=0, description="bound on the norm of a record's gradient")
    sgd_lr: float = Field(0.5, gt=0, description="learning rate of DP-SGD")

    @property
    def statistics_noise(self) -> float:
        """The release's noise: sigma over the square root of what DP-SGD leaves of the squared budget."""
        return self.noise / math.sqrt(1.0 - self.share)

    @property
    def sgd_noise(self) -> float:
        """The same rule for each of the DP-SGD steps, were they not sampled; calibration takes care of the rest."""
        return self.noise * math.sqrt(self.sgd_steps / self.share) if self.share else 0.0


def train_privately(cfg: Config, site: Site, key: Key) -> Params | None:
    """The local model of the abstract; None where it has no share of the budget."""
    if not cfg.share:
        return None
    task = site.task
    classifier, params = network(task, key=key)

    def gradient(current: Params, i: int) -> Params:
        return site.records.noisy_gradient(
            classifier.record_loss,
            current,
            batch=cfg.sgd_batch,
            clip=cfg.sgd_clip,
            sigma=sgd_sigma(cfg, task),
        )

    return descend(params, gradient, steps=cfg.sgd_steps, lr=cfg.sgd_lr)


def sgd_sigma(cfg: Config, task: Task) -> float:
    """Sampling at rate q makes a step cost about q^2 of an unsampled one, so its noise may be q times as large."""
    return max(0.5, cfg.sgd_noise * task.rate(cfg.sgd_batch)) if cfg.noise else 0.0


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The site's own images, softly labelled by what it has released to itself."""
    task = site.task
    model = train_privately(cfg, site, key.child("sgd"))
    own = cfg.model_copy(update={"sigma": cfg.statistics_noise})
    released = statistics.release_statistics(own, site).tensors
    enc, layout = encoder(own, task), statistics.row_layout(own, task)
    pooled = pool(own, layout, [released], enc, usual=task.records / len(task.classes))
    head = lda_head(own, pooled)
    shown = prism.nearest_public(own, task, enc, pooled)
    x, y = prism.synthesise(own, shown, enc, pooled, key.child("images"))
    pictures = x.float() / 255.0
    soft = F.softmax(head_scores(enc, head, pictures) / cfg.temperature, 1)
    if model is not None:
        classifier, _ = network(task, key=key)
        with torch.no_grad():
            soft = 0.5 * soft + 0.5 * F.softmax(classifier.logits(model, pictures), 1)
    # How sure the site is that it has a class at all: images of classes it lacks weigh next to nothing.
    trust = (pooled.counts / (pooled.counts + 3.0 * own.answer_noise / layout.count)).to(soft)[y]
    labels = trust[:, None] * (0.5 * F.one_hot(y, len(task.classes)) + 0.5 * soft)
    return {"synthetic": SyntheticSet.of(x, labels.float())}, {}


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """A model trained on everybody's images."""
    sets = {site: items["synthetic"] for site, items in sorted(inbox.items())}
    factors = dict.fromkeys(sets, 1.0)
    if cfg.aggregate == "clipped-mean":
        factors = robust.clip_factors({site: float(s.tensors["y"].double().sum()) for site, s in sets.items()})
    pooled = pool_sets([_lighter(s, factors[site]) for site, s in sets.items() if isinstance(s, SyntheticSet)])
    params = train_on(cfg, task, pooled.x.to(task.device), pooled.y.to(task.device), key)
    return {"model": Weights(params), "synthetic": pooled}


def _lighter(made: SyntheticSet, factor: float) -> SyntheticSet:
    return made if factor == 1.0 else SyntheticSet.of(made.tensors["x"], (factor * made.y.double()).to(made.y.dtype))


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Half of an image's label at least is its own class, and its trust follows from a count of declared records."""
    y = items["synthetic"].tensors["y"].double()
    mass, own = y.sum(1), torch.arange(len(task.classes)).repeat_interleave(cfg.images)
    if bool((y.gather(1, own[:, None])[:, 0] < 0.499 * mass - 1e-6).any()):
        return "labels of images are not those of their places"
    trust = mass.reshape(len(task.classes), cfg.images)
    if float((trust.amax(1) - trust.amin(1)).max()) > 1e-3:
        return "images of one class are trusted differently"
    doubt = cfg.model_copy(update={"sigma": cfg.statistics_noise}).answer_noise / statistics.row_layout(cfg, task).count
    # Counts are floored at 1 there; the margin is for float32 close to a trust of 1.
    level = (trust.mean(1) - 1e-4).clamp(min=0.0)
    counts = (3.0 * doubt * level / (1.0 - level) - 1.0).clamp(min=0.0)
    return robust.count_fault(counts, task, doubt) if doubt else None


def pool_sets(sets: list[SyntheticSet]) -> SyntheticSet:
    """All sets as one."""
    return SyntheticSet.of(torch.cat([s.tensors["x"] for s in sets]), torch.cat([s.y for s in sets]))


def train_on(cfg: Config, task: Task, x: torch.Tensor, y: torch.Tensor, key: Key) -> Params:
    """Rows of `y` that sum to less than one count for less: they are drawn less often."""
    generator = key.child("augment").torch(task.device)
    pictures = torch.cat([affine(x, generator, flip=task.shape[0] == 3) for _ in range(cfg.copies)])
    labels = y.repeat(cfg.copies, 1)
    mass = labels.sum(1).clamp_min(1e-6)
    return train_fresh(
        task,
        x=pictures,
        y=labels / mass[:, None],
        weights=mass.cpu(),
        steps=cfg.train_steps,
        batch=cfg.train_batch,
        lr=cfg.train_lr,
        key=key,
    )


def adopt(cfg: Config, state: State, site: OwnSite, key: Key) -> Items:
    """Peer to peer: own records plus everybody's images. The model stays here; it is as exact as the records are."""
    task, received = site.task, state.items["synthetic"]
    assert isinstance(received, SyntheticSet)
    own = F.one_hot(site.records.y, len(task.classes)).float()
    x = torch.cat([received.x, site.records.x]).to(task.device)
    params = train_on(cfg, task, x, torch.cat([received.y, own]).to(task.device), key)
    return {"model": Weights(params)}


def plan(cfg: Config, task: Task) -> Cost:
    """The statistics, and the DP-SGD steps where they have a share."""
    cost = statistics.plan(cfg.model_copy(update={"sigma": cfg.statistics_noise}), task)
    if cfg.share:
        cost = cost + task.gaussian(sgd_sigma(cfg, task), batch=cfg.sgd_batch, times=cfg.sgd_steps)
    return cost


def shapes(cfg: Config, task: Task) -> Shapes:
    """As many images of every declared class, with soft labels."""
    count = cfg.images * len(task.classes)
    return {"synthetic": {"x": ("uint8", (count, *task.shape)), "y": ("float32", (count, len(task.classes)))}}


METHOD = Method(
    name="prism-local",
    summary="PRISM with synthesis on each site; synthetic images are exchanged",
    paper="PRISM-FL (abstract)",
    settings=Config,
    leaves={"synthetic": SyntheticSet},
    guarantee="site",
    init=prism.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    possible=possible,
    adopt=adopt,
    takes_encoder=True,
    auto=auto.local_auto,
    needs_public=True,
    kinds=("image",),
    tiny={**prism.METHOD.tiny, "share": 0.3, "centring": 0.2, "sgd_steps": 2, "sgd_batch": 8},
)
