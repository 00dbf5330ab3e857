"""A run in public words: both sides build the same job from it, and a changed word is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl import __version__
from prismfl.data import DATASETS, Column, Schema
from prismfl.data.schema_file import schema_words
from prismfl.errors import PrismError, UserError
from prismfl.methods import METHODS
from prismfl.nets.encoders.named import named
from prismfl.runs import description
from prismfl.runs.config import RunConfig
from prismfl.runs.description import (
    PROTOCOL,
    check_description,
    declared,
    describe,
    digest_of,
    images_digest,
    job_of,
    public_images,
    schema_digest,
    spec_of,
)
from prismfl.runs.names import RefusedError

SITES = ("north", "south")
CONFIG = RunConfig(method="dp-fedavg", data="digits", model="logreg", settings={"sigma": 1.0, "rounds": 2}, seed=3)
SCHEMA = Schema(
    (Column("age", min=0, max=100, integer=True), Column("sex", type="binary", categories=("f", "m"), missing="f")),
    "ill",
    ("no", "yes"),
    unit="patient",
)


def described(**changes: Any) -> dict[str, Any]:
    return describe(CONFIG.model_copy(update=changes), DATASETS["digits"], SITES)


def test_the_job_is_that_of_the_config() -> None:
    job = job_of(described())
    assert job.method.name == "dp-fedavg"
    assert job.task.sites == SITES
    assert job.task.shape == (1, 8, 8)
    assert job.seed == 3
    assert job.settings.rounds == 2


def test_sigma_is_solved_once_and_travels_as_a_number() -> None:
    told = described(epsilon=2.0, settings={"rounds": 2})
    assert isinstance(told["config"]["settings"]["sigma"], float)
    assert job_of(told).plan() == job_of(told).plan()


def test_the_same_run_has_the_same_digest_and_name() -> None:
    assert described() == described()
    assert described()["run"] == described()["digest"][:16]
    assert described(seed=4)["digest"] != described()["digest"]


@pytest.mark.parametrize("key", ["config", "spec", "train_size", "sites", "public", "encoder", "schema"])
def test_a_changed_word_is_seen(key: str) -> None:
    told = {**described(), key: "other"}
    with pytest.raises(PrismError) as error:
        check_description(told)
    assert str(error.value) == "The run's config does not have the digest it claims."
    assert error.value.code == "config-mismatch"


def test_another_version_is_refused_first() -> None:
    with pytest.raises(PrismError) as error:
        check_description({**described(), "protocol": 0})
    assert str(error.value) == (
        f"The server speaks protocol 0, prismfl {__version__} here speaks 1; upgrade the older."
    )
    assert error.value.code == "version-mismatch"


@pytest.mark.parametrize("name", ["", "../x", "-a", "a" * 81, "a b", None])
def test_a_name_that_could_be_a_path_is_refused(name: str | None) -> None:
    with pytest.raises(PrismError, match=r"^The run has no usable name\.$"):
        check_description({**described(), "run": name})


def test_a_run_may_have_a_name_of_its_own() -> None:
    told = describe(CONFIG, DATASETS["digits"], SITES, run="spring.1")
    assert job_of(told).run == "spring.1"
    assert told["digest"] == described()["digest"]


def test_what_is_the_servers_own_does_not_travel() -> None:
    told = described(data_dir="/secret", out="/secret", ledger="/secret")
    assert "/secret" not in str(told)
    assert told["spec"]["name"] == "digits"


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        (("a", "a"), "Two sites have the same name in a, a; give each its own."),
        (
            ("North",),
            "Expected a site name of lower-case letters, digits and dashes (at most 40), got 'North'.",
        ),
    ],
)
def test_names_that_cannot_be(sites: tuple[str, ...], line: str) -> None:
    with pytest.raises(UserError) as error:
        describe(CONFIG, DATASETS["digits"], sites)
    assert str(error.value) == line


def test_a_pooled_method_cannot_run_over_sites() -> None:
    config = CONFIG.model_copy(update={"method": "dp-central", "settings": {"sigma": 1.0}})
    with pytest.raises(UserError) as error:
        describe(config, DATASETS["digits"], SITES)
    assert str(error.value) == "Method 'dp-central' needs all records in one place; it cannot run over sites."


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, (None, None)), ("procedural", ("procedural", "procedural")), ("faces=/x/y", ("faces", "/x/y"))],
)
def test_public_images_travel_by_name(given: str | None, found: tuple[str | None, str | None]) -> None:
    assert public_images(given) == found


@pytest.mark.parametrize("given", ["/some/folder", "Bad Name=/x", "=x"])
def test_a_folder_without_a_name_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=f"got '{given}'"):
        public_images(given)


def test_an_encoder_travels_by_name_and_digest() -> None:
    tiny = {**METHODS["prism-head"].tiny, "sigma": 2.0}
    told = described(method="prism-head", encoder="scattering", public_count=40, settings=tiny)
    assert told["config"]["encoder"] == "scattering"
    assert told["encoder"] == named("scattering").digest
    assert told["config"]["settings"]["layers"] == ["order0", "order1", "order2"]
    encoder = job_of(told).task.encoder
    assert encoder is not None
    assert encoder.digest == told["encoder"]
    light = job_of(told, with_public=False)
    assert light.task.encoder is None
    assert light.shapes == job_of(told).shapes, "a site knows the size of its answer before it makes the encoder"
    other = {**told, "encoder": "0" * 64}
    with pytest.raises(PrismError, match="public encoder is not the one"):
        job_of({**other, "digest": digest_of(other)})


def test_an_encoder_that_no_site_could_run_is_refused() -> None:
    with pytest.raises(UserError, match="looks through no public encoder"):
        described(encoder="scattering")
    tiny = {**METHODS["prism-head"].tiny, "sigma": 2.0}
    with pytest.raises(UserError, match=r"NAME=FILE\.onnx"):
        described(method="prism-head", encoder="pkg.mod:build", settings=tiny)


def test_images_are_compared_as_bytes() -> None:
    x = torch.full((2, 1, 2, 2), 0.5)
    assert images_digest(x) == images_digest(x + 1e-4)
    assert images_digest(x) != images_digest(x + 0.1)
    assert images_digest(x) != images_digest(x.reshape(2, 1, 4, 1))


def test_a_schema_in_words_leaves_out_what_was_not_said() -> None:
    assert schema_words(SCHEMA) == {
        "columns": [
            {"name": "age", "type": "numeric", "min": 0, "max": 100, "integer": True, "scale": "linear"},
            {"name": "sex", "type": "binary", "categories": ["f", "m"], "missing": "f", "scale": "linear"},
        ],
        "label": "ill",
        "classes": ["no", "yes"],
        "unit": "patient",
    }


def test_a_schema_has_one_digest() -> None:
    other = Schema(SCHEMA.columns, "ill", ("yes", "no"), unit="patient")
    assert schema_digest(SCHEMA) != schema_digest(other)
    assert len(schema_digest(SCHEMA)) == 64


def test_the_digest_does_not_cover_itself_and_the_name() -> None:
    told = described()
    assert digest_of(told) == digest_of({**told, "run": "x", "digest": "y"}) == told["digest"]


def test_the_spec_comes_back() -> None:
    found = spec_of(described())
    assert (found.kind, found.shape, found.classes) == ("image", (1, 8, 8), DATASETS["digits"].classes)
    assert found.train_size == DATASETS["digits"].train_size


def test_own_data_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('label = "y"\nclasses = ["a", "b"]\ntrain_size = 50\n[[columns]]\nname = "n"\nmin = 0\nmax = 1\n')
    spec, schema = declared(RunConfig(data="x.csv", schema_file=str(path)))
    assert (spec.kind, spec.shape, spec.train_size) == ("table", (1,), 50)
    assert schema is not None
    images, none = declared(RunConfig(data="pics", classes=["a", "b"], image_size=16, channels=3, records=9))
    assert (images.kind, images.shape, images.train_size, none) == ("image", (3, 16, 16), 9, None)
    with pytest.raises(UserError, match=r"^What the sites' own data are like is not declared: "):
        declared(RunConfig(data="pics"))


def test_the_protocol_is_a_number_and_what_it_stands_for_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes these words makes another protocol: raise PROTOCOL, and write the new words here."""
    told = described()
    assert (PROTOCOL, told["protocol"]) == (1, 1)
    assert sorted(told) == [
        *("config", "digest", "encoder", "protocol", "public", "run", "schema", "sites", "spec", "train_size"),
    ]
    known = "method unit relation sites split subset records participation epsilon delta model public public_count"
    assert set(told["config"]) == {*known.split(" "), "encoder", "seed", "secure", "settings"}
    monkeypatch.setattr(description, "__version__", "9.9.9")
    check_description(told)  # another version of the same protocol is welcome
    for spoken in (0, 2, "1", True, 1.0, None):
        with pytest.raises(RefusedError, match="speaks protocol"):
            check_description({**told, "protocol": spoken})


IMAGES = {"data": "scans", "classes": ["ill", "well"], "image_size": 16, "channels": 1, "records": 100}


def own(**changes: Any) -> RunConfig:
    return RunConfig(method="dp-fedavg", settings={"sigma": 1.0}, **{**IMAGES, **changes})


def test_grey_stays_grey_and_nothing_is_assumed() -> None:
    """The bug: images without `channels` were three-coloured, and every site with grey ones refused the run."""
    assert declared(own())[0].shape == (1, 16, 16)
    assert declared(own(channels=3))[0].shape == (3, 16, 16)
    for missing in ("classes", "image_size", "channels"):
        with pytest.raises(UserError, match=f"not declared: {missing} missing"):
            declared(own(**{missing: None}))
    with pytest.raises(UserError, match="records"):
        describe(own(records=None), declared(own())[0], SITES)
    assert declared(own(classes=[0, 1]))[0].classes == ("0", "1")
    with pytest.raises(UserError, match="classes"):
        declared(own(classes=["a", "a"]))


def test_a_table_of_numbers_is_declared_by_its_width() -> None:
    spec, schema = declared(own(features=7, image_size=None, channels=None))
    assert (spec.kind, spec.shape, spec.classes, schema) == ("table", (7,), ("ill", "well"), None)
    with pytest.raises(UserError, match="not declared: classes missing"):
        declared(own(features=7, classes=None))


def test_labels_are_those_of_the_schema(tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    place.write_text('label = "ill"\nclasses = ["no", "yes"]\n[[columns]]\nname = "age"\nmin = 0\nmax = 100\n')
    table = {"schema_file": str(place), "classes": None, "image_size": None, "channels": None}
    assert declared(own(**table))[0].classes == ("no", "yes")
    assert declared(own(**{**table, "label": "ill", "classes": ["no", "yes"]}))[0].classes == ("no", "yes")
    for wrong in ({"label": "age"}, {"classes": ["yes", "no"]}):
        with pytest.raises(UserError, match="leave it to the schema"):
            declared(own(**{**table, **wrong}))
