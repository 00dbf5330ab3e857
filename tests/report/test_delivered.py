"""What a run delivers: every item in words, the same picture each time, and none that must stay on the site."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import prismfl
from prismfl.core.method import State
from prismfl.core.payloads import Statistics, SyntheticEmbeddings, SyntheticSet, Weights
from prismfl.report import sections
from prismfl.report.delivered import PATIENTS, deliverables, delivered, scatter
from prismfl.report.dossier import dossier
from prismfl.report.editions import OnSiteFacts, share
from prismfl.report.facts import collect
from prismfl.runs.directory import RunDirectory
from tests.runs.small import small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("delivered") / "run")


def keep(path: Path, **items: Any) -> RunDirectory:
    directory = RunDirectory.open(path)
    directory.save_state(State(1, items))
    return directory


@pytest.fixture
def whole(run: Path, tmp_path: Path) -> RunDirectory:
    return with_items(run, tmp_path)


def with_items(run: Path, tmp_path: Path) -> RunDirectory:
    """A run whose server holds one item of each kind."""
    shutil.copytree(run, tmp_path / "run")
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    rows = torch.randn(40, 6, generator=draw) + 9 * torch.nn.functional.one_hot(labels, 6)
    return keep(
        tmp_path / "run",
        model=Weights({"0.weight": torch.randn(3, 1, 5, 5, generator=draw), "9.weight": torch.zeros(4, 75)}),
        linear=Weights({"weight": torch.randn(4, 64, generator=draw), "bias": torch.zeros(4)}),
        head=Statistics({"weight": torch.zeros(30, 4)}),
        embeddings=SyntheticEmbeddings.of(rows, labels),
        synthetic=SyntheticSet.of(torch.rand(8, 1, 8, 8, generator=draw), torch.arange(8) % 4),
    )


def test_every_item_is_said_in_words_and_drawn_where_it_can_be(whole: RunDirectory) -> None:
    found = {item["name"]: item for item in delivered(whole, private=False)}
    assert {name: sorted(set(item) - {"name", "words", "private"}) for name, item in found.items()} == {
        "model": ["picture", "png"],
        "linear": ["picture", "png"],
        "head": [],
        "embeddings": ["points"],
        "synthetic": [],
    }
    assert found["model"]["words"] == "375 numbers in 2 tensors; weights 3 x 1 x 5 x 5, 4 x 75"
    assert found["embeddings"]["words"] == "40 synthetic rows of public features (6), labels hard"
    assert found["synthetic"]["words"] == "8 synthetic images (1 x 8 x 8), labels hard"
    with Image.open(io.BytesIO(base64.b64decode(found["linear"]["png"]))) as picture:
        assert picture.size == ((4 * 9 - 1) * 7, 8 * 7), "four weights of 8 x 8, side by side"


def test_classes_that_lie_apart_are_drawn_apart(whole: RunDirectory) -> None:
    (item,) = [item for item in delivered(whole, private=False) if item["name"] == "embeddings"]
    assert json.dumps(item) == json.dumps(
        next(i for i in delivered(whole, private=False) if i["name"] == "embeddings")
    ), "the same every time"
    places = {c: torch.tensor([p[:2] for p in item["points"] if p[2] == c]).double() for c in range(4)}
    middles = torch.stack([p.mean(0) for p in places.values()])
    assert torch.cdist(middles, middles)[0, 1:].max() > 3 * places[0].std(0).max()
    assert all(0 <= a <= 1000 and 0 <= b <= 1000 for a, b, _ in item["points"])


def test_what_nothing_protects_stays_on_the_site(whole: RunDirectory) -> None:
    facts = collect(whole.path)
    facts["delivered"] = delivered(whole, private=True)
    told = share(OnSiteFacts({**facts, "own_data": True}))
    assert [set(item) for item in told["delivered"]] == [{"name", "words", "private"}] * 5
    assert "<img" not in sections.pictures({**told, "pictures": []})
    assert "on site only" in sections.pictures({**facts, "pictures": []})


def test_a_release_is_shown_in_the_sharing_edition(whole: RunDirectory) -> None:
    facts = dossier(whole.path)
    text = sections.pictures(facts)
    assert text.count("<img") == 2
    assert 'class="point"' in text
    assert "synthetic rows of public features" in text


def test_a_run_without_a_state_delivers_nothing(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    assert delivered(RunDirectory.open(tmp_path / "run"), private=False) == []
    (tmp_path / "run" / "checkpoint").mkdir()
    (tmp_path / "run" / "checkpoint" / "state.safetensors").write_bytes(b"no state")
    assert delivered(RunDirectory.open(tmp_path / "run"), private=False) == []


def test_a_synthetic_table_is_shown_by_its_first_records(tmp_path: Path) -> None:
    """In its own columns and units: a row of numbers from -1 to 1 says nothing to its reader."""
    draw = np.random.default_rng(0)
    sites = [{"age": draw.uniform(0, 100, 40), "kept": list("yn" * 20)} for _ in range(2)]
    schema = {"label": "kept", "classes": ["y", "n"], "columns": [{"name": "age", "min": 0, "max": 100}]}
    federation = prismfl.Federation.from_frames(sites, schema=schema, records=30)
    asked = {"model": "logreg", "rounds": 1, "ledger": str(tmp_path / "ledger"), "out": str(tmp_path / "run")}
    path = federation.run("dp-fedavg", epsilon=3, tuning="fixed", **asked).path
    made = SyntheticSet.of(torch.full((8, 1), 0.5), torch.arange(8) % 2)
    (item,) = delivered(keep(path, synthetic=made), private=False)
    assert item["words"] == "8 synthetic records (1), labels hard"
    assert (item["head"], item["rows"][:2]) == (["age", "kept"], [["75", "y"], ["75", "n"]])
    assert len(item["rows"]) == 5
    assert "The first records of synthetic" in sections.pictures(dossier(path))


def test_what_is_too_large_to_draw_is_said_in_words(run: Path, tmp_path: Path) -> None:
    """A folder may come from anybody: no picture takes more memory than its file."""
    shutil.copytree(run, tmp_path / "run")
    many = torch.arange(5000)
    directory = keep(
        tmp_path / "run",
        model=Weights({"weight": torch.zeros(64, 100 * 100)}),
        linear=Weights({"weight": torch.full((2, 64), 1e38)}),
        embeddings=SyntheticEmbeddings.of(torch.zeros(3, 5000), torch.arange(3)),
        more=SyntheticEmbeddings.of(torch.full((5000, 2), 3e38), many),
    )
    found = {item["name"]: item for item in delivered(directory, private=False)}
    assert not {"png", "points"} & (set(found["model"]) | set(found["embeddings"]))
    assert found["linear"]["png"]
    assert len(found["more"]["points"]) == 400


@pytest.mark.parametrize(("noise", "stays"), [("operating-system", False), ("seeded", True)])
def test_seeded_noise_on_own_records_protects_no_picture(noise: str, stays: bool, tmp_path: Path) -> None:
    values = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=values.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=values.integers(0, 2, 60))
    own = {"data": str(tmp_path / "own.npz"), "records": 24, "classes": ["0", "1"], "image_size": 8, "channels": 1}
    path = small_run(tmp_path / "run", **own, subset=None, noise=noise, ledger=str(tmp_path / "ledger"))
    (item,) = dossier(path)["delivered"]
    assert ("png" in item) is not stays
    assert "png" in dossier(path, on_site=True)["delivered"][0]


def test_names_never_become_markup() -> None:
    nasty = '"><script>x</script>'
    text = scatter(f"points-{nasty}", nasty, [[0, 0, 0], [1, 1, 1], [9999, -5, 1]], [nasty, "1"])
    assert "<script" not in text
    assert '"><' not in text.replace('">' + "<text", "").replace('"><figcaption', "").split("<svg")[0]


def test_patients_are_as_wide_as_the_page() -> None:
    facts = {"pictures": [{"title": PATIENTS}, {"title": "other"}], "utility": {}, "config": {}}
    page = deliverables(facts, lambda picture: f"[{picture['title']}]")
    assert page.index(PATIENTS) < page.index('<div class="pair">') < page.index("[other]")
