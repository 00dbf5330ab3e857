"""Read a synthetic set with pandas, with torch's DataLoader, and as the folders that Hugging Face `datasets` takes."""

import io
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import prismfl
from prismfl.report.card import export

with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    result = prismfl.run(
        "prism",
        data="digits",
        sites=2,
        epsilon=5.0,
        tuning="fixed",
        public_count=300,
        networks=2,
        atoms=32,
        rank=32,
        images=4,
        steps=10,
        train_steps=10,
        out=str(here / "run"),
    )
    run = Path(result.run_dir)  # as `prismfl export RUN --to npz -o set.npz` does:
    export(run, "npz", here / "arrays")
    export(run, "parquet", here / "table")
    export(run, "images", here / "folders")

    with np.load(here / "arrays" / "synthetic.npz") as found:
        images, labels, classes = torch.from_numpy(found["x"]), torch.from_numpy(found["y"]), found["classes"]
    for x, y in DataLoader(TensorDataset(images.float() / 255, labels), batch_size=16, shuffle=True):
        print(f"torch: a batch of {tuple(x.shape)} with {len(y)} labels of {len(classes)} classes")
        break

    if find_spec("pandas"):
        import pandas

        first = pandas.read_parquet(here / "table" / "synthetic.parquet").iloc[0]
    else:
        from pyarrow.parquet import read_table

        first = read_table(here / "table" / "synthetic.parquet").to_pylist()[0]
    print("parquet:", Image.open(io.BytesIO(first["image"]["bytes"])).size, "pixels, label", first["label"])

    # datasets.load_dataset("imagefolder", data_dir="folders") and torchvision's ImageFolder read this layout;
    # datasets.load_dataset("parquet", data_files="synthetic.parquet") decodes the images by itself.
    print("folders:", sorted(path.name for path in (here / "folders").iterdir() if path.is_dir()))
