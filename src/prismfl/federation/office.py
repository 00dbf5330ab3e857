"""A site's side of a federation: the server asks, the site decides.

Every request passes the same checks in the same order: version and digest, name, allow-lists, unit and shape, the
ledger with its cap, and where the site wants it a person. Whatever goes wrong, only a code leaves; the words stay in
the site's own log.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from logging.handlers import RotatingFileHandler
from pathlib import Path

import numpy as np
import torch

from prismfl import runtime, secure
from prismfl.atomic import write_atomically
from prismfl.boundary import Records, Release
from prismfl.data import DATASETS, Dataset, load, load_path, partition
from prismfl.engines.remote import Answer, Request
from prismfl.errors import PrismError
from prismfl.federation.description import check_description, job_of, schema_of, spec_of
from prismfl.federation.egress import Approvals, EgressLog
from prismfl.federation.keys import peer_keys, signing_key
from prismfl.federation.names import RefusedError
from prismfl.federation.site_config import SiteConfig, load_site
from prismfl.method import State
from prismfl.one_release import unit_prints
from prismfl.payloads import JsonDict, Statistics, decode, encode
from prismfl.privacy.admission import Cap
from prismfl.privacy.ledger import Ledger
from prismfl.privacy.place import LEDGER_FILE, ledger_path
from prismfl.privacy.roster import Roster
from prismfl.rounds import Host, Job, adopt_step, site_step
from prismfl.transcript import digest

APPROVAL_MARGIN = 10.0
"""Seconds before the round's deadline at which a site stops waiting for a person."""


@lru_cache(maxsize=1)
def named(data: str, data_dir: str | None, subset: int | None) -> Dataset:
    """A named data set, read once: the processes of a site are forked from one that has it."""
    return load(data, data_dir=data_dir, subset=subset)


@dataclass(frozen=True)
class Office:
    """One site, as its folder says."""

    folder: Path
    config: SiteConfig

    @classmethod
    def open(cls, folder: Path) -> Office:
        return cls(folder, load_site(folder))

    def preload(self) -> None:
        """Read what every answer will need."""
        if self.config.data in DATASETS:
            named(self.config.data, self.config.data_dir, None)

    def answer(self, request: Request) -> Answer:
        """What the site says to a request. Never raises: a mistake becomes a code."""
        run = str(request.job.get("run", ""))[:80]
        try:
            return self._answer(request)
        except PrismError as error:
            code, words = error.code, str(error)
        except Exception as error:  # the border of the site: whatever a method or a record provokes stays inside
            code, words = "internal", f"{type(error).__name__}: {error}"
        self._log().error("run %s, %s, round %d: %s: %s", run, request.kind, request.round, code, words)
        self._egress.word(run, request.round, code)
        return Answer("code", code=code, site=self.config.name)

    @property
    def _egress(self) -> EgressLog:
        return EgressLog(self.folder)

    def _answer(self, request: Request) -> Answer:
        check_description(request.job)
        self._admit(request.job)
        runtime.tune()
        if request.kind == "hello":
            self._host(job_of(request.job, with_public=False), request.job)
            self._egress.word(str(request.job["run"]), request.round, "ready")
            return Answer("ready", site=self.config.name)
        job = job_of(request.job, with_public=request.turn in ("", "numbers"))
        host = self._host(job, request.job)
        items, header = decode(request.state)
        state = State(int(header["round"]), items, str(header["phase"]))
        if state.round != request.round:
            raise RefusedError(
                "config-mismatch", f"The state is of round {state.round}, the request of {request.round}."
            )
        if request.kind == "round":
            return Answer("release", site=self.config.name, body=self._turn(job, state, host, request))
        self._finish(job, state, host, request.job)
        return Answer("done", site=self.config.name)

    # What this site allows

    def _admit(self, description: JsonDict) -> None:
        """Checks that need no record: the name, the config's digest, the method."""
        config = self.config
        if config.name not in description["sites"]:
            raise RefusedError("unknown-site", f"The run has no site named '{config.name}'.")
        if config.configs and description["digest"] not in config.configs:
            raise RefusedError("config-not-allowed", f"Config {description['digest'][:16]} is not in `configs`.")
        self._pin(str(description["run"]), str(description["digest"]))
        method = str(description["config"].get("method"))
        if method not in config.methods:
            raise RefusedError("method-not-allowed", f"Method '{method}' is not in `methods` of site.toml.")

    def _pin(self, run: str, digest: str) -> None:
        """A run's name belongs to the config it first came with."""
        place = self.folder / "runs" / "names" / hashlib.sha256(run.encode()).hexdigest()[:32]
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(place, digest.encode())
        elif place.read_text() != digest:
            raise RefusedError("config-mismatch", "This run started with another config; a change is a new run.")

    def _allow_releases(self, job: Job, description: JsonDict) -> None:
        secured = job.secure is not None
        kinds = {Statistics.kind} if secured else {kind.kind for kind in job.method.leaves.values()}
        if secured:
            self._roster(description).admit(job.sum_rules(0))
        refused = sorted(kinds - set(self.config.releases))
        if refused:
            raise RefusedError("release-not-allowed", f"A release of {refused[0]} is not in `releases` of site.toml.")
        if job.task.unit != self.config.unit and job.method.guarantee == "site":
            raise RefusedError("unit-mismatch", f"The run protects {job.task.unit}, this site {self.config.unit}.")

    def _roster(self, description: JsonDict) -> Roster:
        """Whom this site believes in a secure sum: the keys in its own folder."""
        key = signing_key(self.folder / "keys" / "sign.key")
        peers, config = peer_keys(self.folder), self.config
        return Roster(config.name, key, peers, str(description["digest"]), honest=config.honest)

    def _host(self, job: Job, description: JsonDict) -> Host:
        """The site's own records and ledger, with the whole plan reserved. What is read is fingerprinted each time, so
        that data which were replaced on the way are known as well."""
        self._allow_releases(job, description)
        folder = self._run_folder(description)
        ledger = Ledger.open(self._ledger_path())
        records, prints = self._take(description)
        dataset = self._declare(ledger, job, records, prints)
        ledger.reserve(job.run, dataset, job.site_plan())
        note = folder / "job.json"
        if not note.exists():
            words = {"digest": description["digest"], "run": job.run, "dataset": dataset, "description": description}
            write_atomically(note, json.dumps(words, indent=2, sort_keys=True).encode())
        return Host(
            self.config.name,
            lambda: records,
            ledger,
            dataset,
            folder / "memory",
            deployed=self.config.noise == "operating-system",
            final=True,
            held=self.config.approval,
            roster=None if job.secure is None else self._roster(description),
        )

    def _ledger_path(self) -> Path:
        """Own data count on the one ledger of this user, whoever asks; a trial's on one in the site's folder."""
        if self.config.ledger is not None:
            return Path(self.config.ledger) / LEDGER_FILE
        return self.folder / LEDGER_FILE if self.config.data in DATASETS else ledger_path()

    def _declare(self, ledger: Ledger, job: Job, records: Records, prints: Sequence[bytes]) -> str:
        config = self.config
        cap = None
        if config.cap != "none":
            cap = Cap(config.cap, config.delta, config.unit, job.task.relation)
        own = config.data if config.data in DATASETS else str(Path(config.data).resolve())
        name = config.dataset or (own if config.part is None else f"{own}/{config.part}")
        dataset = ledger.dataset(name, records=prints, units=unit_prints(records))
        ledger.set_cap(dataset, cap)  # site.toml is the site's own word; a change is logged in the chain
        return dataset

    def _take(self, description: JsonDict) -> tuple[Records, Sequence[bytes]]:
        """The site's records and what the ledger knows them by."""
        config, dataset, told = self.config, self._read(description), spec_of(description)
        if (dataset.spec.shape, dataset.spec.classes) != (told.shape, told.classes):
            raise RefusedError(
                "schema-mismatch",
                f"The run declares {told.shape} and {len(told.classes)} classes, the data has {dataset.spec.shape} "
                f"and {len(dataset.spec.classes)}.",
            )
        rows = np.arange(len(dataset.y_train))
        if config.part is not None:
            labels, classes = dataset.y_train.numpy(), len(dataset.spec.classes)
            parts = partition(
                labels,
                config.parts,
                split=config.split,
                seed=config.seed,
                classes=classes,
                identity=dataset.identity,
            )
            rows = parts[config.part]
        index = torch.from_numpy(np.asarray(rows))
        unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)[index]
        records = Records(dataset.x_train[index], dataset.y_train[index], unit)
        return records, dataset.prints_train or [row.tobytes() for row in records.x.numpy()]

    def _read(self, description: JsonDict) -> Dataset:
        config = self.config
        if config.data in DATASETS:
            return named(config.data, config.data_dir, description["config"].get("subset"))
        path, told = Path(config.data), spec_of(description)
        unit = None if config.unit in ("record", "client") else config.unit
        if told.kind == "table":
            schema = config.schema_file or schema_of(description)
            return load_path(path, label=config.label, schema=schema, unit=unit)
        channels, height, _ = told.shape
        if path.suffix == ".npz":
            return load_path(path, classes=told.classes, image_size=height, channels=channels, unit=unit)
        return load_path(path, classes=told.classes, image_size=height, channels=channels)

    # What leaves, and when

    def _turn(self, job: Job, state: State, host: Host, request: Request) -> bytes:
        """A round's release, or this turn's answer where the run asks for secure sums."""
        if request.turn not in (secure.TURNS if job.secure is not None else ("",)):
            raise RefusedError("config-mismatch", f"The run does not have a turn '{request.turn[:20]}'.")
        if job.secure is None:
            return self._release(job, state, host, request.seconds, lambda: site_step(job, state, host))
        answer = partial(secure.site_turn, job, state, host, turn=request.turn, told=request.told)
        if request.turn == "numbers":
            return self._release(job, state, host, request.seconds, answer)
        self._egress.word(job.run, state.round, f"{request.turn} of a secure sum")
        return answer()

    def _release(self, job: Job, state: State, host: Host, seconds: float, make: Callable[[], bytes]) -> bytes:
        self._confirm(job, host, before=state.round - 1)
        if host.ledger.status_of(f"{job.run}/{host.name}/{state.round}") == "denied":
            raise RefusedError("denied", "This round's release was denied; it stays charged.")
        raw = self._sent_before(job, host, state.round) or make()
        release = Release.decode(raw)
        if self.config.approval:
            approvals = Approvals(self.folder)
            name = approvals.hold(release, job.task.classes)
            decision = approvals.wait(name, max(0.0, seconds - APPROVAL_MARGIN))
            if decision == "denied":
                host.ledger.deny(release.id)
            if decision != "approved":
                code = "denied" if decision == "denied" else "held"
                raise RefusedError(code, f"Release {name} is {decision}; it stays charged.")
            host.ledger.approve(release.id)
        self._egress.release(release, raw)
        return raw

    def _sent_before(self, job: Job, host: Host, round: int) -> bytes | None:
        """The copy of a release whose bytes have left the ledger, if it is what was charged for."""
        release_id = f"{job.run}/{host.name}/{round}"
        charge = next((c for c in host.ledger.charges(run=job.run) if c.release == release_id), None)
        if charge is None or not charge.confirmed:
            return None
        raw = self._egress.copy(job.run, round)
        if raw is None or charge.digest != digest(raw):
            raise RefusedError("release-lost", f"Round {round + 1} was released before and its copy is gone.")
        return raw

    def _confirm(self, job: Job, host: Host, *, before: int) -> None:
        """Drop the ledger's copy of what both of the server's checkpoints have behind them."""
        for charge in host.ledger.charges(run=job.run):
            if not charge.confirmed and int(charge.release.rsplit("/", 1)[1]) < before:
                host.ledger.confirm(charge.release)

    def _finish(self, job: Job, state: State, host: Host, description: JsonDict) -> None:
        """The end of the run: keep the final state, make the site's own model, close the account."""
        folder = self._run_folder(description)
        write_atomically(folder / "final.safetensors", encode(state.items, {"round": state.round}))
        own = adopt_step(job, state, host)
        if own:
            write_atomically(folder / "own.safetensors", encode(own, {"round": state.round}))
        secure.forget(host)
        self._confirm(job, host, before=state.round)
        host.ledger.close(job.run, forget=True)
        self._egress.word(job.run, state.round, "done")

    def _run_folder(self, description: JsonDict) -> Path:
        """Named by a hash: no two runs, whatever they are called, share a folder."""
        named = f"{description['run']}\0{description['digest']}"
        return self.folder / "runs" / hashlib.sha256(named.encode()).hexdigest()[:32]

    def _log(self) -> logging.Logger:
        log = logging.getLogger(f"prismfl.site.{self.folder}")
        if not log.handlers:
            self.folder.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(self.folder / "site.log", maxBytes=1_000_000, backupCount=3)
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
            log.addHandler(handler)
            log.propagate = False
        return log
