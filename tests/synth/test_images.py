"""The single-site job: fit and sample in Python, `prismfl synth` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import prismfl
from prismfl.data import load
from prismfl.methods.prism import prism
from prismfl.metrics.visual import compare
from prismfl.synth.folders import synth_images

QUICK = {**prism.METHOD.tiny, "steps": 10, "public_count": 200}


def test_fit_and_sample(tmp_path: Path) -> None:
    data = load("digits")
    made = prismfl.create("prism", epsilon=1.0, ledger=tmp_path, cap=1.01, **QUICK)
    x, y = made.fit(data.x_train, data.y_train).sample(25)
    assert x.shape == (25, 1, 8, 8)
    assert x.dtype == np.uint8
    assert sorted(np.bincount(y).tolist()) == [2] * 5 + [3] * 5
    again, _ = made.sample(25)
    assert np.array_equal(x, again), "sampling is post-processing: the same seed, the same images"
    certificate = made.certificate()
    assert certificate["epsilon"] == pytest.approx(1.0, rel=0.01)
    assert certificate["epsilon"] <= 1.0
    assert (certificate["noise"], certificate["guarantee"]) == ("operating system", "differential privacy")
    assert certificate["total_so_far"]["epsilon"] == pytest.approx(certificate["epsilon"])
    with pytest.raises(prismfl.BudgetError, match="cap"):
        prismfl.create("prism", epsilon=1.0, ledger=tmp_path, cap=1.01, **QUICK).fit(data.x_train, data.y_train)
    simulated = prismfl.create("prism", epsilon=1.0, seed=3, **QUICK).fit(data.x_train, data.y_train).certificate()
    assert (simulated["noise"], simulated["guarantee"]) == ("seeded: simulation only", "simulation: no protection")


def test_without_a_seed_the_noise_is_the_operating_systems() -> None:
    data = load("digits")
    both = [prismfl.create("prism", epsilon=1.0, **QUICK).fit(data.x_train, data.y_train) for _ in range(2)]
    assert [m.certificate()["noise"] for m in both] == ["operating system"] * 2
    assert both[0].release.items["statistics"].digest != both[1].release.items["statistics"].digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"netwroks": 3}, "did you mean 'networks'"),
        ({"public": "nowhere"}, "nowhere"),
        ({"public": "omniglot", "public_count": 10**6, "data_dir": "/nowhere"}, "nowhere"),
    ],
)
def test_mistakes(change: dict[str, object], message: str) -> None:
    options = {"epsilon": 1.0, "delta": 1e-5, **QUICK, **change}
    with pytest.raises(prismfl.UserError, match=message):
        prismfl.create("prism", **options).fit(np.zeros((5, 8, 8), np.uint8), np.zeros(5, int))


def test_wrong_arrays_are_refused() -> None:
    made = prismfl.create("prism", epsilon=1.0, **QUICK)
    for x, y in ((np.zeros((5, 8)), [0] * 5), (np.zeros((5, 8, 8)), [0] * 4), (np.full((2, 8, 8), 7.0), [0, 1])):
        with pytest.raises(prismfl.UserError):
            made.fit(x, y)
    with pytest.raises(prismfl.UserError, match="fit"):
        made.sample(3)
    with pytest.raises(prismfl.UserError, match="declared classes"):
        made.fit(np.zeros((2, 8, 8)), [0, 5], classes=3)


def test_synth_writes_images_and_a_certificate(tmp_path: Path) -> None:
    sets = [f"{k}={v}" for k, v in QUICK.items()]
    out = tmp_path / "out"
    found = synth_images(
        "digits", public=None, epsilon=2.0, delta=1e-5, out=out, seed=1, deployed=True, ledger=None, cap=None,
        sets=[*sets, "onsite=true"],
    )  # fmt: skip
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["epsilon"] <= 2.0
    assert certificate["noise"] == "operating system"
    assert "onsite" not in certificate, "comparisons with private images never go into what is released"
    assert len(list((out / "images").glob("*/*.png"))) == certificate["images"] == 30
    with np.load(out / "gen.npz") as made:
        assert made["x"].shape == (30, 1, 8, 8)
    assert (out / "onsite-do-not-release" / "seed-synthetic-nearest-private.png").is_file()
    assert found["onsite"]["copies"] == 0
    with pytest.raises(prismfl.UserError, match="not an empty folder"):
        synth_images(
            "digits",
            public=None,
            epsilon=2.0,
            delta=1e-5,
            out=out,
            seed=1,
            deployed=True,
            ledger=None,
            cap=None,
            sets=sets,
        )


def test_a_copy_of_a_private_image_is_seen() -> None:
    private = torch.rand(50, 1, 12, 12)
    strangers = torch.rand(20, 1, 12, 12)
    found = compare(torch.cat([strangers[:5], private[:2]]), private=private, held_out=strangers, seeds=None)
    assert found.copies == 2
    assert found.closest_synthetic == pytest.approx(0.0, abs=1e-6)
    assert found.closest_held_out > 0.1
    assert found.nearest[-2:].tolist() == [0, 1]
