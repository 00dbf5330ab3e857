"""`prismfl synth` on images: what is written, what stays on the site, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prismfl
from prismfl.methods.prism import prism
from prismfl.metrics.visual import compare
from prismfl.privacy.ledger.place import ledger_path
from prismfl.synth.images import synth_images
from prismfl.synth.synthesizer import Synthesizer

SETTINGS = {**prism.METHOD.tiny, "steps": 10, "public_count": 200}
QUICK = [f"{k}={v}" for k, v in SETTINGS.items()]


def made(out: Path, *sets: str, data: str = "digits", **options: Any) -> dict[str, Any]:
    return synth_images(data, out=out, sets=[*QUICK, *sets], **{"epsilon": 2.0, **options})


def test_images_by_class_and_a_certificate(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = made(out, "onsite=true")
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["epsilon"] <= 2.0
    assert certificate["noise"] == "operating system"
    assert "onsite" not in certificate, "comparisons with private images never go into what is released"
    assert len(list((out / "images").glob("*/*.png"))) == certificate["images"] == 30
    with np.load(out / "gen.npz") as made_there:
        assert made_there["x"].shape == (30, 1, 8, 8)
        assert made_there["y"].tolist() == [i // 3 for i in range(30)]
    assert (out / "onsite-do-not-release" / "seed-synthetic-nearest-private.png").is_file()
    assert found["onsite"]["copies"] == 0
    assert str(tmp_path) not in (out / "certificate.json").read_text()
    with pytest.raises(prismfl.UserError, match="not an empty folder"):
        made(out)


def test_a_seed_repeats(tmp_path: Path) -> None:
    digests = [made(tmp_path / str(i), seed=seed)["images_digest"] for i, seed in enumerate((1, 1, 2))]
    assert digests[0] == digests[1] != digests[2]


def test_a_folder_is_one_data_set_whatever_its_name(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    x = g.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    for name in ("one", "two"):
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(40) % 2)
    told = ("classes=[a, b]", "image_size=8", "channels=1")
    first = made(tmp_path / "a", *told, data=str(tmp_path / "one.npz"))
    second = made(tmp_path / "b", *told, data=str(tmp_path / "two.npz"))
    assert sorted(p.name for p in (tmp_path / "a" / "images").iterdir()) == first["classes"] == ["a", "b"]
    assert second["total_so_far"]["epsilon"] > first["total_so_far"]["epsilon"]
    third = Synthesizer(2.0, **SETTINGS).fit(x, np.arange(40) % 2).certificate()
    assert third["total_so_far"]["epsilon"] > second["total_so_far"]["epsilon"], "arrays are the same pictures"


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["netwroks=3"], "did you mean 'networks'"),
        (["epsilon=9"], "setting of prism in --set, got 'epsilon'"),
        (["settings.seed=9"], "setting of prism in --set, got 'seed'"),
        (["images"], "Expected --set key=value"),
        (["subset=0"], "Bad value for 'subset'"),
        (["public_count=0"], "Bad value for 'public_count'"),
    ],
)
def test_bad_settings_are_named_before_anything_is_spent(tmp_path: Path, sets: list[str], message: str) -> None:
    with pytest.raises(prismfl.UserError, match=message):
        made(tmp_path / "out", *sets)
    assert not (tmp_path / "out").exists()
    assert not ledger_path().exists()


def test_a_copy_of_a_private_image_is_seen() -> None:
    private = torch.rand(50, 1, 12, 12)
    strangers = torch.rand(20, 1, 12, 12)
    found = compare(torch.cat([strangers[:5], private[:2]]), private=private, held_out=strangers, seeds=None)
    assert found.copies == 2
    assert found.closest_synthetic == pytest.approx(0.0, abs=1e-6)
    assert found.closest_held_out > 0.1
    assert found.nearest[-2:].tolist() == [0, 1]
