"""Read a release from a run directory: what site 0 sent, tensor by tensor, and at which price."""

import tempfile
from pathlib import Path

import prismfl

with tempfile.TemporaryDirectory() as folder:
    result = prismfl.run(
        "dp-fedavg", data="digits", sites=3, model="logreg", epsilon=2.0, rounds=2, out=str(Path(folder) / "run")
    )
    run = prismfl.open_run(result.run_dir)
    for message in run.messages:
        if message.direction == "up" and message.site == "site-0":
            release = run.release(message.site, message.round)
            print(f"round {message.round}: {message.bytes} bytes, SHA-256 {message.digest[:16]}, {release.noise}")
            print(f"  cost {release.cost.describe()}")
            for name, payload in release.items.items():
                for tensor, values in payload.tensors.items():
                    print(f"  {name} ({payload.kind}): {tensor} {tuple(values.shape)}, norm {values.norm():.3f}")
    print("accuracy after each round:", [round(row["accuracy"], 1) for row in run.metrics])
    print("who sent something:", sorted({message.site for message in run.messages if message.direction == "up"}))
