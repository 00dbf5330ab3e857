"""Words that name code: neither a server nor a folder that somebody sent makes this machine import a module."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismfl import open_run
from prismfl.errors import UserError
from prismfl.report.comparison import compare_runs
from prismfl.report.dashboard import planned, row_of
from prismfl.report.dossier import dossier
from prismfl.report.norms import norms_by_layer
from prismfl.runs import simulate
from prismfl.runs.choosing import choose
from prismfl.runs.config import RunConfig
from prismfl.runs.description import declared, describe, job_of
from prismfl.runs.reopen import reopen
from prismfl.site.config import check_site
from tests.hostile.test_server import EMPTY, REFUSED, ask, description, forged, spent
from tests.site.folders import NAMES, make_site, run_config

WORDS = (
    "evil:METHOD",
    "evil",
    "os:system",
    "prismfl.methods:METHODS",
    ":METHOD",
    "evil:METHOD:x",
    "../evil:METHOD",
    "",
)


def trap(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a module was imported that lies on the path and whose METHOD is as good as any."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "evil.py").write_text(
        "from dataclasses import replace\nfrom prismfl.methods import METHODS\n"
        "METHOD = replace(METHODS['dp-fedavg'], name='evil')\n"
    )
    monkeypatch.syspath_prepend(str(place))
    return lambda: sys.modules.pop("evil", None) is not None


@pytest.fixture
def imported(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    return trap(tmp_path_factory.mktemp("path"), monkeypatch)


@pytest.mark.parametrize("method", WORDS)
def test_a_server_cannot_name_code(method: str, tmp_path: Path, imported: Callable[[], bool]) -> None:
    """Not even where the site's own list, made without a check, has the words."""
    told = forged(description(), method=method)
    site = make_site(tmp_path, "north")
    for allowed, code in ((["dp-fedavg"], "method-not-allowed"), ([method], "refused")):
        office = replace(site, config=site.config.model_copy(update={"methods": allowed}))
        for kind in ("hello", "round", "finish"):
            answer = ask(office, told, kind=kind, state=EMPTY)
            if (kind, code) == ("finish", "refused"):
                assert answer == replace(REFUSED, kind="done", code=""), "what is over needs no reason"
            else:
                assert answer == replace(REFUSED, code=code)
        assert spent(office) == 0
        assert not imported()


@pytest.mark.parametrize("method", WORDS)
def test_neither_side_of_a_federation_takes_code_by_name(method: str, imported: Callable[[], bool]) -> None:
    config = run_config().model_copy(update={"method": method})
    with pytest.raises(UserError):
        describe(config, declared(config)[0], NAMES)
    with pytest.raises(UserError):
        job_of(forged(description(), method=method))
    assert not imported()


def test_the_trap_springs(imported: Callable[[], bool]) -> None:
    assert choose("evil:METHOD")[1].name == "evil", "a user's own command takes it"
    assert imported()


def test_a_site_cannot_allow_code_by_name(tmp_path: Path, imported: Callable[[], bool]) -> None:
    office = make_site(tmp_path, "north")
    with pytest.raises(UserError, match="Unknown method 'evil:METHOD'"):
        check_site(office.config.model_copy(update={"methods": ["evil:METHOD"]}))
    assert not imported()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    path = tmp_path_factory.mktemp("sent") / "run"
    values: dict[str, Any] = {"method": "fedavg", "data": "digits", "model": "logreg", "sites": 2}
    simulate.run(RunConfig(**values, out=str(path), settings={"rounds": 1, "epochs": 1}))
    return path


def sent(path: Path, method: str) -> None:
    """The folder with other words in it, as whoever sends it can write them."""
    for name in ("config.json", "result.json"):
        told = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps({**told, "method": method}))


@pytest.mark.parametrize("method", ["evil:METHOD", "os:system"])
def test_a_folder_that_somebody_sent_is_only_read(method: str, done: Path, imported: Callable[[], bool]) -> None:
    sent(done, method)
    for read in (reopen, lambda path: open_run(path).method, norms_by_layer):
        with pytest.raises(UserError, match="only run, plan and resume import code"):
            read(done)
    assert open_run(done).result is not None
    assert compare_runs([done])[0]["leaves"] == "?"
    facts = dossier(done, on_site=True)
    assert any("import code" in line["words"] for line in facts["missing"])
    assert row_of(done, done.parent)["status"] == "finished"
    with pytest.raises(UserError, match="only run, plan and resume import code"):
        planned({"method": method, "data": "digits"}, done.parent)
    assert simulate.resume(done).method == method, "a finished run is read, not run"
    assert not imported()
