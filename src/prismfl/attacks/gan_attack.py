"""The GAN attack on collaborative learning (Hitaj et al. 2017): a demonstration of what sharing gradients gives away.

A dishonest site takes part in an ordinary run. Each round it trains a small generator against the model it was sent, so
that the model takes the generated images for a class that only *other* sites hold; and it trains the shared model on
those images under a wrong label, which makes the honest sites teach the model that class all the more sharply. It needs
nothing but the model that every site gets. The images it ends with show what the class looks like, not single records.

`dishonest` turns a method that shares gradients into the same method with such a site in it; the generator is that
site's memory. Methods that share no model or gradient give it nothing to work with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.method import Items, Method, Site, State, Task
from prismfl.models.classifier import Classifier, Params, build
from prismfl.payloads import Gradient, Payload, Weights
from prismfl.rng import Key

LATENT, HIDDEN = 32, 128


@dataclass(frozen=True)
class Plan:
    """Who attacks which class (`target`), under which wrong label its fakes go, and how hard it works a round."""

    site: str
    target: int
    wrong: int
    fakes: int = 16
    steps: int = 5
    lr: float = 2e-3
    smooth: float = 0.05


def generator(shape: tuple[int, ...], *, key: Key) -> tuple[nn.Module, Params]:
    """A small dense generator of images in [0, 1]; soft edges come from upsampling a half-size picture."""
    channels, side = shape[0], shape[1]
    half = -(-side // 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        module = nn.Sequential(
            nn.Linear(LATENT, HIDDEN),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, channels * half * half),
            nn.Unflatten(1, (channels, half, half)),
            nn.Upsample(size=(side, shape[2]), mode="bilinear", align_corners=False),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.Sigmoid(),
        )
    return module, {k: v.detach().clone() for k, v in module.named_parameters()}


def train_generator(
    classifier: Classifier, params: Params, made: tuple[nn.Module, Params], *, plan: Plan, key: Key
) -> Params:
    """The generator after some steps towards images that the model takes for the target class."""
    module, start = made
    leaves = {k: v.detach().clone().requires_grad_() for k, v in start.items()}
    optimiser = torch.optim.Adam(leaves.values(), lr=plan.lr, betas=(0.5, 0.999))
    noise = key.child("latent").torch()
    wanted = torch.full((plan.fakes,), plan.target)
    for _ in range(plan.steps):
        images = torch.func.functional_call(module, leaves, (torch.randn(plan.fakes, LATENT, generator=noise),))
        rough = images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()
        loss = F.cross_entropy(classifier.logits(params, images), wanted) + plan.smooth * rough
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    return {k: v.detach() for k, v in leaves.items()}


def fake_images(shape: tuple[int, ...], memory: Items, count: int, *, key: Key) -> torch.Tensor:
    """What the dishonest site's generator draws now."""
    module, _ = generator(shape, key=key)
    latent = torch.randn(count, LATENT, generator=key.child("draw").torch())
    with torch.no_grad():
        images: torch.Tensor = torch.func.functional_call(module, dict(memory["generator"].tensors), (latent,))
    return images


def dishonest(method: Method, plan: Plan) -> Method:
    """`method` with one dishonest site in it; the others do as they always do."""
    if method.leaves.get("gradient") is not Gradient:
        raise UserError(f"Method '{method.name}' shares no gradient: the GAN attack does not apply.")

    def client(cfg: object, state: State, site: Site, key: Key) -> tuple[Items, Items]:
        if site.name != plan.site:
            return method.client(cfg, state, site, key)
        honest, kept = method.client(cfg, state, site, key)
        fake, memory = _attack(state, site.memory, site.task, plan=plan, key=key)
        mixed = {k: 0.5 * g + 0.5 * fake[k] for k, g in honest["gradient"].tensors.items()}
        return {"gradient": Gradient(mixed)}, {**kept, **memory}

    return replace(method, name=f"{method.name}+gan", client=client)


def _attack(state: State, memory: Items, task: Task, *, plan: Plan, key: Key) -> tuple[Params, dict[str, Payload]]:
    """One round's work: a better generator, and the gradient that calls its images by the wrong label."""
    classifier, _ = build(task.model, task.shape, len(task.classes), key=key)
    params = state.items["model"].to("cpu")
    module, fresh = generator(task.shape, key=key)
    start = memory["generator"].to("cpu") if "generator" in memory else fresh
    better = train_generator(classifier, params, (module, start), plan=plan, key=key.child("gan"))
    items: dict[str, Payload] = {"generator": Weights(better)}
    images = fake_images(task.shape, items, plan.fakes, key=key.child("fakes"))
    return classifier.gradient(params, images, torch.full((plan.fakes,), plan.wrong)), items
