"""What a run is asked to be: a file and overrides. Every unknown key is an error with the nearest name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from prismfl.data import DATASETS
from prismfl.data.schema import plain, value_of
from prismfl.errors import UserError
from prismfl.files.bounded import load_toml, load_yaml, read_text
from prismfl.privacy.shares import Secrecy

HERE = "prismfl.toml"


class RunConfig(BaseModel):
    """A run, as written in a TOML or YAML file or given on the command line. `settings` are the method's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str = Field("prism", description="one of ours by its name, or any other as pkg.mod:METHOD")
    data: str = Field("mnist-5k", description="a data set's name, or a path to your own data")
    data_dir: str | None = Field(None, description="where the data files lie (default: PRISMFL_DATA)")
    schema_file: str | None = Field(None, description="declared columns of a table")
    label: str | None = Field(None, description="label column of a CSV or Parquet file")
    classes: list[str] | None = Field(None, description="declared classes of your own data")
    image_size: int | None = Field(None, ge=8, description="pixels a side that your own images are brought to")
    channels: Literal[1, 3] | None = Field(None, description="1 (grey) or 3 (colour) for your own images")
    features: int | None = Field(None, ge=1, description="numbers in each record of your own npz table")
    unit: str = Field("record", description="what is protected: record, or a column such as patient_id")
    relation: Literal["add-remove", "replace-one"] = "add-remove"
    test: float | str = Field(
        0.2, description="test part of your own data: a share, or a column that marks it (1, true, test)"
    )
    subset: int | None = Field(None, ge=1, description="use only so many training records")
    sites: int = Field(5, ge=1)
    split: str = Field("iid", description="iid, dirichlet(alpha=0.5), pathological(classes_per_site=2), shards, fedlap")
    records: int | None = Field(None, ge=1, description="declared (public) number of records a site")
    participation: float = Field(1.0, gt=0, le=1, description="share of the sites in each round")
    epsilon: float | None = Field(None, description="total privacy budget of each site")
    delta: float = 1e-5
    model: str | None = Field(
        None, description="convnet, lenet, mlp, logreg; 'convnet:32' (the default) sets the width; tables: mlp"
    )
    public: str | None = Field(None, description="public images: a data set, a folder, or 'procedural'")
    public_text: str | None = Field(None, description="public sentences, one a line: a file (default: written ones)")
    public_count: int = Field(2000, ge=1, description="how many public images are used")
    encoder: str | None = Field(
        None,
        description="public encoder: scattering, efficientnet-lite0, pkg.mod:build, a file; 'auto': if installed",
    )
    tuning: Literal["auto", "fixed"] | None = Field(
        None, description="auto: settings that are not given are rehearsed on public data; fixed: the plain defaults"
    )
    seed: int | None = Field(None, description="of every public choice; given for your own data, also of the noise")
    noise: Literal["seeded", "operating-system"] | None = Field(
        None, description="where noise comes from: named data are a seeded simulation, your own data the real thing"
    )
    device: str = "cpu"
    threads: int = Field(1, ge=1, description="torch threads; one gives the same bits on every machine")
    workers: int | None = Field(
        None,
        ge=0,
        description="processes that simulate sites side by side; 0: one a physical core, as `prismfl run` has it",
    )
    memory: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="gigabytes that a private step may take, 4 if not set: with less it takes fewer records at a time",
    )
    transcript: Literal["none", "digests", "ends", "full"] = Field(
        "ends",
        description="what is kept of what crossed; ends: the first and the last round, of fifty sites at most; "
        "digests: nothing whole; none: no line a message either, only each round's bytes",
    )
    ledger: str | None = Field(None, description="folder of the ledgers that last (your own data: yours by default)")
    dataset: str | None = Field(None, description="declared name of your own data on the ledger (default: their path)")
    cap: float | None = Field(None, description="each site's cap on epsilon, over all runs of its ledger")
    out: str | None = Field(None, description="run directory (default: runs/<method>/<data>_eps<e>-<time>)")
    start: str | None = Field(None, description="start from the model of this finished run (PRISM's, say)")
    secure: Secrecy | None = Field(None, description="the server reads only the sum over the sites: quorum")
    settings: dict[str, Any] = Field(default_factory=dict)

    @field_validator("classes", mode="before")
    @classmethod
    def _as_names(cls, value: object) -> object:
        """Classes as text: 0 and "0" name the same one."""
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list | tuple):
            return value
        if any(isinstance(name, bool) for name in value):
            raise ValueError('yes, no, true and false are no names in YAML; quote them: ["yes", "no"]')
        return [plain(name) if isinstance(name, int | float) else name for name in value]

    @field_validator("test", mode="before")
    @classmethod
    def _as_share(cls, value: object) -> object:
        """A share, also where it comes as text; a column's name otherwise."""
        share = value_of(value) if isinstance(value, str) else value
        if isinstance(share, int | float) and not isinstance(share, bool):
            if not 0 <= share < 1:
                raise ValueError("Input should be a share of at least 0 and below 1, or a column's name")
            return float(share)
        return value


def read(path: Path) -> dict[str, Any]:
    """The mapping in a TOML, YAML or JSON file."""
    if not path.exists():
        raise UserError(f"No config file '{path}'{_nearest_preset(path)}")
    text = read_text(path)
    value = load_toml(text, f"'{path}'") if path.suffix == ".toml" else load_yaml(text, f"'{path}'")
    if not isinstance(value, dict):
        raise UserError(f"'{path}' does not hold settings (key = value).")
    return anchored(value, path.parent) if path.name == HERE else value


def anchored(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The keys of a prismfl.toml with its paths, which are relative to that file, as they are from where we are."""
    found = dict(values)
    for key in ("data", "schema_file"):
        place = found.get(key)
        if isinstance(place, str) and (folder / place).exists() and folder != Path() and place not in DATASETS:
            found[key] = str(folder / place)
    return found


def _nearest_preset(path: Path) -> str:
    """How the line on a missing file ends: presets are many, and their names long."""
    root = next((folder for folder in path.parents if folder.name == "presets"), Path("presets"))
    near = difflib.get_close_matches(str(path), [str(preset) for preset in root.glob("*/*.toml")], n=1)
    return f"; did you mean '{near[0]}'?" if near else "."


def merge(
    base: Mapping[str, Any], overrides: Sequence[str], *, settings: type[BaseModel] | None = None
) -> dict[str, Any]:
    """`base` with overrides of the form a.b=c. A bare key that is a setting of the method goes to the settings."""
    given = base.get("settings", {})
    if not isinstance(given, Mapping):
        raise UserError(f"Expected settings as a group of keys (key: settings), got {given!r}.")
    merged: dict[str, Any] = {**base, "settings": dict(given)}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise UserError(f"Expected --set key=value, got '{override}'.")
        path = key.strip().split(".")
        if len(path) == 1 and path[0] not in RunConfig.model_fields and settings is not None:
            path = ["settings", path[0]]
        target = merged
        for part in path[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise UserError(f"'{part}' in --set {key} is not a group of settings.")
        target[path[-1]] = load_yaml(value, f"The value of --set {key}")
    return merged


def written(file: Path | None, sets: Sequence[str], given: Mapping[str, Any]) -> RunConfig:
    """The config of a file, of options (None: not given) and of overrides, whatever its method."""
    base = {**(read(file) if file else {}), **{key: value for key, value in given.items() if value is not None}}
    values = merge(base, sets, settings=BaseModel)
    found: RunConfig = validate(RunConfig, values, str(file or "the command line"))
    return found


def check_keys(kind: type[BaseModel], values: Mapping[str, Any], where: str, *, also: Iterable[str] = ()) -> None:
    """Refuse a key that is none, with the nearest known one; `also` are those that could have been meant besides."""
    for key in values:
        if key not in kind.model_fields:
            near = difflib.get_close_matches(key, [*kind.model_fields, *also], n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(kind.model_fields)}."
            raise UserError(f"Unknown key '{key}' in {where}; {hint}")


def validate(kind: type[BaseModel], values: Mapping[str, Any], where: str) -> Any:
    """`values` as a `kind`, or one clear line that names the key, the value and what would do."""
    check_keys(kind, values, where, also=() if kind is RunConfig else RunConfig.model_fields)
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"Bad value for '{key}' in {where}: {first['msg']}, got {first['input']!r}.") from None


def check(config: RunConfig) -> None:
    """Refuse what cannot be."""
    if config.epsilon is not None and not (config.epsilon > 0 and math.isfinite(config.epsilon)):
        raise UserError(f"Expected epsilon > 0 (--epsilon), got {config.epsilon}.")
    if config.epsilon is not None and config.settings.get("sigma") is not None:
        raise UserError(f"Give --epsilon or sigma, not both (got {config.epsilon} and {config.settings['sigma']}).")
    if not 0 < config.delta < 1:
        raise UserError(f"Expected delta in (0, 1) (--delta), got {config.delta}.")
    if config.cap is not None and not (config.cap > 0 and math.isfinite(config.cap)):
        raise UserError(f"Expected cap > 0 (--cap), got {config.cap}.")
