"""What a site keeps of its data: read once by its own words, closed to others, whole or read anew."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from prismfl.core.records import Records, as_floats
from prismfl.data import DATASETS
from prismfl.errors import UserError
from prismfl.site import data as site_data
from prismfl.site.config import SiteConfig, as_toml, check_site, load_site
from prismfl.transport.flower.children import free_port
from tests.hostile.bad_records import CASES, CLASSES, GOOD
from tests.hostile.test_facts import prepared, site
from tests.site.test_commands import prismfl

SECRET = "Jane-Doe-4711"


def test_the_file_reads_back_as_it_was(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "classes": ["a", 'b"c', "\U0001f600", "\\", "d\x7f\n"],
        "bounds": (-0.5, 1e-7),
        "image_size": 8,
        "channels": 3,
        "relation": "replace-one",
        "public": {"scans": str(tmp_path / "s c"), "0-x": str(tmp_path)},
        "device": "cuda:1",
        "encoders": ["scattering", f"net={tmp_path}/net.onnx={'0' * 64}"],
        "threads": 4,
    }
    config = SiteConfig(name="n", data="digits", methods=["prism"], releases=["statistics"], cap=1e-5, **words)
    assert SiteConfig(**tomllib.loads(as_toml(config))) == config
    assert as_toml(config).rstrip().splitlines()[-3] == "[public]"
    plain = config.model_copy(update={"public": {}, "classes": None, "bounds": None})
    assert SiteConfig(**tomllib.loads(as_toml(plain))) == plain


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"public": {"../x": "."}}, "lower-case letters"),
        ({"public": {"procedural": "."}}, "the name of public images already"),
        ({"public": {"scans": "/nowhere"}}, "Expected a folder of public images as 'scans'"),
        ({"bounds": (1.0, 1.0)}, "low < high"),
        ({"encoders": ["resnet"]}, "Expected one of scattering, efficientnet-lite0, ngrams or NAME=FILE.onnx=SHA256"),
        ({"encoders": ["pkg.mod:build"]}, "got 'pkg.mod:build'"),
        ({"encoders": ["net=/nowhere/net.pt=" + "0" * 64]}, r"NAME=FILE\.onnx=SHA256"),
        ({"encoders": ["scattering=/nowhere/net.onnx=" + "0" * 64]}, r"NAME=FILE\.onnx=SHA256"),
        ({"encoders": ["net=/nowhere/net.onnx"]}, "Expected the SHA-256 of encoder 'net'"),
        ({"encoders": ["net=/nowhere/net.onnx=" + "0" * 64]}, "The file of encoder 'net'"),
    ],
)
def test_facts_that_cannot_be_are_told_in_a_line(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = CASES["folder: empty"](tmp_path, None)
    with pytest.raises(UserError, match=words):
        check_site(site("folder: empty", path, **changes))


def test_private_pictures_are_not_public_under_another_name(tmp_path: Path) -> None:
    path = CASES["folder: empty"](tmp_path, None)
    for folder in (path, path / "yes", tmp_path):
        with pytest.raises(UserError, match="lie in one another"):
            check_site(site("folder: empty", path, public={"scans": str(folder)}))
    (tmp_path / "public").mkdir()
    check_site(site("folder: empty", path, public={"scans": str(tmp_path / "public")}))


@pytest.mark.parametrize(("key", "value"), [("device", "cpu; rm"), ("threads", 0), ("channels", 2), ("image_size", 0)])
def test_values_outside_their_range_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        SiteConfig(name="n", data="digits", methods=[], releases=[], **{key: value})


def test_the_snapshot_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        (tmp_path / "data").mkdir(mode=0o755)  # left open by somebody
        prepared(tmp_path / "a", "csv: text", 1)
        config = site("csv: text", CASES["csv: text"](tmp_path, 1))
        site_data.prepare(tmp_path, config)
    finally:
        os.umask(before)
    for place in (tmp_path / "data", tmp_path / "a" / "data"):
        assert place.stat().st_mode & 0o777 == 0o700
        assert [path.stat().st_mode & 0o777 for path in place.iterdir()] == [0o600, 0o600]


def test_a_changed_source_is_the_operators_business_not_a_requests(tmp_path: Path) -> None:
    first, _ = prepared(tmp_path, "csv: text", None)
    config = site("csv: text", tmp_path / "raw" / "t.csv")
    assert site_data.stale(tmp_path, config) is None
    with open(config.data, "a") as file:
        file.write("50,1,f,no,7,,\n")
    assert site_data.load(tmp_path, config).prints == first.prints
    assert "has changed since" in str(site_data.stale(tmp_path, config))
    assert len(site_data.prepare(tmp_path, config).records) == GOOD + 1
    assert site_data.stale(tmp_path, config) is None
    assert len(site_data.load(tmp_path, config).records) == GOOD + 1


def test_a_folder_of_pictures_has_changed_when_any_of_them_has(tmp_path: Path) -> None:
    prepared(tmp_path, "folder: empty", None)
    config = site("folder: empty", tmp_path / "raw" / "pets")
    assert site_data.stale(tmp_path, config) is None
    picture = next((tmp_path / "raw" / "pets" / "yes").iterdir())
    look = picture.stat()
    Image.new("L", (8, 8)).save(picture)
    os.utime(picture, ns=(look.st_atime_ns, look.st_mtime_ns + 1))
    assert "has changed since" in str(site_data.stale(tmp_path, config))


@pytest.mark.parametrize("name", ["records.safetensors", "data.json"])
@pytest.mark.parametrize("damage", ["gone", "flipped", "cut", "a pipe"])
def test_a_damaged_snapshot_is_made_anew(name: str, damage: str, tmp_path: Path) -> None:
    first, digest = prepared(tmp_path, "npz images: nan", 4)
    config = site("npz images: nan", tmp_path / "raw" / "d.npz")
    path = tmp_path / "data" / name
    raw = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flipped":
        raw[raw.find(b'"digest": "') + 12 if name == "data.json" else len(raw) // 2] ^= 1
        path.write_bytes(raw)
    elif damage == "cut":
        path.write_bytes(raw[:-3])
    elif damage == "a pipe":
        os.mkfifo(path)
    site_data._snapshot.cache_clear()
    assert site_data.stale(tmp_path, config) is not None
    again = site_data.load(tmp_path, config)
    assert again.records.x.equal(first.records.x)
    assert site_data.stale(tmp_path, config) is None
    assert json.loads((tmp_path / "data" / "data.json").read_text())["digest"] == digest


def test_other_words_of_the_site_are_another_reading(tmp_path: Path) -> None:
    prepared(tmp_path, "csv: text", None)
    path = tmp_path / "raw" / "t.csv"
    config = site("csv: text", path)
    for _ in range(2):
        assert site_data.load(tmp_path, config).records.unit is not None
    assert site_data.load(tmp_path, site("csv: text", path, unit="record")).records.unit is None
    site_data.load(tmp_path, config)
    schema = Path(str(config.schema_file))
    schema.write_text(schema.read_text().replace("max = 100", "max = 50"))
    assert "says other things" in str(site_data.stale(tmp_path, config))
    assert site_data.load(tmp_path, config).records.x[:, 0].max() == 1.0
    assert site_data.facts(config).train_size == 0, "the number of records is no fact"


def test_data_do_not_lie_where_the_snapshot_goes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = CASES["csv: text"](tmp_path / "data", None)
    with pytest.raises(UserError, match="outside of"):
        site_data.prepare(tmp_path, site("csv: text", path))


def test_a_trial_holds_its_part_of_a_named_data_set(tmp_path: Path) -> None:
    parts = []
    for i in range(3):
        config = SiteConfig(name="n", data="digits", part=i, parts=3, methods=[], releases=[], split="iid", seed=1)
        parts.append(site_data.load(tmp_path, config))
        assert parts[-1].spec == DATASETS["digits"]
        assert len(parts[-1].prints) == len(parts[-1].records)
    whole = site_data.load(tmp_path, config.model_copy(update={"part": None}))
    assert len(whole.records) == DATASETS["digits"].train_size
    assert sum((Counter(part.prints) for part in parts), Counter[bytes]()) == Counter(whole.prints)
    assert not (tmp_path / "data").exists()


# The operator's commands


def init(folder: Path, data: Path, *more: str) -> None:
    prismfl("site", "init", folder, "--name", "north", "--data", data, "--method", "dp-fedavg", *more)


def test_init_declares_what_the_files_tell_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = CASES["folder: cut short"](tmp_path, 3)
    init(tmp_path / "site", data)
    config = load_site(tmp_path / "site")
    assert (config.classes, config.image_size, config.channels) == (CLASSES, 8, 1)
    told = capsys.readouterr().err
    assert "channels, classes, image_size: declared from your files; they count as public from now on" in told
    assert "1 records were left out" in told
    assert len(site_data.load(tmp_path / "site", config).records) == GOOD
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3)), y=[0, 1, 0, 1])
    init(tmp_path / "table", tmp_path / "d.npz", "--classes", "a, b", "--bounds", "0,1")
    assert (load_site(tmp_path / "table").features, load_site(tmp_path / "table").bounds) == (3, (0.0, 1.0))
    np.savez(tmp_path / "i.npz", x=np.zeros((4, 9, 9, 3), dtype=np.uint8), y=[0, 1, 0, 1])
    init(tmp_path / "images", tmp_path / "i.npz", "--classes", "a,b")
    images = load_site(tmp_path / "images")
    assert (images.image_size, images.channels, images.bounds) == (9, 3, (0.0, 255.0))


def test_init_makes_nothing_of_what_is_not_declared(tmp_path: Path) -> None:
    table = CASES["csv: text"](tmp_path, None)
    with pytest.raises(UserError, match=r"schema_file in site\.toml"):
        init(tmp_path / "site", table)
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3)), y=[0, 1, 0, 1])
    with pytest.raises(UserError, match=r"classes and bounds in site\.toml"):
        init(tmp_path / "site", tmp_path / "d.npz")
    (tmp_path / "more").mkdir()
    pets = CASES["folder: empty"](tmp_path / "more", None)
    Image.new("L", (9, 8)).save(pets / "yes" / "wide.png")
    with pytest.raises(UserError, match="not squares of one size: give --image-size"):
        init(tmp_path / "site", pets)
    assert not (tmp_path / "site").exists()
    init(tmp_path / "site", pets, "--image-size", "16")


def test_check_tells_the_operator_where_and_never_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = CASES["csv: text"](tmp_path, 2)
    table.write_text(table.read_text().replace("young", SECRET).replace(",n7\n", f",n7\n1,1,f,{SECRET},3,,\n"))
    init(tmp_path / "site", table, "--schema", str(tmp_path / "schema.toml"), "--unit", "patient")
    for change in ("nothing has changed", "has changed since it was read"):
        capsys.readouterr()
        prismfl("site", "check", tmp_path / "site", "--format", "json")
        out, told = capsys.readouterr()
        assert change in told
        assert "record 3: a cell is not a number, column 'age'" in told
        assert "record 10: its label is not a declared class" in told
        assert SECRET not in out + told
        found = json.loads(out)
        assert (found["left out"], found["shape"], found["classes"], found["cap"]) == (2, [5], CLASSES, 1.0)
        assert found["ledger"].endswith("ledger.sqlite")
        with open(table, "a") as file:
            file.write("50,1,f,no,7,,\n")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept


def test_check_and_join_read_what_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = CASES["csv: text"](tmp_path, None)
    init(tmp_path / "site", table, "--schema", str(tmp_path / "schema.toml"))
    with open(table, "a") as file:
        file.write("50,1,f,no,7,,\n")
    with pytest.raises(UserError, match="Cannot reach"):
        prismfl("site", "join", tmp_path / "site", f"127.0.0.1:{free_port()}", "--insecure", "--attempts", "1")
    assert "has changed since it was read" in capsys.readouterr().err
    assert len(site_data.load(tmp_path / "site", load_site(tmp_path / "site")).records) == GOOD + 1
    table.write_text("age,ill\n1,no\n")
    with pytest.raises(UserError, match="Expected column 'stage' of the schema") as error:
        prismfl("site", "check", tmp_path / "site")
    assert "\n" not in str(error.value)


def test_a_snapshot_of_colour_is_bytes_and_a_table_of_bytes_is_none(tmp_path: Path) -> None:
    grey, _ = prepared(tmp_path / "pictures", "folder: empty", None)
    config = site("folder: empty", tmp_path / "pictures" / "raw" / "pets").model_copy(update={"channels": 3})
    for _ in range(2):  # read, and from the snapshot
        site_data._snapshot.cache_clear()
        found = site_data.load(tmp_path / "pictures", config)
        assert found.records.x.dtype == torch.uint8
        assert torch.equal(as_floats(found.records.x)[:, :1], grey.records.x), "grey pictures in three channels"
        assert site_data.stale(tmp_path / "pictures", config) is None
    prepared(tmp_path / "table", "csv: text", None)
    table = site("csv: text", tmp_path / "table" / "raw" / "t.csv")
    data = site_data.load(tmp_path / "table", table)
    forged = replace(data, records=replace(data.records, x=data.records.x.to(torch.uint8)))
    site_data.keep(tmp_path / "table", table, forged)
    assert site_data.load(tmp_path / "table", table).records.x.dtype == torch.float32, "read anew"


def test_a_snapshot_is_mapped_and_not_read(tmp_path: Path) -> None:
    """The bug: a site of 100,000 pictures holds them all in memory, in each of its processes."""
    x = torch.rand(20_000, 400)  # 32 MB
    words = {"features": 400, "image_size": None, "channels": None, "bounds": (0.0, 1.0), "unit": "record"}
    config = site("npz images: nan", tmp_path / "d.npz").model_copy(update=words)
    records = Records(x, torch.arange(len(x)) % 2)
    prints = [i.to_bytes(32) for i in range(len(x))]
    site_data.keep(tmp_path, config, site_data.SiteData(site_data.facts(config), records, prints))
    site_data._snapshot.cache_clear()
    before = _resident()
    records = site_data.load(tmp_path, config).records
    assert records.x.shape == (20_000, 400)
    assert _resident() - before < 8e6  # the prints, and no record
    assert records.x[7].tolist() == pytest.approx(x[7].tolist())
    assert site_data.snapshot_bytes(tmp_path) > x.nbytes
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path / "data" / "records.safetensors") in mapped


@pytest.mark.parametrize("damage", ["changed", "cut", "replaced", "gone"])
def test_a_snapshot_that_changes_in_mid_run_is_not_believed(damage: str, tmp_path: Path) -> None:
    """The bug: what is mapped follows its file, so a site went on with other records, or died at the first that was
    gone, without a word in its log."""
    first, _ = prepared(tmp_path, "npz images: nan", 4)
    config = site("npz images: nan", tmp_path / "raw" / "d.npz")
    wanted = first.records.x.clone()
    site_data._snapshot.cache_clear()
    assert site_data.load(tmp_path, config).records.x.equal(wanted)
    path = tmp_path / "data" / "records.safetensors"
    size = path.stat().st_size
    if damage == "changed":
        with path.open("r+b") as file:
            file.seek(size - wanted.nbytes - 200)
            file.write(b"\x7f" * 200)
    elif damage == "cut":
        os.truncate(path, 100)
    elif damage == "replaced":
        path.with_name("other").write_bytes(bytes(size))
        path.with_name("other").replace(path)
    else:
        path.unlink()
    assert site_data.load(tmp_path, config).records.x.equal(wanted), "read anew from its source"


def _resident() -> float:
    """Bytes of this process that are its own: pages of a mapped file can be dropped at any time."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return float(lines["RssAnon"].split()[0]) * 1024
