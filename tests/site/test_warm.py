"""An idle site is light: nothing heavy is imported, and no record read, before the first request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from prismfl.site.warm import Waiting

HEAVY = ("torch", "scipy", "sklearn", "matplotlib", "dp_accounting", "pandas", "prismfl.methods", "prismfl.site.office")
IDLE = "import prismfl.cli.site, prismfl.site.joining, prismfl.site.warm, prismfl.data, prismfl.transport.flower.guard"


def test_what_an_idle_site_imports() -> None:
    """The bugs: a process that waits for the first request imports torch, or reads the data, before there is one."""
    code = f"import sys; {IDLE}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert not set(done.stdout.split()) & {*HEAVY, "flwr"}


def test_what_flowers_own_idle_processes_import() -> None:
    """If Flower's SuperNode or SuperExec loaded torch by themselves, an idle site would have it all the same."""
    code = "import sys, flwr.supernode.cli.flower_supernode, flwr.supercore.cli.flower_superexec; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert not set(done.stdout.split()) & set(HEAVY)


def test_the_process_begins_with_the_first_command_and_again_when_it_has_died(tmp_path: Path) -> None:
    fifo, read = tmp_path / "apps.fifo", tmp_path / "read"
    os.mkfifo(fifo)
    code = "import sys; sys.stdout.write(open(sys.argv[1]).readline())"  # one command, and it is gone
    started: list[subprocess.Popen[bytes]] = []

    def spawn() -> subprocess.Popen[bytes]:
        with read.open("ab") as out:
            started.append(subprocess.Popen([sys.executable, "-c", code, str(fifo)], stdout=out))
        return started[-1]

    waiting = Waiting(fifo, spawn)
    try:
        waiting()
        assert started == []
        for command in (b"first\n", b"second\n"):
            handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.write(handle, command)
            os.close(handle)
            waiting()
            waiting()
            started[-1].wait(60)
        assert len(started) == 2
        assert read.read_bytes() == b"first\nsecond\n"
    finally:
        waiting.close()


def test_data_that_cannot_be_read_do_not_end_the_process(tmp_path: Path) -> None:
    """It is the request that is refused: a process that ended here would leave the SuperNode waiting for ever."""
    (tmp_path / "site.toml").write_text("name = ")
    code = "import sys; from pathlib import Path; from prismfl.site.warm import prepare; prepare(Path(sys.argv[1]), '')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
