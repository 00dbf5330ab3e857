"""Classifiers by name, used as pure functions of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.kernels.loss import Loss, refuse_cross_record_layers
from prismfl.kernels.loss import Params as Params
from prismfl.rng import Key


def convnet(shape: tuple[int, ...], classes: int, width: int = 128) -> nn.Module:
    """Three blocks of conv 3x3, GroupNorm with one group per channel, ReLU, average pooling; then a linear layer.

    28-pixel images are padded to 32 by the first convolution, as in FedLAP.
    """
    channels, side = shape[0], shape[1]
    padding = 3 if side == 28 else 1
    side += 2 * padding - 2
    layers: list[nn.Module] = []
    for block in range(3):
        layers += [
            nn.Conv2d(channels if block == 0 else width, width, 3, padding=padding if block == 0 else 1),
            nn.GroupNorm(width, width),
            nn.ReLU(),
            nn.AvgPool2d(2),
        ]
        side //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * side * side, classes))


def lenet(shape: tuple[int, ...], classes: int, width: int = 16) -> nn.Module:
    """Two 5x5 convolutions with pooling, then two linear layers."""
    side = (shape[1] // 2) // 2
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * side * side, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, classes),
    )


def mlp(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_features(shape), width), nn.ReLU(), nn.Linear(width, classes))


def logreg(shape: tuple[int, ...], classes: int, width: int = 0) -> nn.Module:
    """Logistic regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_features(shape), classes))


def sigmoid_lenet(shape: tuple[int, ...], classes: int, width: int = 12) -> nn.Module:
    """The sigmoid LeNet of the gradient-leakage literature: smooth, hence easy to invert."""
    side = (shape[1] + 3) // 4
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 5, padding=2, stride=2),
        nn.Sigmoid(),
        nn.Conv2d(width, width, 5, padding=2, stride=2),
        nn.Sigmoid(),
        nn.Conv2d(width, width, 5, padding=2, stride=1),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(width * side * side, classes),
    )


def tanh_convnet(shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """The deep network of the gradient-leakage literature, with tanh: eight 3x3 convolutions, pooled twice by three.

    It is smooth (average pooling), and normalised record by record where the original normalises over the batch.
    """
    layers: list[nn.Module] = []
    channels = shape[0]
    for number, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
        layers += [nn.Conv2d(channels, factor * width, 3, padding=1), nn.GroupNorm(width, factor * width), nn.Tanh()]
        channels = factor * width
        if number in (5, 7):
            layers.append(nn.AvgPool2d(3))
    side = shape[1] // 3 // 3
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, classes))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "convnet": convnet,
    "lenet": lenet,
    "mlp": mlp,
    "logreg": logreg,
    "sigmoid-lenet": sigmoid_lenet,
    "tanh-convnet": tanh_convnet,
}
IMAGE_MODELS = {"convnet": 8, "lenet": 4, "sigmoid-lenet": 1, "tanh-convnet": 9}
"""Networks for images, and the smallest side that is left of their maps when they are pooled."""


def _features(shape: tuple[int, ...]) -> int:
    total = 1
    for s in shape:
        total *= s
    return total


@dataclass(frozen=True)
class Classifier:
    """A network's structure; its parameters travel separately."""

    module: nn.Module

    def logits(self, params: Params, x: torch.Tensor) -> torch.Tensor:
        """One row of logits per record."""
        out: torch.Tensor = torch.func.functional_call(self.module, dict(params), (x,))
        return out

    @property
    def record_loss(self) -> Loss:
        """The cross entropy of one record, as per-record gradients need it."""
        return Loss(self.module, cross_entropy_of_one)

    def loss(self, params: Params, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy; `y` holds class numbers or rows of soft labels."""
        return F.cross_entropy(self.logits(params, x), y)

    def gradient(self, params: Params, x: torch.Tensor, y: torch.Tensor) -> Params:
        """The gradient of the mean loss by the parameters."""
        leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
        grads = torch.autograd.grad(self.loss(leaves, x, y), list(leaves.values()))
        return dict(zip(leaves, grads))


def cross_entropy_of_one(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross entropy of a single record, written without indexing by the label (which vmap cannot batch)."""
    chosen = torch.arange(output.shape[1], device=output.device) == y
    return -(F.log_softmax(output[0], dim=0) * chosen).sum()


def size_of(name: str, shape: tuple[int, ...], classes: int) -> int:
    """How many parameters the classifier `name` has. No room is made for them, so that any name may be asked about."""
    base, _, width = name.partition(":")
    _check_name(base, width, shape)
    if len(width) > 9:
        raise UserError(f"Expected a model width of at most nine digits, got {len(width)} digits.")
    with torch.device("meta"):
        module = MODELS[base](shape, classes, int(width)) if width else MODELS[base](shape, classes)
    return sum(p.numel() for p in module.parameters())


def _check_name(base: str, width: str, shape: tuple[int, ...]) -> None:
    if base not in MODELS:
        raise UserError(f"Unknown model '{base}'; choose one of {', '.join(MODELS)}.")
    if base in IMAGE_MODELS and len(shape) != 3:
        raise UserError(f"Model '{base}' needs images, but the data are tables; use mlp or logreg.")
    least = IMAGE_MODELS.get(base, 0)
    if least and (shape[1] != shape[2] or shape[1] < least):
        raise UserError(
            f"Model '{base}' needs square images of at least {least} pixels a side, got {shape[1]}x{shape[2]}; declare "
            "image_size, or use mlp or logreg."
        )
    if width and not width.isdigit():
        raise UserError(f"Expected a model width as a whole number, as in '{base}:32', got '{width}'.")


def build(
    name: str, shape: tuple[int, ...], classes: int, *, key: Key, device: str = "cpu"
) -> tuple[Classifier, Params]:
    """The classifier `name` ("convnet", or "convnet:64" for another width) with fresh parameters drawn from `key`."""
    base, _, width = name.partition(":")
    _check_name(base, width, shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        module = MODELS[base](shape, classes, int(width)) if width else MODELS[base](shape, classes)
    if base == "sigmoid-lenet":
        generator = key.child("uniform").torch()
        for p in module.parameters():
            with torch.no_grad():
                p.copy_(torch.rand(p.shape, generator=generator) - 0.5)
    refuse_cross_record_layers(module)
    params = {k: v.detach().clone().to(device) for k, v in module.named_parameters()}
    return Classifier(module.to(device)), params


class Shaped(Protocol):
    """The public facts of a task that its network depends on."""

    @property
    def model(self) -> str:
        """The name of the network, as `build` takes it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""

    @property
    def device(self) -> str:
        """The name of the device that the network is put on."""


def network(task: Shaped, *, key: Key, device: str | None = None) -> tuple[Classifier, Params]:
    """The task's classifier with fresh parameters drawn from `key`, on the task's device unless another is named."""
    return build(task.model, task.shape, len(task.classes), key=key, device=device or task.device)


def batches(count: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Shuffled batches of row numbers, for training without a guarantee."""
    order = torch.randperm(count, generator=generator)
    for start in range(0, count, size):
        yield order[start : start + size]
