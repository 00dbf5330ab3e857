"""One image file: orientation, 16 bits, odd kinds of pictures, and those that are refused by their header."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data import decoding
from prismfl.data.decoding import decoded, floats, head, open_picture, to_array, to_pixels
from prismfl.data.prints import picture_print
from prismfl.errors import CellError
from tests.data.test_folders import picture


def test_sixteen_bits_are_divided_by_65535(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((2, 2), 13107, dtype=np.uint16)).save(path)
    assert np.allclose(to_array(open_picture(path), 2, 1), 0.2)
    assert np.allclose(to_array(open_picture(path), 2, 3), 0.2, atol=1e-6)


def test_a_picture_lies_as_it_is_seen(tmp_path: Path) -> None:
    """A camera held sideways says so in the file: width and height change places."""
    tag = Image.Exif()
    tag[0x0112] = 6
    Image.new("L", (6, 2)).save(tmp_path / "a.png", exif=tag)
    assert open_picture(tmp_path / "a.png").size == (2, 6)


def test_a_picture_beyond_all_bounds_is_refused_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIXELS", 15)
    path = picture(tmp_path / "a.png")
    with pytest.raises(CellError, match=r"\(4x4 pixels, at most 15 are read\)"):
        open_picture(path)


NOISE = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)


def saved(path: Path, image: Image.Image, **how: object) -> Path:
    image.save(path, **how)  # type: ignore[arg-type]
    return path


def test_eight_bits_stay_bytes_and_are_the_same_numbers_as_floats(tmp_path: Path) -> None:
    for name, size in (("same.png", (7, 9)), ("other.png", (4, 4))):
        image = open_picture(saved(tmp_path / name, Image.fromarray(NOISE)))
        for channels in (1, 3):
            found = to_pixels(image, size, channels)
            assert found.dtype == np.uint8
            assert np.array_equal(to_array(image, size, channels), found.astype(np.float32) / np.float32(255))
    assert np.array_equal(to_pixels(image, (7, 9), 3), NOISE.transpose(2, 0, 1))


def test_sixteen_bits_stay_what_they_are_in_grey_and_become_bytes_in_colour(tmp_path: Path) -> None:
    deep = open_picture(saved(tmp_path / "a.png", Image.fromarray(np.array([[0, 1000], [40000, 65535]], np.uint16))))
    grey = to_pixels(deep, 2, 1)
    assert grey.dtype == np.float32
    assert np.allclose(grey[0], np.array([[0, 1000], [40000, 65535]]) / 65535, atol=1e-6)
    assert to_pixels(deep, 2, 3).dtype == np.uint8


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_kind_of_picture_is_read_in_both_channels(mode: str, tmp_path: Path) -> None:
    """Palettes, transparency, ink: the pixels as Pillow shows them, bytes, and a print of the whole picture."""
    name = "a.jpg" if mode == "CMYK" else "a.png"
    path = saved(tmp_path / name, Image.fromarray(NOISE).convert(mode))
    shown = np.asarray(open_picture(path).convert("RGB"))
    for channels in (1, 3):
        found, mark, _ = decoded(path, (3, 3), channels)
        assert found.dtype == np.uint8
        assert found.shape == (channels, 3, 3)
        assert mark == picture_print(shown)
    size, grey = head(path)
    assert (size, grey) == ((7, 9), mode in ("1", "L", "LA"))


def test_one_pixel_is_a_picture(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(NOISE[:1, :1]))
    assert decoded(path, (1, 1), 3)[0][:, 0, 0].tolist() == NOISE[0, 0].tolist()
    assert decoded(path, (4, 4), 1)[0].shape == (1, 4, 4)


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_an_animation_is_no_picture(suffix: str, tmp_path: Path) -> None:
    """Which of its frames would be the record?"""
    frames = [Image.fromarray(NOISE), Image.fromarray(255 - NOISE)]
    path = saved(tmp_path / f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:], lossless=True)
    for look in (open_picture, head):
        with pytest.raises(CellError) as error:
            look(path)
        assert str(error.value) == f"Cannot read image {path} (an animation of 2 frames); replace or remove it."


def test_a_cameras_second_picture_is_no_animation(tmp_path: Path) -> None:
    preview = Image.fromarray(NOISE[:4, :4])
    path = saved(tmp_path / "a.jpg", Image.fromarray(NOISE), format="MPO", save_all=True, append_images=[preview])
    assert open_picture(path).size == (7, 9)


def test_a_picture_of_floats_is_the_one_of_its_bytes() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert np.array_equal(np.rint(floats(every) * 255), every)
    assert picture_print(floats(every)) == picture_print(every)
