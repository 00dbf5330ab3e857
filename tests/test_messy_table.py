"""A table as tables are: decimal commas, days of another country, gaps, ids, free text, several visits a patient, few
positives. It goes from draft to synthetic table, run and report, and nobody edits the file."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.data.columns import read_columns
from prismfl.data.schema_file import read_schema
from tests.cli.command import invoke

HEADER = [
    *("visit id", "patient", "sex", "born", "admitted", "discharged", "weight", "cost", "ward"),
    *("site code", "remark", "sepsis"),
]
RULES = '\n[[constraints]]\nrule = "admitted <= discharged"\nwithin = 30\n[[constraints]]\nrule = "born < admitted"\n'
FAST = ("queries=8", "settings.start=6", "rate=1.0", "hidden=[4]", "latent=2")


def sets(*more: str) -> list[str]:
    return [word for one in (*FAST, *more) for word in ("--set", one)]


def comma(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def visits(patients: int) -> list[list[Any]]:
    g, rows = np.random.default_rng(0), list[list[Any]]()
    for patient in range(patients):
        sex, born = g.choice(["female", "male"]), date(1930, 1, 1) + timedelta(int(g.integers(25_000)))
        for _ in range(int(g.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))):
            start = date(2022, 1, 1) + timedelta(int(g.integers(600)))
            end = start + timedelta(int(g.integers(20)))
            rows.append(
                [
                    *(f"V{len(rows):06}", f"P{patient:05}", sex, f"{born:%d.%m.%Y}", f"{start:%d.%m.%Y}"),
                    "" if g.random() < 0.05 else f"{end:%d.%m.%Y}",
                    "NA" if g.random() < 0.2 else comma(g.normal(80, 12)),
                    comma(g.lognormal(8, 0.7)),
                    "" if g.random() < 0.1 else g.choice(["heart", "=1+1", "Süd\u200b"]),
                    *("X1", f"seen by Dr. {g.choice(['A', 'B'])}; note {len(rows)}", int(g.random() < 0.05)),
                ]
            )
    return rows


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=";").writerows([HEADER, *visits(150)])
    drafted = invoke(
        *("schema", "visits.csv", "--label", "sepsis", "--unit", "patient", "--bounds-from-data", "-o", "schema.toml"),
        cwd=tmp_path,
    )
    assert drafted.returncode == 0, drafted.stderr
    assert "Column 'remark' holds free text: it is left out." in drafted.stderr
    assert "takes for formulas: =1+1" in drafted.stderr
    with (tmp_path / "schema.toml").open("a") as file:
        file.write(RULES)
    return tmp_path


def check_table(path: Path, schema: Path) -> dict[str, list[Any]]:
    """It can be read by its own schema, and everything that was declared holds in it."""
    table, declared = read_columns(path), read_schema(schema)
    assert declared.encode(table).shape == (len(table["patient"]), declared.width)
    plain = replace(declared, constraints=())  # else a date that is measured from another could not but keep its rule
    values = plain.values(plain.encode(table))
    with np.errstate(invalid="ignore"):
        assert not (values["admitted"] > values["discharged"]).any()
        assert (values["born"] < values["admitted"]).all()
        stays = (values["discharged"] - values["admitted"]) / 86400
    assert np.nanmean(stays == 0) < 0.3, "a stay is released as it is, not repaired to 0"
    assert np.nanmax(stays) <= 30
    same: dict[str, set[tuple[str, str]]] = {}
    for patient, sex, born in zip(table["patient"], table["sex"], table["born"]):
        same.setdefault(patient, set()).add((sex, born))
    assert all(len(one) == 1 for one in same.values())
    assert len(Counter(Counter(table["patient"]).values())) > 1, "several visits a patient come out as several"
    assert set(table["sepsis"]) <= {"0", "1"}
    assert set(table["ward"]) <= {"heart", "=1+1", "Süd\u200b", ""}
    assert "" in table["weight"]
    assert all("." not in weight for weight in table["weight"])
    return table


@pytest.mark.parametrize("how", [[], ["--method", "ddp-vae", *sets()]], ids=["as it comes", "ddp-vae"])
def test_from_a_draft_to_a_synthetic_table(place: Path, how: list[str]) -> None:
    asked = ("synth", "visits.csv", "--schema", "schema.toml", "-e", "5", "--records", "150", "-o", "made.csv")
    done = invoke(*asked, "--seed", "1", *how, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "Left out, being free text: remark." in done.stderr
    assert "Columns with one value in all rows: site code" in done.stderr
    table = check_table(place / "made.csv", place / "schema.toml")
    assert list(table) == [name for name in HEADER if name != "remark"]
    assert table["visit id"] == [str(i + 1) for i in range(len(table["patient"]))]
    assert not set(table["patient"]) & {f"P{i:05}" for i in range(150)}
    assert len(set(table["patient"])) == 150, "as many patients as were declared, with all their visits"
    assert (place / "made.certificate.json").is_file()
    report = invoke("report", "made.csv", cwd=place)
    assert report.returncode == 0, report.stderr
    assert (place / "made.report.html").is_file()
    assert "no" not in report.stdout.split(), "a check of the page does not hold"


def test_from_a_run_to_a_report(place: Path) -> None:
    asked = ("run", "-d", "visits.csv", "--schema", "schema.toml", "-m", "3dgl", "-e", "5", "--records", "70")
    done = invoke(*asked, "-n", "2", *sets("candidates=[50]", "samples=300", "out=made", "seed=1"), cwd=place)
    assert done.returncode == 0, done.stderr
    assert "per patient" in done.stdout, "the unit comes from the schema"
    check_table(place / "made" / "gen" / "synthetic.csv", place / "made" / "gen" / "schema.toml")
    report = invoke("report", "made", cwd=place)
    assert report.returncode == 0, report.stderr
    assert (place / "made" / "report.html").is_file()
