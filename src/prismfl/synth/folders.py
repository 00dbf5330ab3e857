"""`prismfl synth` for images: PNG folders by class, gen.npz and certificate.json, made by PRISM on one site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismfl.errors import UserError

if TYPE_CHECKING:
    import torch

    from prismfl.core.payloads import SyntheticSet
    from prismfl.data import Dataset
    from prismfl.synth.images import PrismSynthesizer


def synth_images(
    data: str,
    *,
    public: str | None,
    epsilon: float,
    delta: float,
    out: Path,
    seed: int,
    deployed: bool,
    ledger: str | None,
    cap: float | None,
    sets: list[str],
) -> dict[str, Any]:
    """Fit, synthesise, write. `--set onsite=true` adds a picture that compares with private images and must stay."""
    import yaml

    from prismfl.data import DATASETS
    from prismfl.runs.config import RunConfig
    from prismfl.runs.records import read_data
    from prismfl.synth.images import PrismSynthesizer

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UserError(f"'{out}' exists and is not an empty folder; choose another with -o.")
    options = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in sets)}
    onsite, own = bool(options.pop("onsite", False)), {}
    for key in ("data_dir", "subset", "classes", "image_size", "channels"):
        if key in options:
            own[key] = options.pop(key)
    # Only the comparison needs records that were not used.
    dataset = read_data(RunConfig(data=data, **own), held_out=onsite)
    synthesizer = PrismSynthesizer(
        epsilon=epsilon,
        delta=delta,
        public=public or "procedural",
        seed=None if deployed else seed,
        ledger=ledger,
        cap=cap,
        data_dir=own.get("data_dir"),
        **options,
    )
    name = data if data in DATASETS else str(Path(data).resolve())
    classes, prints = dataset.spec.classes, dataset.prints_train
    synthesizer.fit(dataset.x_train, dataset.y_train, classes=classes, name=name, prints=prints)
    made = synthesizer.synthetic_set(synthesizer.settings.images)
    return _write(out, synthesizer, made, dataset, onsite=onsite)


def _write(
    out: Path, synthesizer: PrismSynthesizer, made: SyntheticSet, dataset: Dataset, *, onsite: bool
) -> dict[str, Any]:
    import numpy as np

    from prismfl.data.pictures import save_grid, save_sheet

    classes = dataset.spec.classes
    out.mkdir(parents=True, exist_ok=True)
    for i, (image, label) in enumerate(zip(made.x, made.hard_y.tolist())):
        save_sheet(image, out / "images" / classes[label].replace("/", "-") / f"{i:05d}.png", scale=1)
    np.savez_compressed(out / "gen.npz", x=made.tensors["x"].numpy(), y=made.hard_y.numpy())
    save_grid(made.x, made.hard_y, out / "sample.png", classes=classes)
    certificate = {**synthesizer.certificate(), "images": len(made.x), "images_digest": made.digest}
    (out / "certificate.json").write_text(json.dumps(certificate, indent=2) + "\n")
    if onsite:
        seeds = synthesizer.seeds(synthesizer.settings.images)
        certificate["onsite"] = onsite_comparison(out / "onsite-do-not-release", made.x, seeds=seeds, dataset=dataset)
    return {**certificate, "out": str(out), "ledger": str(synthesizer.ledger_path)}


def onsite_comparison(folder: Path, made: torch.Tensor, *, seeds: torch.Tensor, dataset: Dataset) -> dict[str, Any]:
    """Distances to private images and a grid public seed | synthetic | nearest private. It stays on the site."""
    import torch

    from prismfl.data.pictures import grid, save_sheet
    from prismfl.files.atomic import make_folder
    from prismfl.metrics.visual import compare

    make_folder(folder, closed=True)
    held_out = dataset.x_test[:1000]
    found = compare(made, private=dataset.x_train, held_out=held_out, seeds=seeds)
    rows = torch.arange(0, len(made), max(1, len(made) // 20))[:20]
    triples = torch.stack([seeds[rows], made[rows], dataset.x_train[found.nearest[rows]]], 1).flatten(0, 1)
    save_sheet(grid(triples, 6), folder / "seed-synthetic-nearest-private.png")
    (folder / "README.txt").write_text("These pictures show private records. They are for this site only.\n")
    (folder / "visual.json").write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return found.as_dict()
