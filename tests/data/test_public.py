from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prismfl.data import load, load_public
from prismfl.data.procedural import draw
from prismfl.data.public import is_sum
from prismfl.errors import UserError

needs_data = pytest.mark.skipif(not os.environ.get("PRISMFL_DATA"), reason="PRISMFL_DATA is not set")


def test_images_of_a_named_set_are_chosen_by_the_seed_without_repeats() -> None:
    first, again, other = (load_public("mnist-5k", shape=(1, 28, 28), count=300, key_seed=s).images for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(torch.unique(first.flatten(1), dim=0)) == 300
    pool = {row.tobytes() for row in load("mnist-5k").x_train.numpy()}
    assert all(row.tobytes() in pool for row in first.numpy())


def test_another_shape_comes_with_notices() -> None:
    public = load_public("digits", shape=(3, 16, 16), count=10, key_seed=0)
    assert tuple(public.images.shape) == (10, 3, 16, 16)
    assert torch.equal(public.images[:, 0], public.images[:, 2])
    assert public.notices == (
        "Public images 'digits' turned from grey to 3 channels.",
        "Public images 'digits' resized from 8x8 to 16x16.",
    )
    assert load_public("digits", shape=(1, 8, 8), count=10, key_seed=0).notices == ()


def test_a_folder(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / "sub").mkdir(exist_ok=True)
        Image.new("RGB", (20, 10), (255, 0, 40 * i)).save(tmp_path / "sub" / f"{i}.png")
    public = load_public(tmp_path, shape=(3, 8, 8), count=6, key_seed=0)
    assert tuple(public.images.shape) == (6, 3, 8, 8)
    assert (public.images[:, 0] == 1).all()
    assert sorted((public.images[:, 2, 0, 0] * 255).round().int().tolist()) == [0, 40, 80, 120, 160, 200]
    assert "8x8" in public.notices[0]
    with pytest.raises(UserError, match=r"Expected 7 public images, but '.*' has only 6"):
        load_public(tmp_path, shape=(3, 8, 8), count=7, key_seed=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("proceduralx", r"Unknown public images 'proceduralx' \(--public\); did you mean 'procedural'\?"),
        ("breast-cancer", r"Expected images as --public, got the table 'breast-cancer'"),
        ("digits", r"Expected 2000 public images, but 'digits' has only 1437; ask for fewer or use procedural"),
        (Path("/nowhere"), r"Expected a folder of public images \(--public\) at /nowhere"),
    ],
)
def test_bad_public_images(name: str | Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_public(name, shape=(1, 8, 8), count=2000, key_seed=0)


def test_missing_public_file_points_to_the_procedural_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"omniglot28\.npz.*procedural public images"):
        load_public("omniglot", shape=(1, 28, 28), count=1, key_seed=0, data_dir=tmp_path)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("strokes", (1, 28, 28)),
        ("silhouettes", (1, 20, 24)),
        ("leaves", (3, 32, 24)),
        ("leaves", (1, 20, 20)),
        ("portraits", (3, 24, 32)),
        ("portraits", (1, 20, 20)),
    ],
)
def test_drawings_are_repeatable_and_varied(kind: str, shape: tuple[int, int, int]) -> None:
    images = draw(kind, shape=shape, count=300, seed=5)
    assert images.shape == (300, *shape)
    assert images.dtype == np.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert np.array_equal(images[:10], draw(kind, shape=shape, count=10, seed=5))
    assert not np.array_equal(images[:10], draw(kind, shape=shape, count=10, seed=6))
    assert len(np.unique(images.reshape(300, -1), axis=0)) == 300
    assert not np.array_equal(images[:44], images[256:])  # the second chunk is not the first again


def test_strokes_look_like_pen_on_black() -> None:
    images = draw("strokes", shape=(1, 28, 28), count=256, seed=0)
    assert 0.07 < images.mean() < 0.16  # MNIST has 0.13
    assert (images == 0).mean() > 0.75
    border = np.concatenate([images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1]])
    assert border.mean() < 0.01
    assert (images.max((1, 2, 3)) > 0.8).all()


def test_silhouettes_are_filled_shapes_alike_on_both_sides() -> None:
    images = draw("silhouettes", shape=(1, 28, 28), count=256, seed=0)[:, 0]
    inside = images > 0.05
    assert 0.25 < inside.mean() < 0.55  # drawn with 0.2 to 0.6 of the picture each, and soft edges
    assert (inside == inside[:, :, ::-1]).mean() > 0.98
    shapes_edges = np.abs(np.diff(inside.astype(int), axis=2)).sum(2).mean()
    assert shapes_edges < 4  # a row crosses one or two shapes, not specks
    assert images[inside].std() > 0.1


def test_leaves_have_colour_and_edges() -> None:
    images = draw("leaves", shape=(3, 32, 32), count=256, seed=0)
    assert 0.4 < images.mean() < 0.6
    assert images.std() > 0.2
    assert np.abs(images[:, 0] - images[:, 2]).mean() > 0.03
    # Neighbours are far more alike than strangers: surfaces, not noise.
    near = np.abs(np.diff(images, axis=3)).mean()
    far = np.abs(images[..., :16] - images[..., 16:]).mean()
    assert near < far / 2


def test_portraits_have_a_face_in_the_middle_and_hair_of_any_lightness() -> None:
    images = draw("portraits", shape=(3, 32, 32), count=256, seed=0)
    face, corner, top = images[:, :, 15:19, 14:18], images[:, :, :4, :4], images[:, :, 8:10, 14:18]
    warmth = (face[:, 0] - face[:, 2]).mean((1, 2))
    assert (warmth > 0).mean() > 0.9  # skin is redder than blue; dead leaves are as often the one as the other
    assert 0.3 < ((corner[:, 0] - corner[:, 2]).mean((1, 2)) > 0).mean() < 0.7
    assert top.mean((1, 2, 3)).std() > 0.15
    # The lightness of skin tells nothing of the hair's.
    skin, hair = face.mean((1, 2, 3)), images[:, :, 3:5, 15:17].mean((1, 2, 3))
    assert abs(np.corrcoef(skin, hair)[0, 1]) < 0.25


def test_procedural_by_channels() -> None:
    grey = load_public("procedural", shape=(1, 28, 28), count=5, key_seed=1).images
    assert torch.equal(grey, torch.from_numpy(draw("strokes", shape=(1, 28, 28), count=5, seed=1)))
    colour = load_public("procedural", shape=(3, 32, 32), count=5, key_seed=1).images
    assert not torch.equal(colour[:, 0], colour[:, 1])


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [("kannada", (1, 28, 28), 10000), ("kannada+omniglot", (1, 28, 28), 14840), ("tiny-imagenet", (3, 32, 32), 500)],
)
def test_stored_public_sets(name: str, shape: tuple[int, int, int], count: int) -> None:
    public = load_public(name, shape=shape, count=count, key_seed=0)
    assert tuple(public.images.shape) == (count, *shape)
    assert 0 <= public.images.min() <= public.images.max() <= 1
    assert bool(public.notices) == (name == "tiny-imagenet")


@pytest.mark.data
@needs_data
def test_omniglot_is_white_on_black() -> None:
    assert load_public("omniglot", shape=(1, 28, 28), count=4840, key_seed=0).images.mean() < 0.3


def test_a_set_of_larger_pictures_yields_sharp_crops_after_the_whole_ones() -> None:
    whole = load_public("mnist-5k", shape=(1, 14, 14), count=4000, key_seed=3)
    more = load_public("mnist-5k", shape=(1, 14, 14), count=4100, key_seed=3)
    assert tuple(more.images.shape) == (4100, 1, 14, 14)
    assert torch.equal(more.images[:4000], whole.images)
    assert more.notices[-1] == "Public images 'mnist-5k': 4000 whole ones and 100 crops of them."
    # Cut from the small images and enlarged, they would be blurred: neighbouring pixels would differ less.
    whole_steps, crop_steps = (
        (p[..., 1:] - p[..., :-1]).abs().mean() for p in (more.images[:4000], more.images[4000:])
    )
    assert crop_steps > whole_steps
    assert len({image.numpy().tobytes() for image in more.images[4000:]}) > 80


def test_a_sum_names_each_source_once() -> None:
    assert is_sum("procedural-strokes+procedural-leaves")
    assert not is_sum("procedural-strokes+procedural-strokes")
    assert not is_sum("+".join(["procedural"] * 1000))
    assert not is_sum("procedural+nowhere")
