"""`prismfl schema`: a draft that a person confirms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import invoke, refused


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("age,sex,ill\n31,f,yes\n62,m,no\n47,f,no\n")
    return tmp_path


def test_the_draft_leaves_bounds_open_and_warns(table: Path) -> None:
    done = invoke("schema", "t.csv", "--label", "ill", cwd=table)
    assert done.returncode == 0, done.stderr
    assert "private until a person confirms" in done.stderr
    assert "age" in done.stdout
    assert "31" not in done.stdout, "a bound is a record's value"
    assert "31" in invoke("schema", "t.csv", "--label", "ill", "--bounds-from-data", cwd=table).stdout


def test_a_file_is_not_overwritten_unasked(table: Path) -> None:
    assert invoke("schema", "t.csv", "-o", "s.toml", cwd=table).stderr.endswith("wrote s.toml\n")
    draft = (table / "s.toml").read_text()
    (table / "s.toml").write_text("confirmed")
    refused("schema", "t.csv", "-o", "s.toml", cwd=table, words="--force")
    assert (table / "s.toml").read_text() == "confirmed"
    assert invoke("schema", "t.csv", "-o", "s.toml", "--force", cwd=table).returncode == 0
    assert (table / "s.toml").read_text() == draft


def test_a_column_that_is_not_there(table: Path) -> None:
    refused("schema", "t.csv", "--label", "sick", cwd=table, words="sick")
