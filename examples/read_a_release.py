"""Read a release from a run directory: what site 0 sent, tensor by tensor."""

import tempfile
from pathlib import Path

import prismfl
from prismfl.runs.directory import RunDirectory

with tempfile.TemporaryDirectory() as folder:
    result = prismfl.run(
        method="dp-fedavg", data="digits", sites=3, model="logreg", epsilon=2.0, rounds=2, out=str(Path(folder) / "run")
    )
    run = RunDirectory.open(Path(result.run_dir))
    for message in run.messages():
        if message.direction == "up" and message.site == "site-0":
            print(f"round {message.round}: {message.bytes} bytes, SHA-256 {message.digest[:16]}")
            for name, payload in run.payloads(message).items():
                for tensor, values in payload.tensors.items():
                    print(f"  {name} ({payload.kind}): {tensor} {tuple(values.shape)}, norm {values.norm():.3f}")
    print("accuracy after each round:", [round(row["accuracy"], 1) for row in run.metrics()])
    print("charged to each site:", sorted(run.read_json("ledger.json")))
