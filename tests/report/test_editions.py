"""The sharing edition of everything: nothing computed from own records without a charge is in any byte of it."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from rich.console import Console
from typer.testing import CliRunner

from prismfl.adversary.scores.membership import measure
from prismfl.cli.main import app
from prismfl.errors import UserError
from prismfl.report import figures, page, sections
from prismfl.report.comparison import compare_runs, comparison_table
from prismfl.report.dashboard import row_of
from prismfl.report.editions import name_of, share
from prismfl.report.facts import collect
from prismfl.report.tables import result_table
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig

SECRETS = {
    "folder of the data": "home-of-mallory",
    "accuracy": "12.3456789",
    "accuracy, as a page writes it": r"(?<![\d.])12\.3[45]?(?!\d)",
    "worst accuracy": r"(?<![\d.])9\.876",
    "seconds": "98765",
    "accuracy of a round": "45.678",
    "accuracy of a round, as a chart writes it": r"(?<![\d.])45\.[67](?!\d)",
    "AUC": r"0\.8765|(?<![\d.])0\.877(?!\d)",
    "name in a result of an attack": "attacker-saw-it",
    "lower bound of an audit": r"3\.1415|(?<![\d.])3\.14(?!\d)",
    "counts of an unknown section": "777333",
    "environment": "host-of-mallory",
    "text in a picture": "camera-of-mallory",
    "time of a release": r"T\d\d:\d\d:\d\d\.\d",
    "seed": "31415926",
}
"""What the run folder holds and no sharing output may: a pattern for each."""

SCHEMA = {
    "columns": [{"name": "age", "min": 0, "max": 100}, {"name": "weight", "min": 0, "max": 200}],
    "label": "ill",
    "classes": ["no", "yes"],
}


def own_run(folder: Path) -> Path:
    """A finished run on own data, its private figures replaced by ones that can be recognised."""
    home = folder / "home-of-mallory"
    home.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(0, 100)},{rng.integers(40, 150)},{('no', 'yes')[i % 2]}" for i in range(160)]
    (home / "patients.csv").write_text("\n".join(["age,weight,ill", *rows]) + "\n")
    (home / "schema.json").write_text(json.dumps(SCHEMA))
    run = folder / "own"
    simulate.run(
        RunConfig(
            method="dp-fedavg", data=str(home / "patients.csv"), schema_file=str(home / "schema.json"),
            model="mlp:4", sites=2, records=60, epsilon=2.0, seed=31415926,
            ledger=str(home / "ledgers"), out=str(run), settings={"rounds": 2, "steps": 2, "batch": 16},
        )
    )  # fmt: skip
    mark(run)
    return run


def mark(run: Path) -> None:
    change(run / "result.json", accuracy=12.3456789, accuracy_min=9.87654321, seconds=98765.4321, held_out=777333,
           run_dir=str(run.parent / "home-of-mallory"), own_data=True)  # fmt: skip
    change(run / "config.json", data_dir=str(run.parent / "home-of-mallory"), out=str(run.parent / "home-of-mallory"))
    change(run / "environment.json", hostname="host-of-mallory")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [{**row, "accuracy": 45.678901234, "seconds": 98765.4, "test_records": 777333} for row in lines]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    rng = np.random.default_rng(0)
    scores = measure(rng.normal(0.1, 1, 300), rng.normal(0, 1, 300)).as_dict()
    loss = {"attack": "loss", **scores, "auc": 0.87654321, "within_bound": True, "words": "attacker-saw-it"}
    audit = {"audit": "one run", "claimed": 2.0, "lower": 3.14159265, "control": 5.0, "passed": True}
    for name, value in (("attacks/loss", loss), ("attacks/dlg", {"words": "attacker-saw-it"}), ("audits/one", audit)):
        (run / name).parent.mkdir(exist_ok=True)
        (run / f"{name}.json").write_text(json.dumps(value))
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "camera-of-mallory")
    (run / "gen").mkdir(exist_ok=True)
    Image.new("L", (40, 40), 90).save(run / "gen" / "sample.png", pnginfo=text)


def change(file: Path, **more: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run(tmp_path_factory.mktemp("sharing"))


def benchmark_run(folder: Path, **changes: Any) -> Path:
    values = {"method": "dp-fedavg", "epsilon": 2.0, "data": "digits", "model": "logreg", "sites": 2, **changes}
    simulate.run(RunConfig(**values, out=str(folder), settings={"rounds": 2, "steps": 2, "batch": 32}))
    return folder


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return benchmark_run(tmp_path_factory.mktemp("open") / "digits")


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def leaks(raw: bytes) -> list[str]:
    """Which secrets are in these bytes, in plain or in the pictures within."""
    text = raw.decode("utf-8", "replace")
    inner = [base64.b64decode(found) for found in re.findall(r"[A-Za-z0-9+/]{80,}={0,2}", text) if len(found) % 4 == 0]
    text += "".join(part.decode("latin-1") for part in inner)
    return [what for what, pattern in SECRETS.items() if re.search(pattern, text)]


def everything_shared(run: Path, folder: Path) -> dict[str, bytes]:
    """Every output that may be handed on, by name. The run is copied beside other names than the secret ones."""
    call("report", run, "-o", folder / "report.html")
    call("report", run, run, "-o", folder / "pair.html")
    call("figures", run, "-o", folder / "figures")
    made = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    for fmt in ("json", "table"):
        made[f"compare {fmt}"] = call("compare", run, "--format", fmt).encode()
    return made


def test_no_uncharged_byte_in_anything_that_is_shared(own: Path, tmp_path: Path) -> None:
    made = everything_shared(own, tmp_path)
    assert {"report.html", "report.json", "pair.html", "compare json"} <= set(made)
    found = {name: hits for name, raw in made.items() if (hits := leaks(raw))}
    assert found == {}


def test_own_figures_are_in_the_on_site_edition_which_says_so(own: Path, tmp_path: Path) -> None:
    call("report", own, "--on-site", "-o", tmp_path / "r-on-site.html")
    text, twin = (tmp_path / "r-on-site.html").read_text(), json.loads((tmp_path / "r-on-site.json").read_text())
    assert "stays on this site" in text
    assert "(on-site edition)</title>" in text
    assert twin["edition"] == twin["runs"][0]["edition"] == "on-site"
    assert {"accuracy", "AUC", "seconds"} <= set(leaks((tmp_path / "r-on-site.json").read_bytes()))
    rows = json.loads(call("compare", own, "--on-site", "--format", "json"))
    assert (rows[0]["accuracy"], rows[0]["edition"]) == (12.35, "on-site")
    assert "stays on this site" in " ".join(call("compare", own, "--on-site").split())
    drawn = figures.progress(figures.named([own]), tmp_path / "on-site-progress.png", on_site=True)
    assert drawn is not None
    assert figures.progress(figures.named([own]), tmp_path / "progress.png") is None
    assert not (tmp_path / "progress.png").exists()


def test_the_sharing_edition_says_where_the_figures_are(own: Path, tmp_path: Path) -> None:
    call("report", own, "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "Sharing edition" in text
    assert "stays on this site" not in text
    assert text.count("measured on this site only") >= 5, "accuracy, attacks, audit, and two checks"
    assert "patients.csv" in text, "names stay"
    rows = json.loads(call("compare", own, "--format", "json"))
    assert (rows[0]["accuracy"], rows[0]["seconds"], rows[0]["withheld"]) == (None, None, ["accuracy", "seconds"])
    assert "measured on this site only" in call("compare", own)


def test_the_order_of_compared_runs_does_not_tell_their_accuracy(own: Path, tmp_path: Path) -> None:
    """Best first would be an answer too."""
    other = tmp_path / "other"
    shutil.copytree(own, other)
    change(other / "result.json", model="other")
    for accuracy in (1.0, 99.0):
        change(other / "result.json", accuracy=accuracy)
        assert [row["model"] for row in compare_runs([own, other])] == ["mlp:4", "other"]


def test_a_fact_that_nobody_listed_is_not_shared(own: Path, benchmark: Path) -> None:
    for run in (own, benchmark):
        facts = collect(run)
        shown = json.loads(json.dumps(facts))
        for place in (facts, *(v for v in facts.values() if isinstance(v, dict)), *facts["releases"]):
            place["a new figure"] = 424242
        for rows in (facts["ledger"]["status"], facts["ledger"]["chain"], facts["traffic"]["rounds"]):
            rows[0]["a new figure"] = 424242
        shared = share(facts)
        assert "424242" not in json.dumps(shared)
        assert set(shared) >= set(shown) - {"attacks", "audits"}, "a section would find nothing"


def test_own_records_are_not_opened_for_the_sharing_edition(own: Path, tmp_path: Path) -> None:
    data = own.parent / "home-of-mallory" / "patients.csv"
    data.rename(data.with_suffix(".away"))
    try:
        call("report", own, "-o", tmp_path / "r.html")
    finally:
        data.with_suffix(".away").rename(data)
    assert "not at hand" not in (tmp_path / "r.html").read_text()


def test_a_page_is_of_one_edition_and_its_name_says_which(own: Path, tmp_path: Path) -> None:
    on_site = collect(own)
    for mixed in ([on_site, share(on_site)], [dict(on_site)]):
        with pytest.raises(UserError, match="one edition"):
            page.render(mixed, digest="")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="keeps 'on-site' in its file name"):
        page.write([on_site], tmp_path / "report.html")
    with pytest.raises(UserError, match="has no 'on-site' in its file name"):
        page.write([share(on_site)], tmp_path / "report-on-site.html")
    assert list(tmp_path.iterdir()) == []


def test_a_public_benchmark_keeps_its_figures_and_loses_its_paths(benchmark: Path, tmp_path: Path) -> None:
    change(benchmark / "config.json", data_dir="/home/mallory/data")
    (benchmark / "attacks").mkdir(exist_ok=True)
    (benchmark / "attacks" / "dlg.json").write_text(
        json.dumps({"run": "/home/mallory/run", "words": "none of 6 images found"})
    )
    accuracy = json.loads((benchmark / "result.json").read_text())["accuracy"]
    call("report", benchmark, "-o", tmp_path / "r.html")
    text, twin = (tmp_path / "r.html").read_text(), (tmp_path / "r.json").read_text()
    assert f"{accuracy:.1f} %" in text
    assert "none of 6 images found" in text
    assert "mallory" not in text + twin
    assert str(benchmark) not in text + twin
    assert json.loads(call("compare", benchmark, "--format", "json"))[0]["accuracy"] == round(accuracy, 2)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/x/secret.csv", "secret.csv"),
        (r"C:\Users\x\secret.csv", "secret.csv"),
        ("~/a/b/", "b"),
        ("digits", "digits"),
    ],
)
def test_a_path_is_cut_to_its_name(path: str, name: str) -> None:
    assert name_of(path) == name


# The words that stand where the guarantee stands


def told(run: Path, folder: Path, **more: Any) -> dict[str, str]:
    """A copy of a run whose result says more, in every place that speaks of the guarantee."""
    copy = folder / "told"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    change(copy / "result.json", **more)
    call("report", copy, "-o", folder / "r.html")
    result = json.loads((copy / "result.json").read_text())
    return {
        "page": (folder / "r.html").read_text().partition("</style>")[2],
        "compare": drawn(comparison_table(compare_runs([copy]))),
        "compare json": call("compare", copy, "--format", "json"),
        "run": drawn(result_table(result)),
        "ledger": call("ledger", "status", copy, "--format", "json"),
        "dashboard": json.dumps(row_of(copy, folder)),
    }


def drawn(table: Any) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_seeded_noise_is_said_wherever_the_guarantee_stands(benchmark: Path, tmp_path: Path) -> None:
    found = told(benchmark, tmp_path, noise="seeded: simulation only", guarantee="simulation: no protection")
    for place, text in found.items():
        assert "simulation: no protection" in " ".join(text.split()), place
        assert "is protected" not in text, place
    assert '<div class="verdict simulation"><p class="headline">Simulation: no protection.' in found["page"]
    assert 'class="meter"' not in found["page"]
    assert "(simulation)" in sections.run_name(collect(tmp_path / "told"))


def test_noise_of_the_operating_system_is_a_guarantee(benchmark: Path, tmp_path: Path) -> None:
    change(benchmark / "config.json", noise="operating-system")
    try:
        found = told(benchmark, tmp_path, noise="operating system", guarantee="differential privacy")
    finally:
        change(benchmark / "config.json", noise=None)
    for place, text in found.items():
        # Only the ledger itself remembers that this run was seeded.
        assert "imulation" not in text.replace("(simulation: no protection)", ""), place
    assert '<div class="verdict full"><p class="headline">Every record is protected: epsilon' in found["page"]


def test_one_word_of_a_seed_is_enough(benchmark: Path, tmp_path: Path) -> None:
    """An old folder says it only in its releases; a mended result does not unsay the config."""
    assert "Simulation: no protection" in told(benchmark, tmp_path)["page"]
    change(benchmark / "config.json", noise="seeded")
    try:
        found = told(benchmark, tmp_path, noise="operating system", guarantee="differential privacy")
    finally:
        change(benchmark / "config.json", noise=None)
    for place in ("page", "compare", "dashboard", "ledger"):
        assert "simulation: no protection" in " ".join(found[place].split()), place


def test_the_headline_counts_what_the_model_started_from(benchmark: Path, tmp_path: Path) -> None:
    sure = {"noise": "operating system", "guarantee": "differential privacy"}
    own = json.loads((benchmark / "result.json").read_text())["epsilon"]
    found = told(benchmark, tmp_path, **sure, epsilon_total=3.4567)
    assert f"epsilon 3.46 in all at delta 1e-05 (this run alone: {own:.3g})" in found["page"]
    for place in ("compare", "run"):
        assert f"3.46 in all per record, this run {own:.3g}" in " ".join(found[place].split()), place
    assert json.loads(found["dashboard"])["epsilon"] == 3.4567
    allowed = collect(tmp_path / "told")["guarantee"]["allows"]
    assert allowed["right_guess"] == pytest.approx((math.exp(3.4567) + 1e-5) / (1 + math.exp(3.4567)), abs=1e-3)
    found = told(benchmark, tmp_path, **sure, epsilon_total=None)
    assert "No differential privacy: the model started from one without a guarantee" in found["page"]
    assert "∞ in all" in found["compare"]
    assert json.loads(found["dashboard"])["guarantee"] == "none"
