"""Images in class folders: ROOT/CLASS/*.png, or ROOT/train/CLASS/... and ROOT/test/CLASS/... ."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from prismfl.data.faults import Faults
from prismfl.data.found import Found
from prismfl.data.prints import picture_print
from prismfl.data.schema import check_classes, listed
from prismfl.errors import CellError, UserError
from prismfl.files.bounded import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"})
PIXELS = 2**26
FILE_LIMIT = 2**29  # bytes
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")  # whatever a file is called, no other decoder (and no program) is started
_ORIENTATION = 0x0112  # the EXIF tag


def read_folders(
    root: Path, *, classes: Sequence[str] | None, size: int | None, channels: int | None, faults: Faults
) -> Found:
    """The images in class folders as features and labels, with a test part where the root has one."""
    if channels not in (None, 1, 3):
        raise UserError(f"Expected channels 1 or 3, got {channels}.")
    if faults.lenient and (not classes or size is None or channels is None):
        raise UserError(f"Expected declared classes, image_size and channels for {root}; none is taken from the data.")
    parts = _parts(root)
    names = tuple(classes) if classes else class_folders(root)
    files = [_listed(part, names, faults) for part in parts]
    if len(names) < 2:
        raise UserError(f"Expected a folder for each class (at least two) in {root}, got {listed(names) or 'none'}.")
    check_classes(names)
    heads = [(path, *_head(path)) for part in files for path, _ in part] if size is None or channels is None else []
    depth = channels or _common_channels(heads)
    side = size or _common_size(heads)
    x, y, prints = _read(files[0], side, depth, faults)
    # What is wrong in the test part is no gap among the records that are trained on.
    test = _read(files[1], side, depth, Faults(lenient=faults.lenient))[:2] if len(parts) == 2 else None
    ignored = sum(len(_others(part)) for part in parts)
    notices = (f"Ignored {ignored} files in {root} that are not images.",) if ignored else ()
    return Found("image", x, y, names, prints, notices=notices, test=test, faults=faults)


def class_folders(root: Path) -> tuple[str, ...]:
    """The classes that a folder declares by the names of its folders. No image is looked at."""
    return tuple(sorted({folder.name for part in _parts(root) for folder in _folders(part)}))


def measured(root: Path, *, sized: bool) -> dict[str, Any]:
    """Pixels a side (where `sized`) and channels of the pictures that can be read; for whoever declares them."""
    heads = []
    for path in (path for part in _parts(root) for folder in _folders(part) for path in image_files(folder)):
        with suppress(CellError):
            heads.append(_head(path))
    sizes = {size for size, _ in heads}
    if sized and (len(sizes) != 1 or len(set(*sizes)) != 1):
        raise UserError(f"The pictures of {root} are not squares of one size: declare image_size.")
    side = {"image_size": sizes.pop()[0]} if sized else {}
    return {**side, "channels": 1 if all(grey for _, grey in heads) else 3}


def _parts(root: Path) -> list[Path]:
    both = [root / "train", root / "test"]
    return both if all(part.is_dir() for part in both) else [root]


def _read(
    part: list[tuple[Path, int | None]], side: int | tuple[int, int], depth: int, faults: Faults
) -> tuple[Pixels, Labels, list[bytes]]:
    """The pictures of a part as one array, their labels and their prints."""
    arrays, labels, prints = [], [], []
    for row, (path, label) in enumerate(part):
        place = f"file {path.parent.name}/{path.name}"
        if label is None:
            words = "A picture lies in a folder that is not one of the declared classes."
            faults.note(row, "its folder is not a declared class", CellError(words, without_values=words), place=place)
            continue
        try:  # one decoded image at a time: photographs are far larger than what is kept of them
            array, mark = _decoded(path, side, depth)
        except Exception as error:  # whatever a decoder raises is about this picture alone
            if not faults.lenient:
                raise
            words = f"Cannot read a picture ({type(error).__name__})."
            faults.note(row, "the picture cannot be read", CellError(words, without_values=words), place=place)
            continue
        arrays.append(array)
        labels.append(label)
        prints.append(mark)
    width, height = (side, side) if isinstance(side, int) else side
    pixels = np.stack(arrays) if arrays else np.zeros((0, depth, height, width), dtype=np.float32)
    return pixels, np.array(labels, dtype=np.int64), prints


def read_picture(path: Path, side: int | tuple[int, int], depth: int) -> Pixels:
    """A picture of (width, height) or a square of a `side`, CHW in [0, 1]; one that cannot be read is a CellError."""
    return _decoded(path, side, depth)[0]


def folder_names(classes: Sequence[str]) -> tuple[str, ...]:
    """A folder's name for each class: the class itself where that can be a name, distinct, and never a way out.

    Names come from whoever declared them: a slash, a colon, a leading dot or two dots must not lead elsewhere.
    """
    found: list[str] = []
    for number, name in enumerate(classes):
        plain = "".join("-" if c in '/\\:*?"<>|' or not c.isprintable() else c for c in name).strip(". ")
        plain = plain.encode("utf-8", "ignore").decode()[:80] or f"class-{number}"
        taken = {other.lower() for other in found}
        found.append(f"{plain}-{number}" if plain.lower() in taken else plain)
    return tuple(found)


def _decoded(path: Path, side: int | tuple[int, int], depth: int) -> tuple[Pixels, bytes]:
    picture = open_picture(path)
    with _readable(path):
        array = to_array(picture, side, depth)
        if not np.isfinite(array).all():
            raise ValueError("a pixel is not a finite number")
        return array, picture_print(_native(picture))


def _native(image: Image) -> npt.NDArray[Any]:
    """The pixels as they are seen: 16 bits as such, anything else as RGB bytes."""
    if image.mode.startswith("I"):
        pixels: npt.NDArray[Any] = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
        return pixels
    if image.mode == "F":
        return np.asarray(image, dtype=np.float32) / np.float32(255)
    return np.asarray(image.convert("RGB"))


def _folders(root: Path) -> list[Path]:
    return sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith((".", "__")))


def _others(root: Path) -> list[Path]:
    found = (f for folder in [root, *_folders(root)] for f in folder.iterdir())
    return [f for f in found if f.is_file() and f.suffix.lower() not in SUFFIXES and not f.name.startswith(".")]


def image_files(folder: Path) -> list[Path]:
    """The images directly in a folder, in the order of their names."""
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))


def _listed(root: Path, names: tuple[str, ...], faults: Faults) -> list[tuple[Path, int | None]]:
    """Every image with its class number; None for one that lies in no class's folder."""
    found: list[tuple[Path, int | None]] = []
    for folder in _folders(root):
        if folder.name not in names and not faults.lenient:
            known = f"is not one of the declared classes ({listed(names)})."
            raise CellError(f"Folder {folder} {known}", without_values=f"A folder of {root} {known}")
        label = names.index(folder.name) if folder.name in names else None
        found += [(path, label) for path in image_files(folder)]
    if faults.lenient:
        return [*found, *((path, None) for path in image_files(root))]
    if not found:
        direct = "; the images lie directly in it, without class folders" if image_files(root) else ""
        raise UserError(f"Expected PNG or JPEG images in class folders of {root}, got none{direct}.")
    return found


def open_picture(path: Path) -> Image:
    """A decoded image, upright."""
    from PIL import Image as pillow
    from PIL import ImageOps

    with _opened(path) as file, _readable(path), pillow.open(file, formats=FORMATS) as image:
        _check_pixels(image)
        return ImageOps.exif_transpose(image)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, limit=FILE_LIMIT)
    except UserError as error:  # a file's name may be that of a person
        raise CellError(str(error), without_values="Cannot open an image; it is no regular file or too long.") from None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the image that cannot be read."""
    from PIL import Image as pillow

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # _check_pixels refuses in words
            yield
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, pillow.DecompressionBombError) as error:
        reason = "not an image or cut short" if isinstance(error, OSError) else str(error)
        raise CellError(
            f"Cannot read image {path} ({reason}); replace or remove it.",
            without_values=f"Cannot read an image ({type(error).__name__}).",
        ) from None


def _check_pixels(image: Image) -> None:
    """Refuse a picture by its header, before room for its pixels is made."""
    if image.width * image.height > PIXELS:
        raise ValueError(f"{image.width}x{image.height} pixels, at most {PIXELS:,} are read")


def _head(path: Path) -> tuple[tuple[int, int], bool]:
    """(width, height) as shown and whether the image is grey, from the header alone."""
    from PIL import Image as pillow

    with _opened(path) as file, _readable(path), pillow.open(file, formats=FORMATS) as image:
        _check_pixels(image)
        width, height = image.size
        sideways = image.getexif().get(_ORIENTATION, 1) >= 5
        grey = image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")
        return ((height, width) if sideways else (width, height)), grey


def _common_channels(heads: list[tuple[Path, tuple[int, int], bool]]) -> int:
    first_path, _, first = heads[0]
    for path, _, grey in heads:
        if grey != first:
            words = "Expected all images grey or all in colour, got both{}; declare channels."
            raise CellError(words.format(f" ({first_path} and {path})"), without_values=words.format(""))
    return 1 if first else 3


def _common_size(heads: list[tuple[Path, tuple[int, int], bool]]) -> tuple[int, int]:
    first_path, first, _ = heads[0]
    for path, size, _ in heads:
        if size != first:
            raise CellError(
                f"Expected images of one size, got {first[0]}x{first[1]} ({first_path}) and "
                f"{size[0]}x{size[1]} ({path}); declare image_size.",
                without_values="Expected images of one size, got several; declare image_size.",
            )
    return first


def to_array(image: Image, size: int | tuple[int, int], channels: int) -> Pixels:
    """CHW in [0, 1] by the declared range of the file's pixels; another size is cropped to shape and resampled."""
    from PIL import Image as pillow
    from PIL import ImageOps

    wanted = (size, size) if isinstance(size, int) else size
    top = 255.0
    if image.mode.startswith("I"):  # 16 bits, which Pillow would otherwise cut off at 255
        image, top = pillow.fromarray(np.asarray(image, dtype=np.float32)), 65535.0
    if not (image.mode == "F" and channels == 1):
        if image.mode == "F":
            image, top = pillow.fromarray(np.rint(np.asarray(image) * (255.0 / top)).astype(np.uint8)), 255.0
        image = image.convert("L" if channels == 1 else "RGB")
    if image.size != wanted:
        image = ImageOps.fit(image, wanted, method=pillow.Resampling.BILINEAR)
    array: Pixels = np.clip(np.asarray(image, dtype=np.float32) / np.float32(top), 0, 1)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
