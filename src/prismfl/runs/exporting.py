"""A finished run's model or synthetic set as a file that others read without this package, with its card beside it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import nn

from prismfl.core.payloads import SyntheticSet
from prismfl.data.folders import folder_names
from prismfl.data.table_files import has_parquet, table_bytes
from prismfl.errors import UserError
from prismfl.files.fresh import refuse_existing, write_folder, write_new
from prismfl.methods.prism.encoder import Layers, Linear
from prismfl.nets.portable import onnx_file, tensors_of, torch_file
from prismfl.runs.fitted import FittedModel
from prismfl.runs.public_facts import PublicFacts
from prismfl.runs.synthetic_table import table_of

MODELS = {"torch": ".pt2", "onnx": ".onnx", "safetensors": ".safetensors"}
SETS = {"images": "", "npz": ".npz", "parquet": ".parquet", "csv": ".csv"}
CARD = "MODEL_CARD.md"
SET_CARD = "DATA_CARD.md"

Notes = Mapping[str, str]
Card = Callable[[Mapping[str, str]], str]
"""The card's text, from what the files' digests are."""


class Straight(nn.Module):
    """A model as one path from records to logits: without the batches and checks that nobody else needs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A row of logits a record."""
        model = self.model
        if not isinstance(model, Linear):
            found: torch.Tensor = model(x)
            return found
        look = model.look
        if isinstance(look, Layers):
            assert isinstance(look.encoder, nn.Module)
            layers = look.encoder(x)
            rows = torch.cat([layers[name] for name in look.names], 1)
        else:
            rows = look(x)
        logits: torch.Tensor = model.frame(rows) @ model.weight + model.bias
        return logits


def export_model(model: FittedModel, to: str, out: Path, *, notes: Notes, card: Card) -> dict[str, str]:
    """Writes the model and its card; the files by what they are."""
    suffix, module = MODELS[to], Straight(model.module).eval()
    name, places = _places(out, f"model{suffix}", suffix, CARD)
    shape, told = model.shape, {**notes, "classes": json.dumps(model.classes), "shape": json.dumps(model.shape)}
    if to == "torch":
        raw = torch_file(module, shape, notes={"prismfl.json": json.dumps(told)})
    elif to == "onnx":
        raw = onnx_file(module, shape, notes=told, inputs="images" if len(shape) == 3 else "rows")
    else:
        raw = bytes(save(tensors_of(model.module), metadata={**told, "structure": json.dumps(structure(model.module))}))
    return _write(out, {name: raw}, places, card=card)


def structure(module: nn.Module) -> dict[str, Any]:
    """What the tensors alone do not say: how they are used."""
    if not isinstance(module, Linear):
        return {"layers": str(module)}
    look, frame = module.look, module.frame
    told: dict[str, Any] = {"logits": "frame(features) @ weight + bias", "clip": frame.clip}
    if isinstance(look, Layers):
        side = getattr(look.encoder, "side", None)
        return {**told, "features": "layers of a public encoder", "layers": list(look.names), "side": side}
    sizes = {key: getattr(look, key) for key in ("side", "stride", "threshold", "pool", "colour")}
    return {**told, "features": "codes of public patches", **sizes}


def export_set(made: SyntheticSet, facts: PublicFacts, to: str, out: Path, *, card: Card) -> dict[str, str]:
    """Writes the synthetic set and its card; the files by what they are."""
    if tuple(made.x.shape[1:]) != facts.shape or (
        len(made.hard_y) and not 0 <= int(made.hard_y.min()) <= int(made.hard_y.max()) < len(facts.classes)
    ):
        raise UserError("The run's synthetic set does not have the shape or the classes of its task.")
    if to == "images":
        if len(facts.shape) != 3:
            raise UserError("The synthetic set is a table; export it with --to csv, parquet or npz.")
        return _write(out, dict(pictures(made, facts)), None, card=card)
    name, places = _places(out, f"synthetic{SETS[to]}", SETS[to], SET_CARD)
    raw = {"npz": npz_file, "parquet": parquet_file, "csv": csv_file}[to](made, facts)
    return _write(out, {name: raw}, places, card=card)


def pictures(made: SyntheticSet, facts: PublicFacts) -> Iterator[tuple[str, bytes]]:
    """A PNG for each image, in the folder of its class."""
    folders = folder_names(facts.classes)
    for number, (image, label) in enumerate(zip(_pixels(made), made.hard_y.tolist())):
        yield f"{folders[label]}/{number:05d}.png", _png(image)


def npz_file(made: SyntheticSet, facts: PublicFacts) -> bytes:
    """Arrays x, y and classes; images as bytes."""
    file = io.BytesIO()
    x = _pixels(made) if len(facts.shape) == 3 else made.x.numpy()
    np.savez_compressed(file, x=x, y=made.hard_y.numpy(), classes=np.asarray(facts.classes))
    return file.getvalue()


def parquet_file(made: SyntheticSet, facts: PublicFacts) -> bytes:
    """Images as PNG bytes with labels, as Hugging Face `datasets` knows them; a table in its own columns."""
    if not has_parquet():
        raise UserError("Parquet files need pyarrow; install it with: pip install 'prismfl[parquet]'.")
    import pyarrow
    import pyarrow.parquet

    if facts.schema is not None:
        return table_bytes(table_of(made, facts.schema), Path("table.parquet"), facts.schema)
    labels = made.hard_y.tolist()
    if len(facts.shape) == 3:
        rows = [{"bytes": _png(image), "path": f"{i:05d}.png"} for i, image in enumerate(_pixels(made))]
        features = {"image": {"_type": "Image"}, "label": {"names": list(facts.classes), "_type": "ClassLabel"}}
        about = {"huggingface": json.dumps({"info": {"features": features}})}
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        table = pyarrow.table({"image": pyarrow.array(rows, kind), "label": pyarrow.array(labels, pyarrow.int64())})
        table = table.replace_schema_metadata(about)
    else:
        names = [facts.classes[label] for label in labels]
        columns: dict[str, Any] = {f"x{i}": c for i, c in enumerate(made.x.numpy().T)} | {"label": names}
        table = pyarrow.table(columns)
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def csv_file(made: SyntheticSet, facts: PublicFacts) -> bytes:
    """A table in its own columns."""
    if facts.schema is None:
        raise UserError("The synthetic set has no declared columns to write as CSV; export it with --to npz.")
    return table_bytes(table_of(made, facts.schema), Path("table.csv"), facts.schema)


def _pixels(made: SyntheticSet) -> Any:
    return (made.x.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, format="PNG")
    return file.getvalue()


def _places(out: Path, usual: str, suffix: str, card: str) -> tuple[str, dict[str, Path] | None]:
    """The file's name, and where it and its card come to lie if `out` is that file and not a new folder."""
    if out.suffix.lower() != suffix:
        refuse_existing([out])
        return usual, None
    places = {out.name: out, card: out.with_name(card)}
    refuse_existing(places.values())
    return out.name, places


def _write(out: Path, files: Mapping[str, bytes], places: Mapping[str, Path] | None, *, card: Card) -> dict[str, str]:
    """The files and their card into a new folder, or where they were to lie."""
    name = CARD if any(file.endswith(tuple(MODELS.values())) for file in files) else SET_CARD
    text = card({file: hashlib.sha256(raw).hexdigest() for file, raw in files.items()}).encode()
    if places is None:
        write_folder(out, [*files.items(), (name, text)])
        return {"out": str(out), "card": str(out / name)}
    write_new({places[file]: raw for file, raw in {**files, name: text}.items()})
    return {"out": str(out), "card": str(places[name])}
