"""How this process uses the machine: threads, and a memory allocator that keeps big tensors."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version

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
