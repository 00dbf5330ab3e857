"""What left the site: a log line and a copy for everything that was handed to the transport, and the approvals.

The egress log is written before the bytes are handed over, so it may list something that was then not sent, never
the other way round.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prismfl.core.payloads import MAX_BYTES, JsonDict, SyntheticSet
from prismfl.core.release import Release
from prismfl.data.pictures import save_grid
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener, write_atomically
from prismfl.files.bounded import DEPTH, load_json, read_json, read_regular

Decision = Literal["waiting", "approved", "denied"]


def approval_id(release: Release, raw: bytes, config: str) -> str:
    """A name for people to type. It stands for one release, one payload and one config, and for nothing like them."""
    named = "\0".join((release.id, hashlib.sha256(raw).hexdigest(), config))
    return hashlib.sha256(named.encode()).hexdigest()[:16]


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

    def rows(self) -> list[dict[str, Any]]:
        """Every whole row of the log, oldest first."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [load_json(line, depth=DEPTH) for line in lines if line.endswith("}")]

    def _append(self, row: Mapping[str, Any]) -> None:
        make_folder(self.path.parent)
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **row}, sort_keys=True)
        with open(self.path, "a", opener=opener) as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class Held:
    """A release that waits for a person, or has been decided on."""

    id: str
    release: str
    decision: Decision
    files: tuple[str, ...]


class Approvals:
    """`outbox/ID/`: what a person looks at, and the decision. The charged bytes themselves stay in the ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "outbox"

    def hold(self, release: Release, raw: bytes, description: JsonDict, *, plan: str) -> str:
        """Put a release up for approval (a second time is a no-op) and return its id. What a person decides is for
        this release, these bytes and this config alone."""
        name = approval_id(release, raw, str(description["digest"]))
        place = self.folder / name
        if not (place / "held.json").exists():
            _write_preview(release, place, description, plan)
            held = {"release": release.id, "cost": release.cost.describe(), "noise": release.noise}
            held |= {"digest": hashlib.sha256(raw).hexdigest(), "config": str(description["digest"])}
            write_atomically(place / "held.json", json.dumps(held, indent=2).encode())
        return name

    def decide(self, name: str, decision: Decision) -> Held:
        """Write down a decision on a held release; another one than before is refused."""
        held = self.find(name)
        if held.decision not in ("waiting", decision):
            raise UserError(f"Release '{name}' was {held.decision} before; that stands.")
        write_atomically(self.folder / name / "decision", decision.encode())
        return self.find(name)

    def find(self, name: str) -> Held:
        """The held release of this id, with its decision and the files to look at."""
        place = self.folder / name
        if "/" in name or not (place / "held.json").exists():
            known = ", ".join(held.id for held in self.all() if held.decision == "waiting")
            raise UserError(f"No release '{name}' in the outbox; waiting: {known or 'none'}.")
        decided = place / "decision"
        decision: Any = decided.read_text() if decided.exists() else "waiting"
        files = tuple(sorted(str(p) for p in place.iterdir() if p.name not in ("decision", "held.json")))
        return Held(name, str(read_json(place / "held.json")["release"]), decision, files)

    def all(self) -> list[Held]:
        """Every held release, by id, decided or not."""
        return [self.find(p.parent.name) for p in sorted(self.folder.glob("*/held.json"))]

    def wait(self, name: str, seconds: float, *, poll: float = 0.5) -> Decision:
        """The decision, or "waiting" when nobody has decided in time."""
        end = time.monotonic() + seconds
        while (decision := self.find(name).decision) == "waiting" and time.monotonic() < end:
            time.sleep(min(poll, max(0.0, end - time.monotonic())))
        return decision


def config_words(description: JsonDict) -> list[str]:
    """What a run is, for a person: its method, what it costs and asks for, who takes part."""
    config = description["config"]
    settings = ", ".join(f"{name} {value}" for name, value in sorted(config["settings"].items()) if value is not None)
    looked = config.get("encoder")
    return [
        f"method  {config['method']}, {config['settings'].get('rounds')} rounds, model {config['model']}",
        *([f"encoder {looked}, public"] if looked else []),
        f"says    epsilon {config['epsilon']}, delta {config['delta']}, unit {config['unit']}, {config['relation']} "
        "(the server's words)",
        f"sites   {', '.join(description['sites'][:20])}",
        f"config  {description['digest']}",
        f"details {settings}",
    ]


def _write_preview(release: Release, place: Path, description: JsonDict, plan: str) -> None:
    """A picture grid for images, the first rows for tables, and shapes with ranges for everything else."""
    make_folder(place)
    classes = tuple(description["spec"]["classes"])
    lines = [f"release {release.id}", f"cost    {release.cost.describe()}", f"plan    {plan}"]
    lines.append(f"noise   {release.noise}")
    lines += [*config_words(description), ""]
    for name, payload in release.items.items():
        for part, tensor in payload.tensors.items():
            numbers = tensor.double()
            span = f"{numbers.min():.4g} .. {numbers.max():.4g}" if tensor.numel() else "empty"
            lines.append(f"{name}/{part}: {payload.kind}, {tensor.dtype}, {tuple(tensor.shape)}, {span}")
        if isinstance(payload, SyntheticSet) and payload.x.ndim == 4:
            picture = place / f"{name}.png"
            open(picture, "wb", opener=opener).close()  # so that it is closed to others before it has a content
            save_grid(payload.x, payload.hard_y, picture, classes=classes)
        elif isinstance(payload, SyntheticSet):
            rows = ["\t".join(f"{v:.4g}" for v in row) for row in payload.x[:10].flatten(1).tolist()]
            lines += ["", f"first rows of {name}:", *rows]
    write_atomically(place / "preview.txt", "\n".join(lines).encode() + b"\n")
