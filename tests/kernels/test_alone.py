"""What a record adds does not depend on who else is in the batch: not by its place, their number, or the rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.kernels import clipped_gradients, per_record
from prismfl.kernels.parts import MEMORY, step_bytes
from prismfl.methods.landscape.feddm_dp import bounded
from prismfl.nets.classifier import build
from prismfl.rng import Key
from tests.kernels.cancelling import INPUTS, WEIGHTS, made
from tests.kernels.networks import NETWORKS, SLOW, Batch, Network, Params, of
from tests.kernels.test_equal import Centred

COUNT = 23
EXACT = 1e-9  # of the clip: doubles are added up in another order, and nothing else differs
IMAGE = (1, 12, 12)


def total(network: Network, params: Params, batch: Batch, *, expected: int = COUNT, **how: Any) -> torch.Tensor:
    sums = clipped_gradients.clipped_gradient_sum(
        network.loss, params, batch=batch, clip=1.0, expected=float(expected), **how
    )
    return torch.cat([g.flatten() for g in sums.values()])


def moved_others(network: Network, params: Params, batch: Batch, place: int, **how: Any) -> float:
    """How far the sum of the others moves when one record is taken out."""
    rest, count = torch.arange(len(batch[0])) != place, len(batch[0])
    unit = {"unit": torch.arange(count)} if how.pop("by_unit", False) else {}
    whole, others, alone = (
        total(network, params, tuple(b[r] for b in batch), expected=count, **how, **{k: u[r] for k, u in unit.items()})
        for r in (rest | ~rest, rest, ~rest)
    )
    return float((whole - others - alone).norm())


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e20, 3e38])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_others_add_what_they_add(name: str, scale: float) -> None:
    network = NETWORKS[name]()
    params = {k: (p * scale).clamp(-3.4e38, 3.4e38) for k, p in network.params.items()}
    for place in (0, COUNT // 2, COUNT - 1) if name not in SLOW else (0,):
        assert moved_others(network, params, network.batch(COUNT), place) <= EXACT, place


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_others_add_what_they_add_where_sums_cancel(name: str, weights: str) -> None:
    """A row that is rounded by its place would, of sums that cancel, make another gradient in another place."""
    network = NETWORKS[name]()
    for inputs, count in (("ordinary", COUNT), ("even", 10), ("loud", 40)) if name not in SLOW else (("even", 10),):
        params, batch = made(network, weights, inputs, count)
        assert moved_others(network, params, batch, 0) <= EXACT, (inputs, count)


@pytest.mark.parametrize("how", [{"kind": "laplace"}, {"by_unit": True}], ids=str)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_gradients_that_are_written_out_are_rounded_alike(weights: str, how: dict[str, Any]) -> None:
    for name in ("mlp", "sigmoid-lenet", "perturbed inputs"):
        network = NETWORKS[name]()
        assert moved_others(network, *made(network, weights, "ordinary", COUNT), 0, **how) <= EXACT


def test_long_sums_do_not_depend_on_the_order() -> None:
    """The same sixteen records over and over: sixteen at a time in float32, each place in the sixteen rounds alike."""
    network = NETWORKS["lenet"]()
    x, y = network.batch(17)
    batch = torch.cat([x[:1], x[1:].repeat(64, 1, 1, 1)]), torch.cat([y[:1], y[1:].repeat(64)])
    assert moved_others(network, network.params, batch, 0) <= EXACT


def test_wild_weights_are_computed_one_record_at_a_time() -> None:
    """Signs of 3.4e38: whether a product of them is finite hangs on the order of adding."""
    network = NETWORKS["mlp"]()
    g = torch.Generator().manual_seed(3)
    for _ in range(5):
        params = {k: 3.4e38 * torch.randn(p.shape, generator=g).sign() for k, p in network.params.items()}
        assert moved_others(network, params, network.batch(COUNT), 0) <= EXACT


@pytest.mark.parametrize("realised", [1, 15, 16, 17, 40])
def test_a_block_has_its_size_from_public_numbers(realised: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, seen = NETWORKS["mlp"](), []
    gradients = per_record._gradients

    def noted(layers: object, criterion: object, *, params: Params, batch: Batch) -> object:
        seen.append(len(batch[0]))
        return gradients(layers, criterion, params=params, batch=batch)  # type: ignore[arg-type]

    monkeypatch.setattr(per_record, "_gradients", noted)
    total(network, network.params, network.batch(realised))
    assert set(seen) == {32}


def test_blocks_share_the_batch_equally_and_keep_to_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, params = build("lenet:3", IMAGE, 3, key=Key.seed(0))
    layers = per_record.sequence_of(classifier.module, params, torch.zeros(5, *IMAGE))
    assert layers is not None
    x = torch.zeros(5, *IMAGE)
    assert per_record.block_of(layers, params, x, 90.0) == 112  # 90 and a standard deviation, in sixteens
    monkeypatch.setattr(per_record, "HELD_NUMBERS", 33 * 2064)  # a record of this LeNet holds 2064
    assert per_record.block_of(layers, params, x, 90.0) == 32


@pytest.mark.parametrize("written_out", [False, True])
def test_a_declared_memory_makes_smaller_chunks_of_the_same_sum(
    written_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From public numbers alone: neither the number of records nor what they hold decides how many go at a time."""
    network, seen = NETWORKS["lenet"](), list[int]()
    filled = per_record.filled_up

    def noted(part: tuple[torch.Tensor, ...], block: int) -> tuple[torch.Tensor, ...]:
        seen.append(block)
        return filled(part, block)

    monkeypatch.setattr(per_record, "filled_up", noted)
    if written_out:
        monkeypatch.setattr(per_record, "sequence_of", lambda *_: None)
    numbers = sum(p.numel() for p in network.params.values())
    sums = []
    for memory in (MEMORY, step_bytes(numbers)):
        total(network, network.params, network.batch(3), expected=20, memory=memory)
        sums.append(total(network, network.params, network.batch(20), expected=20, memory=memory))
    many, few = seen[0], seen[-1]
    assert set(seen) == {many, few}
    assert few < 20 < many
    assert (sums[0] - sums[1]).norm() <= 1e-6


# Networks whose records might see each other


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
    assert per_record.sequence_of(module, of(module), torch.zeros(5, *IMAGE)) is None


def test_pictures_without_a_channel_axis_are_refused() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(100, 3))
    assert per_record.sequence_of(module, of(module), torch.zeros(5, 12, 12)) is None


def test_parameters_that_are_not_the_network_s_are_refused() -> None:
    module = nn.Linear(6, 3)
    assert per_record.sequence_of(module, {"weight": module.weight.detach()}, torch.zeros(5, 6)) is None


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("width", [5, 6, 64])
def test_rows_of_a_sum_hang_on_no_others_place(weights: str, inputs: str, width: int) -> None:
    """A method's own rows (FedDM's features) through a network of a server's choice: the others' sum stays as it is."""
    classifier, start = build(f"mlp:{width}", (1, 5, 5), 3, key=Key.seed(0))
    params = {name: WEIGHTS[weights](p) for name, p in start.items()}
    x = INPUTS[inputs](torch.rand(23, 1, 5, 5, generator=torch.Generator().manual_seed(1)))
    y = torch.tensor([0] + [1, 2] * 11)

    @torch.no_grad()
    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen = bounded(classifier, params, x)
        return (torch.nn.functional.one_hot(y, 3).to(seen)[:, :, None] * seen[:, None]).flatten(1)

    def others(first: int) -> torch.Tensor:
        door = PrivateRecords(Records(x[first:], y[first:]), declared=23, classes=3, noise=Key.seed(0).noise())
        return door.noisy_sum(rows, bound=1.0, sigma=0.0).reshape(3, -1)[1:]

    assert torch.equal(others(0), others(1))
