"""The batched path must give what a loop over records gives, and must refuse every network it cannot be sure of."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from prismfl.kernels import per_record
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.kernels.loss import Loss
from prismfl.nets.classifier import build, cross_entropy_of_one
from prismfl.rng import Key

IMAGE, TABLE = (1, 12, 12), (6,)


class Centred(nn.Module):
    """Looks at the whole batch: harmless for a batch of one, a leak for more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True) + x.flatten(1).sum(1).reshape(-1, *[1] * (x.dim() - 1))


def strided(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=(1, 0), dilation=2, bias=False), nn.GroupNorm(2, 4)),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, 8, bias=False),
        nn.GroupNorm(4, 8),
        nn.GroupNorm(2, 8, affine=False),
        nn.Linear(8, classes),
    )


def wide(classes: int) -> nn.Module:
    """Wide layers in another order than a ConvNet's: norms that follow no convolution or keep several channels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.ReLU(), nn.GroupNorm(64, 64), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(64, 64, 3), nn.GroupNorm(8, 64), nn.Tanh(), nn.Conv2d(64, 64, 3, padding=1), nn.GroupNorm(64, 64)),
        *(nn.ReLU(), nn.AvgPool2d(2, stride=1), nn.Flatten(), nn.Linear(576, classes)),
    )


def without_biases(classes: int) -> nn.Module:
    """A wide convolution without a bias in front of norm, ReLU and pooling; pictures large, then small."""
    first = (nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.GroupNorm(64, 64), nn.ReLU(), nn.AvgPool2d(2))
    second = (nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.GroupNorm(64, 64), nn.ReLU(), nn.AvgPool2d(2))
    return nn.Sequential(*first, *second, nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(1024, classes))


def by_rows(classes: int) -> nn.Module:
    """A linear layer over every row of a picture: many positions a record."""
    return nn.Sequential(nn.Linear(12, 5), nn.GELU(), nn.Flatten(), nn.Linear(60, classes))


def data(shape: tuple[int, ...], count: int = 21) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1)), torch.arange(count) % 3


def named(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def loop(loss: Loss, params: dict[str, torch.Tensor], batch: tuple[torch.Tensor, ...], clip: float) -> torch.Tensor:
    """One record after the other by plain autograd."""
    total = torch.zeros(sum(p.numel() for p in params.values()), dtype=torch.float64)
    for record in zip(*batch):
        leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
        grads = torch.autograd.grad(loss(leaves, *record), list(leaves.values()))
        flat = torch.cat([g.flatten() for g in grads]).double()
        total += flat * min(1.0, clip / float(flat.norm()))
    return total


def flattened(sums: dict[str, torch.Tensor], params: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([sums[k].flatten() for k in params]).double()


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *(("convnet:4", IMAGE), ("lenet:3", IMAGE), ("sigmoid-lenet:3", IMAGE), ("mlp:5", TABLE), ("logreg", TABLE)),
        *(("convnet:64", (1, 28, 28)), ("convnet:64", (3, 20, 20)), (wide, IMAGE)),
        (without_biases, (1, 16, 16)),
        (strided, IMAGE),
        (by_rows, IMAGE),
    ],
)
@pytest.mark.parametrize(("clip", "block"), [(0.3, None), (0.3, 4), (1e6, 8)])
def test_equals_a_loop_over_records(
    model: str | Callable[[int], nn.Module], shape: tuple[int, ...], clip: float, block: int | None
) -> None:
    torch.manual_seed(0)
    module = build(model, shape, 3, key=Key.seed(0))[0].module if isinstance(model, str) else model(3)
    x, y = data(shape)
    params, loss = named(module), Loss(module, cross_entropy_of_one)
    assert per_record.sequence_of(module, params, x) is not None
    got = flattened(clipped_gradient_sum(loss, params, batch=(x, y), clip=clip, chunk=block), params)
    torch.testing.assert_close(got, loop(loss, params, (x, y), clip), rtol=1e-4, atol=1e-5)


def test_further_inputs_of_the_loss_belong_to_their_record() -> None:
    module = nn.Linear(6, 3)
    x, y = data(TABLE)
    weight = torch.linspace(0.1, 2.0, len(x))
    loss = Loss(module, lambda output, y, w: w * cross_entropy_of_one(output, y))
    params = named(module)
    got = flattened(clipped_gradient_sum(loss, params, batch=(x, y, weight), clip=0.5, chunk=8), params)
    torch.testing.assert_close(got, loop(loss, params, (x, y, weight), 0.5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize(("model", "shape"), [("lenet:3", IMAGE), ("convnet:64", (1, 32, 32))])
def test_a_bad_record_is_left_out_and_spoils_no_other(model: str, shape: tuple[int, ...], value: float) -> None:
    classifier, params = build(model, shape, 3, key=Key.seed(0))
    x, y = data(shape)
    x[3] = value
    rest = torch.arange(len(x)) != 3
    with_bad = flattened(clipped_gradient_sum(classifier.record_loss, params, batch=(x, y), clip=1.0), params)
    without = loop(classifier.record_loss, params, (x[rest], y[rest]), 1.0)
    assert bool(torch.isfinite(with_bad).all())
    assert float((with_bad - without).norm()) <= 1.0 + 1e-4
    if not math.isfinite(value):
        torch.testing.assert_close(with_bad, without, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["black", "white", "loud", "faint", "noise", "spot", "board"])
def test_an_odd_record_alone_counts_for_the_bound_and_no_more(kind: str) -> None:
    """What is measured and what is added up are computed in different ways where layers are wide."""
    classifier, params = build("convnet:64", (1, 32, 32), 3, key=Key.seed(0))
    x = torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    x = {"black": 0.0 * x, "white": 0.0 * x + 1.0, "loud": 0.0 * x + 1e6, "faint": 1e-8 * x, "noise": 1e4 * x}.get(
        kind, x
    )
    if kind == "spot":
        x = torch.zeros_like(x).index_fill_(3, torch.tensor([5]), 1e6)
    if kind == "board":
        x = 1e3 * (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).float().expand(1, 1, 32, 32)
    sums = clipped_gradient_sum(classifier.record_loss, params, batch=(x, torch.tensor([2])), clip=1e-3)
    assert 1.0 - 1e-5 < float(flattened(sums, params).norm()) / 1e-3 <= 1.0


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    module[1].register_forward_hook(lambda m, i, o: o - o.mean(0))
    return module


def used_twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 3), layer, layer)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(Centred(), nn.Flatten(), nn.Linear(144, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Flatten(0), nn.Linear(144, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Softmax(dim=0)),
        nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Dropout()),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(288, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(128, 3)),
        hooked(),
        used_twice(),
    ],
)
def test_other_networks_are_refused(module: nn.Module) -> None:
    assert per_record.sequence_of(module, named(module), data(IMAGE)[0]) is None


def test_pictures_without_a_channel_axis_are_refused() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(100, 3))
    assert per_record.sequence_of(module, named(module), data((12, 12))[0]) is None


def test_parameters_that_are_not_the_network_s_are_refused() -> None:
    module = nn.Linear(6, 3)
    assert per_record.sequence_of(module, {"weight": module.weight.detach()}, data(TABLE)[0]) is None


def test_a_network_that_looks_at_its_batch_still_sees_one_record_at_a_time() -> None:
    module = nn.Sequential(Centred(), nn.Flatten(), nn.Linear(144, 3))
    x, y = data(IMAGE)
    params, loss = named(module), Loss(module, cross_entropy_of_one)
    got = flattened(clipped_gradient_sum(loss, params, batch=(x, y), clip=0.3), params)
    torch.testing.assert_close(got, loop(loss, params, (x, y), 0.3), rtol=1e-4, atol=1e-5)


def test_blocks_share_the_batch_equally_and_keep_to_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, params = build("lenet:3", IMAGE, 3, key=Key.seed(0))
    layers = per_record.sequence_of(classifier.module, params, data(IMAGE)[0])
    assert layers is not None
    x = torch.zeros(5, *IMAGE)
    assert per_record.block_of(layers, params, x, 90.0) == 112  # 90 and a standard deviation, in sixteens
    monkeypatch.setattr(per_record, "HELD_NUMBERS", 33 * 2064)  # a record of this LeNet holds 2064
    assert per_record.block_of(layers, params, x, 90.0) == 32
