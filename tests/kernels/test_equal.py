"""Every kernel gives what its reference gives: layer by layer in double to the last digits, then whole networks.

The reference stands beside each kernel, and one switch demands it: `reference=` at the door.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.core.rounds import initial_state, site_step
from prismfl.kernels import clipped_gradients as cg
from prismfl.kernels import (
    double_backward,
    fast_conv,
    first_block,
    layer_gradients,
    per_record,
    plane_norm,
    row_by_row,
    wide_layers,
)
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.kernels.loss import Loss
from prismfl.methods.landscape import matching
from prismfl.nets.classifier import build, cross_entropy_of_one
from prismfl.privacy.mechanisms import clip_factors
from prismfl.rng import Key
from prismfl.runs.description import job_of
from tests.kernels.networks import CLASSES, NETWORKS, Batch, Params, of
from tests.laws.world import make_job, make_world
from tests.site.folders import make_site
from tests.site.test_office import description

EPS = 1e-5
CHANNELS = 6
close = torch.testing.assert_close


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flat(sums: Params) -> torch.Tensor:
    return torch.cat([g.flatten() for g in sums.values()])


def counted(asked: list[object], real: Callable[..., Any], what: Callable[..., object] = lambda *a, **k: 1) -> Any:
    """The same function, which notes each call."""

    def call(*a: Any, **k: Any) -> Any:
        asked.append(what(*a, **k))
        return real(*a, **k)

    return call


def jvp(
    function: Callable[..., torch.Tensor], at: tuple[torch.Tensor, ...], way: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    _, found = torch.func.jvp(function, at, way)  # type: ignore[misc]
    moved: torch.Tensor = found
    return moved


def for_each(
    function: Callable[..., torch.Tensor], x: torch.Tensor, weights: list[torch.Tensor], cotangent: torch.Tensor
) -> list[torch.Tensor]:
    """Gradients by the weights of each record alone, stacked."""
    leaves = [w.clone().requires_grad_() for w in weights]
    found = [torch.autograd.grad(function(x[[i]], *leaves), leaves, cotangent[[i]]) for i in range(len(x))]
    return [torch.stack(rows) for rows in zip(*found)]


# Linear layers row by row, and norms and sums of gradients


@pytest.mark.parametrize(("shape", "out"), [((4, 6), 5), ((4, 3, 17), 1), ((1, 16), 32)])
def test_rows_of_a_linear_layer(shape: tuple[int, ...], out: int) -> None:
    value, weight, bias = numbers(*shape, seed=0), numbers(out, shape[-1], seed=1), numbers(out, seed=2)
    for own in (None, bias):
        for kernel in (row_by_row.linear, row_by_row.batched):
            close(kernel(value, weight, own), row_by_row.reference(value, weight, own))


def test_a_network_goes_row_by_row_while_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    module, real = nn.Linear(3, 2), row_by_row.linear
    monkeypatch.setattr(row_by_row, "linear", counted(asked, real))
    with row_by_row.RowByRow():
        inside = module(torch.ones(4, 3))
    assert asked == [1]
    close(inside, module(torch.ones(4, 3)))
    assert asked == [1]


@pytest.mark.parametrize("width", [1, 255, 256, 700])
def test_norms_and_sums_of_rows(width: int) -> None:
    rows, factors = numbers(21, width, seed=0).float(), numbers(21, seed=1).abs()
    norms, total = layer_gradients.reference(factors, rows)
    close(layer_gradients.squared_norms(rows), norms, rtol=1e-6, atol=0.0)
    close(layer_gradients.weighted_sum(factors, rows), total)


# Convolutions by tiles and by patches

SIZES = [(4, 4), (8, 16), (16, 12)]


def test_norms_and_sums_of_layers_seen_several_times() -> None:
    """Sums of outer products, never written out; a norm is never too small, not even where draws cancel."""
    cotangent, inputs = numbers(5, 3, 4, seed=0), numbers(5, 3, 6, seed=1)
    cotangent[1, 1], inputs[1, 1] = -cotangent[1, 0], inputs[1, 0]
    cotangent[1, 2] *= 1e-7
    made = layer_gradients.Outers("a.", cotangent, inputs, bias=True)
    with_one = torch.cat([inputs, torch.ones(5, 3, 1, dtype=inputs.dtype)], 2)
    rows = cotangent.double().mT @ with_one.double()
    norms, factors = rows.flatten(1).norm(dim=1), torch.rand(5, dtype=torch.float64)
    close(made.squared_norms().sqrt(), norms, rtol=1e-6, atol=1e-4)
    assert bool((made.squared_norms().sqrt() >= norms * (1 - 1e-12)).all())
    total, some = (factors[:, None, None] * rows).sum(0), torch.tensor([True, False, True, True, False])
    sums = made.weighted_sum(factors, None)
    close(torch.cat([sums["a.weight"], sums["a.bias"][:, None]], 1), total)
    close(made.weighted_sum(factors[some], some)["a.bias"], (factors[some, None, None] * rows[some]).sum(0)[:, -1])


def pictures(size: tuple[int, int], channels: int, seed: int = 0) -> torch.Tensor:
    return numbers(3, channels, *size, seed=seed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_by_tiles(size: tuple[int, int], layout: torch.memory_format) -> None:
    x, cotangent = (pictures(size, c, seed=c).contiguous(memory_format=layout) for c in (7, 5))
    weight = numbers(5, 7, 3, 3, seed=9)
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    out = fast_conv.reference(leaves[0], leaves[1])
    by_x, by_weight = torch.autograd.grad(out, leaves, cotangent)
    seen, seen_cotangent, spread = fast_conv.cut(x), fast_conv.cut(cotangent), fast_conv.spread(cotangent)
    close(fast_conv.join(seen.values @ fast_conv.kernel(weight), seen.size), out.detach())
    close(fast_conv.join(seen_cotangent.values @ fast_conv.turned(weight), seen.size), by_x)
    close(fast_conv.kernel_gradient(seen, spread), by_weight)
    (each,) = for_each(fast_conv.reference, x, [weight], cotangent)
    close(fast_conv.kernel_gradients(seen, spread).permute(0, 4, 3, 1, 2), each)


def test_many_pictures_are_cut_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pictures((8, 16), 7)
    at_once = fast_conv.cut(x).values
    monkeypatch.setattr(fast_conv, "CACHED", 2 * x[0].numel())
    close(fast_conv.cut(x).values, at_once)


@pytest.mark.parametrize("padding", [(1, 1), (3, 3), (0, 2)])
def test_a_convolution_by_patches(padding: tuple[int, int]) -> None:
    x, weight, plain = pictures((7, 6), 7), numbers(5, 7, 3, 3, seed=9), partial(fast_conv.reference, padding=padding)
    out = plain(x, weight)
    cotangent = numbers(*out.shape, seed=1)
    close(fast_conv.by_patches(x, weight, padding), out)
    (each,) = for_each(plain, x, [weight], cotangent)
    close(fast_conv.patch_gradients(x, cotangent, padding).permute(0, 1, 4, 2, 3), each)


def test_rounding_stays_small_in_single_precision() -> None:
    x, weight = numbers(2, 128, 16, 16, seed=0).float(), numbers(128, 128, 3, 3, seed=1).float()
    seen = fast_conv.cut(x)
    got = fast_conv.join(seen.values @ fast_conv.kernel(weight), seen.size)
    exact = fast_conv.reference(x.double(), weight.double())
    assert float((got - exact).norm() / exact.norm()) < 2e-6


@pytest.mark.parametrize(
    ("shape", "padding", "size"),
    [
        ((64, 64, 5, 5), 1, (8, 8)),
        ((64, 32, 3, 3), 1, (8, 8)),
        ((64, 64, 3, 3), 0, (8, 8)),
        ((64, 64, 3, 3), 1, (8, 6)),
    ],
)
def test_what_tiles_do_not_fit(shape: tuple[int, ...], padding: int, size: tuple[int, int]) -> None:
    assert fast_conv.fits(torch.zeros(64, 64, 3, 3), 1, 8, 8)
    assert not fast_conv.fits(torch.zeros(shape), padding, *size)


# Norm, ReLU and pooling in one go; the first block at once


@pytest.fixture(params=[1, 2 * 36 * CHANNELS, 10**6])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one record, of a few, of all."""
    monkeypatch.setattr(plane_norm, "CACHED", request.param)


PLANES = [(6, 6), (7, 6), (5, 9), (2, 2)]


@pytest.mark.parametrize("size", PLANES, ids=str)
def test_a_norm_there_and_back(size: tuple[int, int], cached: None) -> None:
    z, gain, shift = numbers(5, CHANNELS, *size, seed=0), numbers(CHANNELS, seed=1), numbers(CHANNELS, seed=2)
    cotangent, leaf = numbers(5, CHANNELS, size[0] // 2, size[1] // 2, seed=3), z.clone().requires_grad_()
    out = plane_norm.reference(leaf, gain, shift, EPS)
    pooled, kept = plane_norm.forward(z.clone(), gain, shift, EPS)
    before, done = plane_norm.backward(cotangent, kept)
    close(pooled, out.detach())
    close(before, torch.autograd.grad(out, leaf, cotangent)[0])
    wanted = for_each(partial(plane_norm.reference, eps=EPS), z, [gain, shift], cotangent)
    for got, each in zip((done.by_gain, done.by_shift), wanted):
        close(got[:, 0], each)


@pytest.mark.parametrize("size", PLANES, ids=str)
def test_a_norm_along_a_direction(size: tuple[int, int], cached: None) -> None:
    z, gain, shift = numbers(5, CHANNELS, *size, seed=0), numbers(CHANNELS, seed=1), numbers(CHANNELS, seed=2)
    ways = (numbers(5, CHANNELS, *size, seed=4), numbers(CHANNELS, seed=5), numbers(CHANNELS, seed=6))
    cotangent, way = (numbers(5, CHANNELS, size[0] // 2, size[1] // 2, seed=s) for s in (3, 7))
    plain = partial(plane_norm.reference, eps=EPS)

    def there_and_back(z: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.vjp(lambda z: plain(z, gain, shift), z)[1](at)[0]
        return found

    wanted = jvp(plain, (z, gain, shift), ways)
    wanted_back = jvp(there_and_back, (z, gain, shift, cotangent), (*ways, way))
    _, kept = plane_norm.forward(z.clone(), gain, shift, EPS)
    _, done = plane_norm.backward(cotangent, kept)
    moved, along = plane_norm.forward_along(ways[0].clone(), kept, *ways[1:])
    close(moved, wanted)
    close(plane_norm.backward_along(way, kept, done, along, ways[1]), wanted_back)


Shape = tuple[int, int, int, int]  # channels, height, width, padding
FIRST: list[Shape] = [(1, 6, 6, 1), (3, 4, 8, 1), (1, 4, 4, 3), (2, 6, 4, 0)]


def three(shape: Shape, seed: int) -> list[torch.Tensor]:
    """A kernel, a gain and a shift."""
    kernel = numbers(CHANNELS, shape[0], 3, 3, seed=seed)
    return [kernel, numbers(CHANNELS, seed=seed + 1), numbers(CHANNELS, seed=seed + 2)]


def means(shape: Shape, seed: int) -> torch.Tensor:
    _, h, w, padding = shape
    return numbers(5, CHANNELS, h // 2 + padding - 1, w // 2 + padding - 1, seed=seed)


@pytest.mark.parametrize("shape", FIRST, ids=str)
def test_a_first_block_there_and_back(shape: Shape, cached: None) -> None:
    x, own, cotangent, padding = numbers(5, *shape[:3], seed=0) + 3.0, three(shape, 1), means(shape, 4), shape[3]
    plain = partial(first_block.reference, padding=padding, eps=EPS)
    assert first_block.fits(x, own[0], padding)
    out, seen = first_block.forward(x, first_block.weights(*own), padding=padding, eps=EPS)
    found = first_block.backward(cotangent, seen)
    close(out, plain(x, *own))
    got = first_block.as_kernel(found.by_kernel), found.by_gain, found.by_shift
    for one, each in zip(got, for_each(plain, x, own, cotangent)):
        close(one, each)


@pytest.mark.parametrize("shape", FIRST, ids=str)
def test_a_first_block_along_a_direction(shape: Shape, cached: None) -> None:
    x, own, along, padding = numbers(5, *shape[:3], seed=0), three(shape, 1), three(shape, 5), shape[3]
    cotangent, way = means(shape, 4), means(shape, 8)
    plain = partial(first_block.reference, padding=padding, eps=EPS)

    def there_and_back(at: torch.Tensor, *own: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.vjp(lambda x: plain(x, *own), x)[1](at)[0]
        return found

    wanted = jvp(lambda *own: plain(x, *own), tuple(own), tuple(along))
    wanted_back = jvp(there_and_back, (cotangent, *own), (way, *along))
    direction = first_block.weights(*along)
    _, seen = first_block.forward(x, first_block.weights(*own), padding=padding, eps=EPS)
    moved, kept = first_block.forward_along(seen, direction)
    close(moved, wanted)
    returned = first_block.backward(cotangent, seen)
    close(first_block.backward_along(way, seen, returned, kept, direction), wanted_back)


@pytest.mark.parametrize("level", [0.0, 1.0, 30.0])
def test_ramps_that_a_kernel_does_not_see(level: float) -> None:
    """Second differences of a ramp are zero: nothing but rounding spreads, however steep it is."""
    rise, slopes = torch.arange(8.0), torch.linspace(-1.1, 0.9, 9)
    x = level * torch.stack([(a * rise[:, None] + (0.3 - a) * rise)[None] for a in slopes])
    along, across = torch.tensor([1.0, -2.0, 1.0]), torch.tensor([0.3, 1.0, 0.7])
    weight = torch.stack([along[:, None] * across, across[:, None] * along])[:, None]
    out, seen = first_block.forward(x, first_block.weights(weight, torch.ones(2), torch.ones(2)), padding=0, eps=EPS)
    close(seen.factor, torch.full((9, 1, 2), EPS**-0.5), rtol=0.02, atol=0.0)
    assert bool(out.isfinite().all())


@pytest.mark.parametrize(("channels", "side"), [(first_block.FEW, 8), (1, 7)])
def test_what_a_first_block_does_not_fit(channels: int, side: int) -> None:
    x, weight = torch.zeros(1, channels, side, side), torch.zeros(4, channels, 3, 3)
    assert not first_block.fits(x, weight, 1)


def test_no_records() -> None:
    pooled, kept = plane_norm.forward(torch.zeros(0, 3, 4, 4), torch.ones(3), torch.zeros(3), EPS)
    assert pooled.shape == (0, 3, 2, 2)
    assert plane_norm.backward(pooled, kept)[0].shape == (0, 3, 4, 4)
    own = first_block.weights(torch.ones(3, 1, 3, 3), torch.ones(3), torch.zeros(3))
    out, seen = first_block.forward(torch.zeros(0, 1, 4, 4), own, padding=1, eps=EPS)
    assert out.shape == (0, 3, 2, 2)
    assert first_block.backward(out, seen).by_kernel.shape == (0, 9, 3)


# Wide layers


@pytest.mark.parametrize("side", [8, 12, 10])
def test_wide_layers(side: int) -> None:
    """A first block, then a convolution (by tiles, by tiles and patches, without tiles), then a norm's block."""
    torch.manual_seed(0)
    first = nn.Conv2d(1, 64, 3, padding=1), nn.GroupNorm(64, 64), nn.ReLU(), nn.AvgPool2d(2)
    then = nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.GroupNorm(64, 64), nn.ReLU(), nn.AvgPool2d(2)
    layers = [(f"{i}.", layer) for i, layer in enumerate((*first, *then))]
    params = {f"{prefix}{k}": p.detach() for prefix, layer in layers for k, p in layer.named_parameters()}
    x = torch.rand(2, 1, 2 * side, 2 * side)
    out, _ = wide_layers.start(layers[:4], params=params, value=x)
    close(out, wide_layers.reference(layers[:4], params=params, value=x), rtol=1e-3, atol=1e-4)
    own = {"weight": params["4.weight"]}
    conv, _ = wide_layers.convolution(then[0], "4.", own=own, value=out)
    close(conv, wide_layers.reference(layers[4:5], params=params, value=out), rtol=1e-3, atol=1e-4)
    own = {k: params[f"5.{k}"] for k in ("weight", "bias")}
    plain = wide_layers.reference(layers[5:], params=params, value=conv.detach().clone())
    close(wide_layers.block(then[1], "5.", own=own, value=conv)[0], plain, rtol=1e-3, atol=1e-4)


# Whole networks: sums of clipped gradients


@pytest.mark.parametrize("name", NETWORKS)
def test_a_kernel_gives_what_its_reference_gives(name: str) -> None:
    network = NETWORKS[name]()
    batch = network.batch(9)
    for clip in (0.05, 1e6):
        fast = flat(clipped_gradient_sum(network.loss, network.params, batch=batch, clip=clip))
        plain = flat(clipped_gradient_sum(network.loss, network.params, batch=batch, clip=clip, reference=True))
        assert fast.dtype == plain.dtype == torch.float64
        # In float32 rounding turns a few ReLUs over, hence the norm and not each number.
        assert float((fast - plain).norm()) <= 2e-4 * float(plain.norm())


IMAGE, TABLE = (1, 12, 12), (6,)


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


def data(shape: tuple[int, ...], count: int = 21) -> Batch:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1)), torch.arange(count) % 3


def loop(loss: Loss, params: Params, batch: Batch, clip: float) -> torch.Tensor:
    return flat(per_record.reference(loss, params=params, batch=batch, factors=partial(clip_factors, bound=clip)))


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
def test_one_pass_equals_a_loop_over_records(
    model: str | Callable[[int], nn.Module], shape: tuple[int, ...], clip: float, block: int | None
) -> None:
    torch.manual_seed(0)
    module = build(model, shape, 3, key=Key.seed(0))[0].module if isinstance(model, str) else model(3)
    batch, params, loss = data(shape), of(module), Loss(module, cross_entropy_of_one)
    assert cg.chosen(loss, params, batch[0], clip=clip) in (cg.PER_RECORD, cg.WIDE)
    got = flat(clipped_gradient_sum(loss, params, batch=batch, clip=clip, chunk=block))
    close(got, loop(loss, params, batch, clip), rtol=1e-4, atol=1e-5)


def test_further_inputs_of_the_loss_belong_to_their_record() -> None:
    module = nn.Linear(6, 3)
    x, y = data(TABLE)
    loss = Loss(module, lambda output, y, w: w * cross_entropy_of_one(output, y))
    params, batch = of(module), (x, y, torch.linspace(0.1, 2.0, len(x)))
    got = flat(clipped_gradient_sum(loss, params, batch=batch, clip=0.5, chunk=8))
    close(got, loop(loss, params, batch, 0.5), rtol=1e-4, atol=1e-5)


class Centred(nn.Module):
    """Looks at the whole batch: harmless for a batch of one, a leak for more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True) + x.flatten(1).sum(1).reshape(-1, *[1] * (x.dim() - 1))


def test_a_network_that_looks_at_its_batch_still_sees_one_record_at_a_time() -> None:
    module = nn.Sequential(Centred(), nn.Flatten(), nn.Linear(144, 3))
    batch, params, loss = data(IMAGE), of(module), Loss(module, cross_entropy_of_one)
    assert cg.chosen(loss, params, batch[0], clip=0.3) == cg.BATCHED
    got = flat(clipped_gradient_sum(loss, params, batch=batch, clip=0.3))
    close(got, loop(loss, params, batch, 0.3), rtol=1e-4, atol=1e-5)


# The double backward of gradient matching


@pytest.mark.parametrize(("width", "shape"), [(6, (1, 28, 28)), (6, (3, 20, 20)), (64, (1, 8, 8)), (64, (3, 32, 32))])
def test_the_double_backward(width: int, shape: tuple[int, ...]) -> None:
    classifier, params = build(f"convnet:{width}", shape, 4, key=Key.seed(0))
    module = classifier.module.double()
    draw = Key.seed(1).torch()
    params, v = ({k: p.double() + 0.1 * torch.randn(p.shape, generator=draw) for k, p in params.items()} for _ in "12")
    net = double_backward.plain_convnet(module)
    assert net is not None
    silent = {k: torch.zeros_like(p) for k, p in params.items() if k not in matching.detectable(module)}
    v |= silent  # biases in front of a norm move nothing, and the kernel leaves them out
    x, y = torch.randn(5, *shape, generator=draw).double(), torch.tensor([0, 1, 2, 3, 1])
    done = double_backward.ordinary(net, params, x, y)
    gradient, by_images = double_backward.reference(module, params, x, y, v)
    for name, g in gradient.items():
        close(done.gradient[name], g, rtol=1e-8, atol=1e-9)
    close(double_backward.by_images(net, params, done, v), by_images, rtol=1e-8, atol=1e-9)


# One switch


HOW = {
    **dict.fromkeys(("logreg", "mlp", "lenet", "sigmoid-lenet", "tanh-convnet", "convnet"), cg.PER_RECORD),
    **dict.fromkeys(("discriminator", "frequencies"), cg.PER_RECORD),
    **dict.fromkeys(("wide convnet", "wide convnet, 28 pixels", "wide convnet, odd", "wide tanh-convnet"), cg.WIDE),
    **dict.fromkeys(
        ("dense beta-VAE", "convolutional beta-VAE", "U-Net", "perturbed inputs", "Siamese view"), cg.BATCHED
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_choice_is_said_and_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `chosen` says is what is called; under `reference` nothing but the reference, a record at a time."""
    network, fast = NETWORKS[name](), per_record.clipped_sum
    asked: list[object] = []
    blocks: list[object] = []
    filled = per_record.filled_up
    monkeypatch.setattr(per_record, "clipped_sum", counted(asked, fast))
    monkeypatch.setattr(per_record, "filled_up", counted(blocks, filled, lambda part, block: block))
    x = network.batch(2)[0]
    assert cg.chosen(network.loss, network.params, x, clip=1.0) == HOW[name]
    assert cg.chosen(network.loss, network.params, x, clip=1.0, reference=True) == cg.REFERENCE
    for reference in (False, True):
        asked.clear()
        blocks.clear()
        clipped_gradient_sum(network.loss, network.params, batch=network.batch(2), clip=1.0, reference=reference)
        assert bool(asked) is (not reference and HOW[name] != cg.BATCHED)
        assert (set(blocks) == {1}) is reference


def every_linear_layer_goes_row_by_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose products round a row by its place."""
    monkeypatch.setattr(row_by_row, "rounds_alike", lambda *shape: False)
    asked: list[object] = []
    network, real = NETWORKS["mlp"](), row_by_row.linear
    monkeypatch.setattr(row_by_row, "linear", counted(asked, real))
    for kind, reference, layers in (("gaussian", False, 2), ("laplace", False, 2), ("gaussian", True, 0)):
        asked.clear()
        clipped_gradient_sum(
            network.loss, network.params, batch=network.batch(2), clip=1.0, kind=kind, reference=reference
        )
        assert len(asked) == layers


def test_every_linear_layer_goes_row_by_row_but_in_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_linear_layer_goes_row_by_row(tmp_path, monkeypatch)


def test_units_and_laplace_noise_are_written_out() -> None:
    network = NETWORKS["mlp"]()
    x = network.batch(2)[0]
    assert cg.chosen(network.loss, network.params, x, clip=1.0, by_unit=True) == cg.BATCHED
    assert cg.chosen(network.loss, network.params, x, clip=1.0, kind="laplace") == cg.BATCHED
    wild = {k: p * 1e6 for k, p in network.params.items()}
    assert cg.chosen(network.loss, wild, x, clip=1.0, by_unit=True) == cg.REFERENCE


@pytest.mark.parametrize("clip", [1e-30, 1e35])
def test_bounds_that_float32_cannot_hold_go_by_the_reference(clip: float) -> None:
    network = NETWORKS["mlp"]()
    got = flat(clipped_gradient_sum(network.loss, network.params, batch=network.batch(4), clip=clip))
    plain = flat(clipped_gradient_sum(network.loss, network.params, batch=network.batch(4), clip=clip, reference=True))
    assert torch.equal(got, plain)
    assert not torch.equal(got, torch.zeros_like(got))
    assert clip < cg.SMALL or clip > cg.LARGE


def no_kernel_behind_a_door_that_demands_the_reference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    network = NETWORKS["lenet"]()
    real = per_record.clipped_sum
    monkeypatch.setattr(per_record, "clipped_sum", counted(asked, real))
    for reference in (False, True):
        asked.clear()
        x, y = network.batch(9)
        records, noise = Records(x, y), Key.seed(0).noise()
        door = PrivateRecords(records, declared=9, classes=CLASSES, noise=noise, reference=reference)
        door.noisy_gradient(network.loss, network.params, batch=9, clip=1.0, sigma=1.0)
        with door.by_class([3, 3, 3]) as doors:
            doors[0].noisy_gradient(network.loss, network.params, batch=3, clip=1.0, sigma=1.0)
        assert bool(asked) is not reference


def test_a_door_that_demands_the_reference_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_kernel_behind_a_door_that_demands_the_reference(tmp_path, monkeypatch)


def test_a_site_demands_the_reference_for_every_method_that_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = description()
    for said in (False, True):
        office = make_site(tmp_path / str(said), "north", reference=said)
        assert office._host(job_of(told), told).reference is said
    job = make_job("dp-fedavg")
    world = make_world(job, tmp_path)
    seen: list[object] = []
    real = PrivateRecords.noisy_gradient
    monkeypatch.setattr(PrivateRecords, "noisy_gradient", counted(seen, real, lambda self, *a, **k: self.reference))
    site_step(job, initial_state(job), replace(world.hosts[0], reference=True))
    assert seen
    assert all(seen)


@pytest.mark.parametrize("method", ["fedlap", "fedlap-dp", "dsc", "psg"])
def test_the_switch_reaches_gradient_matching(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(method)
    world = make_world(job, tmp_path)
    made: list[object] = []
    real = matching.Matcher.__post_init__
    monkeypatch.setattr(matching.Matcher, "__post_init__", counted(made, real, lambda self: self.reference))
    site_step(job, initial_state(job), replace(world.hosts[0], reference=True))
    assert made
    assert all(made)
