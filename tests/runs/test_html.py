"""Notebook pages of plans, results and runs: escaped, without anything that is fetched, and never out of the folder."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

import prismfl
from prismfl.runs import html, planning
from prismfl.runs.opened import open_run
from prismfl.runs.planning import configure
from tests.runs.small import small_run

HOSTILE = "<script>alert('x')</script><img src=x onerror=y>\""


def test_texts_are_escaped_wherever_they_stand() -> None:
    pages = (
        html.facts_table(HOSTILE, [(HOSTILE, HOSTILE)]),
        html.grid_table([{HOSTILE: HOSTILE}]),
        html.picture(html.PNG, HOSTILE),
        html.columns_table({HOSTILE: [HOSTILE]}),
    )
    for page in pages:
        assert "<script" not in page
        assert "onerror=y>" not in page
        assert "&lt;script&gt;" in page
    assert len(html.escaped("a" * 10_000)) < 400


def test_a_result_that_somebody_wrote_is_text_alone(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    place = tmp_path / "run" / "result.json"
    told = json.loads(place.read_text())
    told["models"] = {told["recommended"]: {"balanced_accuracy": HOSTILE, "auc": [1], "intervals": 3}}
    place.write_text(json.dumps({**told, "data": HOSTILE, "split": HOSTILE, "guarantee": HOSTILE, "unit": HOSTILE}))
    run = open_run(tmp_path / "run")
    assert run.result is not None
    for page in (run._repr_html_(), run.result._repr_html_()):
        assert "<script" not in page
        assert page.count("&lt;script&gt;") == 4
    assert "accuracy" in repr(run)
    assert repr(run.result).startswith("<Result method: dp-fedavg")
    assert [row["round"] for row in run.table] == [1, 2]


def test_a_result_shows_more_than_accuracy_and_a_table_its_first_records(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.result is not None
    assert "balanced accuracy" in run._repr_html_()
    assert f"AUC: {run.result.models['network']['auc']:.1f} %" in repr(run.result)
    page = html.columns_table({"age": [51.23456, 60.0], "sex": ["f", "m"]}, rows=1)
    assert "51.23" in page
    assert "60" not in page


def test_a_picture_is_a_png_of_the_run_itself(tmp_path: Path) -> None:
    (tmp_path / "run" / "gen").mkdir(parents=True)
    sample, secret = tmp_path / "run" / "gen" / "sample.png", tmp_path / "secret.png"
    Image.new("L", (2, 2)).save(secret)
    assert html.sample_picture(tmp_path / "run") == ""
    sample.symlink_to(secret)
    assert html.sample_picture(tmp_path / "run") == "", "a link that leads out of the folder is not followed"
    sample.unlink()
    sample.write_bytes(b"<svg onload=alert(1)>")
    assert html.sample_picture(tmp_path / "run") == ""
    sample.write_bytes(secret.read_bytes())
    assert 'src="data:image/png;base64,iVBOR' in html.sample_picture(tmp_path / "run")


def test_a_plan_says_infinity_for_no_guarantee() -> None:
    plan = planning.plan(configure({"method": "fedavg", "data": "digits"}))
    assert "∞" in plan._repr_html_()
    assert "∞" in repr(plan)
    assert "1.0" not in repr(prismfl.plan("dp-fedavg", data="digits", epsilon=2.0, model="logreg")).split("delta")[0]
