"""Run a method and read the result."""

import tempfile
from pathlib import Path

import prismfl

with tempfile.TemporaryDirectory() as folder:
    result = prismfl.run(
        method="prism-head",  # noisy feature statistics leave each site once; a closed-form classifier reads them
        data="digits",
        sites=3,
        split="dirichlet(0.5)",
        epsilon=3.0,
        networks=8,  # what is not a key of the run is a setting of the method
        rank=64,
        covariance=64,
        out=str(Path(folder) / "run"),
    )

print(f"accuracy   {result.accuracy:.1f} %")
print(f"epsilon    {result.epsilon:.2f} per {result.unit} at delta {result.delta:g}")
print(f"guarantee  {result.guarantee}")  # a benchmark's noise is seeded, so that the run can be repeated
print(f"sent       {result.bytes_up / 1000:.0f} kB up, {result.bytes_down / 1000:.1f} kB down")
print(f"digest     {result.digest[:16]} (the same on every run)")
