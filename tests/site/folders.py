"""Small federations for tests: site folders with parts of a named data set, and a run over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
