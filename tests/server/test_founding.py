"""A federation on paper: a folder for each party, no secret in any, and every file is one that its command takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.runs.config import RunConfig, read, validate
from prismfl.server.config import by_key, enroll, load_server
from prismfl.server.founding import YOUR_DATA, Agreed, make_keys, new_federation
from prismfl.site.certificates import look_at_server
from prismfl.site.config import load_site
from prismfl.site.office import Office

TRIAL = Agreed("fed.example.org:9092", ("north", "south", "west"), "dp-fedavg", "digits", 4.0)


def test_a_trial_goes_from_paper_to_enrolled_sites(tmp_path: Path) -> None:
    root = tmp_path / "fed"
    places = new_federation(root, TRIAL)
    assert [place.name for place in places] == ["server", "north", "south", "west"]
    assert not [path for path in root.rglob("*") if path.suffix in (".key", ".pem", ".pub")], "no key is made on paper"
    ca = make_keys(root / "server", ca=None, say=lambda line: None)
    assert ca.name == "ca.pem"
    (state,) = [one for one in look_at_server(root / "server" / "keys") if one.path.name == "server.pem"]
    assert state.names == ("fed.example.org", "127.0.0.1", "localhost")
    for i, name in enumerate(TRIAL.sites):
        public = make_keys(root / name, ca=ca, say=lambda line: None)
        enroll(root / "server", name, public)
        site = load_site(root / name)
        assert (site.name, site.part, site.parts, site.cap, site.approval) == (name, i, 3, 4.0, True)
        assert (root / name).stat().st_mode & 0o077 == 0
        assert Office.open(root / name).config == site
    assert set(by_key(root / "server").values()) == set(TRIAL.sites)
    run: RunConfig = validate(RunConfig, read(root / "server" / "run.toml"), "run")
    assert (run.method, run.data, run.epsilon) == ("dp-fedavg", "digits", 4.0)
    assert load_server(root / "server").quorum == 3
    with pytest.raises(UserError, match="never overwritten"):
        make_keys(root / "server", ca=None, say=lambda line: None)


def test_own_tables_carry_the_schema_and_ask_for_the_path(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'label = "y"\nclasses = ["a", "b"]\n[[columns]]\nname = "x"\ntype = "numeric"\nmin = 0.0\nmax = 9.0\n'
    )
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n")
    own = replace(TRIAL, data='own "words"', schema_file=str(tmp_path / "s.toml"), records=1000)
    root = tmp_path / "fed"
    new_federation(root, own)
    ca = make_keys(root / "server", ca=None, say=lambda line: None)
    with pytest.raises(UserError, match="neither a data set's name nor a path"):
        make_keys(root / "north", ca=ca, say=lambda line: None)
    file = root / "north" / "site.toml"
    file.write_text(file.read_text().replace(YOUR_DATA, str(tmp_path / "t.csv")))
    with pytest.raises(UserError, match="--ca"):
        make_keys(root / "north", ca=None, say=lambda line: None)
    lines: list[str] = []
    make_keys(root / "north", ca=ca, say=lines.append)
    assert "were read" in lines[0]
    assert load_site(root / "north").schema_file == str(root / "north" / "schema.toml")
    run: RunConfig = validate(RunConfig, read(root / "server" / "run.toml"), "run")
    assert (run.data, run.schema_file, run.records) == ('own "words"', "schema.toml", 1000)


def test_mistakes_write_nothing(tmp_path: Path) -> None:
    for wrong in (
        replace(TRIAL, sites=("north",)),
        replace(TRIAL, sites=("north", "north")),
        replace(TRIAL, sites=("north", "server")),
        replace(TRIAL, sites=("north", "../x")),
        replace(TRIAL, server="nowhere"),
        replace(TRIAL, method="fedavgg"),
        replace(TRIAL, data="own", classes=["a", "b"], image_size=16, records=100),
        replace(TRIAL, data="own", classes=["a", "b"], image_size=16, channels=1),
    ):
        with pytest.raises(UserError):
            new_federation(tmp_path / "fed", wrong)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="holds neither a site"):
        make_keys(tmp_path, ca=None, say=lambda line: None)
