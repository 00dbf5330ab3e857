"""DP-MERF (Harder et al. 2021): one noisy mean embedding of images and labels, and a generator that matches it.

Paper: Harder, Adamczewski, Park, "DP-MERF: Differentially Private Mean Embeddings with Random Features for Practical
Privacy-Preserving Data Generation", https://arxiv.org/abs/2002.11603.

What leaves a site, once: sums over its records, by class, of random Fourier features of the image, and the class sizes;
one Gaussian release of sensitivity 1 (share = "embedding"). The server adds the sites' sums and trains one generator on
them. With share = "generator" or "samples" each site trains its own and sends that instead: post-processing, all of it.

Differs from the paper: sums over public or noised denominators instead of means over the true number of records; the
bias of the squared norm of a finite mean is taken off; features of two widths, a random part of them asked each step.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import JsonDict, Statistics, Synthesizer, SyntheticSet
from prismfl.core.task import Task
from prismfl.methods import robust
from prismfl.methods.generators import auto
from prismfl.methods.generators import images as generators
from prismfl.methods.generators.images import COUNTS
from prismfl.nets import merf
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

SUMS = "sums"


class Config(generators.GeneratorSettings):
    """The public features, what leaves, and how the generator is trained."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    share: Literal["embedding", "generator", "samples"] = Field(  # type: ignore[assignment]
        "embedding", description="what leaves: the noisy sums, a generator trained on them, or its images"
    )
    features: int = Field(4000, ge=2, description="random Fourier features (cos and sin)")
    lengths: tuple[float, ...] = Field(
        (0.2, 0.4), min_length=1, description="kernel widths, in root mean square pixels"
    )
    share_count: float = Field(0.02, gt=0, lt=1, description="share of the squared sensitivity: class sizes")
    steps: int = Field(2000, ge=1, description="training steps of the generator")
    per_class: int = Field(40, ge=2, description="images of each class in a step")
    picked: int = Field(500, ge=1, description="pairs of features asked in a step")
    lr: float = Field(3e-3, gt=0, description="learning rate of the generator, falling along a cosine")
    latent: int = Field(10, ge=1, description="latent dimensions of the generator")
    width: int = Field(16, ge=2, multiple_of=2, description="channels of the generator")
    bank_seed: int = Field(0, description="seed of the public features")

    @property
    def count_noise(self) -> float:
        """Standard deviation of a released class size."""
        return self.noise / math.sqrt(self.share_count)


@lru_cache(maxsize=4)
def _bank(dimensions: int, features: int, lengths: tuple[float, ...], seed: int) -> merf.Fourier:
    return merf.Fourier.draw(dimensions, features=features, lengths=lengths, key=Key.seed(seed).child("merf"))


def bank(cfg: Config, task: Task) -> merf.Fourier:
    """The public random features, kept for the next call."""
    return _bank(math.prod(task.shape), cfg.features, cfg.lengths, cfg.bank_seed)


def recipe(cfg: Config, task: Task) -> merf.ImageRecipe:
    """The public structure of the generator."""
    return merf.ImageRecipe(task.shape, len(task.classes), cfg.latent, cfg.width)


def embed(cfg: Config, site: Site) -> dict[str, torch.Tensor]:
    """The one question to the door: feature sums and sizes by class, in records."""
    features = bank(cfg, site.task)
    much, little = math.sqrt(1.0 - cfg.share_count), math.sqrt(cfg.share_count)

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([much * features(x), torch.full((len(x), 1), little).to(x)], 1)

    sums, _ = site.records.noisy_moments(rows, second=0, scale=0.0, bound=1.0, sigma=cfg.noise)
    return {SUMS: sums[:, :-1] / much, COUNTS: sums[:, -1] / little}


def train(
    cfg: Config, task: Task, sums: torch.Tensor, counts: torch.Tensor, *, noise: float, key: Key
) -> merf.ImageGenerator:
    """A generator from released sums; classes that do not stand out of the noise are left alone."""
    network = recipe(cfg, task).build(key.child("network"))
    present = counts > generators.CLEAR * noise
    means = sums / counts.clamp(min=1.0)[:, None]
    how = merf.MatchingSteps(cfg.steps, cfg.per_class, cfg.picked, cfg.lr)
    merf.match(network, bank(cfg, task), means, present=present, how=how, key=key.child("match"))
    return network


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """The noisy embedding, or the generator that was trained on it, or its images."""
    task, released = site.task, embed(cfg, site)
    spec = specs(cfg, task, site.name)["generator"]
    if cfg.share == "embedding":
        empty = {"generator": Synthesizer({}, spec), "synthetic": generators.no_images(task)}
        return {"embedding": Statistics(released), **empty}, {}
    network = train(cfg, task, released[SUMS], released[COUNTS], noise=cfg.count_noise, key=key)
    tensors = {**network.state_dict(), COUNTS: released[COUNTS]}
    items = generators.release(
        cfg, task, tensors, recipe(cfg, task).draw, key=key.child("draw"), noise=cfg.count_noise, spec=spec
    )
    return {"embedding": Statistics({}), **items}, {}


def specs(cfg: Config, task: Task, site: str) -> dict[str, JsonDict]:
    """The words that the generator carries: its kind and the declared classes."""
    return {"generator": {"kind": "dp-merf", "classes": list(task.classes)}}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Class sizes of declared records, and sums as long as they allow."""
    if cfg.share != "embedding":
        return generators.possible(task, items, noise=cfg.count_noise, reach=generators.ADAM * cfg.lr * cfg.steps)
    sums, counts = (items["embedding"].tensors[name].double() for name in (SUMS, COUNTS))
    noise = cfg.noise / math.sqrt(1.0 - cfg.share_count)
    doubt = robust.noise_norm(len(counts), cfg.count_noise)
    most = 1.001 * ((counts + doubt).clamp(min=0.0) + robust.noise_norm(sums.shape[1], noise)) + 1e-3
    if bool((torch.linalg.vector_norm(sums, dim=1) > most).any()):
        return "sums of a class are longer than its count allows"
    return robust.count_fault(counts, task, cfg.count_noise)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """One generator for everybody's embeddings, or images from all sites' generators; and the classifier."""
    draw = recipe(cfg, task).draw
    if cfg.share == "embedding":
        noise = cfg.count_noise * math.sqrt(len(inbox))
        sent, sizes = (
            torch.stack([items["embedding"].tensors[name] for _, items in sorted(inbox.items())])
            for name in (SUMS, COUNTS)
        )
        factors = robust.capped(sizes, records=task.records, noise=cfg.count_noise)
        sums, counts = (sent * factors[:, :, None]).sum(0), (sizes * factors).sum(0)
        network = train(cfg, task, sums, counts, noise=noise, key=key.child("train"))
        generator = Synthesizer({**network.state_dict(), COUNTS: counts}, {"kind": "dp-merf"})
        labels = generators.labels_of(generators.trust(counts[None], noise)[0], cfg.samples)
        images = generators.to_bytes(draw(generator.tensors, labels, key.child("draw")))
        order = torch.randperm(len(labels), generator=key.child("shuffle").torch())
        made = SyntheticSet.of(images[order], labels[order])
        return {"generator": generator, **generators.outcome(cfg, task, made, key)}
    made = generators.gather(cfg, task, inbox, draw, noise=cfg.count_noise, key=key.child("draw"))
    return generators.outcome(cfg, task, made, key)


def plan(cfg: Config, task: Task) -> Cost:
    """One Gaussian answer."""
    return task.gaussian(cfg.noise)


def shapes(cfg: Config, task: Task) -> Shapes:
    """The embedding, or the generator, or its images; what is not asked for is empty."""
    if cfg.share != "embedding":
        return {"embedding": {}, **generators.release_shapes(cfg, task, recipe(cfg, task).shapes())}
    classes, width = len(task.classes), 2 * max(1, cfg.features // 2)
    return {
        "embedding": {COUNTS: ("float32", (classes,)), SUMS: ("float32", (classes, width))},
        "generator": {},
        "synthetic": generators.image_shapes(task, 0),
    }


METHOD = Method(
    name="dp-merf",
    summary="one noisy random-feature mean of images and labels; a generator matches it",
    paper="Harder et al. 2021, arXiv:2002.11603",
    settings=Config,
    leaves={"embedding": Statistics, "generator": Synthesizer, "synthetic": SyntheticSet},
    guarantee="site",
    init=generators.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    specs=specs,
    possible=possible,
    auto=auto.merf,
    kinds=("image",),
    tiny={
        "features": 40,
        "steps": 4,
        "per_class": 3,
        "picked": 10,
        "latent": 2,
        "width": 2,
        "samples": 30,
        "train_steps": 4,
    },
)
