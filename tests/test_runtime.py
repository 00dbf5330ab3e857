"""How the process uses the machine: versions without anything that tells whose machine it is."""

from __future__ import annotations

import gc
import getpass
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from prismfl.runtime import environment, loading, tune


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


def _fail_to_load() -> None:
    assert not gc.isenabled()
    raise ImportError


def test_the_collector_rests_while_modules_load_and_works_again_after() -> None:
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        _fail_to_load()
    assert gc.isenabled()
    gc.disable()
    with loading():
        pass
    kept = gc.isenabled()
    gc.enable()
    assert not kept  # whoever had it off finds it off


LIMITED = """
import resource
from prismfl import runtime
from prismfl.errors import UserError
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
runtime.allow_open_files(50, "sites")
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (64, 200)
runtime.allow_open_files(150, "sites")
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (150, 200)
try:
    runtime.allow_open_files(201, "70 sites")
except UserError as error:
    print(error)
"""


def test_the_limit_on_open_files_is_raised_as_far_as_the_system_allows() -> None:
    """In a process of its own: a limit once lowered stays low."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert "70 sites need 201 open files" in done.stdout
    assert "--sites" in done.stdout
    assert "ulimit -n" in done.stdout
