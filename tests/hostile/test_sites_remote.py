"""A hostile site over the network's engine: named, left out, and not brought back when the run is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Message

from prismfl.core.method import Items, State
from prismfl.core.payloads import Weights
from prismfl.core.release import Release
from prismfl.methods import METHODS
from prismfl.server import serving
from prismfl.transport.faults import faults
from prismfl.transport.flower import adapter as flower
from prismfl.transport.inbox import Inbox
from tests.transport.grid import OneProcessGrid
from tests.transport.test_flower import federation, serve

Forge = Callable[[torch.Tensor], torch.Tensor]
FORGED: dict[str, Forge] = {
    "-100x": lambda t: -100.0 * t - 1.0,
    "3e38": lambda t: torch.full_like(t, 3e38),
    "1e30": lambda t: torch.full_like(t, -1e30),
}


def forge(body: bytes, change: Forge, spec: dict[str, Any] | None = None) -> bytes:
    release = Release.decode(body)
    model = Weights({k: change(v) for k, v in release.items["model"].tensors.items()}, spec or {})
    return replace(release, items={"model": model}).encode()


def turn_bad(grid: OneProcessGrid, change: Forge, spec: dict[str, Any] | None = None) -> None:
    """The site south (place 11) sends something else in its own name."""

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        answer = flower.read_answer(reply)
        if place != 11 or answer.kind != "release":
            return [reply]
        body = forge(answer.body, change, spec)
        return [Message(flower.pack({"kind": "release", "code": "", "site": "south"}, body), reply_to=request)]

    grid.tamper = tamper


def silent_digest(folder: Path) -> str:
    """The run without the site: its releases are not ours."""
    directory, grid = federation(folder)
    turn_bad(grid, lambda t: t.double())
    serve(directory, grid)
    return str(directory.read_json("result.json")["digest"])


@pytest.mark.parametrize("attack", FORGED)
def test_the_round_ends_without_it_and_it_is_named(attack: str, tmp_path: Path) -> None:
    directory, grid = federation(tmp_path / "bad")
    turn_bad(grid, FORGED[attack])
    lines = serve(directory, grid)
    found = [(f.round, f.site, f.code) for f in faults(directory)]
    assert found == [(0, "south", "malformed"), (1, "south", "malformed")]
    assert any("south does not count" in line and "its update is" in line for line in lines)
    assert directory.read_json("result.json")["digest"] == silent_digest(tmp_path / "silent")


def test_words_of_a_site_are_not_repeated(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)
    turn_bad(grid, lambda t: t, {"stopped": "Everybody go home."})
    lines = serve(directory, grid)
    assert {(f.site, f.code) for f in faults(directory)} == {("south", "malformed")}
    assert directory.status == "finished"
    assert "go home" not in "".join(lines)


def test_a_poisoned_inbox_is_not_read_at_resume(tmp_path: Path) -> None:
    """A release that an older version kept, or somebody else wrote: it is checked again, and asked for again."""
    directory, grid = federation(tmp_path / "good")
    serve(directory, grid)
    good = directory.read_json("result.json")["digest"]
    again, grid = federation(tmp_path / "poisoned")
    description = again.read_json("federation.json")["description"]
    raw = next(directory.path.glob("transcript/0000-up-south.safetensors")).read_bytes()
    release = replace(Release.decode(forge(raw, FORGED["3e38"])), run=description["run"])
    Inbox(again.path / "inbox" / "0000").put("south", release.encode())
    serve(again, grid)
    assert again.read_json("result.json")["digest"] == good


def picky(cfg: Any, task: Any, state: State, inbox: Mapping[str, Items], key: Any) -> Items:
    """A step that cannot cope with a site that sends sevens."""
    if any(float(next(iter(inbox[s]["model"].tensors.values())).flatten()[0]) == 7.0 for s in sorted(inbox)):
        raise ZeroDivisionError
    return METHODS["fedavg"].server(cfg, task, state, inbox, key)


def test_a_site_that_spoils_the_step_is_not_brought_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed right after it was found out; the resumed run neither reads nor asks it again in that round."""
    method = replace(METHODS["dp-fedavg"], server=picky, possible=None)
    monkeypatch.setitem(METHODS, "dp-fedavg", method)
    directory, grid = federation(tmp_path / "bad")
    turn_bad(grid, lambda t: torch.full_like(t, 7.0))
    names = {f"key of {name}".encode(): name for name in ("north", "south", "west")}

    def killed(line: str) -> None:
        if "spoils-the-step" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serving.serve(directory.path, flower.GridPost(grid, names, refresh=0.0), say=killed)
    assert Inbox(directory.path / "inbox" / "0000").refused == {"south"}
    grid.asked.clear()
    serve(directory, grid)
    assert {(f.round, f.site, f.code) for f in faults(directory)} >= {
        (0, "south", "spoils-the-step"), (1, "south", "spoils-the-step")
    }  # fmt: skip
    assert grid.asked.count(11) == 3  # hello, the second round and the end: not the first round again
    assert directory.read_json("result.json")["digest"] == silent_digest(tmp_path / "silent")
