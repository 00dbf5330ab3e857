"""What a record adds does not depend on who else is in the batch: not by its place, their number, or the rounding."""

from __future__ import annotations

import pytest
import torch

from prismfl.kernels import clipped_gradients, per_record
from tests.kernels.networks import NETWORKS, Batch, Network, Params

COUNT = 23


def total(network: Network, params: Params, batch: Batch, *, reference: bool = False) -> torch.Tensor:
    sums = clipped_gradients.clipped_gradient_sum(
        network.loss, params, batch=batch, clip=1.0, expected=float(COUNT), reference=reference
    )
    return torch.cat([g.flatten() for g in sums.values()])


def moved_others(network: Network, params: Params, place: int) -> float:
    """How far the sum of the others moves when one record is taken out."""
    batch = network.batch(COUNT)
    rest = torch.arange(COUNT) != place
    whole, others, alone = (total(network, params, tuple(b[r] for b in batch)) for r in (rest | ~rest, rest, ~rest))
    return float((whole - others - alone).norm())


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e20, 3e38])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_others_add_what_they_add(name: str, scale: float) -> None:
    made = NETWORKS[name]()
    params = {k: (p * scale).clamp(-3.4e38, 3.4e38) for k, p in made.params.items()}
    for place in (0, COUNT // 2, COUNT - 1):
        assert moved_others(made, params, place) <= 1e-5, place


def test_wild_weights_are_computed_one_record_at_a_time() -> None:
    """Signs of 3.4e38: whether a product of them is finite hangs on the order of adding."""
    made = NETWORKS["mlp"]()
    g = torch.Generator().manual_seed(3)
    for _ in range(5):
        params = {k: 3.4e38 * torch.randn(p.shape, generator=g).sign() for k, p in made.params.items()}
        assert moved_others(made, params, 0) <= 1e-5


@pytest.mark.parametrize("realised", [1, 15, 16, 17, 40])
def test_a_block_has_its_size_from_public_numbers(realised: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = NETWORKS["mlp"](), []
    gradients = per_record._gradients

    def noted(layers: object, criterion: object, *, params: Params, batch: Batch) -> object:
        seen.append(len(batch[0]))
        return gradients(layers, criterion, params=params, batch=batch)  # type: ignore[arg-type]

    monkeypatch.setattr(per_record, "_gradients", noted)
    total(made, made.params, made.batch(realised))
    assert set(seen) == {32}
