"""How the process uses the machine: versions without anything that tells whose machine it is."""

from __future__ import annotations

import getpass
import platform
import socket
from pathlib import Path

import torch

from prismfl.runtime import environment, tune


def test_versions_that_a_result_depends_on() -> None:
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"numpy", "scipy", "dp-accounting", "safetensors", "prismfl", "system"} <= set(found)


def test_no_host_no_path_no_user() -> None:
    told = " ".join(environment().values()).split()
    assert socket.gethostname() not in told
    assert getpass.getuser() not in told
    assert str(Path.home()) not in told


def test_threads_are_those_that_were_asked_for() -> None:
    before = torch.get_num_threads()
    tune(1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)
