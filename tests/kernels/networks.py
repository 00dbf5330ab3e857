"""Every kind of network whose gradients leave a site, small, with the loss that its method asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch

from prismfl.kernels.loss import Loss
from prismfl.kernels.loss import Params as Params
from prismfl.methods.gradients import fedem
from prismfl.methods.gradients.fedem_dp import Config, PerturbedLoss
from prismfl.nets import beta_vae, diffusion, frequencies, gan, siamese, unet
from prismfl.nets.classifier import build, cross_entropy_of_one
from prismfl.nets.columns import Columns
from prismfl.rng import Key

Batch = tuple[torch.Tensor, ...]
CLASSES = 3


@dataclass(frozen=True)
class Network:
    """A loss, its parameters, and what a batch of `n` ordinary records is."""

    loss: Loss
    params: Params
    shape: tuple[int, ...]
    extra: Callable[[int], Batch] = lambda n: ()

    def batch(self, n: int) -> Batch:
        x = torch.rand(n, *self.shape, generator=torch.Generator().manual_seed(n))
        return (x, torch.arange(n) % CLASSES, *self.extra(n))


def classifier(name: str, shape: tuple[int, ...]) -> Network:
    made, params = build(name, shape, CLASSES, key=Key.seed(0))
    return Network(made.record_loss, params, shape)


def discriminator() -> Network:
    judge = gan.build_discriminator((1, 8, 8), CLASSES, width=2, key=Key.seed(0))
    return Network(gan.real_loss(judge), of(judge), (1, 8, 8))


def vae(image: bool) -> Network:
    """A dense one on a table, or a convolutional one on pictures."""
    table = Columns(6, numeric=(0, 1), binary=(2,), blocks=((3, 3),))
    columns = Columns(64, pixels=tuple(range(64))) if image else table
    made = beta_vae.build_vae(
        beta_vae.Shape(columns, image=(1, 8, 8) if image else None, conv=2), beta=1.0, key=Key.seed(0)
    )
    loss = beta_vae.RecordBound(made, diffusion._unused)
    shape = (1, 8, 8) if image else (columns.width,)
    return Network(loss, of(made), shape, lambda n: (torch.randn(n, 3, generator=torch.Generator().manual_seed(n)),))


def u_net() -> Network:
    made = unet.build_unet(unet.UNetShape((1, 8, 8), CLASSES, width=8), Key.seed(0))
    params = {k: p + 0.05 * torch.randn(p.shape, generator=Key.seed(1).torch()) for k, p in of(made).items()}
    return Network(
        diffusion.record_misfit(made, CLASSES),
        params,
        (1, 8, 8),
        lambda n: (torch.randn(n, diffusion.normals((1, 8, 8), 2), generator=torch.Generator().manual_seed(n)),),
    )


def on_frequencies(width: int = 8) -> Network:
    """Linear layers that see several noisy versions of a record."""
    space = frequencies.Coefficients((1, 8, 8), 3)
    denoiser = frequencies.Denoiser(space, CLASSES, width, frequencies.Gaussians.public(space, CLASSES))
    made = denoiser.build(Key.seed(0))
    params = {k: p + 0.05 * torch.randn(p.shape, generator=Key.seed(1).torch()) for k, p in of(made).items()}
    return Network(
        denoiser.loss(made),
        params,
        (1, 8, 8),
        lambda n: (torch.randn(n, denoiser.normals(3), generator=torch.Generator().manual_seed(n)),),
    )


def perturbed() -> Network:
    shape = (1, 8, 8)
    made, params = build("lenet:2", shape, CLASSES, key=Key.seed(0))
    settings = Config()
    return Network(
        cast(Loss, PerturbedLoss(made.module, settings)),
        params,
        shape,
        lambda n: (fedem.first_shift(torch.Size((n, *shape)), settings, torch.Generator().manual_seed(n)),),
    )


def viewed() -> Network:
    """Behind a Siamese view, as FedLAP-DP asks."""
    made, params = build("convnet:64", (1, 16, 16), CLASSES, key=Key.seed(0))
    view = siamese.draw(("rotate",), Key.seed(3).torch())
    assert view is not None
    loss = Loss(siamese.BehindView(view, made.module), cross_entropy_of_one)
    return Network(loss, {f"net.{k}": p for k, p in params.items()}, (1, 16, 16))


def of(module: torch.nn.Module) -> Params:
    return {k: p.detach().clone() for k, p in module.named_parameters()}


NETWORKS: dict[str, Callable[[], Network]] = {
    "logreg": lambda: classifier("logreg", (6,)),
    "mlp": lambda: classifier("mlp:5", (6,)),
    "lenet": lambda: classifier("lenet:3", (1, 12, 12)),
    "sigmoid-lenet": lambda: classifier("sigmoid-lenet:3", (1, 12, 12)),
    "tanh-convnet": lambda: classifier("tanh-convnet:2", (1, 12, 12)),
    "convnet": lambda: classifier("convnet:4", (1, 12, 12)),
    "wide convnet": lambda: classifier("convnet:64", (1, 16, 16)),
    "wide convnet, 28 pixels": lambda: classifier("convnet:64", (1, 28, 28)),
    "wide convnet, odd": lambda: classifier("convnet:64", (3, 20, 20)),
    "wide tanh-convnet": lambda: classifier("tanh-convnet:64", (1, 9, 9)),
    "discriminator": discriminator,
    "dense beta-VAE": lambda: vae(image=False),
    "convolutional beta-VAE": lambda: vae(image=True),
    "U-Net": u_net,
    "frequencies": on_frequencies,
    "perturbed inputs": perturbed,
    "Siamese view": viewed,
}
SLOW = {"wide convnet, 28 pixels", "wide tanh-convnet", "U-Net", "Siamese view"}
