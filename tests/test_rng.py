"""Keys, the noise stream and records' own draws: repeatable by name, independent of place, of the right law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.rng import Key, NoiseStream, RecordDraws, identities
from prismfl.sources import DEPLOYMENT, SIMULATION


def test_a_path_names_its_numbers() -> None:
    key = Key.seed(1)
    assert key.child("a", 2).entropy == key.child("a").child(2).entropy
    assert key.child("a").entropy != key.child("b").entropy != key.entropy


def test_a_number_and_its_text_are_different_names() -> None:
    assert Key.seed(1).child(1).entropy != Key.seed(1).child("1").entropy


@given(st.lists(st.one_of(st.text(max_size=5), st.integers(0, 9)), min_size=2, max_size=4, unique_by=repr))
def test_the_order_of_a_path_counts(path: list[str | int]) -> None:
    assert Key.seed(0).child(*path).entropy != Key.seed(0).child(*reversed(path)).entropy or path == path[::-1]


def test_a_key_says_where_it_comes_from_and_its_children_too() -> None:
    assert Key.seed(1).child("a").source == SIMULATION
    assert Key.from_os().child("a").source == DEPLOYMENT
    assert Key.from_os().noise().source == DEPLOYMENT
    assert Key.from_os().entropy != Key.from_os().entropy


def test_the_entropy_is_not_shown() -> None:
    key = Key.from_os()
    assert key.entropy.hex() not in repr(key)
    assert repr(key.entropy) not in repr(key)


def test_generators_follow_from_the_key_and_leave_the_global_ones_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    key = Key.seed(4)
    assert torch.equal(torch.rand(3, generator=key.torch()), torch.rand(3, generator=key.torch()))
    assert key.numpy().integers(10**9) == key.numpy().integers(10**9)
    assert torch.equal(torch.get_rng_state(), before)
    assert 0 <= key.integer() < 2**63


def test_a_stream_only_moves_forward() -> None:
    stream = Key.seed(2).noise()
    one, two = stream.normal(4), stream.normal(4)
    assert not torch.equal(one, two)
    again = Key.seed(2).noise()
    assert torch.equal(again.normal(4), one)


def test_a_stream_is_read_in_pieces_or_at_once() -> None:
    pieces, whole = Key.seed(2).noise(), Key.seed(2).noise()
    parts = torch.cat([pieces.uniform(2), pieces.uniform(3)])
    assert torch.equal(parts, whole.uniform(5))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_as_many_numbers_as_asked(count: int) -> None:
    stream = Key.seed(3).noise()
    assert [len(f(count)) for f in (stream.uniform, stream.normal, stream.laplace)] == [count] * 3


def test_uniform_numbers_are_never_zero_or_one_and_evenly_spread() -> None:
    drawn = Key.seed(5).noise().uniform(20_000)
    assert 0.0 < float(drawn.min()) < float(drawn.max()) < 1.0
    assert torch.histc(drawn.float(), 4, 0, 1).tolist() == pytest.approx([5000] * 4, rel=0.05)
    assert drawn.dtype == torch.float64


def test_normal_numbers_have_the_moments_of_the_normal_law() -> None:
    drawn = Key.seed(6).noise().normal(50_000)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.02)
    assert float(drawn.std()) == pytest.approx(1.0, rel=0.02)
    assert float((drawn.abs() > 1.96).double().mean()) == pytest.approx(0.05, abs=0.005)
    assert float((drawn**4).mean()) == pytest.approx(3.0, rel=0.1)


def test_laplace_numbers_have_the_moments_of_their_law() -> None:
    drawn = Key.seed(7).noise().laplace(50_000)
    assert float(drawn.median()) == pytest.approx(0.0, abs=0.02)
    assert float(drawn.abs().mean()) == pytest.approx(1.0, rel=0.03)
    assert float((drawn.abs() > math.log(20)).double().mean()) == pytest.approx(0.05, abs=0.005)


def test_a_question_moves_the_stream_alike_for_any_number_of_records() -> None:
    names = identities(np.arange(100)[:, None])
    one, two = Key.seed(8).noise(), Key.seed(8).noise()
    one.by_record().uniform(names)
    two.by_record()
    assert torch.equal(one.normal(3), two.normal(3))


def test_a_record_keeps_its_draws_whoever_lies_beside_it() -> None:
    names = identities(np.arange(50)[:, None])
    draws = RecordDraws(bytes(range(64)))
    whole, some = draws.uniform(names), draws.uniform(names[10:20])
    assert torch.equal(whole[10:20], some)
    assert torch.equal(draws.normal(names, 5)[10:20], draws.normal(names[10:20], 5))


def test_two_questions_have_different_draws() -> None:
    names, stream = identities(np.arange(50)[:, None]), NoiseStream(Key.seed(9))
    assert not torch.equal(stream.by_record().uniform(names), stream.by_record().uniform(names))


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_records_normals_are_normal(width: int) -> None:
    names = identities(np.arange(20_000 // width)[:, None])
    drawn = RecordDraws(bytes(64)).normal(names, width)
    assert drawn.shape == (20_000 // width, width)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.04)
    assert float(drawn.std()) == pytest.approx(1.0, rel=0.04)


def test_an_identity_is_the_content_and_nothing_else() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 6]])
    there = identities(rows)
    assert np.array_equal(identities(rows[[2, 0]]), there[[2, 0]])
    assert len({name.tobytes() for name in there}) == 3


def test_equal_records_have_names_of_their_own_in_turn() -> None:
    names = identities(np.array([[7], [7], [8], [7]]))
    assert len({name.tobytes() for name in names}) == 4
    assert np.array_equal(names[:2], identities(np.array([[7], [7]])))


def test_every_part_of_a_record_counts() -> None:
    x, y = np.zeros((2, 3)), np.array([0, 1])
    names = identities(y, x)
    assert names[0].tobytes() != names[1].tobytes()


def test_no_records_have_no_names() -> None:
    assert identities(np.zeros((0, 3))).shape == (0, 16)
    assert RecordDraws(bytes(64)).uniform(identities(np.zeros((0, 3)))).shape == (0,)
