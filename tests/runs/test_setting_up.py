"""A set-up of own data: what is looked at, what is asked, what is checked, and that nothing is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data.layout import layout_of
from prismfl.errors import UserError
from prismfl.privacy.ledger.place import ledger_path
from prismfl.runs.interview import Inquiry, Interview
from prismfl.runs.setting_up import check_set_up, set_up

ROWS = "".join(f"{20 + i},{'fm'[i % 2]},{i % 3},h{i % 2},{'yes' if i % 2 else 'no'}\n" for i in range(60))
TABLE = f"age,sex,grade,hospital,ill\n{ROWS}"
COLUMNS = ("age=18..100,integer", "sex=f,m", "grade=0,1,2", "hospital=h0,h1")


def made(data: Path, ask: Any = None, columns: tuple[str, ...] = (), allowed: bool = False, **given: Any) -> Any:
    asked = Interview(given, ask, lambda _: None)
    return set_up(layout_of(data), asked, allowed=allowed, columns=columns, folder=data.parent)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path / "t.csv"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / "s" / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(np.full((12, 12), i, np.uint8)).save(tmp_path / "s" / name / f"{i}.png")
    return tmp_path / "s"


def test_images_from_options_and_proposals(pictures: Path) -> None:
    found = made(pictures, image_size=12, channels=1, sites=2)
    assert found.schema is None
    assert found.keys["classes"] == ["cat", "dog"]
    assert (found.keys["records"], found.keys["epsilon"], found.keys["method"]) == (10, 1.0, "prism")
    config, _ = check_set_up(found, pictures.parent)
    assert (config.image_size, config.sites, config.unit) == (12, 2, "record")
    assert not ledger_path().exists(), "nothing is charged"


def test_no_record_is_opened_unless_it_is_allowed(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "s" / name).mkdir(parents=True)
        (tmp_path / "s" / name / "0.png").write_bytes(b"no image: to open it is an error")
    (tmp_path / "t.csv").write_bytes(b"age,ill\n\xff\xfe,\xff")
    assert made(tmp_path / "s", image_size=12, channels=1).keys["image_size"] == 12
    options: dict[str, Any] = {"label": "ill", "classes": ["a", "b"], "records": 100}
    assert made(tmp_path / "t.csv", columns=("age=0..9",), **options).schema["label"] == "ill"
    with pytest.raises(UserError, match="UTF-8"):
        made(tmp_path / "t.csv", columns=("age=0..9",), allowed=True, **options)


def test_a_look_proposes_sizes(pictures: Path) -> None:
    found = made(pictures, allowed=True)
    assert (found.keys["image_size"], found.keys["channels"]) == (12, 1)
    Image.fromarray(np.zeros((9, 12, 3), np.uint8)).save(pictures / "cat" / "odd.png")
    with pytest.raises(UserError, match="give --image-size 28 "):
        made(pictures, allowed=True)


def test_a_table_without_a_look_needs_every_column(table: Path) -> None:
    options: dict[str, Any] = {"label": "ill", "classes": ["no", "yes"], "records": 10}
    with pytest.raises(UserError, match=r"--column age=LOW\.\.HIGH --column sex="):
        made(table, **options)
    found = made(table, columns=COLUMNS, sites=2, **options)
    assert [column["name"] for column in found.schema["columns"]] == ["age", "sex", "grade", "hospital"]
    assert found.schema["train_size"] == 20
    config, _ = check_set_up(found, table.parent)
    assert config.method == "dp-fedavg"
    assert not ledger_path().exists()


def test_a_look_drafts_types_and_leaves_bounds_open(table: Path) -> None:
    with pytest.raises(UserError, match=r"give --column age=LOW\.\.HIGH --column grade=LOW\.\.HIGH \("):
        made(table, allowed=True, label="ill")
    found = made(table, columns=("age=18..100", "grade=-"), allowed=True, label="ill")
    columns = {column["name"]: column for column in found.schema["columns"]}
    assert columns["age"] == {"name": "age", "type": "numeric", "integer": True, "min": 18, "max": 100}
    assert columns["sex"]["categories"] == ["f", "m"]
    assert "grade" not in columns
    assert (found.schema["classes"], found.schema["train_size"]) == (["no", "yes"], 60)


def test_columns_with_another_part_are_no_features(table: Path) -> None:
    options: dict[str, Any] = {"label": "ill", "classes": ["no", "yes"], "records": 10, "sites": 2, "unit": "grade"}
    found = made(table, columns=COLUMNS[:2], split="natural(hospital)", **options)
    assert [column["name"] for column in found.schema["columns"]] == ["age", "sex"]
    assert found.schema["unit"] == found.keys["unit"] == "grade"


def test_a_schema_that_is_there_is_taken(table: Path) -> None:
    place = table.parent / "declared.toml"
    place.write_text(
        'label = "ill"\nclasses = ["no", "yes"]\ntrain_size = 60\n[[columns]]\nname="age"\nmin=0\nmax=99\n'
    )
    found = made(table, schema_file=str(place), sites=2)
    assert (found.schema, found.keys["schema_file"], found.keys["records"]) == (None, "declared.toml", 20)
    with pytest.raises(UserError, match="--schema or --column"):
        made(table, schema_file=str(place), columns=("age=0..9",))


@pytest.mark.parametrize("given", [{"label": "x"}, {"schema_file": "x"}, {"unit": "x"}, {"columns": ("a=0..1",)}])
def test_options_of_tables_are_refused_for_folders(pictures: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="belongs to tables"):
        made(pictures, image_size=12, channels=1, **given)


def test_a_column_that_is_not_there_is_named(table: Path) -> None:
    with pytest.raises(UserError, match=r"--column NAME=.*got 'agee=0\.\.1'"):
        made(table, columns=("agee=0..1",), label="ill", classes=["no", "yes"], records=10)


def test_what_a_person_says(table: Path) -> None:
    """A person answers; an empty answer is the proposal, and every question says why it is asked."""
    answers = {"label": "ill", "classes": "no, yes", "records": "20", "sites": "2", "column age": "18..100"}
    seen: list[Inquiry] = []

    def ask(question: Inquiry) -> str:
        seen.append(question)
        return answers.get(question.key, "0,1" if question.key.startswith("column") else "")

    found = made(table, ask)
    assert found.keys["records"] == 20
    assert [column["name"] for column in found.schema["columns"]] == ["age", "sex", "grade", "hospital"]
    assert all(question.why.endswith(".") and len(question.why) > 20 for question in seen)
    assert {q.key for q in seen} >= {"label", "unit", "classes", "sites", "split", "test", "records", "epsilon"}


def test_delta_is_proposed_below_one_in_the_records(table: Path) -> None:
    options: dict[str, Any] = {"label": "ill", "classes": ["no", "yes"]}
    small = made(table, columns=COLUMNS, records=1000, **options)
    large = made(table, columns=COLUMNS, records=2_000_000, **options)
    assert small.keys["delta"] == 1e-5
    assert large.keys["delta"] < 1 / 2_000_000


def test_what_does_not_fit_is_one_line_and_nothing_is_charged(table: Path) -> None:
    options: dict[str, Any] = {"label": "ill", "classes": ["no", "maybe"], "records": 20, "sites": 2}
    with pytest.raises(UserError, match="Label 'yes' in row 2"):
        check_set_up(made(table, columns=COLUMNS, **options), table.parent)
    assert not ledger_path().exists()


def test_a_draft_keeps_what_has_no_words(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds and keys of a schema that a person need not type: kept as drafted, where its words are confirmed."""
    text = (
        'label = "ill"\nclasses = ["no", "yes"]\nunit_rows = 10\n'
        '[[columns]]\nname = "age"\ntype = "numeric"\ndecimals = 1\nmissing = true\n'
        '[[columns]]\nname = "sex"\ntype = "binary"\ncategories = ["f", "m"]\nper_unit = true\n'
        '[[columns]]\nname = "grade"\ntype = "id"\n'
    )
    monkeypatch.setattr("prismfl.runs.setting_up.draft", lambda *_, **__: (text, []))
    answers = {"label": "ill", "column age": "18..100"}
    for ask, columns in ((None, ("age=18..100",)), (lambda inquiry: answers.get(inquiry.key, ""), ())):
        found = made(table, ask, columns, allowed=True, label="ill")
        assert found.schema["unit_rows"] == 10
        assert found.schema["columns"] == [
            {"name": "age", "type": "numeric", "decimals": 1, "missing": True, "min": 18, "max": 100},
            {"name": "sex", "type": "binary", "categories": ["f", "m"], "per_unit": True},
            {"name": "grade", "type": "id"},
        ]
