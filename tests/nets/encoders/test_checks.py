"""An encoder that cannot be used is found on public images, in one clear line."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.named import named
from prismfl.nets.encoders.wrapped import Wrapped
from tests.nets.encoders.tiny import Bad, Maps, build_deep

IMAGES = torch.rand(5, 1, 9, 9)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("nan", "NaN or infinite"),
        ("width", "the width must stay the same"),
        ("batch", "must follow from it alone"),
        ("random", "must follow from it alone"),
        ("count", "a row an image was expected"),
        ("shape", "gave (405,) for layer 'out'"),
        ("whole", "gave (5, 7) for layer 'out'"),
        ("words", "gave str for layer 'out'"),
        ("empty", "gave no layer"),
        ("wide", "more than 100,000 numbers"),
        ("layers", "not a row an image in every batch"),
    ],
)
def test_a_bad_one_is_told_in_one_line(how: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        check_encoder(Wrapped(Bad(how), "theirs:build"), IMAGES)
    assert told in str(error.value)
    assert "'theirs:build'" in str(error.value)
    assert "\n" not in str(error.value)


def test_images_that_are_too_small_say_so() -> None:
    with pytest.raises(UserError, match="cannot look at images of 1 x 9 x 9"):
        check_encoder(Wrapped(build_deep(), "theirs:build"), IMAGES)
    with pytest.raises(UserError, match="at least 8 x 8 pixels, got 7 x 7"):
        check_encoder(named("scattering"), torch.rand(5, 1, 7, 7))


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_good_ones_pass_with_few_images(count: int) -> None:
    images = torch.rand(count, 1, 9, 9)
    assert check_encoder(Wrapped(Maps(), "x"), images).layers == ("maps", "rows")
    assert check_encoder(named("scattering"), images).layers == ("order0", "order1", "order2")
