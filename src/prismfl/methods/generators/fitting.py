"""A graphical model fitted with `mbi` (private-pgm), in a process of its own: arrays in by stdin, arrays out by stdout.

JAX starts threads, and a process with threads may not be forked, which is how sites get their workers. So it never
enters the process that asks, and the memory it takes is given back. This file is run by its path and imports nothing of
prismfl.
"""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]

MOST_SECONDS = 7200  # a fit that takes longer is ended
STILL = 1e-5  # change of the loss below which the fit has ended


class FitError(Exception):
    """The fit came to nothing; in words, how its process ended."""


def ask(arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """What `fitted` answers, computed elsewhere."""
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(command, input=_written(arrays), capture_output=True, check=False, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        raise FitError(f"not ended after {MOST_SECONDS} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise FitError(f"exit code {done.returncode}, {last[:200]}" if last else f"exit code {done.returncode}")
    try:
        found = _read(done.stdout)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise FitError("its answer cannot be read") from None
    for name, table in found.items():
        if not np.isfinite(table).all():
            raise FitError(f"{name} is not finite")
    return found


def fitted(given: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The tables `wanted.N` of the model that fits best to `counts.N` of the columns `clique.N`, each by its noise."""
    import jax

    with jax.enable_x64(True):
        from mbi import Domain, LinearMeasurement, estimation, marginal_oracles

        sizes, noise, total = given["sizes"].tolist(), given["noise"], float(given["total"])
        domain = Domain(range(len(sizes)), sizes)
        asked = [
            LinearMeasurement(given[f"counts.{i}"], tuple(given[f"clique.{i}"].tolist()), float(noise[i]))
            for i in range(len(noise))
        ]
        steps = int(given["steps"])
        found = estimation.MirrorDescent().estimate(domain, asked, known_total=total, iters=steps, tol=STILL)
        wanted = [tuple(given[f"wanted.{i}"].tolist()) for i in range(int(given["tables"]))]
        whole = sorted({clique for clique in wanted if not any(set(clique) < set(other) for other in wanted)})
        model = marginal_oracles.message_passing_stable(found.potentials.expand(whole), total)
        return {
            f"wanted.{i}": np.array(model.project(clique).datavector(flatten=False)) for i, clique in enumerate(wanted)
        }


def _written(arrays: Arrays) -> bytes:
    held = io.BytesIO()
    np.savez(held, **arrays)  # type: ignore[arg-type]
    return held.getvalue()


def _read(raw: bytes) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(raw), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.buffer.write(_written(fitted(_read(sys.stdin.buffer.read()))))
