"""Small federations for tests: site folders with parts of a named data set, and a run over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prismfl.methods import METHODS
from prismfl.runs.config import RunConfig
from prismfl.runs.directory import RunDirectory
from prismfl.server import serving
from prismfl.site.config import SiteConfig, as_toml
from prismfl.site.keys import make_site_keys
from prismfl.site.office import Office
from prismfl.transport.post import RoundRules

NAMES = ("north", "south", "west")
FAST: dict[str, Any] = {"steps": 2, "batch": 32, "rounds": 2, "sigma": 1.0}


def run_config(**changes: Any) -> RunConfig:
    settings = {**FAST, **changes.pop("settings", {})}
    values: dict[str, Any] = {"method": "dp-fedavg", "data": "digits", "model": "logreg", "settings": settings}
    return RunConfig(**{**values, **changes})


def site_config(name: str, **changes: Any) -> SiteConfig:
    values: dict[str, Any] = {
        "name": name,
        "data": "digits",
        "part": NAMES.index(name),
        "parts": len(NAMES),
        "cap": 50.0,
        "methods": ["dp-fedavg"],
        "releases": ["weights"],
        "noise": "seeded",
    }
    return SiteConfig(**{**values, **changes})


def make_site(root: Path, name: str, **changes: Any) -> Office:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.toml").write_text(as_toml(site_config(name, **changes)))
    return Office.open(folder)


def introduced(offices: Sequence[Office]) -> list[Office]:
    """The same sites, each with keys and with the others' public ones (made once)."""
    for office in offices:
        if not (office.folder / "keys").exists():
            make_site_keys(office.folder / "keys")
    for office in offices:
        (office.folder / "peers").mkdir(exist_ok=True)
        for other in offices:
            if other is not office:
                key = (other.folder / "keys" / "sign.pub").read_bytes()
                (office.folder / "peers" / f"{other.config.name}.pub").write_bytes(key)
    return list(offices)


def make_run(path: Path, rules: RoundRules, config: RunConfig | None = None) -> RunDirectory:
    return serving.prepare(path, config or run_config(), NAMES, rules=rules, evaluate=False)


VISITS = """label = "ill"
classes = ["no", "yes"]
unit = "patient"
unit_rows = 3
[[columns]]
name = "height"
min = 100
max = 220
missing = true
[[columns]]
name = "seen"
type = "date"
min = "2020-01-01"
max = "2020-12-31"
format = "%d.%m.%Y"
"""


def table_sites(root: Path, **changes: Any) -> tuple[list[Office], RunConfig]:
    """Sites with tables of their own (gaps, dates, several rows a patient), and a run of 3dgl over them."""
    root.mkdir(parents=True)
    (root / "schema.toml").write_text(VISITS)
    offices = []
    for number, name in enumerate(NAMES):
        rows = [
            f"{'' if i % 4 == 0 else 150 + i % 40},{1 + i % 28:02}.03.2020,{('no', 'yes')[i % 3 == 0]},{name}-{i // 2}"
            for i in range(number, number + 40)
        ]
        path = root / f"{name}.csv"
        path.write_text("\n".join(["height,seen,ill,patient", *rows]) + "\n")
        own = {"data": str(path), "schema_file": str(root / "schema.toml"), "part": None, "parts": 1, "unit": "patient"}
        allowed = {"methods": ["3dgl"], "releases": ["synthesizer"], "ledger": str(root / f"ledger of {name}")}
        offices.append(make_site(root, name, **{**own, **allowed, **changes}))
    settings = {**METHODS["3dgl"].tiny, "sigma": 2.0}
    config = RunConfig(
        method="3dgl", data="visits.csv", schema_file=str(root / "schema.toml"), records=20, settings=settings
    )
    return offices, config
