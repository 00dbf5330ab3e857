"""A run's directory: what was asked, what crossed the wire, what was measured; and the checkpoint to resume from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl import wire
from prismfl.atomic import make_folder, opener, write_atomically
from prismfl.errors import UserError, WireError
from prismfl.files import DEPTH, load_json, read_json, read_regular, read_text
from prismfl.method import State
from prismfl.payloads import MAX_BYTES, Payload, decode, encode

SCHEMA_VERSION = 1
KEEP = ("ends", "full", "digests")
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
    def create(cls, path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> RunDirectory:
        try:
            make_folder(path, new=True)
        except FileExistsError:
            raise UserError(f"The run directory '{path}' exists already; choose another with --out.") from None
        except OSError as error:
            raise UserError(f"Cannot make the run directory '{path}': {error.strerror}.") from None
        run = cls(path)
        run.write_json("run.json", {"schema_version": SCHEMA_VERSION, "status": "running"})
        run.write_json("config.json", config)
        run.write_json("environment.json", environment)
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        run = cls(path)
        if not (path / "run.json").is_file():
            raise UserError(f"'{path}' is not a run directory (it has no run.json).")
        version = run.read_json("run.json").get("schema_version")
        if version != SCHEMA_VERSION:
            raise UserError(
                f"'{path}' was written in run format {version}, this version reads format {SCHEMA_VERSION}; "
                "use the version of prismfl that wrote it."
            )
        return run

    def write_json(self, name: str, value: Any) -> None:
        raw = json.dumps(value, indent=2, sort_keys=True, allow_nan=False, default=str) + "\n"
        write_atomically(self.path / name, raw.encode())

    def read_json(self, name: str) -> dict[str, Any]:
        if not (self.path / name).exists():
            raise UserError(f"'{self.path}' has no {name}: the run was cut off before it was written.")
        value = read_json(self.path / name, limit=JSON_LIMIT)
        if not isinstance(value, dict):
            raise UserError(f"'{self.path / name}' is not a JSON object.")
        return value

    def set_status(self, status: str) -> None:
        self.write_json("run.json", {"schema_version": SCHEMA_VERSION, "status": status})

    @property
    def status(self) -> str:
        return str(self.read_json("run.json").get("status"))

    # What crossed

    def record(self, message: Message, raw: bytes | None) -> None:
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
            found = {(m["round"], m["site"], m["direction"]): Message(**m) for m in self._lines("transcript.jsonl")}
        except (KeyError, TypeError):
            raise UserError(f"'{self.path / 'transcript.jsonl'}' has a line that is not a message.") from None
        return list(found.values())

    def payloads(self, message: Message) -> dict[str, Payload]:
        if message.file is None:
            raise UserError(
                f"The run kept only the digest of round {message.round}; run again with --set transcript=full."
            )
        place = Path(message.file)
        if place.is_absolute() or ".." in place.parts:
            raise UserError(f"'{self.path / 'transcript.jsonl'}' names a file outside the run.")
        return decode(read_regular(self.path / place, limit=MAX_BYTES))[0]

    # What was measured

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        self._append("metrics.jsonl", row)

    def metrics(self) -> list[dict[str, Any]]:
        try:
            return list({row["round"]: row for row in self._lines("metrics.jsonl")}.values())
        except (KeyError, TypeError):
            raise UserError(f"'{self.path / 'metrics.jsonl'}' has a line that is not of a round.") from None

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        with open(self.path / name, "a", opener=opener) as file:
            file.write(json.dumps(dict(row), sort_keys=True) + "\n")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.path / name
        for line in read_text(path, limit=MAX_BYTES).splitlines() if path.exists() else ():
            try:
                row = load_json(line, depth=DEPTH)
            except ValueError:  # the last line of a killed run may be cut off
                continue
            if isinstance(row, dict):
                yield row

    # Checkpoint: two generations, each with its own digest

    def save_state(self, state: State) -> None:
        raw = encode(state.items, {"round": state.round, "phase": state.phase})
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
                return State(wire.whole(header.get("round"), limit=2**31), items, str(header.get("phase")))
            except WireError:
                continue
        if found:
            raise UserError(f"Both checkpoints in '{folder}' are damaged; the run cannot be resumed.")
        return None


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
