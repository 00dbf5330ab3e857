"""Images in class folders: ROOT/CLASS/*.png, or ROOT/train/CLASS/... and ROOT/test/CLASS/... ."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.decoding import Decoded, Floats, Pixels, decoded, floats, head, quiet
from prismfl.data.faults import Faults
from prismfl.data.found import Found
from prismfl.data.schema import check_classes, listed
from prismfl.errors import CellError, UserError
from prismfl.stages import track

Labels = npt.NDArray[np.int64]
Listed = list[tuple[Path, int | None]]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"})
STRAY = "A picture lies in a folder that is not one of the declared classes."
READERS = 4  # threads at most: Pillow decodes and resamples outside of the interpreter's lock


def read_folders(
    root: Path, *, classes: Sequence[str] | None, size: int | None, channels: int | None, faults: Faults
) -> Found:
    """The images in class folders as features and labels, with a test part where the root has one."""
    if channels not in (None, 1, 3):
        raise UserError(f"Expected channels 1 or 3 (--channels), got {channels}.")
    if faults.lenient and (not classes or size is None or channels is None):
        raise UserError(f"Expected the keys classes, image_size and channels for {root}; none is taken from the data.")
    names, files = _gathered(root, classes, faults)
    with quiet():
        side, depth = _looks([path for part in files for path, _ in part], size, channels)
        x, y, prints, mapped = _read(files[0], side, depth, faults)
        # What is wrong in the test part is no gap among the records that are trained on.
        test = _read(files[1], side, depth, Faults(lenient=faults.lenient))[:2] if len(files) == 2 else None
    ignored = sum(len(_others(part)) for part in _parts(root))
    notices = [f"Ignored {ignored} files in {root} that are not images."] if ignored else []
    if mapped:
        look = f"{side[0]}x{side[1]} pixels (--image-size), {'grey' if depth == 1 else 'colour'} (--channels {depth})"
        notices.append(f"{mapped} of {len(y)} images of {root} were brought to {look}.")
    return Found("image", x, y, names, prints, notices=tuple(notices), test=test, faults=faults)


def class_folders(root: Path) -> tuple[str, ...]:
    """The classes that a folder declares by the names of its folders. No image is looked at."""
    return tuple(sorted({folder.name for part in _parts(root) for folder in _folders(part)}))


def class_counts(root: Path) -> dict[str, int]:
    """How many images lie in each class's folder (of the training part); none is opened."""
    found = {folder.name: len(image_files(folder)) for folder in _folders(_parts(root)[0])}
    return {name: found.get(name, 0) for name in class_folders(root)}


def has_test_part(root: Path) -> bool:
    """Whether a folder has train/ and test/."""
    return len(_parts(root)) == 2


def folder_shape(
    root: Path, *, classes: Sequence[str] | None, size: int | None, channels: int | None
) -> tuple[int, int, int]:
    """(channels, height, width) that the images of a folder are read as; what is not declared, from the headers."""
    _, files = _gathered(root, classes, Faults())
    with quiet():
        (width, height), depth = _looks([path for part in files for path, _ in part], size, channels)
    return depth, height, width


def _gathered(root: Path, classes: Sequence[str] | None, faults: Faults) -> tuple[tuple[str, ...], list[Listed]]:
    """The classes, and the files of each part with their class numbers."""
    names = tuple(classes) if classes else class_folders(root)
    files = [_listed(part, names, faults) for part in _parts(root)]
    if len(names) < 2:
        raise UserError(f"Expected a folder for each class (at least two) in {root}, got {listed(names) or 'none'}.")
    check_classes(names)
    return names, files


def _looks(files: Sequence[Path], size: int | None, channels: int | None) -> tuple[tuple[int, int], int]:
    """(width, height) and channels as declared, or as the headers of all files have them in common."""
    heads = [(path, *head(path)) for path in files] if size is None or channels is None else []
    depth = channels or _common_channels(heads)
    return (size, size) if size is not None else _common_size(heads), depth


def measured(root: Path, *, sized: bool) -> dict[str, Any]:
    """Pixels a side (where `sized`) and channels of the pictures that can be read; for whoever declares them."""
    heads = []
    for path in (path for part in _parts(root) for folder in _folders(part) for path in image_files(folder)):
        with suppress(CellError), quiet():
            heads.append(head(path))
    sizes = {size for size, _ in heads}
    if sized and (len(sizes) != 1 or len(set(*sizes)) != 1):
        raise UserError(f"The pictures of {root} are not squares of one size: give --image-size 28 (key: image_size).")
    side = {"image_size": sizes.pop()[0]} if sized else {}
    return {**side, "channels": 1 if all(grey for _, grey in heads) else 3}


def _parts(root: Path) -> list[Path]:
    both = [root / "train", root / "test"]
    return both if all(part.is_dir() for part in both) else [root]


def _read(part: Listed, side: tuple[int, int], depth: int, faults: Faults) -> tuple[Pixels, Labels, list[bytes], int]:
    """The pictures of a part as one array, their labels and their prints, and how many were of another size or kind."""
    labels: list[int] = []
    prints, mapped = [], 0
    # On a site one grey picture of 16 bits may not change how the others are kept; colour is always bytes.
    room = (len(part), depth, side[1], side[0])
    grey = faults.lenient and depth == 1
    found: Pixels = np.empty(room, dtype=np.float32) if grey else np.empty(room, dtype=np.uint8)
    ahead = _in_turn([path for path, label in part if label is not None], side, depth)
    with closing(ahead):
        for row, (path, label) in enumerate(track(part, "reading images", len(part))):
            place = f"file {path.parent.name}/{path.name}"
            if label is None:
                words = "A picture lies in a folder that is not one of the declared classes."
                faults.note(
                    row, "its folder is not a declared class", CellError(words, without_values=words), place=place
                )
                continue
            try:
                array, mark, other = next(ahead).result()
            except Exception as failure:  # whatever a decoder raises is about this picture alone
                if not faults.lenient:
                    raise
                words = f"Cannot read a picture ({type(failure).__name__})."
                faults.note(row, "the picture cannot be read", CellError(words, without_values=words), place=place)
                continue
            found = _put(found, len(labels), array)
            labels.append(label)
            prints.append(mark)
            mapped += other
    return found[: len(labels)], np.array(labels, dtype=np.int64), prints, mapped


def read_picture(path: Path, side: tuple[int, int], depth: int) -> Floats:
    """A picture of (width, height), CHW in [0, 1]; one that cannot be read is a CellError."""
    return floats(decoded(path, side, depth)[0])


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


def _in_turn(paths: Sequence[Path], side: tuple[int, int], depth: int) -> Generator[Future[Decoded], None, None]:
    """Decoded pictures in the order of their files, a few of them ahead: photographs are far larger than what is kept
    of them."""
    threads = max(1, min(READERS, os.cpu_count() or 1))
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Decoded]] = deque()
        try:
            for path in paths:
                waiting.append(pool.submit(decoded, path, side, depth))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            pool.shutdown(cancel_futures=True)


def _put(found: Pixels, row: int, array: Pixels) -> Pixels:
    """The pictures with one more. One of 16 bits makes all of them floats: the same numbers in more room."""
    if found.dtype != array.dtype:
        array, found = floats(array), floats(found)
    found[row] = array
    return found


def _folders(root: Path) -> list[Path]:
    return sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith((".", "__")))


def _others(root: Path) -> list[Path]:
    found = (f for folder in [root, *_folders(root)] for f in folder.iterdir())
    return [f for f in found if f.is_file() and f.suffix.lower() not in SUFFIXES and not f.name.startswith(".")]


def image_files(folder: Path) -> list[Path]:
    """The images directly in a folder, in the order of their names."""
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))


def _listed(root: Path, names: tuple[str, ...], faults: Faults) -> Listed:
    """Every image with its class number; None for one that lies in no class's folder."""
    found: Listed = []
    for folder in _folders(root):
        if folder.name not in names and not faults.lenient:
            known = f"is not one of the declared classes ({listed(names)}); mend --classes (key: classes) or move it."
            raise CellError(f"Folder {folder} {known}", without_values=f"A folder of {root} {known}")
        label = names.index(folder.name) if folder.name in names else None
        found += [(path, label) for path in image_files(folder)]
    if faults.lenient:
        return [*found, *((path, None) for path in image_files(root))]
    if not found:
        direct = "; the images lie directly in it, without class folders" if image_files(root) else ""
        raise UserError(f"Expected PNG or JPEG images in class folders of {root}, got none{direct}.")
    return found


def _common_channels(heads: list[tuple[Path, tuple[int, int], bool]]) -> int:
    first_path, _, first = heads[0]
    for path, _, grey in heads:
        if grey != first:
            words = "Expected all images grey or all in colour, got both{}; give --channels 1 or 3 (key: channels)."
            raise CellError(words.format(f" ({first_path} and {path})"), without_values=words.format(""))
    return 1 if first else 3


def _common_size(heads: list[tuple[Path, tuple[int, int], bool]]) -> tuple[int, int]:
    first_path, first, _ = heads[0]
    for path, size, _ in heads:
        if size != first:
            raise CellError(
                f"Expected images of one size, got {first[0]}x{first[1]} ({first_path}) and "
                f"{size[0]}x{size[1]} ({path}); give --image-size 28 (key: image_size).",
                without_values="Expected images of one size, got several; give --image-size 28 (key: image_size).",
            )
    return first
