"""The accountant beside the run: the same numbers, and none missed when it is gone."""

from __future__ import annotations

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
