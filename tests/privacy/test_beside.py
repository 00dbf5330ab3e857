"""The accountant beside the run: the same numbers, and none missed when it is gone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from prismfl.privacy import account, beside
from prismfl.privacy.cost import Cost

SCRIPT = """
import json, os, sys
from prismfl.privacy import account, beside
from prismfl.privacy.cost import Cost
beside.start(account.served)
cost = Cost.gaussian(2.0, rate=0.1, times=3) + Cost.gaussian(5.0)
found = {"epsilon": account.epsilon(cost, 1e-5), "rdp": account.mechanism_rdp(cost.branches[0][0][0], "add-remove")}
found["here"] = "scipy" in sys.modules
child = os.fork()
if not child:
    os._exit(0 if beside.ask("epsilon", [], "add-remove", 1e-5) is None else 1)
found["fork"] = os.waitpid(child, 0)[1]
found["error"] = beside.ask("no such thing")
found["after"] = account.epsilon(Cost.gaussian(3.0), 1e-5)
print(json.dumps(found))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it is started where there is a second core")
def test_its_answers_are_the_same_numbers_and_without_it_they_are_computed_here() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    cost = Cost.gaussian(2.0, rate=0.1, times=3) + Cost.gaussian(5.0)
    assert found["epsilon"] == account.epsilon(cost, 1e-5)
    assert tuple(found["rdp"]) == account.mechanism_rdp(cost.branches[0][0][0], "add-remove")
    assert not found["here"], "it was computed beside, not here"
    assert found["fork"] == 0, "a fork does not ask on its parent's line"
    assert found["error"] is None
    assert found["after"] == account.epsilon(Cost.gaussian(3.0), 1e-5), "the line is gone, the answer is not"


def test_a_process_that_has_torch_is_not_forked() -> None:
    import torch  # noqa: F401

    beside.start(account.served)
    assert beside.ask("epsilon", [], "add-remove", 1e-5) is None


class Ended(Exception):
    """What stands in for the end of a process."""


def _end(status: int) -> None:
    raise Ended(status)


def test_questions_are_answered_in_turn_until_the_line_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", _end)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    asked, asking = os.pipe()
    told, telling = os.pipe()
    cost = Cost.gaussian(2.0, rate=0.1, times=3)
    plain = account._plain(cost.branches[0])
    os.write(asking, (json.dumps(["epsilon", plain, "add-remove", 1e-5]) + "\n").encode())
    os.write(asking, (json.dumps(["rdp", 2.0, 0.1]) + "\n").encode())
    os.close(asking)
    with pytest.raises(Ended, match="0"):
        beside._serve(asked, telling, account.served)
    with os.fdopen(told) as answers:
        epsilon, rdp = (json.loads(line) for line in answers)
    assert epsilon == account.epsilon(cost, 1e-5)
    assert tuple(rdp) == account._sampled_gaussian_rdp(2.0, 0.1)


def test_an_answer_is_taken_and_a_line_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    said, told = io.StringIO(), io.StringIO("[1.5, 2.5]\n")
    monkeypatch.setattr(beside, "_line", beside._Line(said, told, os.getpid()))
    assert account._sampled_gaussian_rdp(7.25, 0.5) == (1.5, 2.5)
    assert json.loads(said.getvalue()) == ["rdp", 7.25, 0.5]
    assert beside.ask("rdp", 7.25, 0.5) is None, "nobody answers any more"
    assert beside._line is None


@pytest.mark.parametrize("child", [True, False])
def test_the_process_beside_holds_the_other_ends(child: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(asked: int, telling: int, served: object) -> None:
        raise Ended(os.read(asked, 10))

    monkeypatch.setattr(beside, "_line", None)
    monkeypatch.setattr(beside, "_serve", serve)
    monkeypatch.setattr(os, "fork", lambda: 0 if child else 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if child:
        with pytest.raises(Ended, match="b''"):  # its own copy of the writing end is closed
            beside.start(account.served)
        return
    beside.start(account.served)
    line = beside._line
    assert line is not None
    assert line.owner == os.getpid()
    for end in (line.questions, line.answers):
        end.close()
