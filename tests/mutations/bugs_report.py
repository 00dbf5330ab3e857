"""Planted bugs of what is shared and shown: the editions, the words of a seeded run, and reading within bounds."""

# ruff: noqa: E501  (a planted line is quoted as it stands)

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.files import inside as run_files
from prismfl.report import comparison, dashboard, editions, facts, figures, page, tables, words
from prismfl.report import dossier as dossiers
from tests.mutations.planting import Bug, Check
from tests.report import test_dashboard as dashboard_tests
from tests.report import test_delivered as delivered_tests
from tests.report import test_editions as edition_tests
from tests.runs.small import small_run


def on_own_data(test: object) -> Check:
    """A test of the editions over a run on own data, made as it stands."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = edition_tests.own_run(folder / "made")
        (folder / "out").mkdir()
        test(run, folder / "out")  # type: ignore[operator]

    return check


def on_a_benchmark(test: object) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = edition_tests.benchmark_run(folder / "made")
        (folder / "out").mkdir()
        test(run, folder / "out")  # type: ignore[operator]

    return check


def spoilt(name: str, kind: str) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dashboard_tests, "PATIENCE", 5)
        dashboard_tests.check_spoilt(folder, name, kind)

    return check


def bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard_tests.test_files_of_a_run_are_read_within_bounds(folder)


def delivered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(folder / "made")
    (folder / "out").mkdir()
    delivered_tests.test_what_nothing_protects_stays_on_the_site(delivered_tests.with_items(run, folder / "out"))


shared = on_own_data(edition_tests.test_no_uncharged_byte_in_anything_that_is_shared)
seeded = on_a_benchmark(edition_tests.test_seeded_noise_is_said_wherever_the_guarantee_stands)
total = on_a_benchmark(edition_tests.test_the_headline_counts_what_the_model_started_from)

BUGS = [
    Bug("own data are shared like a benchmark", editions, "share", "OWN if own else BENCHMARK", "BENCHMARK", shared),
    Bug("the sharing edition is everything", dossiers, "dossier", "        return share(facts)\n    try", "        return share.__globals__['SharedFacts'](facts)\n    try", shared),
    Bug("a path is shared whole", editions, "name_of", 're.split(r"[/\\\\]", path.rstrip("/\\\\"))[-1]', "path", shared),
    Bug("a picture keeps its text", editions, "share", "(clean := _cleaned(p))", "(clean := p)", shared),
    Bug("weights that nothing protects are shared", editions, "_shared_item", 'drawn = {} if item["private"] else', 'drawn =', delivered),
    Bug("compared runs show own accuracy", comparison, "_result", "share_result(result, own=is_own(config, result))", "share_result(result, own=False)", shared),
    Bug("a named flag makes own data public", editions, "is_own", 'config.get("data") not in DATASETS or result.get("own_data") is True', "False", shared),
    Bug("the curve of own accuracy is drawn", figures, "progress", "runs if on_site else shareable(runs)", "runs", on_own_data(edition_tests.test_own_figures_are_in_the_on_site_edition_which_says_so)),
    Bug("an on-site page under any name", page, "write_pair", "(ON_SITE in path.name) != (edition == ON_SITE)", "False", on_own_data(edition_tests.test_a_page_is_of_one_edition_and_its_name_says_which)),
    Bug("own records are opened for sharing", dossiers, "dossier", "        return share(facts)\n    try", "        pass\n    try", on_own_data(edition_tests.test_own_records_are_not_opened_for_the_sharing_edition)),
    Bug("a seeded run is called protected", words, "kind", '"simulation" if g.get("simulation") else "full"', '"full"', seeded),
    Bug("a seeded run in a table without its mark", tables, "is_simulated", 'str(row["guarantee"]).startswith("simulation") or str(row.get("noise") or "").startswith("seeded")', "False", seeded),
    Bug("a result unsays the seed of its config", facts, "noise_of", "for place in (result, config)", "for place in (result,)", on_a_benchmark(edition_tests.test_one_word_of_a_seed_is_enough)),
    Bug("the headline leaves the earlier run out", facts, "_with_total", 'result.get("epsilon_total", own)', "own", total),
    Bug("a nested file is as deep as it likes", run_files, "parse", "depth=MOST_DEPTH", "depth=10**6", bounded),
    Bug("an odd folder stops the list", dashboard, "row_of", "except ODD", "except KeyError", spoilt("metrics.jsonl", "odd")),
    Bug("a pipe is waited for", run_files, "read_bytes", "return read_regular(path, limit=most)", "return path.read_bytes()", spoilt("config.json", "pipe")),
    Bug("a link is followed out of the folder", run_files, "read_bytes", "if not inside:", "if False:", spoilt("metrics.jsonl", "link")),
]  # fmt: skip
