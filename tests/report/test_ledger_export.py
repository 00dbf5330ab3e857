"""A year for an auditor: right, signed, and silent on how many records there are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.ledger_export import check_export, page, write_export, year_of
from prismfl.site.keys import make_signing_key

ONE = Cost.gaussian(5.0)
THIS = datetime.now(UTC).year


def filled(path: Path, records: int = 3, name: str = "/srv/records/patients.csv") -> Path:
    with Ledger.open(path) as ledger:
        ledger.dataset(name, records=[bytes([i]) for i in range(records)], cap=Cap(5.0, 1e-5))
        ledger.reserve("r", "ds1", ONE * 2)
        for i in range(2):
            ledger.charge("r", "ds1", f"r/north/{i}", ONE, noise="operating system")
            ledger.fill(f"r/north/{i}", b"payload")
        ledger.close("r")
    return path


def test_the_year_says_what_left_and_what_it_cost(tmp_path: Path) -> None:
    with Ledger.open(filled(tmp_path / "l.sqlite")) as ledger:
        told = year_of(ledger, THIS)
        (row,) = told["data sets"]
        spent = account.epsilon(ledger.spent("ds1"), 1e-5)
    assert row["epsilon before"] == {}
    assert row["epsilon after"] == {"record, add-remove": spent}
    assert (row["releases in the year"], len(told["releases"])) == (2, 2)
    assert [event["entry"] for event in told["events"]] == ["create", "dataset", "reserve", "close"]
    assert told["entries"] == {"first": 1, "last": 8, "of": 8, "head": told["entries"]["head"]}
    with pytest.raises(UserError, match="no entry of 1999"), Ledger.open(tmp_path / "l.sqlite") as ledger:
        year_of(ledger, 1999)


def test_one_record_more_does_not_show(tmp_path: Path) -> None:
    """The bug: entries handed over as they are, with the count and the print of the records in them."""
    texts = []
    for records in (3, 4):
        with Ledger.open(filled(tmp_path / f"{records}.sqlite", records)) as ledger:
            told = year_of(ledger, THIS)
        told["entries"]["head"] = told["made"] = ""
        for row in (*told["releases"], *told["events"]):
            row["time"] = ""
        texts.append(json.dumps(told, sort_keys=True) + page(told))
    assert texts[0] == texts[1]
    assert "/srv/records" not in texts[0]


def test_an_export_is_signed_and_any_change_is_seen(tmp_path: Path) -> None:
    path = filled(tmp_path / "home" / "ledger.sqlite")
    files = write_export(path, tmp_path / "out", year=THIS)
    assert [file.name for file in files] == [f"ledger-{THIS}.json", f"ledger-{THIS}.html"]
    public = path.parent / "export.pub"
    assert (path.parent / "export.key").stat().st_mode & 0o077 == 0
    assert check_export(files[0], public)["year"] == THIS
    with pytest.raises(UserError, match="exists already"):
        write_export(path, tmp_path / "out", year=THIS)
    again = write_export(path, tmp_path / "again", year=THIS)
    assert check_export(again[0], public), "the same key signs the next one"
    files[0].write_text(files[0].read_text().replace('"bytes": 7', '"bytes": 8', 1))
    make_signing_key(tmp_path / "mine")
    for file, key in ((files[0], public), (again[0], tmp_path / "mine.pub")):
        with pytest.raises(UserError, match="does not carry the signature"):
            check_export(file, key)
    files[0].write_text("[]")
    with pytest.raises(UserError, match="does not carry the signature"):
        check_export(files[0], public)


def test_a_name_from_elsewhere_is_text_on_the_page(tmp_path: Path) -> None:
    with Ledger.open(filled(tmp_path / "l.sqlite", name="<script>alert(1)</script>")) as ledger:
        html = page(year_of(ledger, THIS))
    assert "<script" not in html
    assert "http://" not in html
    assert "https://" not in html
