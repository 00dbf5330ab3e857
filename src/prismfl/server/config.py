"""The server's folder: `server.toml`, its certificates, the enrolled sites' keys and the runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from prismfl.errors import UserError
from prismfl.runs.config import read, validate
from prismfl.runs.names import check_name
from prismfl.site.certificates import make_authority
from prismfl.site.config import as_toml
from prismfl.site.keys import node_identity
from prismfl.transport.post import RoundRules

FILE = "server.toml"


class ServerConfig(BaseModel):
    """The whole of `server.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: int = Field(9092, ge=1, le=65535, description="port to listen on")
    quorum: int = Field(2, ge=1, description="releases that a round needs")
    deadline: float = Field(600.0, gt=0, description="seconds that a round may take")
    join: float = Field(600.0, gt=0, description="seconds to wait for sites before the first round")
    evaluate: bool = Field(False, description="measure accuracy on the test part of a named data set, on the server")

    def rules(self) -> RoundRules:
        """The rules of a round that this config sets."""
        return RoundRules(self.quorum, deadline=self.deadline, join=self.join)


def init_server(folder: Path, config: ServerConfig, names: list[str]) -> None:
    """Make a server's folder: its certificates for these names, a place for the sites' keys, and `server.toml`."""
    if (folder / FILE).exists():
        raise UserError(f"'{folder}' holds a server already.")
    make_authority(folder / "keys", names)
    (folder / "sites").mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(as_toml(config))


def load_server(folder: Path) -> ServerConfig:
    """The checked `server.toml` of a server's folder."""
    if not (folder / FILE).is_file():
        raise UserError(f"No {FILE} in '{folder}'; make one with: prismfl server init {folder}.")
    found: ServerConfig = validate(ServerConfig, read(folder / FILE), str(folder / FILE))
    return found


def enroll(folder: Path, name: str, public_key: Path) -> None:
    """Admit a site under a name; the name and the key are both new."""
    check_name(name)
    load_server(folder)
    identity = node_identity(public_key)
    for known, key in enrolled(folder).items():
        if known == name:
            raise UserError(f"A site named '{name}' is enrolled already; two sites cannot have the same name.")
        if key == identity:
            raise UserError(f"This key is enrolled already, as site '{known}'.")
    shutil.copyfile(public_key, folder / "sites" / f"{name}.pub")


def enrolled(folder: Path) -> dict[str, bytes]:
    """Each enrolled site's identity by its name."""
    return {path.stem: node_identity(path) for path in sorted((folder / "sites").glob("*.pub"))}
