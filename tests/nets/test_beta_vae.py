"""The networks and the moments: typed outputs, a loss that is a likelihood, starts that show, sampling that is fair."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.data.declared import declared_words
from prismfl.data.schema import words
from prismfl.errors import UserError
from prismfl.kernels.loss import refuse_cross_record_layers
from prismfl.methods.generators import moments
from prismfl.methods.generators.moments import Queries, Start
from prismfl.methods.generators.synthesizers import Recipe, Training, fit
from prismfl.methods.generators.synthesizers import draw as draw_records
from prismfl.nets.beta_vae import BetaVAE, RecordBound, Shape, build_vae, draw
from prismfl.nets.columns import Columns
from prismfl.rng import Key

MIXED = Columns.parse(["n", "c3", "b", "n"])


def some_table(n: int, seed: int = 0) -> torch.Tensor:
    """Two correlated numbers, a choice with weights 0.6, 0.3, 0.1 and a binary that is +1 in 80 % of the rows."""
    g = torch.Generator().manual_seed(seed)
    first = 0.4 + 0.2 * torch.randn(n, 1, generator=g)
    last = -0.5 + 0.8 * (first - 0.4) + 0.05 * torch.randn(n, 1, generator=g)
    choice = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), n, replacement=True, generator=g)
    binary = (torch.rand(n, 1, generator=g) < 0.8).float() * 2 - 1
    return torch.cat([first, torch.eye(3)[choice], binary, last], 1).clamp(-1, 1)


def door(x: torch.Tensor, *, declared: int | None = None) -> PrivateRecords:
    y = torch.zeros(len(x), dtype=torch.int64)
    return PrivateRecords(Records(x, y), declared=declared or len(x), classes=1, noise=Key.seed(1).noise())


def test_columns_are_parsed_by_type_and_bad_words_are_named() -> None:
    assert MIXED.width == 6
    assert MIXED.numeric == (0, 5)
    assert MIXED.blocks == ((1, 3),)
    assert MIXED.binary == (4,)
    with pytest.raises(UserError, match="got 'x7'"):
        Columns.parse(["n", "x7"])
    with pytest.raises(UserError, match="at least one column"):
        Columns.parse([])


def test_named_tables_have_their_declared_columns() -> None:
    from prismfl.data import DATASETS, declared

    assert words(declared.TITANIC)[:2] == ("c3", "b")
    for name in ("titanic", "adult", "mushroom", "wine-quality", "breast-cancer", "wine-cultivar"):
        found = declared_words(name)
        assert found is not None
        assert Columns.parse(found).width == DATASETS[name].shape[0]
    assert declared_words("my.csv") is None


def test_hardened_records_are_valid_and_drawn_by_weight() -> None:
    weights = torch.tensor([[0.0, 0.6, 0.3, 0.1, 0.6, 3.0]]).repeat(20000, 1)
    out = MIXED.harden(weights, torch.Generator().manual_seed(0))
    assert torch.equal(out[:, 1:4].sum(1), torch.ones(20000))
    assert torch.allclose(out[:, 1:4].mean(0), torch.tensor([0.6, 0.3, 0.1]), atol=0.02)
    assert torch.unique(out[:, 4]).tolist() == [-1.0, 1.0]
    assert float(out[:, 4].mean()) == pytest.approx(0.6, abs=0.03)
    assert torch.unique(out[:, 5]).tolist() == [1.0]
    assert MIXED.harden(weights[:1])[0].tolist() == [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]


def test_the_misfit_is_minus_the_log_likelihood() -> None:
    vae = BetaVAE(Shape(MIXED, (4,), 2), beta=0.0)
    raw = torch.tensor([[0.2, 0.0, math.log(2.0), math.log(1.0), 1.5, 0.0]])
    x = torch.tensor([[0.5, 0.0, 1.0, 0.0, -1.0, 0.0]])
    number = 0.5 * 0.3**2
    choice = -math.log(2.0 / 4.0)
    binary = math.log(1 + math.exp(1.5))
    assert float(vae.misfit(raw, x).detach()) == pytest.approx(number + choice + binary, abs=1e-6)


def test_the_divergence_term_has_weight_beta() -> None:
    x, noise = some_table(5), torch.zeros(5, 2)
    one, two = (build_vae(Shape(MIXED, (4,), 2), beta=b, key=Key.seed(0)) for b in (0.0, 0.5))
    code = one.encoder(x)
    expected = 0.25 * (code[:, :2].square() + code[:, 2:].exp() - 1 - code[:, 2:]).sum(1)
    assert torch.allclose(two(x, noise) - one(x, noise), expected, atol=1e-5)


@pytest.mark.parametrize("image", [None, (1, 8, 8), (3, 12, 12)])
def test_no_layer_mixes_records_and_shapes_fit(image: tuple[int, ...] | None) -> None:
    columns = MIXED if image is None else Columns.parse(["p"] * math.prod(image))
    shape = Shape(columns, (8,), 3, image, conv=2)
    vae = build_vae(shape, beta=0.1, key=Key.seed(0))
    refuse_cross_record_layers(vae)
    x, noise = torch.rand(4, columns.width), torch.randn(4, 3)
    together, alone = vae(x, noise), torch.cat([vae(x[i : i + 1], noise[i : i + 1]) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-4)
    assert draw(shape, vae.decoder.state_dict(), 7, torch.Generator().manual_seed(0)).shape == (7, columns.width)


def test_a_joint_loss_sees_the_label() -> None:
    recipe = Recipe("ddp-vae", Shape(MIXED, (4,), 2), 3, joint=True)
    vae = build_vae(recipe.full(), beta=0.1, key=Key.seed(0))
    loss, params = RecordBound(vae, torch.add, labels=3), dict(vae.named_parameters())
    losses = {round(loss(params, some_table(1)[0], torch.tensor(c), torch.zeros(2)).item(), 5) for c in range(3)}
    assert len(losses) == 3


def test_simplex_projection_keeps_probabilities_and_drops_noise() -> None:
    kept = moments.simplex(torch.tensor([0.7, 0.3, 0.0]))
    assert torch.allclose(kept, torch.tensor([0.7, 0.3, 0.0]), atol=2e-3)
    noisy = moments.simplex(torch.tensor([0.8, 0.4, -0.3, 0.1]))
    assert float(noisy.sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(noisy[2]) < 2e-3


def test_the_start_finds_means_spreads_and_weights() -> None:
    begin = moments.start(door(some_table(4000)), MIXED, queries=Queries(2, 1e-3, 1.0))
    assert torch.allclose(begin.mean, torch.tensor([0.4, 0.6, 0.3, 0.1, 0.6, -0.5]), atol=0.03)
    assert float(begin.scale[0]) == pytest.approx(0.2, abs=0.02)
    assert begin.scale[1:5].tolist() == [1.0] * 4
    assert torch.softmax(begin.loc(MIXED)[1:4], 0).tolist() == pytest.approx(begin.mean[1:4].tolist(), abs=1e-4)


def test_moments_divide_by_the_noisy_count_not_by_the_declared_one() -> None:
    begin = moments.start(door(some_table(1000), declared=5000), MIXED, queries=Queries(1, 1e-3, 1.0))
    assert float(begin.mean[0]) == pytest.approx(0.4, abs=0.03)


def test_no_records_and_huge_noise_still_give_a_valid_start() -> None:
    for n, sigma in ((0, 1.0), (50, 1e6)):
        begin: Start = moments.start(door(some_table(50)[:n], declared=10), MIXED, queries=Queries(1, sigma, 1.0))
        assert bool(torch.isfinite(begin.loc(MIXED)).all())
        assert bool((begin.scale > 0).all())


def test_the_gaussian_keeps_correlations() -> None:
    columns = MIXED
    made = moments.fit_gaussian(door(some_table(4000)), columns, queries=Queries(3, 1e-3, 1.0))
    x = moments.draw_gaussian(columns, made, 8000, torch.Generator().manual_seed(0))
    assert float(torch.corrcoef(x[:, [0, 5]].T)[0, 1]) == pytest.approx(0.95, abs=0.05)
    assert float(x[:, 4].mean()) == pytest.approx(0.6, abs=0.06)


def test_training_beats_the_start_and_draws_follow_the_data() -> None:
    x = some_table(800)
    recipe = Recipe("ddp-vae", Shape(MIXED, (16,), 2), 1, joint=True)
    training = Training(Queries(80, 1e-3, 0.125), start=2, beta=0.3, clip=2.0, lr=0.03)
    made = {f"ddp-vae.all.{k}": v for k, v in fit(door(x), recipe, training, key=Key.seed(0)).items()}
    out, y = draw_records(recipe, made, torch.tensor([4000]), key=Key.seed(3))
    assert torch.unique(y).tolist() == [0]
    assert torch.allclose(out.mean(0), x.mean(0), atol=0.15)
    assert float(torch.corrcoef(out[:, [0, 5]].T)[0, 1]) > 0.5


def test_an_unknown_synthesizer_is_named() -> None:
    with pytest.raises(UserError, match="Unknown synthesizer 'gan'"):
        Recipe("gan", Shape(MIXED), 2)
    with pytest.raises(UserError, match="up to 256 features, got 300"):
        Recipe("dp-gaussian", Shape(Columns.parse(["n"] * 300)), 2)
