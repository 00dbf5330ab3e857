"""A run's directory: what was asked, what crossed the wire, what was measured; and the checkpoint to resume from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl.core import wire
from prismfl.core.method import State
from prismfl.core.payloads import MAX_BYTES, Payload, decode, encode
from prismfl.errors import UserError, WireError
from prismfl.files import inside as run_files
from prismfl.files.atomic import make_folder, opener, write_atomically
from prismfl.files.bounded import read_regular

SCHEMA_VERSION = 2
MOST_PAYLOAD_BYTES = 4 * 2**30
JSON_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True)
class Message:
    """One thing that crossed: `direction` is "up" (site to server) or "down"."""

    round: int
    site: str
    direction: str
    bytes: int
    digest: str
    file: str | None


class RunDirectory:
    """`runs/<method>/<data>_eps<e>-<UTC time>/` and everything in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], environment: Mapping[str, Any], *, closed: bool = False
    ) -> RunDirectory:
        """A new run directory; a `closed` one is for its owner's eyes alone."""
        try:
            make_folder(path, closed=closed, new=True)
        except OSError as error:
            if path.exists():
                raise UserError(f"The run directory '{path}' exists already; choose another with --out.") from None
            raise UserError(f"Cannot make the run directory '{path}': {error.strerror}.") from None
        run = cls(path)
        run.write_json("run.json", {"schema_version": SCHEMA_VERSION, "status": "running"})
        run.write_json("config.json", config)
        run.write_json("environment.json", environment)
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run directory; one in a format that this version does not read is an error."""
        run = cls(path)
        if not (path / "run.json").is_file():
            raise UserError(f"'{path}' is not a run directory (it has no run.json).")
        told = run.read_json("run.json")
        version = told.get("schema_version")
        # In format 1 a site's memory lay in files beside the ledger: such a run can be read, but it cannot go on.
        if version != SCHEMA_VERSION and not (version == 1 and told.get("status") == "finished"):
            raise UserError(
                f"'{path}' was written in run format {version}, this version reads format {SCHEMA_VERSION}; "
                "use the version of prismfl that wrote it."
            )
        return run

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file into the directory, whole or not at all."""
        raw = json.dumps(value, indent=2, sort_keys=True, allow_nan=False, default=str) + "\n"
        write_atomically(self.path / name, raw.encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object in a file of the directory; a file that is missing or holds something else is an error."""
        try:
            value = run_files.read_json(self.path, name)
        except FileNotFoundError:
            raise UserError(f"'{self.path}' has no {name}: the run was cut off before it was written.") from None
        if not isinstance(value, dict):
            raise UserError(f"'{self.path / name}' is not a JSON object.")
        return value

    def set_status(self, status: str) -> None:
        """Says how the run stands: running, finished or failed."""
        self.write_json("run.json", {"schema_version": SCHEMA_VERSION, "status": status})

    @property
    def status(self) -> str:
        """How the run stands: running, finished or failed."""
        return str(self.read_json("run.json").get("status"))

    # What crossed

    def record(self, message: Message, raw: bytes | None) -> None:
        """Adds a message to the transcript, and keeps its bytes if they are given and it names a file."""
        if raw is not None and message.file is not None:
            # Whole or absent after a kill; like the lines about it, it does not wait for the disk.
            path = self.path / message.file
            make_folder(path.parent)
            part = path.with_name(path.name + ".part")
            with open(part, "wb", opener=opener) as file:
                file.write(raw)
            part.replace(path)
        self._append("transcript.jsonl", message.__dict__)

    def messages(self) -> list[Message]:
        """Each message once, the last word of a resumed run counting."""
        try:
            found = [Message(**line) for line in self._lines("transcript.jsonl")]
            return list({(m.round, m.site, m.direction): m for m in found}.values())
        except TypeError:
            raise UserError(f"'{self.path / 'transcript.jsonl'}' does not hold messages.") from None

    def payloads(self, message: Message) -> dict[str, Payload]:
        """What a message held; if only its digest was kept, that is an error."""
        if message.file is None:
            raise UserError(
                f"The run kept only the digest of round {message.round}; run again with --set transcript=full."
            )
        return decode(run_files.read_bytes(self.path, message.file, most=MOST_PAYLOAD_BYTES))[0]

    # What was measured

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Adds a row of measurements."""
        self._append("metrics.jsonl", row)

    def metrics(self) -> list[dict[str, Any]]:
        """The measurements, a row a round, the last word of a resumed run counting."""
        rows = (row for row in self._lines("metrics.jsonl") if isinstance(row.get("round"), int))
        return list({row["round"]: row for row in rows}.values())

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        with open(self.path / name, "a", opener=opener) as file:
            file.write(json.dumps(dict(row), sort_keys=True) + "\n")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        try:
            raw = run_files.read_bytes(self.path, name, most=run_files.MOST_LINE_BYTES)
        except FileNotFoundError:
            return
        for line in raw.splitlines():
            try:
                value = run_files.parse(line, self.path / name)
            except UserError:  # the last line of a killed run may be cut off
                continue
            if isinstance(value, dict):
                yield value

    # Checkpoint: two generations, each with its own digest

    def save_state(self, state: State) -> None:
        """Writes a checkpoint, and keeps the one before it."""
        raw = encode(state.items, {"round": state.round})
        folder = self.path / "checkpoint"
        current = folder / "state.safetensors"
        if current.exists():
            current.replace(folder / "state.previous.safetensors")
        write_atomically(current, hashlib.sha256(raw).digest() + raw)

    def load_state(self) -> State | None:
        """The newest whole checkpoint; a damaged newest one falls back to the one before; two damaged are refused."""
        folder = self.path / "checkpoint"
        found = [p for n in ("state.safetensors", "state.previous.safetensors") if (p := folder / n).exists()]
        for path in found:
            raw = read_regular(path, limit=MAX_BYTES + 32)
            if hashlib.sha256(raw[32:]).digest() != raw[:32]:
                continue
            try:
                items, header = decode(raw[32:])
                return State(wire.whole(header.get("round"), limit=2**31), items)
            except WireError:
                continue
        if found:
            raise UserError(f"Both checkpoints in '{folder}' are damaged; the run cannot be resumed.")
        return None


def digest(raw: bytes) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(raw).hexdigest()


def runs_below(root: Path) -> Iterator[Path]:
    """Every run directory at or below `root`, newest first; a link that leads out of it is none."""
    found = [(_changed(p), p.parent) for p in root.rglob("run.json") if _within(p, root)]
    return (path for _, path in sorted(found, key=lambda pair: pair[0], reverse=True))


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
