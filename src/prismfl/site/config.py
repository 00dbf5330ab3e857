"""What a site has decided for itself: its data, its cap, and what may leave. `site.toml`, read by nobody else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.files.written import toml_value
from prismfl.nets.encoders.names import NAMES, OWN_NAME, is_ours, pinned
from prismfl.runs.config import read, validate
from prismfl.runs.names import NAME, check_name
from prismfl.site.folder import FILE

if TYPE_CHECKING:
    from prismfl.privacy.ledger.admission import Cap

SCHEMA = 1
"""The format of a site's folder: what stands in it besides site.toml."""


class SiteConfig(BaseModel):
    """The whole of `site.toml`. Nothing here can be changed from outside, and no request adds a fact about the data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="how the federation knows this site; lower-case letters, digits, dashes")
    data: str = Field(description="a data set's name, or a path to this site's own records")
    data_dir: str | None = Field(None, description="where the files of named data sets lie")
    part: int | None = Field(None, ge=0, description="for trials: this site holds part 0, 1, ... of a named data set")
    parts: int = Field(1, ge=1, description="for trials: into how many parts the named data set is split")
    split: str = Field("iid", description="for trials: how the named data set is split")
    seed: int = Field(0, description="for trials: the split's seed")
    label: str | None = Field(None, description="label column of a CSV or Parquet file")
    schema_file: str | None = Field(None, description="declared columns of a table")
    classes: list[str] | None = Field(None, description="declared classes of own images or of an npz file")
    image_size: int | None = Field(None, ge=1, le=1024, description="pixels a side that own images are brought to")
    channels: Literal[1, 3] | None = Field(None, description="1 (grey) or 3 (colour) for own images")
    features: int | None = Field(None, ge=1, description="numbers in each record of an npz table")
    bounds: tuple[float, float] | None = Field(
        None, description="least and largest value in an npz file; values outside are clipped to them"
    )
    relation: Literal["add-remove", "replace-one"] = Field(
        "add-remove", description="which data count as neighbours: one unit more or less, or one replaced"
    )
    unit: str = Field("record", description="what is protected: record, or an id column such as patient_id")
    ledger: str | None = Field(
        None, description="folder of this site's ledger (own data: by default the one ledger of this user)"
    )
    dataset: str | None = Field(None, description="declared name of the data on the ledger (default: their path)")
    cap: float | Literal["none"] = Field(1.0, description='most epsilon that may ever be spent; "none" asks for no DP')
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of the cap")
    methods: list[str] = Field(description="methods that may run here")
    releases: list[str] = Field(
        description="kinds of release that may leave: weights, gradient, statistics, synthetic-set, synthesizer"
    )
    configs: list[str] = Field([], description="digests of the only run configs that may run here; empty allows any")
    honest: int = Field(
        1,
        ge=1,
        description="secure sums: how many of the sites in peers/ and this one, which counts, follow the protocol and "
        "tell the server nothing; 1 trusts nobody, so that this site adds all the noise itself",
    )
    reference: bool = Field(
        False, description="whether only the plain reference arithmetic may be used here, no fast kernels"
    )
    max_runs: int = Field(1000, ge=1, description="most runs that may ever be asked for here; old ones can be deleted")
    max_rounds: int = Field(1000, ge=1, description="most rounds of a run that may run here")
    max_bytes: int = Field(256 * 2**20, ge=1, description="most bytes of one release")
    max_public: int = Field(20_000, ge=1, description="most public images of a run")
    max_seconds: float = Field(3600.0, gt=0, description="most seconds of processor time for one answer")
    max_memory: float = Field(8.0, gt=0, description="most gigabytes of memory for one answer")
    reserved_hours: float = Field(
        168.0, gt=0, description="a run that asks for nothing for so long no longer holds budget it has not spent"
    )
    answer_every: float = Field(
        0.0, ge=0, description="answers leave at multiples of so many seconds, so their time tells nothing; 0: at once"
    )
    approval: bool = Field(False, description="whether every release waits for a person: prismfl site approve ID")
    approvers: int = Field(1, ge=1, le=9, description="how many people must approve a release; one can deny it")
    notify: list[str] = Field(
        [], description='a command that is started with the id of a release that waits, as ["/usr/local/bin/tell"]'
    )
    noise: Literal["operating-system", "seeded"] = Field(
        "operating-system", description='where noise comes from; "seeded" is for simulation only and protects nobody'
    )
    device: str = Field("cpu", pattern=r"^(cpu|mps|cuda(:\d{1,2})?)$", description="where this site computes")
    threads: int = Field(1, ge=1, le=256, description="torch threads that this site gives to a run")
    public: dict[str, str] = Field(
        {}, description="folders of public images on this site by the names that a run may call them by"
    )
    encoders: list[str] = Field(
        list(NAMES),
        description="public encoders that may run here: names of prismfl's own, and own ONNX files as NAME=FILE=SHA256",
    )


def load_site(folder: Path, *, thorough: bool = True) -> SiteConfig:
    """The site in a folder, checked: a mistake is found here, before any server is called.

    Not `thorough` leaves out the names of methods, whose import takes seconds.
    """
    if not (folder / FILE).is_file():
        raise UserError(f"No {FILE} in '{folder}'; make one with: prismfl site init {folder} --name NAME --data DATA.")
    schema.check(folder, SCHEMA)
    found: SiteConfig = validate(SiteConfig, read(folder / FILE), str(folder / FILE))
    return check_site(found, thorough=thorough)


def check_site(config: SiteConfig, *, thorough: bool = True) -> SiteConfig:
    """The config, once its values are found to fit together; `thorough` checks methods and releases too."""
    from prismfl.data import DATASETS, parse_split

    check_name(config.name)
    if thorough:
        _check_lists(config)
    if config.cap != "none" and not 0 < config.cap < float("inf"):
        raise UserError(f'Expected cap > 0 or "none" in {FILE}, got {config.cap}.')
    if config.data not in DATASETS and not Path(config.data).exists():
        raise UserError(f"The data '{config.data}' of {FILE} is neither a data set's name nor a path that exists.")
    if config.part is not None and (config.part >= config.parts or config.data not in DATASETS):
        raise UserError(f"Expected part < parts = {config.parts} of a named data set in {FILE}, got {config.part}.")
    if parse_split(config.split).name == "natural":
        raise UserError(f"Expected a split of a named data set in {FILE}, such as iid or shards, got '{config.split}'.")
    low, high = config.bounds or (0.0, 1.0)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"Expected finite bounds with low < high in {FILE}, got {low} and {high}.")
    _check_public(config)
    for name, file in own_encoders(config).items():
        if not Path(pinned(file).body).is_file():
            raise UserError(f"The file of encoder '{name}' in `encoders` of {FILE} is not there.")
    return config


def own_encoders(config: SiteConfig) -> dict[str, str]:
    """This site's own encoders: FILE=SHA256 by the name that a run may call it by."""
    found = {}
    for words in config.encoders:
        name, equals, file = words.partition("=")
        if not equals and name in NAMES:
            continue
        if not OWN_NAME.fullmatch(name) or is_ours(name) or not file.partition("=")[0].endswith(".onnx"):
            raise UserError(
                f"Expected one of {', '.join(NAMES)} or NAME=FILE.onnx=SHA256 in `encoders` of {FILE}, got '{words}'."
            )
        if pinned(file).digest is None:
            raise UserError(f"Expected the SHA-256 of encoder '{name}' in {FILE}, as in {name}=FILE.onnx=SHA256.")
        found[name] = file
    return found


def _check_public(config: SiteConfig) -> None:
    """Only names cross; and what is private is not public under another name."""
    from prismfl.data import public_names

    for name, folder in config.public.items():
        if not NAME.fullmatch(name):
            raise UserError(
                f"Expected a name of lower-case letters, digits and dashes (at most 40) in [public] of {FILE}, "
                f"got '{name}'."
            )
        if name in public_names():
            raise UserError(f"'{name}' in [public] of {FILE} is the name of public images already; choose another.")
        place, own = Path(folder).resolve(), Path(config.data).resolve()
        if not place.is_dir():
            raise UserError(f"Expected a folder of public images as '{name}' in [public] of {FILE}, got '{folder}'.")
        if own.exists() and (place.is_relative_to(own) or own.is_relative_to(place)):
            raise UserError(f"The public images '{name}' of {FILE} and this site's own data lie in one another.")


def _check_lists(config: SiteConfig) -> None:
    from prismfl.core.payloads import KINDS
    from prismfl.methods import METHODS

    for what, given, known in (("method", config.methods, METHODS), ("release", config.releases, KINDS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise UserError(f"Unknown {what} '{unknown[0]}' in {FILE}; known: {', '.join(known)}.")


def ledger_of(folder: Path, config: SiteConfig) -> Path:
    """Own data count on the one ledger of this user, whoever asks; a trial's on one in the site's folder."""
    from prismfl.data import DATASETS
    from prismfl.privacy.ledger.place import LEDGER_FILE, ledger_path

    if config.ledger is not None:
        return Path(config.ledger) / LEDGER_FILE
    # A site that has kept its own ledger from before goes on with it: no move may give it a fresh budget.
    own = config.data in DATASETS or (folder / f"{LEDGER_FILE}.anchor").exists()
    return folder / LEDGER_FILE if own else ledger_path()


def name_on_ledger(config: SiteConfig) -> str:
    """What the site's data are called on its ledger."""
    from prismfl.data import DATASETS

    place = config.data if config.data in DATASETS else str(Path(config.data).resolve())
    return config.dataset or (place if config.part is None else f"{place}/{config.part}")


def cap_by_hand(folder: Path, config: SiteConfig) -> str | None:
    """That the ledger's keeper has set a smaller cap than site.toml says, in words; None where nobody has."""
    from prismfl.privacy.ledger.book import Ledger

    place, name = ledger_of(folder, config), name_on_ledger(config)
    if not place.exists():
        return None
    with Ledger.open(place, create=False) as ledger:
        return smaller_cap(config, next((status.by_hand for status in ledger.status() if name in status.names), None))


def smaller_cap(config: SiteConfig, by_hand: Cap | None) -> str | None:
    """The same of a cap that is known."""
    mine = math.inf if config.cap == "none" else config.cap
    if by_hand is None or (by_hand.epsilon >= mine and by_hand.delta >= config.delta):
        return None
    return (
        f"the cap set by hand in the ledger holds, epsilon {by_hand.epsilon:g} at delta {by_hand.delta:g}, not that of "
        f"{FILE} ({config.cap} at {config.delta:g}): the smaller number counts; change it with: prismfl ledger cap"
    )


def as_toml(config: BaseModel) -> str:
    """A commented TOML file of a config; what is not set stays as a comment, tables come last."""
    lines, tables = [], []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, dict):
            tables += [f"# {field.description}", f"[{name}]" if value else f"# [{name}]"]
            tables += [f"{key} = {toml_value(word)}" for key, word in value.items()] + [""]
            continue
        lines.append(f"# {field.description}")
        lines.append(f"# {name} =" if value is None else f"{name} = {toml_value(value)}")
        lines.append("")
    return "\n".join(lines + tables)
