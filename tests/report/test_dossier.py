"""Facts that need the data: the split of a benchmark, private neighbours on site alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.report.dossier import dossier
from prismfl.report.editions import ON_SITE, SHARING
from tests.runs.small import small_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(
        tmp_path_factory.mktemp("dossier") / "r",
        method="psg-sites",
        settings={
            "images": 1, "networks": 1, "stops": 1, "updates": 1, "batch": 16, "image_lr": 0.1, "epochs": 1,
        },
    )  # fmt: skip


def test_the_split_of_a_benchmark_is_no_secret(path: Path) -> None:
    facts = dossier(path)
    rows = facts["partition"]["rows"]
    assert [row["site"] for row in rows] == ["site-0", "site-1"]
    assert sum(sum(row["counts"]) for row in rows) == 200
    assert facts["utility"]["classes"] == 10
    assert facts["edition"] == SHARING


def test_private_neighbours_are_in_the_edition_for_the_site_alone(path: Path) -> None:
    own, shared = dossier(path, on_site=True), dossier(path)
    assert own["edition"] == ON_SITE
    assert [picture["private"] for picture in own["pictures"]] == [False, True]
    assert [picture["private"] for picture in shared["pictures"]] == [False]
    assert own["pictures"][-1]["title"].startswith("Synthetic images (top) and the private record nearest to each")


def test_data_that_are_not_at_hand_are_said(path: Path, tmp_path: Path) -> None:
    import json
    import shutil

    shutil.copytree(path, tmp_path / "r")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    (tmp_path / "r" / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / "none.csv")}))
    facts = dossier(tmp_path / "r", on_site=True)
    assert "data" in {line["what"] for line in facts["missing"]}
    assert facts["partition"] is None
