"""A site's records and the public facts about them, by the site's own words alone. Nothing here knows a request.

The data are read once, by `site init` or `site check`: every value is mapped into the declared domain, a record that
cannot be is left out by itself, and what is left is kept with its prints in a private snapshot. A request is answered
from the snapshot: no file of the site's data is opened for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from prismfl.core.records import Records
from prismfl.data import DATASETS, Dataset, Spec, load_path, partition
from prismfl.data import load as load_named
from prismfl.data.facts import declared_facts
from prismfl.data.faults import BadRecord
from prismfl.data.found import TABLES
from prismfl.data.parts_file import is_parted, read_patient_file
from prismfl.data.schema_file import LIMIT as SCHEMA_LIMIT
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.files.bounded import read_json, read_regular
from prismfl.site.config import SiteConfig
from prismfl.site.folder import FILE

FORMAT = 4
"""Of the snapshot and of the rule by which values are mapped; a change of either is a new number."""
LIMIT, HEADER = 16 * 2**30, 2**20
NOTE, TENSORS = "data.json", "records.safetensors"
PRINT = 32
# The keys of site.toml that decide what is read.
SHAPING = ("data", "label", "schema_file", "classes", "image_size", "channels", "features", "bounds", "unit")


@dataclass(frozen=True, eq=False, repr=False)  # no record in a traceback
class SiteData:
    """What a site computes on, what the ledger knows it by, and how many records were left out (on-site only)."""

    spec: Spec
    records: Records
    prints: list[bytes]
    left_out: int = 0
    faults: tuple[BadRecord, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # for the operator's own terminal


def facts(config: SiteConfig) -> Spec:
    """The declared public facts of the site's data; no record is opened for them, and none could change them."""
    if config.data in DATASETS:
        return DATASETS[config.data]
    place, unit = Path(config.data), _unit(config)
    if is_parted(config.schema_file):
        _in_folder(config, place)
    elif place.suffix == ".npz" and config.features is not None:
        _needs(config, "classes", "bounds")
    elif place.name.endswith(TABLES) and not place.is_dir():
        _needs(config, "schema_file")
    else:
        _needs(config, "classes", "image_size", "channels", *(("bounds",) if place.suffix == ".npz" else ()))
        if place.is_dir() and unit is not None:
            raise UserError(f"Expected unit = \"record\" for images in folders in {FILE}, got '{unit}'.")
    return declared_facts(
        place,
        classes=config.classes,
        image_size=config.image_size,
        channels=config.channels,
        features=config.features,
        schema=config.schema_file,
        unit=unit,
    )


def prepare(folder: Path, config: SiteConfig) -> SiteData:
    """Read the site's data by its own facts and keep what was read in the site's folder."""
    return keep(folder, config, read(config))


def load(folder: Path, config: SiteConfig) -> SiteData:
    """The site's data: from the snapshot if it is whole and fits site.toml, else read anew.

    Whether the source has changed is not looked at here; see `stale`.
    """
    if config.data in DATASETS:
        return read(config)
    spec, note = facts(config), _note(folder)
    if note is not None and note["shaped_by"] == _shaped_by(config, spec):
        try:
            path = _tensors(folder)
            return _snapshot(path, note["digest"], spec, note["left_out"], _look(path))
        except UserError:
            pass  # damaged: read anew
    return prepare(folder, config)


def stale(folder: Path, config: SiteConfig) -> str | None:
    """Why the snapshot is not what a reading of the data would give now, in words; for the operator's own commands."""
    if config.data in DATASETS:
        return None
    spec, note = facts(config), _note(folder)
    if note is None:
        return "this site's data have not been read yet"
    if note["shaped_by"] != _shaped_by(config, spec):
        return f"{FILE} says other things about the data than when they were read"
    if note["source"] != _stamp(Path(config.data)):
        return f"'{config.data}' has changed since it was read"
    try:
        _intact(_tensors(folder), note["digest"])
    except UserError as error:
        return str(error)
    return None


def read(config: SiteConfig) -> SiteData:
    """The site's records, each mapped into the declared domain or left out by itself."""
    if config.data in DATASETS:
        return _trial(config)
    spec, place = facts(config), Path(config.data)
    source = _stamp(place)  # before the first byte is read: a change on the way shows
    given: dict[str, Any] = {"schema": config.schema_file, "unit": _unit(config)}
    if spec.parts is not None:
        pass
    elif place.name.endswith(TABLES) and not place.is_dir():
        given |= {"label": config.label}
    elif spec.kind == "table":
        given = {"bounds": config.bounds, "unit": _unit(config)}
    else:
        given = {"image_size": config.image_size, "channels": config.channels}
        given |= {"bounds": config.bounds, "unit": _unit(config)} if place.suffix == ".npz" else {}
    found = load_path(place, classes=spec.classes, lenient=True, **given)
    x = found.x_train
    if tuple(x.shape[1:]) != spec.shape:
        if len(x):
            raise UserError(
                f"{FILE} declares records of shape {spec.shape}, '{place}' holds {tuple(x.shape[1:])}; "
                "mend image_size, channels or features."
            )
        x = x.new_zeros((0, *spec.shape))
    unit = None if found.unit_train is None else torch.from_numpy(found.unit_train)
    records, prints = Records(x, found.y_train, unit), [*(found.prints_train or ()), *found.more_prints]
    notices = found.notices if spec.parts is not None else ()
    return SiteData(spec, records, prints, found.left_out, found.faults, source, notices)


def keep(folder: Path, config: SiteConfig, data: SiteData) -> SiteData:
    """Write the snapshot of what was read; named data sets need none."""
    if config.data in DATASETS:
        return data
    place = folder / "data"
    if Path(config.data).resolve().is_relative_to(place.resolve()):
        raise UserError(f"Expected the site's data outside of '{place}', which is for what is read from them.")
    prints = np.frombuffer(b"".join(data.prints), dtype=np.uint8).reshape(-1, PRINT).copy()
    tensors = {"x": data.records.x.contiguous(), "y": data.records.y, "prints": torch.from_numpy(prints)}
    if data.records.unit is not None:
        tensors["unit"] = data.records.unit
    size = sum(tensor.nbytes for tensor in tensors.values())
    if size > LIMIT:
        raise UserError(f"Expected at most {LIMIT:,} bytes of records, got {size:,}; declare a smaller image_size.")
    make_folder(place, closed=True)
    place.chmod(0o700)
    digest = _written(place / TENSORS, tensors)
    note = {
        "format": FORMAT,
        "facts": asdict(data.spec),
        "shaped_by": _shaped_by(config, data.spec),
        "digest": digest,
        "source": data.source,
        "left_out": data.left_out,
    }
    write_atomically(place / NOTE, json.dumps(note, indent=2, sort_keys=True).encode())
    return data


def _in_folder(config: SiteConfig, place: Path) -> None:
    """Where cells name files, the folder is what is watched for changes."""
    assert config.schema_file is not None
    told = read_patient_file(config.schema_file)
    if place.is_file() and (told.image is not None or told.text_files):
        raise UserError(f"Expected the folder of the patients as data in {FILE}, got their table '{place}' alone.")


def _unit(config: SiteConfig) -> str | None:
    return None if config.unit in ("record", "client") else config.unit


def _needs(config: SiteConfig, *keys: str) -> None:
    missing = [key for key in keys if not getattr(config, key)]
    if missing:
        raise UserError(
            f"Expected {' and '.join(missing)} in {FILE}: what the data '{config.data}' are like is this site's own "
            "declaration, and no record is opened to see."
        )


@lru_cache(maxsize=1)
def _named(data: str, data_dir: str | None) -> Dataset:
    """Read once: the processes of a site are forked from one that has it."""
    return load_named(data, data_dir=data_dir)


def _trial(config: SiteConfig) -> SiteData:
    """A named data set, or this site's part of it."""
    dataset = _named(config.data, config.data_dir)
    rows = np.arange(len(dataset.y_train))
    if config.part is not None:
        labels, classes = dataset.y_train.numpy(), len(dataset.spec.classes)
        parts = partition(
            labels, config.parts, split=config.split, seed=config.seed, classes=classes, identity=dataset.identity
        )
        rows = parts[config.part]
    index = torch.from_numpy(np.asarray(rows))
    records = Records(dataset.x_train[index], dataset.y_train[index])
    return SiteData(DATASETS[config.data], records, [row.tobytes() for row in records.x.numpy()])


def _shaped_by(config: SiteConfig, spec: Spec) -> str:
    """A digest of all that decides what a file is read as."""
    schema = None
    if config.schema_file is not None:
        schema = hashlib.sha256(read_regular(Path(config.schema_file), limit=SCHEMA_LIMIT)).hexdigest()
    words = {key: getattr(config, key) for key in SHAPING} | {"schema": schema, "facts": asdict(spec)}
    return hashlib.sha256(json.dumps([FORMAT, words], sort_keys=True).encode()).hexdigest()


def _note(folder: Path) -> dict[str, Any] | None:
    """What is written about the snapshot, if it can be used."""
    try:
        found = read_json(folder / "data" / NOTE)
    except UserError:
        return None
    kinds = {"format": int, "facts": dict, "shaped_by": str, "digest": str, "source": dict, "left_out": int}
    if not isinstance(found, dict) or any(type(found.get(key)) is not kind for key, kind in kinds.items()):
        return None
    return found if found["format"] == FORMAT else None


def snapshot_bytes(folder: Path) -> int:
    """How large the snapshot is; 0 where there is none."""
    path = _tensors(folder)
    return path.stat().st_size if path.is_file() else 0


def _tensors(folder: Path) -> Path:
    return (folder / "data" / TENSORS).resolve()


def _written(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    """Write the tensors, whole or not at all and without a copy of them in memory; their digest."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL, 0o600))
        save_file(tensors, part)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return digest


def _intact(path: Path, digest: str) -> None:
    """Refuse a file that is not what was written."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would be waited for
            look = os.fstat(file.fileno())
            whole = S_ISREG(look.st_mode) and look.st_size <= LIMIT + HEADER
            if whole and hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return
    except OSError:
        pass
    raise UserError(f"The snapshot {path} of the data is damaged.")


def _look(path: Path) -> tuple[int, ...]:
    """Which file lies there, and when it last changed."""
    try:
        look = path.stat()
    except OSError:
        return ()
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns


@lru_cache(maxsize=1)
def _snapshot(path: Path, digest: str, spec: Spec, left_out: int, look: tuple[int, ...]) -> SiteData:
    """The tensors under `path` if they are what was written. What was read once is not read again while it looks the
    same: of a mapped file that was cut short, the first record that is gone would end the process without a word.

    They are mapped, not read: the system brings the records that are at work into memory and forgets the others, and
    all processes of the site share them.
    """
    _intact(path, digest)
    with safe_open(path, framework="pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    x, y, prints, unit = found["x"], found["y"], found["prints"], found.get("unit")
    kinds = {"image": (torch.float32, torch.uint8), "table": (torch.float32,)}.get(spec.kind, (torch.uint8,))
    whole = x.dtype in kinds and (y.dtype, prints.dtype) == (torch.int64, torch.uint8)
    printed = prints.dim() == 2 and prints.shape[1] == PRINT and len(prints) >= len(y)
    whole = whole and x.shape == (len(y), *spec.shape) and printed
    if not whole or (unit is not None and (unit.dtype, unit.shape) != (torch.int64, y.shape)):
        raise UserError(f"The snapshot {path} of the data is damaged.")
    return SiteData(spec, Records(x, y, unit), [row.tobytes() for row in prints.numpy()], left_out)


def _stamp(place: Path) -> dict[str, Any]:
    """How the source looks from outside: names, sizes and times, without opening a file of it."""
    files = [place]
    if place.is_dir():
        files = sorted(Path(top) / name for top, _, names in os.walk(place) for name in names)
    looks = [(str(file.relative_to(place)), file.lstat() if file != place else file.stat()) for file in files]
    listed = [[name, look.st_size, look.st_mtime_ns] for name, look in looks]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    size = sum(look.st_size for _, look in looks)
    return {"path": str(place.resolve()), "files": len(listed), "bytes": size, "stamp": digest}


def declare(config: SiteConfig) -> tuple[SiteConfig, list[str]]:
    """The config with the facts that its files can tell, and which of them were taken from there.

    For the operator's own command: from then on what it wrote into site.toml counts, and counts as public.
    """
    place = Path(config.data)
    found: dict[str, Any] = {}
    if config.data in DATASETS or is_parted(config.schema_file) or (place.name.endswith(TABLES) and not place.is_dir()):
        return config, []
    if place.is_dir():
        from prismfl.data.folders import class_folders, measured

        found["classes"] = list(class_folders(place))
        if odd := [name for name in found["classes"] if not name.isprintable() or name != name.strip()]:
            raise UserError(f"Rename the folder {odd[0]!r} of '{place}': a class's name is plain text.")
        if config.image_size is None or config.channels is None:
            found |= measured(place, sized=config.image_size is None)
    elif place.suffix == ".npz":
        from prismfl.data.arrays import measured_arrays

        found |= measured_arrays(place)
    taken = {key: value for key, value in found.items() if getattr(config, key) is None}
    return SiteConfig(**{**config.model_dump(), **taken}), sorted(taken)
