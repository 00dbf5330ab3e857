"""One image file: what its header says, its pixels as a picture of the declared size, and its print."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from prismfl.data.prints import picture_print
from prismfl.errors import CellError, UserError
from prismfl.files.bounded import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8] | Floats  # bytes, or in [0, 1] where a file has more than 8 bits
Decoded = tuple[Pixels, bytes, bool]

PIXELS = 2**26
FILE_LIMIT = 2**29  # bytes
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")  # whatever a file is called, no other decoder (and no program) is started
_ORIENTATION = 0x0112  # the EXIF tag


def decoded(path: Path, side: tuple[int, int], depth: int) -> Decoded:
    """A picture as it is kept, its print, which is that of all its pixels, and whether it had another size or channels.
    May run in a thread of its own."""
    picture = _picture(path)
    with _readable(path):
        array = to_pixels(picture, side, depth)
        if not np.isfinite(array).all():
            raise ValueError("a pixel is not a finite number")
        return array, picture_print(_native(picture)), picture.size != side or _is_grey(picture.mode) != (depth == 1)


def _native(image: Image) -> npt.NDArray[Any]:
    """The pixels as they are seen: 16 bits as such, anything else as RGB bytes."""
    if image.mode.startswith("I"):
        pixels: npt.NDArray[Any] = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
        return pixels
    if image.mode == "F":
        return np.asarray(image, dtype=np.float32) / np.float32(255)
    return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))


def floats(pixels: Pixels) -> Floats:
    """The same picture in [0, 1]."""
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float32) / np.float32(255)
    return pixels.astype(np.float32, copy=False)


def open_picture(path: Path) -> Image:
    """A decoded image, upright."""
    with quiet():
        return _picture(path)


def _picture(path: Path) -> Image:
    from PIL import Image as pillow
    from PIL import ImageOps

    with _opened(path) as file, _readable(path), pillow.open(file, formats=FORMATS) as image:
        _check_header(image)
        return ImageOps.exif_transpose(image)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, limit=FILE_LIMIT)
    except UserError as error:  # a file's name may be that of a person
        raise CellError(str(error), without_values="Cannot open an image; it is no regular file or too long.") from None


@contextmanager
def quiet() -> Iterator[None]:
    """No warning of Pillow's about large pictures, which `_check_header` refuses in words. Not for use in a thread: the
    filters are the process's."""
    from PIL import Image as pillow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
        yield


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the image that cannot be read."""
    from PIL import Image as pillow

    try:
        yield
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, pillow.DecompressionBombError) as error:
        reason = "not an image or cut short" if isinstance(error, OSError) else str(error)
        raise CellError(
            f"Cannot read image {path} ({reason}); replace or remove it.",
            without_values=f"Cannot read an image ({type(error).__name__}).",
        ) from None


def _check_header(image: Image) -> None:
    """Refuse a picture by its header, before room for its pixels is made."""
    # A camera's JPEG may hold a second, smaller picture; that is no film.
    if image.format in ("PNG", "WEBP") and getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"an animation of {getattr(image, 'n_frames', 1)} frames")
    if image.width * image.height > PIXELS:
        raise ValueError(f"{image.width}x{image.height} pixels, at most {PIXELS:,} are read")


def head(path: Path) -> tuple[tuple[int, int], bool]:
    """(width, height) as shown and whether the image is grey, from the header alone."""
    from PIL import Image as pillow

    with _opened(path) as file, _readable(path), pillow.open(file, formats=FORMATS) as image:
        _check_header(image)
        width, height = image.size
        sideways = image.getexif().get(_ORIENTATION, 1) >= 5
        return ((height, width) if sideways else (width, height)), _is_grey(image.mode)


def _is_grey(mode: str) -> bool:
    return mode in ("1", "L", "LA", "I", "F") or mode.startswith("I;16")


def to_array(image: Image, size: int | tuple[int, int], channels: int) -> Floats:
    """CHW in [0, 1] by the declared range of the file's pixels; another size is cropped to shape and resampled."""
    return floats(to_pixels(image, size, channels))


def to_pixels(image: Image, size: int | tuple[int, int], channels: int) -> Pixels:
    """The same as bytes, where the file has 8 bits a channel or colour is asked for."""
    from PIL import Image as pillow
    from PIL import ImageOps

    wanted = (size, size) if isinstance(size, int) else size
    top = 255.0
    if image.mode.startswith("I"):  # 16 bits, which Pillow would otherwise cut off at 255
        image, top = pillow.fromarray(np.asarray(image, dtype=np.float32)), 65535.0
    if not (image.mode == "F" and channels == 1):
        if image.mode == "F":
            image, top = pillow.fromarray(np.rint(np.asarray(image) * (255.0 / top)).astype(np.uint8)), 255.0
        mode = "L" if channels == 1 else "RGB"
        image = image if image.mode == mode else image.convert(mode)
    if image.size != wanted:
        image = ImageOps.fit(image, wanted, method=pillow.Resampling.BILINEAR)
    array: Pixels = np.asarray(image)
    if array.dtype != np.uint8:
        array = np.clip(np.asarray(image, dtype=np.float32) / np.float32(top), 0, 1)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
