"""The server's folder: `server.toml`, its certificates, the enrolled sites' keys and the runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_json, read_regular
from prismfl.runs.config import read, validate
from prismfl.runs.names import check_name
from prismfl.site.certificates import make_authority
from prismfl.site.config import as_toml
from prismfl.site.keys import KEY_LIMIT, node_identity
from prismfl.transport.post import RoundRules

FILE = "server.toml"
SCHEMA = 1
"""The format of a server's folder."""


class ServerConfig(BaseModel):
    """The whole of `server.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: int = Field(9092, ge=1, le=65535, description="port to listen on")
    names: list[str] = Field([], description="host names and addresses that sites use, for the certificate")
    quorum: int = Field(2, ge=1, description="releases that a round needs")
    deadline: float = Field(600.0, gt=0, description="seconds that a round may take")
    join: float = Field(600.0, gt=0, description="seconds to wait for sites before the first round")
    close_after: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="seconds that a round stays open once the quorum has answered; not set: until its deadline",
    )
    evaluate: bool = Field(False, description="measure accuracy on the test part of a named data set, on the server")

    def rules(self) -> RoundRules:
        """The rules of a round that this config sets."""
        return RoundRules(self.quorum, deadline=self.deadline, join=self.join, close_after=self.close_after)


def init_server(folder: Path, config: ServerConfig, names: list[str]) -> None:
    """Make a server's folder: its certificates for these names, a place for the sites' keys, and `server.toml`."""
    if (folder / FILE).exists():
        raise UserError(f"'{folder}' holds a server already.")
    make_authority(folder / "keys", names)
    (folder / "sites").mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(as_toml(config))
    schema.begin(folder, SCHEMA)


def load_server(folder: Path) -> ServerConfig:
    """The checked `server.toml` of a server's folder."""
    if not (folder / FILE).is_file():
        raise UserError(f"No {FILE} in '{folder}'; make one with: prismfl server init {folder}.")
    schema.check(folder, SCHEMA)
    found: ServerConfig = validate(ServerConfig, read(folder / FILE), str(folder / FILE))
    return found


def enroll(folder: Path, name: str, public_key: Path) -> None:
    """Admit a site under a name; the name and the key are both new."""
    check_name(name)
    load_server(folder)
    if name in enrolled(folder):
        raise UserError(
            f"A site named '{name}' is enrolled already; two sites cannot have the same name (a new key: --replace)."
        )
    _check_new(folder, name, public_key)
    _admit(folder, name, public_key)


def _admit(folder: Path, name: str, public_key: Path) -> None:
    """Whole or not at all: a run under way reads the keys again and again."""
    write_atomically(folder / "sites" / f"{name}.pub", read_regular(public_key, limit=KEY_LIMIT))


def _check_new(folder: Path, name: str, public_key: Path) -> None:
    """A key that no site has, and that was never revoked."""
    identity = node_identity(public_key)
    for known, key in enrolled(folder).items():
        if key == identity:
            raise UserError(f"This key is enrolled already, as site '{known}'.")
    note = folder / "sites" / "revoked" / f"{hashlib.sha256(identity).hexdigest()[:32]}.json"
    if note.exists():
        told = read_json(note)
        raise UserError(
            f"This key was revoked on {told['time']} ({told['reason']}); site '{name}' needs a new one: "
            "prismfl site rotate."
        )


def revoke(folder: Path, name: str, reason: str) -> None:
    """Un-enroll a site: from now on, also in a run that is under way, its key is nobody's and stays so."""
    load_server(folder)
    key = folder / "sites" / f"{check_name(name)}.pub"
    if not key.is_file():
        raise UserError(f"No site '{name}' is enrolled; enrolled: {', '.join(enrolled(folder)) or 'none'}.")
    gone = folder / "sites" / "revoked"
    gone.mkdir(exist_ok=True)
    told = {"name": name, "time": datetime.now(UTC).isoformat(timespec="seconds"), "reason": reason[:500]}
    place = gone / f"{hashlib.sha256(node_identity(key)).hexdigest()[:32]}.json"
    write_atomically(place, json.dumps(told, indent=2).encode() + b"\n")
    key.unlink()


def replace(folder: Path, name: str, public_key: Path) -> None:
    """A site's new key in the place of its old one, which is nobody's from then on."""
    if name not in enrolled(folder):
        raise UserError(f"No site '{name}' is enrolled; enroll it without --replace.")
    _check_new(folder, name, public_key)
    revoke(folder, name, "replaced by a new key")
    _admit(folder, name, public_key)


def by_key(folder: Path) -> dict[bytes, str]:
    """Each enrolled site's name by its identity. Asked during a run: a key that is taken away meanwhile is nobody's."""
    found = {}
    for path in sorted((folder / "sites").glob("*.pub")):
        with contextlib.suppress(UserError):
            found[node_identity(path)] = path.stem
    return found


def enrolled(folder: Path) -> dict[str, bytes]:
    """Each enrolled site's identity by its name."""
    return {path.stem: node_identity(path) for path in sorted((folder / "sites").glob("*.pub"))}
