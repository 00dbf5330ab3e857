"""The card of a model: the certificate as it is, nothing exact of own records, and no markup from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismfl.data import load
from prismfl.data.pictures import save_sheet
from prismfl.errors import UserError
from prismfl.report.card import export, noise_words, plain
from prismfl.sources import NO_PROTECTION
from prismfl.version import __version__
from tests.runs.usable import prism_run, table_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prism_run(tmp_path_factory.mktemp("card") / "run")


def text_of(path: Path, to: str, out: Path, model: str | None = None) -> str:
    return Path(export(path, to, out, model=model)["card"]).read_text()


def test_a_benchmarks_card_tells_all(finished: Path, tmp_path: Path) -> None:
    text = text_of(finished, "safetensors", tmp_path / "new", "head")
    result = json.loads((finished / "result.json").read_text())
    for said in (
        "# Model 'head' of prism on digits",
        NO_PROTECTION,
        f"{result['epsilon']:.4g}, 1e-05",
        "add-remove",
        "one record",
        "No pretrained encoder had a part in it",
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        f"{result['models']['linear']['accuracy']:.2f} %",
        "(recommended)",
        "(this one)",
        "Not meant for",
        f"prismfl {__version__}",
        result["digest"],
        "model.safetensors SHA-256",
    ):
        assert said in text, said
    assert "Every record is protected" not in text


def test_the_synthetic_set_has_its_card(finished: Path, tmp_path: Path) -> None:
    text = text_of(finished, "npz", tmp_path / "set")
    assert text.startswith("# Synthetic set of prism on digits")
    assert "Scores" not in text
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == ["DATA_CARD.md", "synthetic.npz"]


def test_no_measurement_on_own_records_is_on_a_card(tmp_path: Path) -> None:
    data = load("digits")
    for i, (image, label) in enumerate(zip(data.x_train[:160], data.y_train[:160].tolist())):
        save_sheet(image, tmp_path / "secret place" / "own" / str(label % 2) / f"{i}.png", scale=1)
    own = str(tmp_path / "secret place" / "own")
    path = prism_run(tmp_path / "run", data=own, subset=None, records=60, classes=["0", "1"])
    result = json.loads((path / "result.json").read_text())
    assert result["models"], "the site itself sees them"
    text = text_of(path, "safetensors", tmp_path / "new")
    assert "not here: what is exact stays on this site" in text
    assert "balanced" not in text
    assert "secret" not in text
    assert "Every record is protected: epsilon" in text, "the noise came from the operating system"
    assert NO_PROTECTION not in text


def test_what_cannot_be_exported(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Expected --to torch, onnx"):
        export(finished, "pickle", tmp_path / "a")
    with pytest.raises(UserError, match="Expected no --model"):
        export(finished, "npz", tmp_path / "a", model="head")
    table = table_run(tmp_path / "run")
    with pytest.raises(UserError, match="holds no synthetic set"):
        export(table, "npz", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_names_in_a_run_directory_are_words_and_nothing_more() -> None:
    assert plain("a|b\n# c <img>") == "a\\|b \\# c \\<img\\>"
    assert noise_words(None) == "unknown"
