"""Class folders of pictures: sizes, channels, orientation, 16 bits, and pictures that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data import folders
from prismfl.data.faults import Faults
from prismfl.data.folders import (
    class_folders,
    folder_names,
    folder_shape,
    image_files,
    measured,
    read_folders,
    read_picture,
)
from prismfl.data.found import Found
from prismfl.data.prints import picture_print
from prismfl.errors import CellError, UserError
from prismfl.stages import listening


def picture(path: Path, colour: int | tuple[int, ...] = 0, *, size: tuple[int, int] = (4, 4), mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


def read(root: Path, *, lenient: bool = False, **given: Any) -> Found:
    plain: dict[str, Any] = {"classes": None, "size": None, "channels": None}
    return read_folders(root, **{**plain, **given}, faults=Faults(lenient=lenient))


def refused(root: Path, line: str, **given: Any) -> None:
    with pytest.raises(UserError) as error:
        read(root, **given)
    assert str(error.value) == line.replace("ROOT", str(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    picture(tmp_path / "cat" / "1.png", 0)
    picture(tmp_path / "cat" / "2.png", 51)
    picture(tmp_path / "dog" / "1.png", 255)
    return tmp_path


def test_grey_pictures_by_class(root: Path) -> None:
    found = read(root)
    assert found.classes == ("cat", "dog")
    assert found.y.tolist() == [0, 0, 1]
    assert found.x.shape == (3, 1, 4, 4)
    assert found.x.dtype == np.uint8, "eight bits stay eight bits"
    assert found.x[:, 0, 0, 0].tolist() == [0, 51, 255]
    assert len(set(found.prints)) == 3


def test_declared_classes_give_the_order_and_may_be_empty(root: Path) -> None:
    assert read(root, classes=("fish", "dog", "cat")).y.tolist() == [2, 2, 1]


def test_colour_is_channels_first(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", (255, 0, 51), mode="RGB")
    picture(tmp_path / "b" / "1.png", (0, 0, 0), mode="RGB")
    assert read(tmp_path).x[0, :, 0, 0].tolist() == [255, 0, 51]


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_rows_stay_rows_and_columns_columns(mode: str, tmp_path: Path) -> None:
    image = Image.new(mode, (3, 2))
    image.putpixel((2, 0), 255 if mode == "L" else (255, 255, 255))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "1.png")
    found = read(tmp_path).x[0]
    assert found.shape == (len(mode), 2, 3)
    assert found[-1].tolist() == [[0, 0, 255], [0, 0, 0]]


def test_a_declared_size_crops_to_a_square_and_resamples(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 100, size=(9, 5))
    picture(tmp_path / "b" / "1.png", 100, size=(4, 7))
    found = read(tmp_path, size=3)
    assert found.x.shape == (2, 1, 3, 3)
    assert (found.x == 100).all()


def test_declared_channels_join_grey_and_colour(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 128)
    picture(tmp_path / "b" / "1.png", (128, 128, 128), mode="RGB")
    assert read(tmp_path, channels=3).x.shape == (2, 3, 4, 4)
    assert (read(tmp_path, channels=1).x == 128).all()


def test_train_and_test_folders_stay_apart(tmp_path: Path) -> None:
    for part, count in (("train", 2), ("test", 1)):
        for name in ("a", "b"):
            for i in range(count):
                picture(tmp_path / part / name / f"{i}.png")
    found = read(tmp_path)
    assert found.test is not None
    assert (len(found.y), len(found.test[1])) == (4, 2)
    assert class_folders(tmp_path) == ("a", "b")


def test_files_that_are_no_pictures_are_counted_and_hidden_ones_are_not(root: Path) -> None:
    (root / "cat" / "notes.txt").write_text("x")
    (root / "cat" / ".hidden").write_text("x")
    (root / "__pycache__").mkdir()
    found = read(root)
    assert found.notices == (f"Ignored 1 files in {root} that are not images.",)
    assert found.classes == ("cat", "dog")


def test_images_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c.webp", "d.txt", ".e.png"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in image_files(tmp_path)] == ["a.JPG", "b.png", "c.webp"]


def test_what_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "Expected PNG or JPEG images in class folders of ROOT, got none.")
    picture(tmp_path / "1.png")
    direct = "; the images lie directly in it, without class folders"
    refused(tmp_path, f"Expected PNG or JPEG images in class folders of ROOT, got none{direct}.")
    picture(tmp_path / "a" / "1.png")
    refused(tmp_path, "Expected a folder for each class (at least two) in ROOT, got a.")
    picture(tmp_path / "b" / "1.png", size=(5, 4))
    one, two = tmp_path / "a" / "1.png", tmp_path / "b" / "1.png"
    refused(
        tmp_path,
        f"Expected images of one size, got 4x4 ({one}) and 5x4 ({two}); give --image-size 28 (key: image_size).",
    )
    refused(tmp_path, "Expected channels 1 or 3 (--channels), got 4.", channels=4)
    refused(
        tmp_path,
        f"Folder {tmp_path / 'a'} is not one of the declared classes (b, c); mend --classes (key: classes) or move it.",
        classes=("b", "c"),
    )
    picture(two, (1, 2, 3), mode="RGB")
    refused(
        tmp_path,
        f"Expected all images grey or all in colour, got both ({one} and {two}); "
        "give --channels 1 or 3 (key: channels).",
    )
    two.write_bytes(b"not a picture")
    refused(tmp_path, f"Cannot read image {two} (not an image or cut short); replace or remove it.", size=4, channels=1)


def test_on_a_site_everything_is_declared(root: Path) -> None:
    line = "Expected the keys classes, image_size and channels for ROOT; none is taken from the data."
    with pytest.raises(UserError) as error:
        read(root, lenient=True, classes=("cat", "dog"), size=4)
    assert str(error.value) == line.replace("ROOT", str(root))


def test_on_a_site_a_picture_that_cannot_be_read_is_a_gap(root: Path) -> None:
    (root / "cat" / "2.png").write_bytes(b"broken")
    picture(root / "fish" / "1.png")
    picture(root / "9.png")
    found = read(root, lenient=True, classes=("cat", "dog"), size=4, channels=1)
    assert found.y.tolist() == [0, 1]
    assert [(f.what, f.place) for f in found.faults.shown] == [
        ("the picture cannot be read", "file cat/2.png"),
        ("its folder is not a declared class", "file fish/1.png"),
        ("its folder is not a declared class", f"file {root.name}/9.png"),
    ]


def test_on_a_site_no_picture_at_all_is_no_error(tmp_path: Path) -> None:
    found = read(tmp_path, lenient=True, classes=("cat", "dog"), size=4, channels=3)
    assert found.x.shape == (0, 3, 4, 4)


def test_what_a_folder_tells_to_whoever_declares_it(root: Path) -> None:
    assert measured(root, sized=True) == {"image_size": 4, "channels": 1}
    picture(root / "dog" / "2.png", (0, 0, 0), mode="RGB", size=(5, 5))
    assert measured(root, sized=False) == {"channels": 3}
    with pytest.raises(UserError) as error:
        measured(root, sized=True)
    assert (
        str(error.value)
        == f"The pictures of {root} are not squares of one size: give --image-size 28 (key: image_size)."
    )


def test_a_class_is_a_folders_name_and_no_way_out() -> None:
    assert folder_names(("cat", "T-shirt/top", "ankle boot")) == ("cat", "T-shirt-top", "ankle boot")
    hostile = folder_names(("..", "../x", "/etc", "C:\\x", "a\nb", "", ".git", "CAT", "cat", "y" * 500))
    assert len({name.lower() for name in hostile}) == len(hostile)
    for name in hostile:
        assert name
        assert len(name) <= 90
        assert not name.startswith((".", "/"))
        assert not set(name) & set("/\\:\n")


def test_a_picture_in_the_asked_form(tmp_path: Path) -> None:
    Image.new("RGB", (10, 20), (255, 255, 255)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", (6, 4), 1).tolist() == np.ones((1, 4, 6)).tolist()
    (tmp_path / "b.png").write_bytes(b"")
    with pytest.raises(CellError):
        read_picture(tmp_path / "b.png", (6, 4), 1)


def test_many_pictures_come_in_the_order_of_their_files_and_are_told(tmp_path: Path) -> None:
    """They are decoded by several threads, some ahead."""
    for i in range(60):
        picture(tmp_path / "ab"[i // 30] / f"{i:02d}.png", i, size=(4 + 40 * (i % 3 == 0), 4))
    heard: list[tuple[str, int, int]] = []
    with listening(lambda *told: heard.append(told)):
        found = read(tmp_path, size=4)
    assert found.x[:, 0, 0, 0].tolist() == list(range(60))
    assert found.prints[7] == picture_print(np.full((4, 4), 7, dtype=np.uint8))
    assert heard == [("reading images", i, 60) for i in range(61)]


def test_one_picture_of_sixteen_bits_changes_the_room_and_not_the_others(root: Path) -> None:
    before = read(root).x
    Image.fromarray(np.full((4, 4), 13107, dtype=np.uint16)).save(root / "cat" / "1b.png")
    found = read(root)
    assert found.x.dtype == np.float32
    assert found.x[1, 0, 0, 0] == pytest.approx(0.2)
    assert np.array_equal(found.x[[0, 2, 3]], before.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize(("channels", "kept"), [(1, np.float32), (3, np.uint8)])
def test_on_a_site_how_pictures_are_kept_follows_from_what_is_declared(channels: int, kept: type, root: Path) -> None:
    """Else one picture of 16 bits would show in the size of the snapshot and in the time of an answer."""
    how: dict[str, Any] = {"lenient": True, "classes": ("cat", "dog"), "size": 4, "channels": channels}
    before = read(root, **how).x
    Image.fromarray(np.full((4, 4), 13107, dtype=np.uint16)).save(root / "dog" / "2.png")
    found = read(root, **how).x
    assert before.dtype == found.dtype == kept
    assert np.array_equal(found[:3], before)


def test_the_form_of_a_folder_is_in_its_headers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "decoded", lambda *_: pytest.fail("a picture was decoded"))
    given: dict[str, Any] = {"classes": None, "size": None, "channels": None}
    assert folder_shape(root, **given) == (1, 4, 4)
    assert folder_shape(root, **{**given, "size": 7, "channels": 3}) == (3, 7, 7)
    picture(root / "dog" / "2.png", size=(5, 4))
    with pytest.raises(UserError, match="Expected images of one size, got 4x4"):
        folder_shape(root, **given)
    assert folder_shape(root, **{**given, "size": 9}) == (1, 9, 9)


def test_after_a_picture_that_cannot_be_read_no_thread_is_left(root: Path) -> None:
    (root / "cat" / "1.png").write_bytes(b"broken")
    before = threading.active_count()
    refused(
        root,
        f"Cannot read image {root / 'cat' / '1.png'} (not an image or cut short); replace or remove it.",
        size=4,
        channels=1,
    )
    assert threading.active_count() == before
