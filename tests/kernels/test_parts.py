"""Parts of records: from their shape alone, hundreds of small ones, few of large ones."""

from __future__ import annotations

import torch

from prismfl.kernels.parts import MEMORY, NUMBERS, STEP, at_a_time, in_parts, step_bytes, within


def test_small_records_go_by_hundreds_and_large_ones_by_their_numbers() -> None:
    assert [at_a_time(shape, 500) for shape in ((), (14,), (1, 28, 28), (3, 32, 32), (3, 64, 64))] == [500] * 5
    assert at_a_time((3, 128, 128), 500) == 125
    assert at_a_time((3, 128, 128), 64) == 64
    assert at_a_time((NUMBERS + 1,), 500) == 1
    assert [at_a_time((3, side, side), 128, learning=True) for side in (32, 64, 128)] == [128, 128, 32]


def test_parts_are_the_records_in_their_order_and_no_copies() -> None:
    x = torch.arange(10 * 3 * 256 * 256, dtype=torch.uint8).reshape(10, 3, 256, 256)
    big = x.expand(2, -1, -1, -1, -1).reshape(20, 3, 256, 256)
    parts = in_parts(big, 8)
    assert [len(part) for part in parts] == [8, 8, 4]
    assert torch.equal(torch.cat(parts), big)
    assert parts[0].data_ptr() == big.data_ptr()


def test_no_record_is_one_empty_part() -> None:
    assert [part.shape for part in in_parts(torch.zeros(0, 2), 5)] == [(0, 2)]


def test_a_step_takes_as_many_records_as_fit_and_one_at_least() -> None:
    numbers = 25_000_000
    assert within(STEP * numbers + 5000, numbers, 1000) == 5
    assert within(0, numbers, 1000) == 1
    assert within(step_bytes(numbers), numbers, step_bytes(numbers) - STEP * numbers) == 1
    assert step_bytes(numbers) <= MEMORY  # a network of 100 MB needs no word of the user
