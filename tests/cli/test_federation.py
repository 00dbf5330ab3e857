"""`prismfl federation`: the commands that a founder and each party type."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import invoke, refused

NEW = ("federation", "new", "fed", "--server", "localhost:9092", "--site", "north", "--site", "south")


def test_a_founder_and_two_parties(tmp_path: Path) -> None:
    done = invoke(*NEW, "--method", "dp-fedavg", "--epsilon", "4", "--data", "digits", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("STEPS.md") == 3
    assert "prismfl federation keys north --ca ca.pem" in (tmp_path / "fed" / "north" / "STEPS.md").read_text()
    assert invoke("federation", "keys", "fed/server", cwd=tmp_path).returncode == 0
    done = invoke("federation", "keys", "fed/north", "--ca", "fed/server/keys/ca.pem", cwd=tmp_path)
    assert "send fed/north/keys/node.pub" in done.stderr
    again = (*NEW, "--method", "dp-fedavg", "--epsilon", "4", "--data", "digits")
    refused(*again, cwd=tmp_path, words="exists already")
