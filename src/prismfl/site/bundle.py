"""Peers without a server: each site leaves signed releases in a shared place and takes the server's step by itself.

A bundle is one file: a magic line, the length of a JSON header, the header, a release, and an Ed25519 signature over
all of it. The shared place (a folder, a mounted object store, a USB stick) needs no trust: a bundle counts only under
the key that the importing site holds for its sender, in the run and round it is at. All sites import the same bundles
and the server's step is deterministic, so all of them come to the same state.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import MAX_BYTES, Items, JsonDict, encode
from prismfl.core.rounds import initial_state, receive, surviving_step
from prismfl.data import Schema
from prismfl.errors import PrismError, UserError, WireError
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import load_json, read_regular
from prismfl.runs.config import RunConfig
from prismfl.runs.description import declared, describe, job_of, public_images, table_schema
from prismfl.runs.directory import RunDirectory, digest
from prismfl.runs.encoders import travelling
from prismfl.runs.result import save_synthetic, state_digest
from prismfl.site.keys import peer_keys, signing_key
from prismfl.site.office import Office
from prismfl.transport.post import Request

MAGIC = b"prismfl-bundle-1\n"
SIGNATURE = 64
HEADER_LIMIT = 10_000


@dataclass(frozen=True)
class Imported:
    """What an import did: the round that it closed, who counted, the digest of the state that all now share, and whose
    release made the step fail (every peer finds the same one) and was left out."""

    round: int
    sites: tuple[str, ...]
    digest: str
    finished: bool
    dropped: Mapping[str, str]


def seal_bundle(key: Ed25519PrivateKey, header: Mapping[str, Any], release: bytes) -> bytes:
    """A release with its header and digest, signed, as the bytes of a bundle."""
    text = json.dumps({**header, "digest": digest(release)}, sort_keys=True).encode()
    body = MAGIC + struct.pack("<I", len(text)) + text + release
    return body + key.sign(body)


def open_bundle(raw: bytes, keys: Mapping[str, Ed25519PublicKey]) -> tuple[JsonDict, bytes]:
    """The header and the release of a bundle whose signature is that of the site it names; else a `WireError`."""
    if len(raw) > MAX_BYTES or not raw.startswith(MAGIC) or len(raw) < len(MAGIC) + 4 + SIGNATURE:
        raise WireError("The file is not a bundle.")
    body, signature = raw[:-SIGNATURE], raw[-SIGNATURE:]
    start = len(MAGIC) + 4
    (size,) = struct.unpack("<I", body[len(MAGIC) : start])
    if size > HEADER_LIMIT or start + size > len(body):
        raise WireError("The bundle has no readable header.")
    try:
        header = load_json(body[start : start + size], depth=1)
    except ValueError:
        raise WireError("The bundle has no readable header.") from None
    key = keys.get(str(header.get("site"))) if isinstance(header, dict) else None
    if key is None:
        raise WireError("The bundle is of a site whose key is not known here.")
    try:
        key.verify(signature, body)
    except InvalidSignature:
        raise WireError(f"The bundle of '{header['site']}' does not carry its signature.") from None
    return header, body[start + size :]


@dataclass(frozen=True)
class Peer:
    """A site's part in a run without a server."""

    office: Office
    description: JsonDict
    job: Job
    directory: RunDirectory
    schema: Schema | None = None

    @classmethod
    def open(cls, folder: Path, config: RunConfig) -> Peer:
        """The run that a config means to this site and its peers; the same config and peers give the same run."""
        office = Office.open(folder)
        names = sorted({office.config.name, *peer_keys(folder)})
        if len(names) < 2:
            raise UserError(f"No peer is known: put their keys/sign.pub into {folder / 'peers'} as NAME.pub.")
        if config.start is not None:
            raise UserError("A run without a server begins with its method's own model; leave out `start`.")
        spec, schema = declared(config)
        description = describe(config, spec, names, schema=schema)
        job = job_of(description, source=public_images(config.public)[1], encoders=travelling(config.encoder)[1])
        if job.secure is not None:
            raise UserError("A secure sum takes several turns through a server; bundles have one. Leave out `secure`.")
        if job.method.guarantee == "client":
            raise UserError(f"Method '{job.method.name}' needs a hub that all trust; peers have none.")
        path = folder / "runs" / job.run / "peer"
        exists = (path / "run.json").exists()
        directory = RunDirectory.open(path) if exists else RunDirectory.create(path, description, {})
        return cls(office, description, job, directory, table_schema(config))

    def state(self) -> State:
        """The state that this site has come to; the first time, the initial one, which it saves."""
        state = self.directory.load_state()
        if state is None:
            state = initial_state(self.job)
            self.directory.save_state(state)
        return state

    def export(self, shared: Path) -> Path:
        """Make this site's release of the current round (once) and leave it in the shared place."""
        state = self._open_round()
        down = encode(state.items, {"round": state.round})
        answer = self.office.answer(Request("round", self.description, state.round, 0.0, down))
        if answer.kind != "release":
            raise PrismError(f"This site does not release: {answer.code}; see {self.office.folder / 'site.log'}.")
        key = signing_key(self.office.folder / "keys" / "sign.key")
        header = {"run": self.job.run, "round": state.round, "site": self.office.config.name}
        path = shared / self._name(state.round, self.office.config.name)
        write_atomically(path, seal_bundle(key, header, answer.body))
        return path

    def absorb(self, shared: Path, *, without: Collection[str] = ()) -> Imported:
        """Take the server's step with everybody's bundle of this round, `without` those all agreed to leave out."""
        state = self._open_round()
        keys = peer_keys(self.office.folder)
        keys[self.office.config.name] = signing_key(self.office.folder / "keys" / "sign.key").public_key()
        inbox: dict[str, Items] = {}
        for site in self.job.task.sites:
            if site not in without:
                inbox[site] = self._take(shared / self._name(state.round, site), site, state, keys)
        after, dropped = surviving_step(self.job, state, inbox, quorum=len(inbox) - 1)
        self.directory.save_state(after)
        finished = after.round >= self.job.settings.rounds
        if finished:
            down = encode(after.items, {"round": after.round})
            self.office.answer(Request("finish", self.description, after.round, 0.0, down))
            save_synthetic(after, self.directory.path / "gen", self.job.task, self.schema)
            self.directory.set_status("finished")
        counted = tuple(sorted(set(inbox) - set(dropped)))
        return Imported(state.round, counted, state_digest(after), finished, dropped)

    def _take(self, path: Path, site: str, state: State, keys: Mapping[str, Ed25519PublicKey]) -> Items:
        if not path.exists():
            raise UserError(
                f"No bundle of '{site}' for round {state.round + 1} yet ({path}); wait for it, or agree to go on "
                f"with --without {site}."
            )
        header, release = open_bundle(read_regular(path, limit=MAX_BYTES), keys)
        if (header["site"], header.get("round"), header.get("run")) != (site, state.round, self.job.run):
            raise WireError(f"The bundle '{path.name}' is not of '{site}' for round {state.round + 1} of this run.")
        return receive(self.job, state, site, release).items

    def _open_round(self) -> State:
        state = self.state()
        if state.round >= self.job.settings.rounds:
            raise UserError(f"The run is over after {state.round} rounds; its state is in {self.directory.path}.")
        return state

    def _name(self, round: int, site: str) -> str:
        return f"{self.job.run}-{round:04d}-{site}.bundle"
