"""What left the site: a log line and a copy for everything that was handed to the transport, and what people decided.

The egress log is written before the bytes are handed over, so it may list something that was then not sent, never
the other way round. Each row holds a link over itself and the row before; the ledger notes the last one with each
decision, so that a log that was written anew does not fit the ledger.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from prismfl.core.payloads import MAX_BYTES
from prismfl.core.release import Release
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener, write_atomically
from prismfl.files.bounded import DEPTH, load_json, read_regular

TAIL = 2**18
"""Bytes at the end of the log in which the last row is looked for first."""


class EgressLog:
    """`egress.jsonl` and a copy of every release in `egress/`."""

    def __init__(self, folder: Path) -> None:
        self.path, self.copies = folder / "egress.jsonl", folder / "egress"

    def release(self, release: Release, raw: bytes) -> None:
        """Note a release, and keep its bytes. A resend is noted as such."""
        digest = hashlib.sha256(raw).hexdigest()
        copy = self.copies / f"{release.run}-{release.round:04d}.safetensors"
        again = (kept := self.copy(release.run, release.round)) is not None and kept == raw
        if not again:
            write_atomically(copy, raw)
        items = {name: {"kind": p.kind, "shapes": p.shapes()} for name, p in release.items.items()}
        self._append(
            {
                "what": "release",
                "run": release.run,
                "round": release.round,
                "items": items,
                "bytes": len(raw),
                "digest": digest,
                "cost": release.cost.to_json(),
                "cost_words": release.cost.describe(),
                "noise": release.noise,
                "resend": again,
                "copy": copy.name,
            }
        )

    def copy(self, run: str, round: int) -> bytes | None:
        """The kept bytes of a run's release of a round, or None if there are none."""
        path = self.copies / f"{run}-{round:04d}.safetensors"
        return read_regular(path, limit=MAX_BYTES) if path.exists() else None

    def word(self, run: str, round: int, word: str) -> None:
        """Note a word that left without a release: a code, or that the site is ready."""
        self._append({"what": "word", "run": run, "round": round, "word": word})

    def decision(self, held: str, release: str, *, digest: str, decision: str, by: str, reason: str) -> None:
        """Note what a person has decided on a release, before it counts."""
        told = {"what": "decision", "id": held, "release": release, "digest": digest}
        self._append({**told, "decision": decision, "by": by, "reason": reason, "user": getpass.getuser()})

    def rows(self) -> list[dict[str, Any]]:
        """Every whole row of the log, oldest first."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [load_json(line, depth=DEPTH) for line in lines if line.endswith("}")]

    def head(self) -> str:
        """The link of the last row: it stands for the whole log."""
        if not self.path.exists():
            return _start(b"")
        with self.path.open("rb") as file:
            return _last(file)

    def verify(self) -> int:
        """How many rows there are, each linked to the one before it; one that was changed or taken out is an error."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        rows = [(line, row) for line in lines if (row := _row(line)) is not None]
        expected = ""
        for number, (_, row) in enumerate(rows):
            if "chain" not in row and not expected:
                continue  # of a log that was begun without links
            before = expected or _start(b"\n".join(line for line, _ in rows[:number]))
            expected = str(row.pop("chain", ""))
            if row.get("previous") != before or _link(row) != expected:
                raise UserError(f"Row {number + 1} of {self.path} does not follow from the rows before it.")
        return len(rows)

    def _append(self, row: Mapping[str, Any]) -> None:
        make_folder(self.path.parent)
        with open(self.path, "a+b", opener=opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # answers and decisions come from several processes
            told = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **row, "previous": _last(file)}
            line = json.dumps({**told, "chain": _link(told)}, sort_keys=True)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # of a process that was killed while it wrote
                    line = "\n" + line
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _last(file: BinaryIO) -> str:
    """The link that the next row follows: in the end of the file, or that of a log without links."""
    for size in (TAIL, file.seek(0, os.SEEK_END)):
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        for line in reversed(file.read().splitlines()):
            row = _row(line)
            if row is not None and "chain" in row:
                return str(row["chain"])
    file.seek(0)
    return _start(b"\n".join(line for line in file.read().splitlines() if _row(line) is not None))


def _row(line: bytes) -> dict[str, Any] | None:
    """A whole row, or None for what a killed process left of one."""
    try:
        found = load_json(line, depth=DEPTH)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _start(before: bytes) -> str:
    """What the first link follows from: the rows of a log that was begun without links, or none."""
    return hashlib.sha256(before).hexdigest()


def _link(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
