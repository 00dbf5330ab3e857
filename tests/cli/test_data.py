"""`prismfl data`: the data sets that have a name."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import invoke, shown


def test_data_names_the_public_images_as_well(tmp_path: Path) -> None:
    shown = invoke("data", cwd=tmp_path).stdout
    assert "procedural-silhouettes" in shown
    assert "kannada+omniglot" in shown.replace("\n", " ")


def test_what_is_embedded_is_at_hand(tmp_path: Path) -> None:
    rows = {row["data"]: row for row in shown("data", "--data-dir", tmp_path, cwd=tmp_path)}
    assert (rows["digits"]["at hand"], rows["digits"]["where"]) == ("yes", "embedded")
    assert (rows["digits"]["shape"], rows["digits"]["classes"]) == ("1x8x8", 10)
    assert rows["mnist"]["at hand"] == "no"
