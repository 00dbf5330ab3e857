"""`prismfl synth` for a folder of patients: synthetic pictures, texts and rows together, with a certificate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.core.once import Holder
from prismfl.core.records import Records
from prismfl.data import DATASETS, load, load_path
from prismfl.data.parts_file import read_patient_file
from prismfl.data.patients_out import write_patients
from prismfl.errors import UserError
from prismfl.files.fresh import check_place
from prismfl.methods.prism.patients import text_origin
from prismfl.runs.planning import large_delta
from prismfl.synth.arrays import prints_of
from prismfl.synth.synthesizer import Synthesizer
from prismfl.synth.ways import read_sets

Warn = Callable[[str], None]


def synth_patients(
    data: str,
    *,
    schema: str | Path | None,
    out: Path,
    records: int | None = None,
    unit: str | None = None,
    rows: int | None = None,
    sets: Sequence[str] = (),
    warn: Warn = lambda _: None,
    **options: Any,
) -> dict[str, Any]:
    """Write synthetic patients like those of a folder to the new folder `out`, and its certificate beside them.

    `records` is the declared number of records (the schema's train_size by default), `rows` how many synthetic
    patients come out. `options` are those of `Synthesizer`.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UserError(f"'{out}' exists and is not an empty folder; choose another with -o.")
    check_place(out)
    if rows is not None and rows < 1:
        raise UserError(f"Expected rows >= 1, got {rows}.")
    _, settings = read_sets("prism", sets)
    runtime.tune(torch.get_num_threads())
    named = data in DATASETS
    declared = None if named else read_patient_file(str(schema))
    dataset = load(data) if named else load_path(data, schema=schema, unit=unit, train_size=records)
    parts, classes = dataset.spec.parts, dataset.spec.classes
    assert parts is not None
    size = records or dataset.spec.train_size
    weak = large_delta(options.get("delta"), size)
    for line in (*dataset.notices, *([weak] if weak else [])):
        warn(line)
    if rows is not None:
        settings.setdefault("images", -(-rows // len(classes)))
    synthesizer = Synthesizer(method="prism", classes=classes, records=size, **options, **settings)
    prints = [*(dataset.prints_train or prints_of(dataset.x_train.numpy())), *dataset.more_prints]
    people = None if dataset.unit_train is None else torch.from_numpy(dataset.unit_train)
    name = data if named else str(Path(data).resolve())
    holder = Holder(Records(dataset.x_train, dataset.y_train, people), prints, name)
    synthesizer.fit_records(holder, unit=dataset.spec.unit or "record", parts=parts)
    count = rows or synthesizer.settings.images * len(classes)
    x, y = synthesizer.sample(count)
    origin = text_origin(synthesizer.settings.texts, synthesizer.task, synthesizer.settings.layers)
    label = declared.label if declared is not None else parts.schema.label if parts.schema is not None else "label"
    write_patients(out, parts, x, [classes[i] for i in y.tolist()], label=label, origin=origin)
    certificate = {**synthesizer.certificate(), "patients": len(x), "text_origin": origin}
    (out / "certificate.json").write_text(json.dumps(certificate, indent=2) + "\n")
    return {**certificate, "out": str(out), "ledger": str(synthesizer.ledger_path)}
