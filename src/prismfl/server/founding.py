"""A new federation on paper: a folder for each party, to be sent to it, with its own file, filled in and commented, and
what to do. Nothing secret is made here: each party makes its keys on its own machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl.core.payloads import KINDS
from prismfl.data import DATASETS
from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_regular
from prismfl.files.fresh import write_folder
from prismfl.files.written import toml_value
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.description import declared
from prismfl.runs.names import check_name
from prismfl.runs.planning import check_records, find_method
from prismfl.server import config as server_config
from prismfl.server.config import ServerConfig, load_server
from prismfl.site import certificates
from prismfl.site import config as site_config
from prismfl.site import data as site_data
from prismfl.site import folder as site_folder
from prismfl.site.config import SiteConfig, as_toml, load_site
from prismfl.site.keys import KEY_LIMIT, make_site_keys
from prismfl.transport.flower.children import split_address

Say = Callable[[str], None]
YOUR_DATA, SCHEMA_FILE = "/path/to/your/records", "schema.toml"


@dataclass(frozen=True)
class Agreed:
    """What the parties have agreed on before anything runs."""

    server: str
    sites: Sequence[str]
    method: str
    data: str
    epsilon: float
    delta: float = 1e-5
    cap: float | None = None
    schema_file: str | None = None
    classes: Sequence[str] | None = None
    image_size: int | None = None
    channels: int | None = None
    features: int | None = None
    records: int | None = None
    approval: bool = True


def new_federation(folder: Path, agreed: Agreed) -> list[Path]:
    """Write the folders of all parties; whole or not at all. What was written, by party."""
    host, port = split_address(agreed.server)
    names = [check_name(name) for name in agreed.sites]
    if len(set(names)) != len(names) or len(names) < 2 or "server" in names:
        raise UserError(f"Expected two or more sites with names of their own, none of them 'server', got {names}.")
    method = find_method(agreed.method)
    server = ServerConfig(host="0.0.0.0", port=port, names=[host], quorum=len(names), deadline=86400.0, join=86400.0)
    kinds = sorted({kind.kind for kind in method.leaves.values()} & set(KINDS))
    files = [("server/server.toml", as_toml(server)), ("server/run.toml", _run(agreed))]
    files.append(("server/STEPS.md", _server_steps(agreed, host, port)))
    for i, name in enumerate(names):
        files.append((f"{name}/site.toml", as_toml(_site(agreed, name, i, kinds))))
        files.append((f"{name}/STEPS.md", _site_steps(agreed, name)))
        if agreed.schema_file is not None:
            files.append((f"{name}/{SCHEMA_FILE}", Path(agreed.schema_file).read_text()))
    if agreed.schema_file is not None:
        files.append((f"server/{SCHEMA_FILE}", Path(agreed.schema_file).read_text()))
    write_folder(folder, [(name, text.encode()) for name, text in files])
    return [folder / name for name in ("server", *names)]


def make_keys(folder: Path, *, ca: Path | None, say: Say) -> Path:
    """On a party's own machine: its keys, and for a site what is read of its data. What to send to the other side."""
    if (folder / server_config.FILE).is_file():
        settings = load_server(folder)
        names = list(dict.fromkeys([*settings.names, "127.0.0.1", "localhost"]))
        certificates.make_authority(folder / "keys", names)
        (folder / "sites").mkdir(exist_ok=True)
        schema.begin(folder, server_config.SCHEMA)
        return folder / "keys" / "ca.pem"
    if not (folder / site_folder.FILE).is_file():
        raise UserError(f"'{folder}' holds neither a site.toml nor a server.toml; take a folder of `federation new`.")
    if ca is None:
        raise UserError("A site needs the server's authority: --ca ca.pem, as the server's operator has sent it.")
    site = load_site(folder)
    if site.schema_file == SCHEMA_FILE:  # as it came; from now on wherever the site's commands are called from
        site = site.model_copy(update={"schema_file": str((folder / SCHEMA_FILE).resolve())})
    trust = read_regular(ca, limit=KEY_LIMIT)
    found = None if site.data in DATASETS else site_data.read(site)
    folder.chmod(0o700)
    make_site_keys(folder / "keys")
    write_atomically(folder / "keys" / "ca.pem", trust)
    write_atomically(folder / site_folder.FILE, as_toml(site).encode())
    schema.begin(folder, site_config.SCHEMA)
    if found is not None:
        site_data.keep(folder, site, found)
        say("the data were read; look at what was left out with: prismfl site check")
    return folder / "keys" / "node.pub"


def _site(agreed: Agreed, name: str, place: int, kinds: list[str]) -> SiteConfig:
    named = agreed.data in DATASETS
    given: dict[str, Any] = {
        "name": name,
        "data": agreed.data if named else YOUR_DATA,
        "methods": [agreed.method],
        "releases": kinds,
        "cap": agreed.cap or agreed.epsilon,
        "delta": agreed.delta,
        "approval": agreed.approval,
    }
    if named:
        given |= {"part": place, "parts": len(agreed.sites)}
    else:
        given |= {"schema_file": None if agreed.schema_file is None else SCHEMA_FILE}
        given |= {"classes": agreed.classes, "image_size": agreed.image_size, "channels": agreed.channels}
        given |= {"features": agreed.features}
    config: SiteConfig = validate(SiteConfig, given, "the options")
    return config


def _run(agreed: Agreed) -> str:
    """The run that all have agreed on, as `prismfl server start` takes it."""
    told: dict[str, Any] = {"method": agreed.method, "data": agreed.data, "epsilon": agreed.epsilon}
    told |= {"delta": agreed.delta}
    if agreed.data not in DATASETS:
        told |= {"schema_file": None if agreed.schema_file is None else SCHEMA_FILE, "classes": agreed.classes}
        told |= {"image_size": agreed.image_size, "channels": agreed.channels, "features": agreed.features}
        told |= {"records": agreed.records}
        asked: RunConfig = validate(RunConfig, {**told, "schema_file": agreed.schema_file}, "the options")
        declared(asked)  # what the run could not tell its sites is found here, not when they have joined
        check_records(asked)
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in told.items() if value is not None)


def _server_steps(agreed: Agreed, host: str, port: int) -> str:
    enroll = "\n".join(f"prismfl server enroll server {name} {name}.pub" for name in agreed.sites)
    return f"""# The server

Sites will call {host}:{port}; let that port through.

```
prismfl federation keys server        # certificates, on this machine; keys/*.key stay here
prismfl doctor server
```

1. Send `server/keys/ca.pem` to every site ({", ".join(agreed.sites)}).
2. Each site sends back its `node.pub`; compare its digest by telephone (`sha256sum node.pub`), save it as NAME.pub:

```
{enroll}
```

3. Run what was agreed on. It waits for the sites; what is dropped and why is printed here:

```
cd server && prismfl server start . run.toml
```
"""


def _site_steps(agreed: Agreed, name: str) -> str:
    read = f"Read `{name}/site.toml`: it is your word on what may ever leave, and no server can change it."
    if agreed.data not in DATASETS:
        read = f"Write the path of your records into `{name}/site.toml`, key `data`. R{read[1:]}"
    look = "\nEach release waits for you: `prismfl site desk " + name + "`.\n" if agreed.approval else ""
    return f"""# Site {name}

1. {read}
2. Save the server's `ca.pem` beside the folder, then, on this machine:

```
prismfl federation keys {name} --ca ca.pem      # keys/*.key stay here
prismfl site check {name}                       # what is declared, and what was left out
prismfl doctor {name}
```

3. Send `{name}/keys/node.pub` to the server's operator; tell its digest by telephone (`sha256sum`).
4. Once you are enrolled:

```
prismfl site join {name} {agreed.server}
```
{look}"""
