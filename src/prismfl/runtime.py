"""How this process uses the machine: threads, and a memory allocator that keeps big tensors."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prismfl.errors import UserError
from prismfl.version import __version__

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def tune(threads: int = 1) -> None:
    """Use `threads` torch threads (one gives the same bits everywhere) and stop glibc from returning every big tensor
    to the kernel, which otherwise costs as much time in page faults as the arithmetic itself."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads)
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_TOP_PAD, 64 * 1024 * 1024)


@contextmanager
def loading() -> Iterator[None]:
    """Imports without the collector of cycles: what they make stays, and to look it through again and again is a sixth
    of the time that they take."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def physical_cores() -> int:
    """The physical cores that this process may use: two threads of one core are one."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    quota = _numbers("/sys/fs/cgroup/cpu.max")
    return max(1, min(len(cores), math.ceil(quota[0] / quota[1]) if len(quota) == 2 else len(cores)))


def memory_left() -> int:
    """Bytes that this process and its children may still take: what is free, and what the control group leaves."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    most, now = _numbers("/sys/fs/cgroup/memory.max"), _numbers("/sys/fs/cgroup/memory.current")
    return max(0, min(free, most[0] - now[0]) if most and now else free)


def _numbers(path: str) -> list[int]:
    """The numbers in a file of the system; none where there is no such file, or it says "max"."""
    try:
        return [int(word) for word in Path(path).read_text().split()]
    except (OSError, ValueError):
        return []


def allow_open_files(wanted: int, what: str) -> None:
    """Raise this process's limit on open files to `wanted` where it is lower; if that may not be, say so at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise UserError(
            f"{what} need {wanted} open files, and this system allows {hard}; take fewer (--sites) or raise the limit "
            "(ulimit -n)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def environment() -> dict[str, str]:
    """Versions that a result depends on. No host name, no path, no user."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    found["prismfl"] = __version__  # not what an older installation was called
    for package in ("torch", "numpy", "scipy", "dp-accounting", "safetensors", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
