"""The report: everything a privacy officer asks for is there, nothing is fetched, and it fits every screen."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.adversary.scores.membership import limits, measure
from prismfl.privacy.cost import Cost
from prismfl.report import page, sections, words
from prismfl.report.charts import PALETTE, colour_of, nice_ticks
from prismfl.report.dossier import dossier
from prismfl.report.editions import OnSiteFacts, SharedFacts
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from tests.report.browser import check_looks, check_print, on_screen, open_browser

Facts = list[OnSiteFacts | SharedFacts]
SECTIONS = (
    "guarantee",
    "checks",
    "releases",
    "ledger",
    "accuracy",
    "next",
    "pictures",
    "partition",
    "attacks",
    "audit",
    "bytes",
    "config",
    "signature",
)


class Outline(HTMLParser):
    """Tags, ids and addresses of a page; complains about tags that are not closed."""

    VOID = {"meta", "link", "img", "br", "circle", "line", "rect", "path"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.images_without_words = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        self.addresses += [str(v) for k, v in attrs if k in ("src", "href") and v]
        self.images_without_words += tag == "img" and not found.get("alt")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        assert self.open
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()


def make_run(folder: Path, **changes: Any) -> Path:
    settings = changes.pop("settings", {"rounds": 3, "steps": 2, "batch": 32})
    values = {"method": "dp-fedavg", "epsilon": 2.0, "data": "digits", "model": "logreg", "sites": 3, **changes}
    simulate.run(RunConfig(**values, out=str(folder), settings=settings))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    private = make_run(folder / "private")
    open_ = make_run(
        folder / "open",
        method="fedavg",
        epsilon=None,
        settings={"rounds": 2, "epochs": 1},
        split="dirichlet(alpha=0.3)",
    )
    rng = np.random.default_rng(0)
    cost = Cost.from_json(json.loads((private / "ledger.json").read_text())["site-0"])
    rates = np.geomspace(1e-3, 1, 20)
    attack = {
        "attack": "loss",
        **measure(rng.normal(0.1, 1, 300), rng.normal(0, 1, 300)).as_dict(),
        "control": {"auc": 0.99},
        "within_bound": True,
        "bound": {"fpr": rates.tolist(), "tpr": np.minimum(1, 3 * rates).tolist()},
    }
    audit = {"audit": "one run", "claimed": limits(cost, 1e-5)["epsilon"], "lower": 0.7, "control": 5.2, "passed": True}
    for kind, value in (("attacks/loss", attack), ("audits/one-run", audit)):
        file = private / f"{kind}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(value))
    (private / "attacks" / "dlg.json").write_text(json.dumps({"attack": "dlg", "words": "does not apply"}))
    return [private, open_]


@pytest.fixture(scope="module")
def facts(runs: list[Path]) -> Facts:
    return [dossier(path) for path in runs]


def test_every_section_is_there_and_the_page_is_well_formed(facts: Facts, tmp_path: Path) -> None:
    for chosen in (facts[:1], facts):
        file, twin = page.write(chosen, tmp_path / "report.html")
        text = file.read_text()
        outline = Outline(text)
        assert not outline.open
        assert len(outline.ids) == len(set(outline.ids)), "an id is used twice"
        for i in range(len(chosen)):
            prefix = "" if len(chosen) == 1 else f"r{i + 1}-"
            assert {f"{prefix}{name}-section" for name in SECTIONS} <= set(outline.ids)
        targets = [a[1:] for a in outline.addresses if a.startswith("#")]
        assert set(targets) <= set(outline.ids)
        assert outline.images_without_words == 0
        assert json.loads(twin.read_text())["runs"][0]["setting"]["method"] == "dp-fedavg"
        assert file.stat().st_size < 5_000_000


def unlike(facts: Facts, **setting: Any) -> Facts:
    """The runs, and the first once more with another setting."""
    other = SharedFacts(json.loads(json.dumps(facts[0])))
    other["setting"] |= setting
    return [*facts, other]


def test_unlike_data_and_units_never_share_a_chart(facts: Facts) -> None:
    alike = page.render(facts, digest="0" * 64)
    assert alike.count("<figcaption") > 0
    assert 'id="plane-2"' not in alike
    text = page.render(unlike(facts, data="elsewhere"), digest="0" * 64)
    assert text.count('<h3 class="group">') == 2
    assert 'id="plane-2"' in text
    third = text[text.index('id="r3-accuracy-section"') :]
    assert ">fedavg, " not in third[: third.index("</section>")], "a run on other data stands in its chart"
    client = unlike(facts)
    client[-1]["guarantee"]["unit"] = "client"
    assert 'id="plane-2"' in page.render(client, digest="0" * 64)


def test_a_method_has_its_colour_in_every_chart_of_the_page(facts: Facts) -> None:
    text = page.render(unlike(facts, method="out.side:METHOD"), digest="0" * 64)
    for method in ("dp-fedavg", "fedavg", "out.side:METHOD"):
        named = rf"<(?:rect|circle) class=\"(?:bar|dot) c(\d)[^>]*><title>{re.escape(method)}, "
        found = re.findall(named, text)
        assert len(found) >= 4, "in the plane, in the bars of each run and along the rounds"
        assert set(found) == {str(colour_of(method))}


NASTY = "<script>alert(1)</script>"


def test_hostile_names_never_become_markup(facts: Facts) -> None:
    bad = unlike(facts, method=NASTY, data=NASTY, split=NASTY, model=NASTY)
    bad[-1]["run"] |= {"id": NASTY, "status": NASTY, "path": NASTY}
    bad[-1]["partition"] = {"title": NASTY, "classes": [NASTY], "rows": [{"site": NASTY, "counts": [1]}]}
    outline = Outline(page.render(bad, digest="0" * 64))
    assert "script" not in outline.tags


def test_nothing_is_loaded_from_anywhere(facts: Facts) -> None:
    outline = Outline(page.render(facts, digest="0" * 64))
    assert all(a.startswith(("#", "data:")) for a in outline.addresses)
    assert "script" not in outline.tags
    assert not re.search(r"url\(|@import|https?://", page.template("page.css"))


def test_the_guarantee_is_said_in_plain_words(facts: Facts) -> None:
    private, none = (f["guarantee"] for f in facts)
    text = sections.guarantee(facts[0])
    assert f"epsilon {private['epsilon']:.3g}" in text
    for needed in ("add-remove", "one record", "the server, the other sites", "50 %", "Who takes part", "seeded"):
        assert needed in text
    assert 0.5 < private["allows"]["right_guess"] < 0.75
    assert "infinite" in words.headline(none)
    assert "No differential privacy" in sections.guarantee(facts[1])
    assert "Every record is protected" not in sections.guarantee(facts[1])


def test_hostile_names_stay_text(facts: Facts) -> None:
    evil = SharedFacts(json.loads(json.dumps(facts[0])))
    evil["setting"]["data"] = "<script>alert(1)</script>"
    evil["releases"][0]["site"] = '"><img src=x onerror=alert(1)>'
    text = page.render([evil], digest="0" * 64)
    assert "<script>" not in text
    assert "<img src=x" not in text


def test_checks_say_pass_and_fail(facts: Facts) -> None:
    states = {what: state for state, what, _ in sections.checks(facts[0])}
    assert states["Ledgers verify"] == states["Attacks against the bound"] == states["Audit"] == "pass"
    assert (states["Within the budget"], states["Differential privacy"]) == ("open", "fail"), "the noise was seeded"
    secret = json.loads(json.dumps(facts[0]))
    secret["guarantee"]["simulation"] = False
    states = {what: state for state, what, _ in sections.checks(secret)}
    assert states["Within the budget"] == "pass"
    assert "Differential privacy" not in states
    broken = json.loads(json.dumps(facts[0]))
    broken["attacks"][1]["within_bound"] = False
    broken["audits"][0]["passed"] = False
    broken["guarantee"]["epsilon"] = 2.5
    states = {what: state for state, what, _ in sections.checks(broken)}
    assert states["Attacks against the bound"] == states["Audit"] == states["Within the budget"] == "fail"
    assert {what: state for state, what, _ in sections.checks(facts[1])}["Differential privacy"] == "fail"


def test_every_release_is_listed_with_size_cost_and_digest(facts: Facts, runs: list[Path]) -> None:
    text = sections.releases(facts[0])
    lines = [json.loads(line) for line in (runs[0] / "transcript.jsonl").read_text().splitlines()]
    sent = [row for row in lines if row["direction"] == "up"]
    assert len(sent) == 9 == len(facts[0]["releases"])
    assert all(row["digest"] in text for row in sent)
    assert text.count("Gaussian(") == 9


def test_a_run_that_was_cut_off_says_what_is_missing(runs: list[Path], tmp_path: Path) -> None:
    import shutil

    cut = tmp_path / "cut"
    shutil.copytree(runs[0], cut)
    (cut / "result.json").unlink()
    (cut / "run.json").write_text(json.dumps({"schema_version": 2, "status": "running"}))
    (cut / "attacks" / "loss.json").write_text("{")
    found = dossier(cut)
    text = page.render([found], digest="0" * 64)
    assert "has no result.json" in text
    assert "prismfl resume" in text
    assert "the result file is damaged" in text
    shutil.rmtree(cut / "ledger")
    (cut / "ledger.json").unlink()
    text = page.render([dossier(cut)], digest="0" * 64)
    assert "nothing is promised" in text


def test_private_pictures_only_on_site_and_marked(runs: list[Path]) -> None:
    assert dossier(runs[0])["edition"] == "sharing"
    found = dossier(runs[0], on_site=True)
    found["pictures"] = [{"title": "neighbours", "png": "AAAA", "private": True}]
    text = page.render([found], digest="0" * 64)
    assert "On-site edition" in text
    assert "do not send" in text


def test_a_report_takes_seconds(runs: list[Path], tmp_path: Path) -> None:
    started = time.process_time()
    page.write([dossier(runs[0])], tmp_path / "r.html")
    assert time.process_time() - started < 20  # one or two on a quiet machine


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 2.2), (97.1, 97.9), (0, 12345), (1e-4, 3e-4)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert all(low - 1e-12 <= t <= high + 1e-12 for t in ticks)


@pytest.mark.processes
def test_in_a_real_browser(facts: Facts, tmp_path: Path) -> None:
    """No network, no complaints, no sideways scrolling from 360 to 1600 pixels, and a keyboard gets everywhere."""
    file, _ = page.write(facts, tmp_path / "report.html")
    with open_browser(tmp_path) as browser:
        browser.go(file.as_uri())
        check_print(browser)
        colours = check_looks(browser, (360, 390, 768, 1600, 1200))
        assert all(colours[name] == on_screen(PALETTE[colour_of(name)]) for name in ("dp-fedavg", "fedavg"))
        tables = "[...document.querySelectorAll('.comparison .pair > .scroll')]"
        assert browser.js(f"{tables}.filter(s => s.scrollWidth > s.clientWidth).length") == 0, (
            "a large screen has room for the table"
        )
        shown = browser.js(
            "[...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight, s.innerText.length])"
        )
        assert len(shown) == 1 + 2 * len(SECTIONS)
        assert all(height > 40 and letters > 20 for _, height, letters in shown), shown
        charts = browser.js("[...document.querySelectorAll('figure > svg')].map(s => s.getBoundingClientRect().width)")
        assert len(charts) >= 8
        assert min(charts) > 200
        unnamed = browser.js(
            "[...document.querySelectorAll('svg[role=img]')].filter(s => "
            "!document.getElementById(s.getAttribute('aria-labelledby'))?.innerText).length"
        )
        assert unnamed == 0
        stops = browser.js("document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length")
        assert stops > 20
        assert all(r == file.as_uri() or r.startswith("data:") for r in browser.requests)
        assert browser.complaints == []
