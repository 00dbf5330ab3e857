"""What a request may use of a site's machine is bounded by the operating system; when it is answered tells nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from prismfl.site import app as apps

MEMORY = """
from prismfl.site.app import bound
bound(1.0, 60.0)
try:
    held = bytearray(2 * 2**30)
except MemoryError:
    print("refused")
"""
SECONDS = """
from prismfl.site.app import bound
bound(8.0, 1.0)
while True:
    pass
"""


def test_memory_is_bounded_by_the_operating_system() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


def test_processor_time_is_bounded_by_the_operating_system() -> None:
    done = subprocess.run([sys.executable, "-c", SECONDS], capture_output=True, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_answers_leave_at_multiples_of_the_sites_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("prismfl.site.app.time.sleep", slept.append)
    for now in (100.0, 103.0, 109.99):
        monkeypatch.setattr("prismfl.site.app.time.time", lambda now=now: now)
        apps.wait_for(10.0)
    assert slept == pytest.approx([10.0, 7.0, 0.01])
    apps.wait_for(0.0)
    assert len(slept) == 3
