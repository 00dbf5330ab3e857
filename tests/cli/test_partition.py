"""`prismfl partition`: how a split deals the records."""

from __future__ import annotations

from pathlib import Path

from prismfl.data import load
from tests.cli.command import invoke, refused, shown

DIGITS = [str(digit) for digit in range(10)]


def test_every_record_is_dealt_once(tmp_path: Path) -> None:
    rows = shown("partition", "digits", "-n", "3", cwd=tmp_path)
    assert [row["site"] for row in rows] == ["site-0", "site-1", "site-2"]
    assert sum(row["all"] for row in rows) == len(load("digits").y_train)
    for row in rows:
        assert row["all"] == sum(row[digit] for digit in DIGITS)


def test_the_split_and_the_seed_count(tmp_path: Path) -> None:
    rows = shown("partition", "digits", "--split", "pathological(2)", cwd=tmp_path)
    assert all(sum(row[digit] > 0 for digit in DIGITS) == 2 for row in rows)
    skewed = ["partition", "digits", "--split", "dirichlet(alpha=0.1)", "--seed"]
    assert shown(*skewed, "1", cwd=tmp_path) == shown(*skewed, "1", cwd=tmp_path)
    assert shown(*skewed, "1", cwd=tmp_path) != shown(*skewed, "2", cwd=tmp_path)


def test_a_picture_is_written(tmp_path: Path) -> None:
    done = invoke("partition", "digits", "--plot", "split.png", "--format", "json", cwd=tmp_path)
    assert "wrote split.png" in done.stderr
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes(tmp_path: Path) -> None:
    refused("partition", "digitz", cwd=tmp_path, words="digits")
    refused("partition", "digits", "--split", "idd", cwd=tmp_path, words="did you mean 'iid'")
    assert list(tmp_path.iterdir()) == []
