"""The synthesizer in a program: fit and sample arrays of images and tables, every refusal, one certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prismfl
from prismfl.data import load
from prismfl.errors import BudgetError, UserError
from prismfl.methods.prism import prism
from prismfl.nets.encoders.named import named
from prismfl.nets.encoders.wrapped import Wrapped
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.synth.synthesizer import Synthesizer
from tests.nets.encoders.tiny import Bad, Maps

QUICK = {**prism.METHOD.tiny, "steps": 10, "public_count": 200}
COLUMNS = ["n", "b", "c2"]
FAST: dict[str, Any] = {"columns": COLUMNS, "queries": 10, "start": 8, "rate": 1.0, "hidden": (8,), "latent": 2}
ZEROS = np.zeros((5, 8, 8), np.uint8)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("digits")
    return data.x_train[:300], data.y_train[:300]


def rows(n: int = 400) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A number that leans on the label, a coin, and a choice of two, encoded."""
    g = np.random.default_rng(0)
    y = np.arange(n) % 2
    coin, choice = g.integers(0, 2, n), g.integers(0, 2, n)
    number = np.clip(np.where(y == 1, 0.6, -0.6) + 0.2 * g.standard_normal(n), -1, 1)
    return np.stack([number, 2 * coin - 1, choice, 1 - choice], 1), y


# What comes out


def test_images_are_bytes_with_classes_in_turn_and_the_same_each_time(tmp_path: Path) -> None:
    made = prismfl.create("prism", epsilon=1.0, ledger=tmp_path, cap=1.01, **QUICK)
    x, y = made.fit(*digits()).sample(25)
    assert (x.shape, str(x.dtype)) == ((25, 1, 8, 8), "uint8")
    assert y.tolist() == [i % 10 for i in range(25)]
    assert np.array_equal(x, made.sample(25)[0]), "sampling is post-processing: the same seed, the same images"
    assert not np.array_equal(x, made.sample(25, seed=1)[0])
    assert not np.array_equal(made.sample(5, seed=None)[0], made.sample(5, seed=None)[0])
    assert made.ledger_path == tmp_path / "ledger.sqlite"
    with pytest.raises(BudgetError, match="cap"):
        Synthesizer(1.0, ledger=tmp_path, cap=1.01, **QUICK).fit(*digits())


def test_labels_in_words_come_back_in_words() -> None:
    words = np.array(["no", "yes"])
    x, y = rows(200)
    made = Synthesizer(3.0, 1e-4, records=200, classes=["yes", "no"], seed=0, **FAST).fit(x, words[y])
    made_x, made_y = made.sample(100)
    assert set(made_y) == {"yes", "no"}
    assert float(made_x[made_y == "yes"][:, 0].mean()) > float(made_x[made_y == "no"][:, 0].mean())
    assert made.fit(x, y).sample(10)[1].dtype.kind == "i"


def test_images_through_a_public_encoder_are_certified_with_it() -> None:
    made = Synthesizer(1.0, seed=0, encoder="scattering", **QUICK).fit(*digits())
    found = made.certificate()
    assert found["public_encoder"] == "scattering, not pretrained"
    assert found["public_encoder_digest"] == named("scattering").digest
    assert found["settings"]["layers"] == ["order0", "order1", "order2"]
    own = Synthesizer(1.0, seed=0, encoder=Wrapped(Maps(), "theirs"), **QUICK).fit(*digits()).certificate()
    assert own["public_encoder"] == "theirs, trained on a leaflet"
    assert own["release_digest"] != found["release_digest"]
    assert "public_encoder" not in Synthesizer(1.0, seed=0, **QUICK).fit(*digits()).certificate()


def test_an_encoder_that_cannot_be_is_refused_before_a_charge(tmp_path: Path) -> None:
    for encoder, told in (("pkg.mod:build", "only run, plan, resume"), (Wrapped(Bad("nan"), "x"), "NaN or infinite")):
        with pytest.raises(UserError, match=told):
            Synthesizer(1.0, ledger=tmp_path / "l", encoder=encoder, **QUICK).fit(*digits())
    with pytest.raises(UserError, match="public encoder"):
        Synthesizer(1.0, records=400, encoder="scattering", **FAST).fit(*rows())
    assert not (tmp_path / "l").exists()


def test_a_table_keeps_what_its_label_says() -> None:
    made = Synthesizer(3.0, 1e-4, records=400, classes=2, seed=0, **FAST)
    x, y = made.fit(*rows()).sample(300)
    assert x.shape == (300, 4)
    assert float(x[y == 1][:, 0].mean()) > float(x[y == 0][:, 0].mean()) + 0.5
    assert np.array_equal(made.sample(300)[0], x)
    assert 2.9 < made.certificate()["epsilon"] <= 3.0


def test_a_table_without_labels_is_one_generator() -> None:
    made = Synthesizer(3.0, 1e-4, records=200, seed=0, **FAST).fit(rows(200)[0])
    x, y = made.sample(50)
    assert (x.shape, y.tolist()) == ((50, 4), [0] * 50)
    assert len(made.release.cost.branches) == 1


def test_the_data_choose_the_method_unless_it_is_said() -> None:
    assert Synthesizer(1.0, seed=0, **QUICK).fit(*digits()).certificate()["method"] == "prism"
    assert Synthesizer(1.0, seed=0, records=400, **FAST).fit(*rows()).certificate()["method"] == "ddp-vae"
    small: dict[str, Any] = {"queries": 4, "start": 2, "latent": 2, "conv": 2, "rate": 1.0}
    made = prismfl.create("ddp-vae", epsilon=1.0, seed=0, records=300, **small).fit(*digits())
    x, _ = made.sample(20)
    assert (x.shape[1:], str(x.dtype)) == ((1, 8, 8), "uint8")
    assert made.certificate()["image_shape"] == [1, 8, 8]
    assert "public_images" not in made.certificate()


def test_arrays_tensors_and_lists_are_the_same_records() -> None:
    x, y = rows(60)
    options: dict[str, Any] = {"records": 60, "classes": 2, "seed": 5, **FAST}
    given = [(x, y), (torch.tensor(x), torch.tensor(y)), (x.tolist(), y.tolist()), (x, y.astype(bool))]
    made = [Synthesizer(1.0, **options).fit(*arrays).release.items["generator"].digest for arrays in given]
    assert len(set(made)) == 1
    with Ledger.open(ledger_path()) as ledger:
        assert len(ledger.status()) == 1


# The promise


def test_noise_is_the_operating_systems_unless_a_seed_is_given() -> None:
    both = [Synthesizer(1.0, **QUICK).fit(*digits()) for _ in range(2)]
    assert both[0].release.items["statistics"].digest != both[1].release.items["statistics"].digest
    first, second = (made.certificate() for made in both)
    assert (first["noise"], first["guarantee"]) == ("operating system", "differential privacy")
    assert first["statement"] == "(1, 1e-05)-differentially private; unit record."
    assert 0.99 < first["epsilon"] <= first["epsilon_asked"] == 1.0
    assert first["total_so_far"]["epsilon"] == pytest.approx(first["epsilon"])
    assert second["total_so_far"]["epsilon"] > first["epsilon"]
    seeded = Synthesizer(1.0, seed=3, **QUICK).fit(*digits()).certificate()
    assert (seeded["noise"], seeded["guarantee"]) == ("seeded: simulation only", "simulation: no protection")
    assert "differentially private" not in str(seeded)


def test_one_certificate_for_images_and_tables() -> None:
    image = Synthesizer(1.0, seed=0, **QUICK).fit(*digits()).certificate()
    table = Synthesizer(1.0, seed=0, records=400, **FAST).fit(*rows()).certificate()
    assert image.keys() - table.keys() == {"image_shape", "public_images"}
    assert table.keys() <= image.keys()
    assert image["mechanism"]["cost"] == image["cost"]
    assert image["mechanism"]["sigma"] == image["settings"]["sigma"]
    numbers = [t.numel() for t in made_statistics().values()]
    assert image["mechanism"]["numbers"] == sum(numbers) - 1, "all that leaves but what was spent, which is public"


def made_statistics() -> Any:
    return Synthesizer(1.0, seed=0, **QUICK).fit(*digits()).release.items["statistics"].tensors


@pytest.mark.parametrize("kind", ["images", "table"])
def test_people_are_the_unit_where_ids_are_given(kind: str) -> None:
    x, y = digits() if kind == "images" else rows(300)
    options: dict[str, Any] = QUICK if kind == "images" else {**FAST, "records": 30}
    made = Synthesizer(1.0, **options).fit(x, y, [f"p{i // 10}" for i in range(300)])
    assert (made.certificate()["unit"], made.release.cost.unit) == ("unit", "unit")
    Synthesizer(1.0, **options).fit(x[:150] * 0.5, y[:150], [f" p{i // 10}" for i in range(150)])
    with Ledger.open(ledger_path()) as ledger:
        assert len(ledger.status()) == 1, "other records of the same people"


def test_a_name_joins_data_that_were_encoded_anew() -> None:
    x, y = rows(60)
    for scale in (1.0, 0.5):
        Synthesizer(1.0, records=60, **FAST).fit(x * scale, y, name="ward 3")
    with Ledger.open(ledger_path()) as ledger:
        assert [one.releases for one in ledger.status()] == [2]


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"netwroks": 3}, "did you mean 'networks'"),
        ({"rounds": 2}, "releases once: expected rounds 1, got 2"),
        ({"sigma": 2.0}, "Give epsilon or sigma, not both"),
        ({"records": 0}, "records >= 1, got 0"),
        ({"method": "gan"}, "Unknown synthesizer 'gan'"),
        ({"cap": -1.0}, "cap"),
        ({"public": "nowhere"}, "nowhere"),
        ({"public": "omniglot", "public_count": 10**6, "data_dir": "/nowhere"}, "nowhere"),
        ({"public": torch.zeros(4, 1, 9, 9)}, r"public images of shape \(1, 8, 8\), got \(1, 9, 9\)"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Synthesizer(**{"method": "prism", **QUICK, **change}).fit(ZEROS, np.zeros(5, int))
    assert not ledger_path().exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": None}, "public .* number of records for ddp-vae"),
        ({"public": "procedural"}, "no public images for ddp-vae"),
        ({"method": "prism"}, "Unknown key 'columns'"),
        ({"columns": ["n"]}, "columns of 4 features in all, got 1"),
        ({"class_sizes": (1, 2, 3)}, "2 class_sizes, got 3"),
        ({"classes": 1}, "labels from 0 to 0 for 1 declared classes"),
    ],
)
def test_wrong_options_of_a_table_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Synthesizer(1.0, **{"records": 60, **FAST, **change}).fit(*rows(60))
    assert not ledger_path().exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros(5), [0] * 5), "an array of shape"),
        ((np.zeros((5, 2, 8, 8)), [0] * 5), "1 or 3 channels"),
        ((ZEROS, [0] * 4), "as many labels as records, got 4 and 5"),
        ((ZEROS, [[0]] * 5), "one label a record"),
        ((ZEROS, ["a"] * 5), "Label 'a' is none of the declared classes"),
        ((ZEROS, [0.5] * 5), r"float64.*y\.astype\(int\)"),
        ((ZEROS, [0.0] * 5), r"float64.*y\.astype\(int\)"),
        ((ZEROS, [0, 1, 2, 3, -1]), "labels from 0 to 2 for 3 declared"),
        ((ZEROS, [0, 1, 2, 3, 0]), "labels from 0 to 2 for 3 declared"),
        ((ZEROS, None), "Expected labels for 3 classes, got none"),
        ((np.full((5, 8, 8), 7.0), [0] * 5), r"bytes or in \[0, 1\]"),
        ((np.full((5, 8, 8), np.nan), [0] * 5), r"bytes or in \[0, 1\]"),
        ((np.full((5, 4), np.inf), [0] * 5), "finite numbers"),
        ((np.full((5, 4), "a"), [0] * 5), "an array of numbers"),
        ((ZEROS, [0] * 5, [1] * 4), "one id a record"),
        ((ZEROS, [0] * 5, [1, 2, 3, 4, None]), "id column 'unit', row 5"),
        ((ZEROS, [0] * 5, np.full(5, 0.5)), "Id column 'unit', row 1"),
    ],
)
def test_wrong_arrays_are_refused_before_anything_is_spent(arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Synthesizer(1.0, classes=3, records=5).fit(*arrays)
    assert not ledger_path().exists()


def test_a_table_is_no_image() -> None:
    with pytest.raises(UserError, match="Expected images for prism, got a table"):
        prismfl.create("prism", epsilon=1.0).fit(*rows(10))


def test_fit_comes_first() -> None:
    made = Synthesizer()
    for ask in (lambda: made.sample(3), made.certificate, lambda: made.release, lambda: made.ledger_path):
        with pytest.raises(UserError, match=r"call fit\(X, y\) first"):
            ask()


def test_a_sample_has_a_size() -> None:
    made = Synthesizer(1.0, seed=0, records=60, **FAST).fit(*rows(60))
    with pytest.raises(UserError, match="n >= 1, got 0"):
        made.sample(0)
