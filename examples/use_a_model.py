"""Use the model of a finished run: `predict`, `predict_proba` and `classes_`, as in scikit-learn."""

import tempfile
from pathlib import Path

import prismfl
from prismfl.data import load

with tempfile.TemporaryDirectory() as folder:
    result = prismfl.run(
        "prism-head",
        data="digits",
        sites=2,
        epsilon=5.0,
        tuning="fixed",
        public_count=500,
        networks=2,
        atoms=32,
        rank=64,
        out=str(Path(folder) / "run"),
    )
    run = prismfl.open_run(result.run_dir)
    print("models:", ", ".join(run.models), "- recommended:", run.model.name)
    images = load("digits").x_test.numpy()[:5]  # (n, channels, height, width) in [0, 1]; bytes will do as well
    print("classes:", run.model.classes_)
    print("predicted:", run.model.predict(images))
    print("probability of each:", run.model.predict_proba(images).max(1).round(2))
