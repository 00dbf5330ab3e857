"""The audit from the file on disk: a user's own file with one record and without it, read, split and asked.

Everything between the file and the answer is in the path: the reader, the part held out, the split into sites, the
door. The record stands first, in the middle or last. The attacker knows everything but the noise.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.adversary.audits.bounds import mu_interval
from prismfl.adversary.audits.steps import SIGMA, Silence, Step
from prismfl.core.job import Job
from prismfl.core.method import Settings
from prismfl.core.records import Records
from prismfl.core.rounds import initial_state
from prismfl.core.trial import ask_once
from prismfl.methods import METHODS
from prismfl.rng import Key, NoiseStream
from prismfl.runs.config import RunConfig
from prismfl.runs.planning import task_of
from prismfl.runs.records import read_data, split_records

RECORDS, SITES, SIDE = 60, 2, 8
PLACES = {"first": 0, "middle": RECORDS // 2, "last": RECORDS}
KINDS = ("table", "images")
SCHEMA = 'label = "y"\nclasses = ["a", "b"]\n' + "".join(
    f'[[columns]]\nname = "{name}"\nmin = 0\nmax = 1\n' for name in ("u", "v", "w")
)


def audit_files(*, repeats: int = 300, seed: int = 0) -> list[Step]:
    """The audit of every kind of file, with the record at each place."""
    return [audit_file(kind, place, repeats=repeats, seed=seed) for kind in KINDS for place in PLACES]


def audit_file(kind: str, place: str, *, repeats: int, seed: int = 0) -> Step:
    """Mu between the answers of the site that the record goes to, with it in the file and without."""
    key = Key.seed(seed).child("file", kind, place)
    with tempfile.TemporaryDirectory() as folder:
        job, worlds = _worlds(kind, PLACES[place], Path(folder), key)
    ask = _question(job)
    without, whole = (ask(worlds[there], Silence(key)) for there in (False, True))
    direction = (whole - without) / (whole - without).norm().clamp(min=1e-12)

    def sample(there: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
        streams = (key.child(int(there), i).noise() for i in range(repeats))
        return np.asarray([float((ask(worlds[there], stream) - without) @ direction) for stream in streams])

    low, high = mu_interval(sample(True), sample(False))
    claimed = 1.0 / SIGMA
    return Step(f"{kind} from a file, record {place}", claimed, low, high, passed=low <= claimed)


def _worlds(kind: str, place: int, folder: Path, key: Key) -> tuple[Job, dict[bool, Records]]:
    """The records of one site as they come out of the reader and the split, with the record and without it."""
    write: Callable[[Path, list[Any]], RunConfig] = _table if kind == "table" else _images
    g = key.child("content").numpy()
    rows = [(g.uniform(0.2, 0.8, 3 if kind == "table" else SIDE * SIDE), int(g.integers(2))) for _ in range(RECORDS)]
    for attempt in range(200):
        # A record that is held out adds nothing: the one in doubt is looked for among those that are not.
        odd = (np.where(g.random(len(rows[0][0])) < 0.5, 0.0, 1.0), 0)
        found = {}
        for there in (True, False):
            config = write(folder / f"{attempt}-{there}", [*rows[:place], *([odd] if there else []), *rows[place:]])
            dataset = read_data(config)
            method = METHODS["dp-fedavg"]
            job = Job("audit", method, _settings(), task_of(config, dataset.spec, method), seed=0)
            found[there] = [
                Records(dataset.x_train[i], dataset.y_train[i])
                for i in map(torch.from_numpy, split_records(config, dataset, job))
            ]
        grown = [s for s in range(SITES) if len(found[True][s]) != len(found[False][s])]
        if grown:
            return job, {there: parts[grown[0]] for there, parts in found.items()}
    raise AssertionError("No record of 200 is in the training part.")


def _settings() -> Settings:
    values = {"rounds": 1, "steps": 1, "batch": float(RECORDS), "lr": 1.0, "clip": 1.0, "sigma": SIGMA}
    return METHODS["dp-fedavg"].settings(**values)


def _question(job: Job) -> Callable[[Records, NoiseStream], torch.Tensor]:
    """What the site sends for its records and some noise, as one vector."""
    state, key = initial_state(job), job.key.child("client")

    def ask(records: Records, noise: NoiseStream) -> torch.Tensor:
        items, _ = ask_once(job, state, records, noise, key=key, site="site-0").answer
        return torch.cat([t.flatten().double() for t in items["model"].tensors.values()])

    return ask


def _config(data: Path, **more: Any) -> RunConfig:
    return RunConfig(
        method="dp-fedavg", data=str(data), sites=SITES, records=RECORDS // 2, model="logreg", seed=0, **more
    )


def _table(folder: Path, rows: list[Any]) -> RunConfig:
    folder.mkdir(parents=True)
    (folder / "schema.toml").write_text(SCHEMA)
    with (folder / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["u", "v", "w", "y"], *([*x.tolist(), "ab"[y]] for x, y in rows)])
    return _config(folder / "own.csv", schema_file=str(folder / "schema.toml"))


def _images(folder: Path, rows: list[Any]) -> RunConfig:
    from PIL import Image

    for number, (x, y) in enumerate(rows):
        place = folder / "ab"[y]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((x.reshape(SIDE, SIDE) * 255).astype(np.uint8)).save(place / f"{number:04d}.png")
    return _config(folder, image_size=SIDE, channels=1, classes=["a", "b"])
