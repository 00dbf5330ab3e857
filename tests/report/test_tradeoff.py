"""The page and the table of a sweep: what they say, and what they do not say of own records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from prismfl.errors import UserError
from prismfl.report.tradeoff import best_lines, picture_of, sweep_facts, sweep_table, write_tradeoff
from prismfl.runs.cells import PLAN
from prismfl.runs.sweep import Axes, go, planned
from tests.report.browser import check_looks, check_print, open_browser
from tests.report.test_tradeoff_charts import ROWS, row

GIVEN = {"data": "digits", "model": "logreg", "sites": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweep") / "s"
    sets = ["subset=200", "rounds=1", "batch=32", "dp-fedavg.steps=2", "epochs=1"]
    go(planned(root, Axes(("dp-fedavg", "fedavg"), (1.0, 3.0), (0, 1)), sets=sets, given=GIVEN))
    return root


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own")
    values = np.random.default_rng(0)
    (root / "secret-ward").mkdir()
    data = root / "secret-ward" / "own.npz"
    np.savez(data, x=values.integers(0, 255, (60, 8, 8), dtype=np.uint8), y=values.integers(0, 2, 60))
    sets = ["records=24", "classes=['0', '1']", "image_size=8", "channels=1", "rounds=1", "steps=1", "batch=8"]
    given = {**GIVEN, "data": str(data), "ledger": str(root / "ledger"), "cap": 1.5}
    go(planned(root / "s", Axes(("dp-fedavg",), (1.0, 9.0), (5,)), sets=sets, given=given))
    return root / "s"


def text(facts: Any) -> str:
    file = io.StringIO()
    Console(width=100, file=file).print(sweep_table(facts))
    return file.getvalue()


def test_the_table_has_figures_with_intervals(folder: Path) -> None:
    facts = sweep_facts(folder)
    shown = text(facts)
    assert facts["edition"] == "sharing"
    first = facts["rows"][0]
    assert f"{first['accuracy']:.1f} ± {first['accuracy_half_width']:.1f}" in shown
    assert f" {first['accuracy_sd']:.1f} " in shown
    assert "2 seeds each" in shown
    assert "1 *" in shown
    assert "∞ no DP guarantee" in shown
    assert "simulation: no protection" in shown
    assert "95 % interval" in shown


def test_one_seed_is_said_to_have_no_interval() -> None:
    shown = text(made([row("prism", 1.0, 50.0, None, seeds=1, seeds_planned=3)]))
    assert "1 of 3" in shown
    assert "one seed, so no interval" in shown
    assert "±:" in shown
    assert "95 %" not in shown


def made(rows: list[Any], **more: Any) -> Any:
    known = {"seeds": 2, "seeds_planned": 2, "failed": 0, "bytes": 10, "seconds": 1.0, "unit": "record", "noise": None}
    setting = {"data": "digits", "split": "iid", "sites": 5, "model": "logreg", "delta": 1e-5}
    facts = {"schema_version": 1, "prismfl": "0", "written": "now", "own_data": False, "setting": setting}
    return {**facts, "rows": [known | r for r in rows], "cells": [], "edition": "sharing", "withheld": [], **more}


def test_the_page_is_whole_and_its_twin_too(folder: Path, tmp_path: Path) -> None:
    page, twin = write_tradeoff(sweep_facts(folder), tmp_path / "r.html")
    html = page.read_text()
    assert "How to read it." in html
    assert 'class="line c1 whisker"' in html
    assert 'class="band c6"' in html
    assert "At epsilon" not in html, "with one method there is none to lead"
    assert str(folder) not in html + twin.read_text()
    assert json.loads(twin.read_text())["rows"] == sweep_facts(folder)["rows"]


def test_what_is_best_at_an_epsilon_and_whether_it_may_be_chance() -> None:
    lines = best_lines([row("prism", 1.0, 60.0), row("dp-fedavg", 1.0, 57.0), row("psg", 1.0, 20.0)])
    assert lines == [
        "At epsilon 1 prism leads with 60.0 ± 2.0 %, then dp-fedavg with 57.0 ± 2.0 %; their intervals overlap."
    ]
    (line,) = best_lines([row("prism", 1.0, 60.0, encoder="net"), row("dp-fedavg", 1.0, 50.0)])
    assert line == "At epsilon 1 prism with net leads with 60.0 ± 2.0 %, then dp-fedavg with 50.0 ± 2.0 %."
    assert best_lines([row("prism", 1.0, 60.0), row("fedavg", None, 90.0)]) == []


def test_the_sharing_edition_of_own_records_has_nothing_measured(own: Path, tmp_path: Path) -> None:
    facts = sweep_facts(own)
    assert facts["withheld"] == ["accuracy", "seconds"]
    page, twin = write_tradeoff(facts, tmp_path / "r.html")
    for told in (page.read_text(), twin.read_text()):
        assert "secret-ward" not in told
        assert "seed5" not in told
    assert "measured on this site only" in page.read_text()
    assert "<svg" not in page.read_text()
    for place in facts["rows"] + facts["cells"]:
        assert not {"accuracy", "accuracy_sd", "accuracy_half_width", "balanced_accuracy", "auc", "seconds"} & set(
            place
        )
        assert not {"reason", "name"} & set(place)
    assert "†" in text(facts)


def test_the_on_site_edition_has_all_and_says_that_it_stays(own: Path, tmp_path: Path) -> None:
    facts = sweep_facts(own, on_site=True)
    with pytest.raises(UserError, match="keeps 'on-site' in its file name"):
        write_tradeoff(facts, tmp_path / "r.html")
    page, _ = write_tradeoff(facts, tmp_path / "r-on-site.html")
    html = page.read_text()
    assert "Do not send" in html
    assert "<svg" in html
    assert "Not finished" in html
    assert "cap" in html, "why the ledger refused the run"
    assert "stays on this site" in text(facts)


def test_the_picture_of_own_records_has_another_name(own: Path, folder: Path, tmp_path: Path) -> None:
    named = [picture_of(sweep_facts(place, on_site=True), tmp_path) for place in (own, folder)]
    assert [path and path.name for path in named] == ["on-site-tradeoff.png", "tradeoff.png"]
    assert picture_of(made([row("prism", 1.0, None)]), tmp_path) is None


NASTY = "<script>alert(1)</script>"


def test_what_a_folder_says_never_becomes_markup(folder: Path, tmp_path: Path) -> None:
    """A plan with odd names, from anybody: no run of it is made, no code imported."""
    plan = json.loads((folder / PLAN).read_text())
    asked = {**plan["asked"]["dp-fedavg"], "method": NASTY, "data": NASTY, "split": NASTY}
    cell = {"name": "a", "method": NASTY, "encoder": NASTY, "epsilon": 1.0, "seed": 0}
    (tmp_path / PLAN).write_text(json.dumps({"schema_version": 1, "asked": {NASTY: asked}, "cells": [cell]}))
    told = {"cells": [{"name": "a", "status": "failed", "reason": NASTY}]}
    (tmp_path / "sweep_results.json").write_text(json.dumps(told))
    facts = sweep_facts(tmp_path, on_site=True)
    page, _ = write_tradeoff(facts, tmp_path / "r-on-site.html")
    assert "<script" not in page.read_text()
    assert "&lt;script" in page.read_text()
    assert "No run of this sweep has an accuracy yet." in page.read_text()


def test_in_a_real_browser(tmp_path: Path) -> None:
    cells = [{"name": "prism_" + "x" * 90, "method": "prism", "status": "failed", "reason": "y" * 200}]
    page, _ = write_tradeoff(made(ROWS[:-1], cells=cells), tmp_path / "r.html")
    with open_browser(tmp_path) as browser:
        browser.go(page.as_uri())
        check_print(browser)
        check_looks(browser)
        dash = "[...document.querySelectorAll('.legend .line')].map(l => getComputedStyle(l).strokeDasharray)"
        assert browser.js(dash) == ["none", "7px, 4px", "2px, 3px", "none", "none", "none"]
        assert set(browser.requests) <= {page.as_uri(), "data:,"}
        assert browser.complaints == []
