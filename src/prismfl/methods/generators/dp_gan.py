"""DP-GAN (Xie et al. 2018): a GAN whose discriminator is trained with DP-SGD.

Paper: Xie, Lin, Wang, Wang, Zhou, "Differentially Private Generative Adversarial Network",
https://arxiv.org/abs/1802.06739.

What leaves a site, once: the generator and noisy class sizes, or images drawn from it. The generator sees only the
discriminator, whose gradients on private records are clipped and noised; its gradients on made images need no noise.
Differs from the paper: Poisson batches, one score per class, the non-saturating loss instead of Wasserstein's.
"""

from __future__ import annotations

import torch
from pydantic import Field

from prismfl.core.method import Inbox, Items, Method, Shapes, Site, State
from prismfl.core.payloads import JsonDict, Synthesizer, SyntheticSet
from prismfl.core.task import Task
from prismfl.methods.generators import auto
from prismfl.methods.generators import images as generators
from prismfl.methods.generators.images import COUNTS
from prismfl.nets import gan
from prismfl.nets.diffusion import Learner
from prismfl.nets.merf import ImageRecipe
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Config(generators.GeneratorSettings):
    """Both networks and how they are trained."""

    rounds: int = Field(1, ge=1, le=1, description="one release")
    steps: int = Field(400, ge=1, description="DP-SGD steps of the discriminator")
    batch: float = Field(512, gt=0, description="expected batch")
    clip: float = Field(0.1, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(1e-3, gt=0, description="of the discriminator")
    made_batch: int = Field(128, ge=1, description="made images in a step")
    maker_steps: int = Field(2, ge=1, description="steps of the generator for one of the discriminator")
    maker_lr: float = Field(5e-4, gt=0, description="of the generator")
    latent: int = Field(20, ge=1, description="latent dimensions of the generator")
    width: int = Field(16, ge=2, multiple_of=2, description="channels of both networks")
    count_factor: float = Field(20.0, gt=0, description="noise of class sizes, as a multiple of sigma")


def recipe(cfg: Config, task: Task) -> ImageRecipe:
    """The public structure of the generator."""
    return ImageRecipe(task.shape, len(task.classes), cfg.latent, cfg.width)


def train(cfg: Config, site: Site, key: Key) -> tuple[dict[str, torch.Tensor], str | None]:
    """The generator's tensors after all steps, and why training stopped early, if so."""
    task = site.task
    network = recipe(cfg, task).build(key.child("generator")).to(task.device)
    judge = gan.build_discriminator(task.shape, len(task.classes), width=cfg.width, key=key.child("discriminator"))
    learner = Learner.start({k: p.detach().clone() for k, p in judge.named_parameters()}).to(task.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=cfg.maker_lr, betas=(0.5, 0.99))
    players = gan.Players(network, optimiser, judge, key.child("noise").torch(), cfg.made_batch)
    for i in range(cfg.steps):
        real = site.records.noisy_gradient(
            gan.real_loss(judge), learner.params, batch=cfg.batch, clip=cfg.clip, sigma=cfg.noise
        )
        fake = players.fake_gradient(learner, clip=cfg.clip)
        after = learner.step({k: g + fake[k] for k, g in real.items()}, cfg.lr, keep=0.0)
        if not after.finite:
            site.records.forfeit(sigma=cfg.noise, times=cfg.steps - i - 1, batch=cfg.batch)
            return dict(network.state_dict()), f"Weights are not finite after step {i + 1}; lower lr ({cfg.lr:g})."
        learner = after
        for _ in range(cfg.maker_steps):
            players.improve(learner)
    return dict(network.state_dict()), None


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """Noisy class sizes, and the generator or its images."""
    counts = site.records.noisy_histogram(sigma=cfg.noise * cfg.count_factor)
    network, why = train(cfg, site, key.child("train"))
    items = generators.release(
        cfg,
        site.task,
        {**network, COUNTS: generators.said(counts, why)},
        recipe(cfg, site.task).draw,
        key=key.child("draw"),
        noise=cfg.noise * cfg.count_factor,
        spec=specs(cfg, site.task, site.name)["generator"],
    )
    return items, {}


def specs(cfg: Config, task: Task, site: str) -> dict[str, JsonDict]:
    """The words that the generator carries: its kind and the declared classes."""
    return {"generator": {"kind": "dp-gan", "classes": list(task.classes)}}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Class sizes of declared records, and weights that the generator's training can reach."""
    reach = generators.ADAM * cfg.maker_lr * cfg.maker_steps * cfg.steps
    return generators.possible(task, items, noise=cfg.noise * cfg.count_factor, reach=reach)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """Images from all sites' generators, and the classifier trained on them."""
    noise = cfg.noise * cfg.count_factor
    made = generators.gather(cfg, task, inbox, recipe(cfg, task).draw, noise=noise, key=key.child("draw"))
    return generators.outcome(cfg, task, made, key)


def plan(cfg: Config, task: Task) -> Cost:
    """One answer for the class sizes and one per step of the discriminator."""
    steps = task.gaussian(cfg.noise, batch=cfg.batch, times=cfg.steps)
    return task.gaussian(cfg.noise * cfg.count_factor) + steps


def shapes(cfg: Config, task: Task) -> Shapes:
    """The generator or its images."""
    return generators.release_shapes(cfg, task, recipe(cfg, task).shapes())


def advice(cfg: Config, task: Task) -> list[str]:
    """Whether the discriminator learns anything but noise."""
    judge = gan.build_discriminator(task.shape, len(task.classes), width=cfg.width, key=Key.seed(0))
    return auto.advice(cfg, task, sum(p.numel() for p in judge.parameters()))


METHOD = Method(
    name="dp-gan",
    summary="a GAN whose discriminator is trained with DP-SGD",
    paper="Xie et al. 2018, arXiv:1802.06739",
    settings=Config,
    leaves={"generator": Synthesizer, "synthetic": SyntheticSet},
    guarantee="site",
    init=generators.init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    specs=specs,
    possible=possible,
    advice=advice,
    auto=auto.gan,
    kinds=("image",),
    tiny={"steps": 2, "batch": 8, "made_batch": 6, "latent": 2, "width": 2, "samples": 12, "train_steps": 3},
)
