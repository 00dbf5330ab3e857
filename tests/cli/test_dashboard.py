"""`prismfl dashboard`: what is refused before anything listens; the page is in tests/report/test_dashboard.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import invoke, refused


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refused("dashboard", "nothere", cwd=tmp_path, words="No folder 'nothere' with runs")


def test_a_port_that_cannot_be(tmp_path: Path) -> None:
    refused("dashboard", ".", "--port", "70000", cwd=tmp_path, words="70000")


def test_the_address_carries_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr("uvicorn.run", lambda app, *, host, port, **_: asked.append((host, port)))
    done = invoke("dashboard", ".", "--port", "8899", cwd=tmp_path)
    assert asked == [("127.0.0.1", 8899)]
    assert "http://127.0.0.1:8899/enter?token=" in done.stderr
    assert len(done.stderr.partition("token=")[2].split()[0]) >= 32
