"""Several servers for one site: each with its own address, its own trust and its own allow-lists, all under site.toml,
one ledger and one cap. `servers/NAME/server.toml` and `servers/NAME/ca.pem`, written by the site's operator."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.files.bounded import read_regular
from prismfl.runs.config import read, validate
from prismfl.runs.names import check_name
from prismfl.site.config import SiteConfig, as_toml
from prismfl.site.keys import KEY_LIMIT
from prismfl.transport.flower.children import split_address

FOLDER, FILE = "servers", "server.toml"
NO_CONFIG = "none of them"
"""Stands for an empty list of digests, which would allow any."""


class AllowedServer(BaseModel):
    """What one server may ask of this site; what is not said is as in site.toml, and nothing goes beyond it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(description="HOST:PORT of the server")
    methods: list[str] | None = Field(None, description="methods that it may ask for; default: as in site.toml")
    releases: list[str] | None = Field(None, description="kinds that may leave to it; default: as in site.toml")
    configs: list[str] | None = Field(None, description="digests of the only run configs that it may ask for")


def place_of(folder: Path, name: str) -> Path:
    """Where a site keeps what belongs to one server; without a name, to its only one."""
    return folder / FOLDER / check_name(name) if name else folder


def servers_of(folder: Path) -> list[str]:
    """The names that this site has given to its servers."""
    return sorted(path.parent.name for path in folder.glob(f"{FOLDER}/*/{FILE}"))


def add_server(folder: Path, name: str, allowed: AllowedServer, ca: Path) -> None:
    """Make a server known under a name of the site's own."""
    place = place_of(folder, name)
    split_address(allowed.address)
    if (place / FILE).exists():
        raise UserError(f"A server '{name}' is known already; change {place / FILE}.")
    trust = read_regular(ca, limit=KEY_LIMIT)
    make_folder(place)
    write_atomically(place / "ca.pem", trust)
    write_atomically(place / FILE, as_toml(allowed).encode())


def load_server(folder: Path, name: str) -> AllowedServer:
    """What a server of this name may ask for."""
    file = place_of(folder, name) / FILE
    if not file.is_file():
        known = ", ".join(servers_of(folder)) or "none"
        raise UserError(
            f"Expected HOST:PORT or the name of a server that is known here ({known}), got '{name}'; add one with: "
            "prismfl site server."
        )
    found: AllowedServer = validate(AllowedServer, read(file), str(file))
    return found


def narrowed(config: SiteConfig, allowed: AllowedServer) -> SiteConfig:
    """The site as one server finds it: never more than site.toml allows."""
    both = {}
    for key in ("methods", "releases"):
        mine, theirs = getattr(config, key), getattr(allowed, key)
        both[key] = mine if theirs is None else [name for name in mine if name in theirs]
    if allowed.configs is not None:
        mine = config.configs or allowed.configs
        both["configs"] = [digest for digest in mine if digest in allowed.configs] or [NO_CONFIG]
    return config.model_copy(update=both)
