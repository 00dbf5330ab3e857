"""The site owns its facts, and no record is an exception: what cannot be read is left out, and nobody can tell."""

from __future__ import annotations

import hashlib
import inspect
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismfl.errors import UserError
from prismfl.site import data as site_data
from prismfl.site.config import SiteConfig
from prismfl.site.data import SiteData
from tests.data.test_facts import opened_by
from tests.hostile.bad_records import BY_KIND, CASES, CLASSES, GOOD, KINDS, SCHEMA, csv_with, facts_for


def site(name: str, path: Path, **changes: Any) -> SiteConfig:
    base: dict[str, Any] = {"name": "north", "methods": ["dp-fedavg"], "releases": ["weights"]}
    return SiteConfig(**{**base, **facts_for(name, path), **changes})


def prepared(folder: Path, name: str, place: int | None) -> tuple[SiteData, str]:
    """A site's data, and the digest of what it keeps of them."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "raw").mkdir(parents=True)
    config = site(name, CASES[name](folder / "raw", place))
    data = site_data.prepare(folder, config)
    return data, hashlib.sha256((folder / "data" / "records.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", CASES)
def test_a_bad_record_changes_nothing_but_itself(name: str, tmp_path: Path) -> None:
    without, clean = prepared(tmp_path / "a", name, None)
    assert (len(without.records), len(without.prints) % GOOD, without.left_out) == (GOOD, 0, 0)
    for place in (0, GOOD // 2, GOOD):
        found, kept = prepared(tmp_path / "a", name, place)
        assert found.left_out == (2 if "two lines" in name else 1), found.faults  # one line is one record
        assert found.spec == without.spec
        assert kept == clean, "the snapshot tells that there was a bad record"


@pytest.mark.parametrize("kind", BY_KIND)
def test_no_record_is_as_good_as_any_number(kind: str, tmp_path: Path) -> None:
    """The last record, and the last good one, may go: a site without records answers like any other."""
    name = f"{kind}: empty"
    if kind in ("csv", "parquet"):
        (tmp_path / "schema.toml").write_text(SCHEMA)
        path = tmp_path / "t.csv"
        path.write_text("age,stage,sex,ill,patient\n")
        worlds = [path, tmp_path / "bad.csv"]
        worlds[1].write_text("age,stage,sex,ill,patient\nx,x,x,x,x\n")
    elif kind == "folder":
        worlds = [tmp_path / "none", tmp_path / "bad"]
        worlds[0].mkdir()
        (worlds[1] / "no").mkdir(parents=True)
        (worlds[1] / "no" / "0.png").write_bytes(b"")
    else:
        worlds = [tmp_path / "d.npz", tmp_path / "bad.npz"]
        np.savez(worlds[0], x=np.array([]), y=np.array([]), patient=np.array([]))
        shape = (1, 3) if kind == "npz table" else (1, 8, 8)
        np.savez(worlds[1], x=np.full(shape, np.nan), y=[0], patient=[1])
    for world in worlds:
        config = site(name, world)
        data = site_data.read(config)
        assert tuple(data.records.x.shape) == (0, *data.spec.shape)
        assert len(data.prints) == len(data.records.y) == 0
        assert data.spec == site_data.facts(config)
        assert data.spec.classes == tuple(CLASSES)
        site_data.keep(tmp_path / f"of-{world.name}", config, data)
        assert len(site_data.load(tmp_path / f"of-{world.name}", config).records) == 0


@pytest.mark.parametrize("rows", ["", "x;x;x;x;x\n", ";;;;\n"])
def test_a_site_of_every_kind_of_column_may_be_empty(rows: str, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(KINDS)
    (tmp_path / "t.csv").write_text(f"born;weight;ward;ill;patient\n{rows}")
    data = site_data.read(site("csv: empty", tmp_path / "t.csv"))
    assert tuple(data.records.x.shape) == (0, *data.spec.shape) == (0, 1 + 2 + 3 + 3)
    assert data.spec.unit == "patient"


def test_missing_and_other_values_are_kept_by_their_rule(tmp_path: Path) -> None:
    """Of twelve records none is left out: gaps are values, and a ward that is not declared is the rest."""
    (tmp_path / "raw").mkdir()
    data = site_data.read(site("csv: empty", CASES["csv: no id of a kind"](tmp_path / "raw", None)))
    assert (len(data.records), data.left_out) == (GOOD, 0)
    assert data.records.x[:, 2].sum() == GOOD / 2  # half of the weights are missing
    assert data.records.x[:, 3:6].sum(0).tolist() == [4.0, 4.0, 4.0]  # heart, rest, missing
    assert data.records.x[:, 6:].sum(0).tolist() == [0.0, GOOD, 0.0]  # two rows a patient


def test_no_request_can_reach_the_reading_of_data() -> None:
    for function in (site_data.facts, site_data.read, site_data.prepare, site_data.load, site_data.stale):
        assert set(inspect.signature(function).parameters) <= {"folder", "config"}
    source = inspect.getsource(site_data)
    assert not [word for word in ("description", "Request", "job", "Task") if word in source]


@pytest.mark.parametrize("name", ["csv: text", "npz images: nan", "folder: empty"])
def test_a_request_opens_no_file_of_the_data(name: str, tmp_path: Path) -> None:
    first, _ = prepared(tmp_path / "a", name, 3)
    path = next((tmp_path / "a" / "raw").glob("[!s]*"))
    config = site(name, path)
    site_data._snapshot.cache_clear()
    found: list[SiteData] = []
    opened = opened_by(lambda: found.append(site_data.load(tmp_path / "a", config)))
    assert not [one for one in opened if "/raw/" in one and not one.endswith("schema.toml")]
    assert any(one.endswith("records.safetensors") for one in opened)
    again = found[0]
    assert again.prints == first.prints
    assert again.records.x.equal(first.records.x)
    assert again.records.y.equal(first.records.y)
    assert again.left_out == 1


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("csv", "schema_file"),
        ("npz table", "classes"),
        ("npz table", "bounds"),
        ("npz table", "features"),
        ("npz images", "channels"),
        ("folder", "classes"),
        ("folder", "image_size"),
    ],
)
def test_what_is_not_declared_is_asked_for_by_its_key(kind: str, key: str, tmp_path: Path) -> None:
    name = f"{kind}: nan" if "npz" in kind else f"{kind}: empty"
    path = CASES[name](tmp_path, None)
    wanted = "image_size" if key == "features" else key  # without features an npz holds pictures

    def ask() -> None:
        with pytest.raises(UserError, match=wanted):
            site_data.facts(site(name, path, **{key: None}))

    opened = opened_by(ask)
    assert not [one for one in opened if one.startswith(str(tmp_path)) and not one.endswith("schema.toml")]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([b'"', b",", b";", b"\t", b" ", b"\0", b"\xff", b"\xc3", b"1", b"f", b"no", b"nan"])))
def test_whatever_a_line_holds_the_other_lines_are_read_as_they_are(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clean = Counter(site_data.read(site("csv: x", csv_with(b"")(Path(folder), None))).prints)
        found = site_data.read(site("csv: x", csv_with(b"".join(parts))(Path(folder), 5)))
        assert not clean - Counter(found.prints)
        assert len(found.records) + found.left_out <= GOOD + 1
