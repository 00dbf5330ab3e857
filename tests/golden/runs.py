"""Thirteen runs whose results are committed: moving code about may not change a bit of them.

After a change that is meant to change results: PRISMFL_TUNING=fixed python -m tests.golden.runs
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

import prismfl

FILE = Path(__file__).with_name("digests.json")
DIGITS = {"data": "digits", "sites": 3, "subset": 300, "model": "mlp:16", "seed": 5}
CONVNET = {**DIGITS, "model": "convnet:16", "split": "pathological(2)", "sites": 5}
PUBLIC = {"public": "procedural", "public_count": 100}
TABLE = {"data": "breast-cancer", "sites": 2, "subset": 200, "seed": 5}
HEAD = {"networks": 2, "covariance": 8, "atoms": 16}
IMAGES = {"images": 2, "steps": 3, "train_steps": 4}

RUNS: dict[str, dict[str, Any]] = {
    "prism": {**CONVNET, **PUBLIC, "method": "prism", "epsilon": 2.0, **HEAD, **IMAGES},
    "prism-local": {**DIGITS, **PUBLIC, "method": "prism-local", "epsilon": 2.0, **HEAD, "images": 2, "steps": 3},
    "prism-head, secure": {
        **DIGITS, **PUBLIC, "method": "prism-head", "epsilon": 2.0, "secure": {"quorum": 2}, **HEAD,
    },
    "dp-fedavg-client, secure": {
        **DIGITS, "method": "dp-fedavg-client", "epsilon": 5.0, "secure": {"quorum": 2}, "rounds": 2,
    },
    "dp-fedavg, half of the sites": {
        **CONVNET, "method": "dp-fedavg", "epsilon": 3.0, "participation": 0.5, "rounds": 2, "steps": 2, "batch": 40.0,
    },
    "scaffold": {**DIGITS, "method": "scaffold", "rounds": 2, "epochs": 1},
    "fedem": {**DIGITS, "method": "fedem", "rounds": 2},
    "fedlap": {**CONVNET, "method": "fedlap"},
    "fedlap-dp": {**CONVNET, "method": "fedlap-dp", "epsilon": 5.0},
    "feddm-dp": {**CONVNET, "method": "feddm-dp", "epsilon": 5.0},
    "3dgl": {**TABLE, "method": "3dgl", "epsilon": 5.0},
    "dp-feta": {**DIGITS, "method": "dp-feta", "epsilon": 10.0},
    "dp-merf": {**DIGITS, "method": "dp-merf", "epsilon": 1.0},
}  # fmt: skip


def settings_of(name: str) -> dict[str, Any]:
    """The run with the method's own tiny settings where it names none."""
    from prismfl.methods import METHODS

    method = METHODS[RUNS[name]["method"]]
    own = {key: value for key, value in RUNS[name].items() if key in method.settings.model_fields}
    told = {key: value for key, value in RUNS[name].items() if key not in own}
    return {**told, "settings": {**method.tiny, **own}}


def outcome(name: str) -> dict[str, Any]:
    """What must stay: the digest of the final state, and what was charged and sent."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = prismfl.run(**settings_of(name), out=f"{folder}/run")
    return {
        "digest": result.digest,
        "accuracy": result.accuracy,
        "epsilon": result.epsilon,
        "sigma": result.sigma,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
    }


def arithmetic() -> str:
    """Machines round alike only if they are alike: processor, versions, and a few products."""
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(7, 5, 33, 33, generator=g), torch.randn(9, 5, 3, 3, generator=g)
    parts = [torch.nn.functional.conv2d(x, w), x.flatten(1) @ x.flatten(1).T, x.exp().sum((1, 2))]
    model = next((line for line in _processor() if line.startswith("model name")), "")
    words = [torch.__version__, platform.machine(), torch.backends.cpu.get_cpu_capability(), model]
    raw = "".join(words).encode() + b"".join(part.numpy().tobytes() for part in parts)
    return hashlib.sha256(raw).hexdigest()[:16]


def _processor() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    found = {"arithmetic": arithmetic(), "runs": {name: outcome(name) for name in RUNS}}
    FILE.write_text(json.dumps(found, indent=2) + "\n")
