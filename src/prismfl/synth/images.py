"""`prismfl synth` for images: PNG folders by class, gen.npz and certificate.json, made by PRISM on one site."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl import runtime
from prismfl.core.once import Holder
from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records, as_floats
from prismfl.data import DATASETS, Dataset
from prismfl.data.folders import folder_names
from prismfl.data.pictures import grid, save_grid, save_sheet
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder
from prismfl.files.fresh import check_place
from prismfl.methods.prism import prism
from prismfl.metrics.visual import compare
from prismfl.rng import Key
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.planning import large_delta
from prismfl.runs.records import read_data
from prismfl.synth.arrays import prints_of
from prismfl.synth.synthesizer import Synthesizer
from prismfl.synth.ways import PRISM, read_sets

READING = ("data_dir", "subset", "classes", "image_size", "channels")
Warn = Callable[[str], None]


def synth_images(
    data: str,
    *,
    out: Path,
    sets: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    warn: Warn = lambda _: None,
    **options: Any,
) -> dict[str, Any]:
    """Fit, synthesise, write. `--set onsite=true` adds a picture that compares with private images and must stay.

    `facts` are keys of a run that say what the data are; `options` are those of `Synthesizer`.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UserError(f"'{out}' exists and is not an empty folder; choose another with -o.")
    check_place(out)
    told, settings = read_sets("prism", sets, (*READING, "public_count"))
    onsite, drawn = bool(settings.pop("onsite", False)), told.pop("public_count", 2000)
    given = {key: value for key, value in (facts or {}).items() if value is not None}
    keys = {"data": data, "public_count": drawn, "records": PRISM.records, "sites": 1, **given, **told}
    config: RunConfig = validate(RunConfig, keys, "--set")
    runtime.tune(torch.get_num_threads())
    # Only the comparison needs records that were not used.
    dataset = read_data(config, held_out=onsite)
    weak = large_delta(options.get("delta"), options.get("records") or config.records or 1)
    for line in (*dataset.notices, *([weak] if weak else [])):
        warn(line)
    synthesizer = Synthesizer(
        method="prism",
        public_count=config.public_count,
        data_dir=config.data_dir,
        classes=dataset.spec.classes,
        **options,
        **settings,
    )
    prints = dataset.prints_train or prints_of(dataset.x_train.numpy())
    name = data if data in DATASETS else str(Path(data).resolve())
    unit = None if dataset.unit_train is None else torch.from_numpy(dataset.unit_train)
    holder = Holder(Records(dataset.x_train, dataset.y_train, unit), prints, name)
    synthesizer.fit_records(holder, unit=dataset.spec.unit or "record")
    return _write(out, synthesizer, dataset, onsite=onsite)


def _write(out: Path, synthesizer: Synthesizer, dataset: Dataset, *, onsite: bool) -> dict[str, Any]:
    classes, each = dataset.spec.classes, synthesizer.settings.images
    x, y = (torch.from_numpy(part) for part in synthesizer.sample(each * len(classes)))
    by_class, folders = torch.argsort(y, stable=True), folder_names(classes)
    made = SyntheticSet.of(x[by_class], y[by_class])
    out.mkdir(parents=True, exist_ok=True)
    for i, (image, label) in enumerate(zip(made.x, made.hard_y.tolist())):
        save_sheet(image, out / "images" / folders[label] / f"{i:05d}.png", scale=1)
    np.savez_compressed(out / "gen.npz", x=made.tensors["x"].numpy(), y=made.hard_y.numpy())
    save_grid(made.x, made.hard_y, out / "sample.png", classes=classes)
    certificate = {**synthesizer.certificate(), "images": len(made.x), "images_digest": made.digest}
    (out / "certificate.json").write_text(json.dumps(certificate, indent=2) + "\n")
    if onsite:
        seeds = prism.public_seeds(synthesizer.task, len(made.x), Key.seed(0).child("images"))
        certificate["onsite"] = onsite_comparison(out / "onsite-do-not-release", made.x, seeds=seeds, dataset=dataset)
    return {**certificate, "out": str(out), "ledger": str(synthesizer.ledger_path)}


def onsite_comparison(folder: Path, made: torch.Tensor, *, seeds: torch.Tensor, dataset: Dataset) -> dict[str, Any]:
    """Distances to private images and a grid public seed | synthetic | nearest private. It stays on the site."""
    make_folder(folder, closed=True)
    held_out = dataset.x_test[:1000]
    found = compare(made, private=dataset.x_train, held_out=held_out, seeds=seeds)
    rows = torch.arange(0, len(made), max(1, len(made) // 20))[:20]
    nearest = as_floats(dataset.x_train[found.nearest[rows]])
    triples = torch.stack([seeds[rows], made[rows], nearest], 1).flatten(0, 1)
    save_sheet(grid(triples, 6), folder / "seed-synthetic-nearest-private.png")
    (folder / "README.txt").write_text("These pictures show private records. They are for this site only.\n")
    (folder / "visual.json").write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return found.as_dict()
