"""Many large pictures: memory follows from a part of them, and how they are kept changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import prismfl
from prismfl.core.payloads import Payload
from prismfl.data import load_path
from prismfl.kernels import parts
from prismfl.methods import METHODS
from prismfl.runs.reopen import reopen

SIDE, COUNT, PART = 12, 300, 20
CLASSES = ("a", "b")


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most pictures that any float tensor ever held."""

    pictures = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.shape[1:] == (3, SIDE, SIDE):
                self.pictures = max(self.pictures, len(tensor))
        return made


def photographs() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photographs")
    for name in CLASSES:
        (root / name).mkdir()
    for i, pixels in enumerate(photographs()):
        Image.fromarray(pixels).save(root / CLASSES[i % 2] / f"{i:03d}.png")
    return root


def run(data: Path, out: Path, method: str, classes: list[str] | None = None, **more: Any) -> prismfl.Result:
    return prismfl.run(
        method=method,
        data=str(data),
        sites=2,
        records=COUNT // 2,
        model="logreg",
        public_count=PART,
        seed=0,
        out=str(out),
        classes=classes,
        epsilon=8.0 if METHODS[method].guarantee else None,
        settings={**METHODS[method].tiny, **more},
    )


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Largest]:
    monkeypatch.setattr(parts, "NUMBERS", PART * 3 * SIDE * SIDE)
    with Largest() as seen:  # type: ignore[no-untyped-call]
        yield seen


@pytest.mark.parametrize("method", ["prism-head", "prism"])
def test_no_more_than_a_part_is_ever_floats(
    method: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the files to the scores of the held-out pictures; public images (as many as a part) are floats."""
    with watched(monkeypatch) as seen:
        run(folder, tmp_path / "out", method)
    assert 0 < seen.pictures <= PART


def test_a_gradient_makes_floats_of_its_sample_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(monkeypatch) as seen:
        run(folder, tmp_path / "out", "dp-fedavg", batch=8.0)
    assert 0 < seen.pictures <= 64, "a block of the kernel; the sample has about eight"


def test_the_synthesizer_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**METHODS["prism"].tiny, "images": 3}
    with watched(monkeypatch) as seen:
        data = load_path(folder)
        maker = prismfl.Synthesizer(epsilon=8.0, seed=0, public_count=PART, **settings)
        maker.fit(data.x_train, data.y_train).sample(4)
    assert data.x_train.dtype == torch.uint8
    assert 0 < seen.pictures <= PART


@pytest.mark.parametrize("method", ["prism-head", "dp-fedavg", "fedavg", "local-only", "3dgl"])
def test_bytes_and_floats_are_the_same_run(method: str, tmp_path: Path) -> None:
    """Releases, samples, per-record draws, models and scores; the ledger knows the records again."""
    x, y = photographs()[:60], np.arange(60) % 2
    kept: list[tuple[Mapping[str, Payload], float | None]] = []
    for place, array in (("bytes", x), ("floats", x.astype(np.float32) / np.float32(255))):
        (tmp_path / place).mkdir()
        data = tmp_path / place / "photographs.npz"
        np.savez(data, x=array, y=y)
        found = run(data, tmp_path / place / "out", method, list(CLASSES))
        opened = reopen(tmp_path / place / "out")
        assert (opened.dataset.x_train.dtype == torch.uint8) == (place == "bytes")
        kept.append((opened.state.items, found.accuracy))
    (one, score), (other, again) = kept
    assert score == again
    assert {name: payload.digest for name, payload in one.items()} == {n: p.digest for n, p in other.items()}


def test_a_picture_has_one_print_in_any_file_and_of_any_type(tmp_path: Path) -> None:
    """A PNG, the array that a JPEG decodes to, and its floats; a ledger knows it again."""
    for kind in ("png", "jpg"):
        for name in CLASSES:
            (tmp_path / kind / name).mkdir(parents=True)
    for i, pixels in enumerate(photographs()[:8]):
        Image.fromarray(pixels).save(tmp_path / "jpg" / CLASSES[i % 2] / f"{i}.jpg")
    decoded = {path: np.asarray(Image.open(path)) for path in sorted((tmp_path / "jpg").rglob("*.jpg"))}
    for path, pixels in decoded.items():
        Image.fromarray(pixels).save(tmp_path / "png" / path.parent.name / f"{path.stem}.png")
    every, labels = np.stack(list(decoded.values())), [CLASSES.index(path.parent.name) for path in decoded]
    np.savez(tmp_path / "bytes.npz", x=every, y=labels)
    np.savez(tmp_path / "floats.npz", x=every / 255, y=labels)
    found = [load_path(tmp_path / name, image_size=5, channels=1).prints_train for name in ("jpg", "png")]
    found += [load_path(tmp_path / f"{name}.npz", classes=CLASSES).prints_train for name in ("bytes", "floats")]
    assert found[0] is not None
    assert len(set(found[0])) == 8
    assert all(sorted(other or []) == sorted(found[0]) for other in found)
