"""Compare methods in one table: same data, same split, same budget."""

import tempfile
from pathlib import Path

import prismfl

SHARED = {"data": "digits", "sites": 5, "split": "pathological(2)", "model": "logreg"}
RUNS = {
    "prism-head": {"epsilon": 3.0, "networks": 8, "rank": 64, "covariance": 64},
    "dp-fedavg": {"epsilon": 3.0, "rounds": 5, "steps": 10},
    "fedavg": {"rounds": 5, "epochs": 1},
    "local-only": {"epochs": 4},
}

print(f"{'method':12} {'epsilon':>8} {'accuracy':>9} {'kB up':>7}  guarantee")
with tempfile.TemporaryDirectory() as folder:
    for method, settings in RUNS.items():
        result = prismfl.run(method=method, **SHARED, **settings, out=str(Path(folder) / method))
        epsilon = "∞" if result.epsilon is None else f"{result.epsilon:.2f}"  # None: no guarantee
        print(f"{method:12} {epsilon:>8} {result.accuracy:>7.1f} % {result.bytes_up / 1000:>7.1f}  {result.guarantee}")
