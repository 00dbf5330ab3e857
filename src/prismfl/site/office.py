"""A site's side of a federation: the server asks, the site decides.

Every request passes the same checks in the same order: version and digest, what the operator's `site.toml` allows
(`policy`: no record and no ledger), then the ledger with its cap, the charge, the computation, and where the site wants
it a person. One answer for a round, ever: the planned release, or one constant refusal. The words stay in the site's
own log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import JsonDict, decode, encode
from prismfl.core.records import unit_prints
from prismfl.core.release import Release
from prismfl.core.rounds import Host, adopt_step, check_state, site_step
from prismfl.errors import WireError, words_for_log
from prismfl.files.atomic import make_folder, write_atomically
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import check_description, job_of
from prismfl.runs.directory import digest
from prismfl.runs.names import RefusedError
from prismfl.secure import protocol as secure
from prismfl.secure.roster import Roster, RosterError
from prismfl.site import data as site_data
from prismfl.site import policy
from prismfl.site.approvals import Approvals
from prismfl.site.config import SiteConfig, ledger_of, load_site, name_on_ledger, own_encoders, smaller_cap
from prismfl.site.egress import EgressLog
from prismfl.site.folder import LOG_BYTES, OneLine, SiteLog, close_site
from prismfl.site.keys import peer_keys, signing_key
from prismfl.site.servers import load_server, narrowed
from prismfl.transport.post import Answer, Request

APPROVAL_MARGIN = 10.0
"""Seconds before the round's deadline at which a site stops waiting for a person."""


NOTIFY_SECONDS = 10.0

REFUSED = "refused"
"""The one refusal, once the site's data or ledger were looked at."""


@dataclass(frozen=True)
class Office:
    """One site, as its folder says."""

    folder: Path
    config: SiteConfig
    server: str = ""
    """Which of the site's servers is asking, in the site's own words; empty where it has one."""

    @classmethod
    def open(cls, folder: Path, server: str = "") -> Office:
        """The site in this folder, which is closed to others where it was open; as one of its servers finds it."""
        config = load_site(folder)
        office = cls(folder, narrowed(config, load_server(folder, server)) if server else config, server)
        closed = close_site(folder)
        if closed is not None:
            office._log().warning(closed)
        return office

    def preload(self) -> None:
        """Read what every answer will need, and name the records: who is forked from here need not."""
        _ = site_data.load(self.folder, self.config).records.identities

    def mapped(self) -> int:
        """Bytes of the site's data that are in no process's memory, but count as its addresses."""
        return site_data.snapshot_bytes(self.folder)

    def answer(self, request: Request) -> Answer:
        """What the site says to a request: what was planned, or a refusal. Never raises.

        What is wrong with the request itself is told by its code. From the moment that the site's data or ledger are
        looked at, there is one refusal for everything; why is in the site's own log.
        """
        run, told = str(request.job.get("run", "") if isinstance(request.job, dict) else "")[:80], REFUSED
        try:
            job = self._allowed(request)
        except (RefusedError, RosterError) as error:
            told, words = error.code, str(error)
        except Exception as error:  # a request that cannot even be read
            words = words_for_log(error)
        else:
            try:
                return self._answer(request, job)
            except Exception as error:  # the border of the site: whatever a method or a record provokes stays inside
                words = words_for_log(error)
        self._log().error("run %s, %s, round %d: %s: %s", run, request.kind, request.round, told, words)
        if request.kind == "finish" and told == REFUSED:
            return self._word(run, request.round, "done")
        self._egress.word(run, request.round, told)
        return Answer("code", code=told, site=self.config.name)

    @property
    def _egress(self) -> EgressLog:
        return EgressLog(self.folder)

    def _word(self, run: str, round: int, word: str) -> Answer:
        self._egress.word(run, round, word)
        return Answer(word, site=self.config.name)

    def _allowed(self, request: Request) -> Job:
        """The job that a request means, if the site's own words allow it. Looks at no record and no ledger."""
        check_description(request.job)
        facts = site_data.facts(self.config)
        policy.check_request(self.config, facts, request.job)
        job = job_of(request.job, with_public=False, device=self.config.device)
        policy.check_job(self.config, facts, job)
        if job.secure is not None:
            self._roster(request.job).admit(job.sum_rules(0))
        turns = secure.TURNS if job.secure is not None else ("",)
        if request.kind == "round" and (request.turn not in turns or not 0 <= request.round < job.settings.rounds):
            raise RefusedError(REFUSED, f"The run has no round {request.round + 1} with a turn '{request.turn[:20]}'.")
        return job

    def _answer(self, request: Request, job: Job) -> Answer:
        runtime.tune(self.config.threads)
        self._pin(job.run, str(request.job["digest"]))
        host = self._host(job, request.job)
        if request.kind == "hello":
            return self._word(job.run, request.round, "ready")
        items, header = decode(request.state)
        state = State(int(header["round"]), items)
        if state.round != request.round:
            raise WireError(f"The state is of round {state.round}, the request of {request.round}.")
        if request.kind == "round" and request.turn in ("", "numbers"):  # other turns send nothing down
            check_state(job, state)
        if request.kind == "round":
            if request.turn in ("", "numbers"):
                source = policy.public_source(self.config, request.job["config"]["public"])
                own = own_encoders(self.config)
                job = job_of(request.job, source=source, encoders=own, device=self.config.device)
            return Answer("release", site=self.config.name, body=self._turn(job, state, host, request))
        self._finish(job, state, host, request.job)
        return self._word(job.run, state.round, "done")

    # What this site has

    def _pin(self, run: str, digest: str) -> None:
        """A run's name belongs to the config it first came with, and to the server that it came from: another server
        that asks for it would get what was released to the first."""
        told = f"{digest} {self.server}".rstrip()
        place = self.folder / "runs" / "names" / hashlib.sha256(run.encode()).hexdigest()[:32]
        if not place.exists():
            write_atomically(place, told.encode())
        elif place.read_text() != told:
            raise RefusedError(REFUSED, "This run started with another config or server; a change is a new run.")

    def _roster(self, description: JsonDict) -> Roster:
        """Whom this site believes in a secure sum: the keys in its own folder."""
        key = signing_key(self.folder / "keys" / "sign.key")
        peers, config = peer_keys(self.folder), self.config
        return Roster(config.name, key, peers, str(description["digest"]), honest=config.honest)

    def _host(self, job: Job, description: JsonDict) -> Host:
        """The site's own records and ledger, with the whole plan reserved. The config is on disk for the operator
        before anything is; a run that asks for nothing any more does not hold what it has not spent."""
        folder = self._run_folder(description)
        note = folder / "job.json"
        known = note.exists()
        if not known:
            if len(list((self.folder / "runs").glob("*"))) > self.config.max_runs:
                raise RefusedError(REFUSED, f"More than max_runs = {self.config.max_runs} runs were asked for here.")
            words = {"digest": description["digest"], "run": job.run, "description": description}
            write_atomically(note, json.dumps(words, indent=2, sort_keys=True).encode())
        own = site_data.load(self.folder, self.config)
        ledger = Ledger.open(ledger_of(self.folder, self.config))
        dataset = self._declare(ledger, own, said=known)
        for gone in ledger.expire(hours=self.config.reserved_hours, keep=job.run):
            self._log().warning("run %s asked for nothing for too long: its reservation is closed", gone)
        ledger.reserve(job.run, dataset, job.site_plan())
        return Host(
            self.config.name,
            lambda: own.records,
            ledger,
            dataset,
            folder / "memory",
            deployed=self.config.noise == "operating-system",
            final=True,
            held=self.config.approval,
            reference=self.config.reference,
            step_memory=policy.step_memory(self.config),
        )

    def _declare(self, ledger: Ledger, own: site_data.SiteData, *, said: bool) -> str:
        """The data set on the ledger, with the cap of site.toml or a smaller one that the ledger's keeper has set."""
        config = self.config
        cap = None
        if config.cap != "none":
            cap = Cap(config.cap, config.delta, policy.unit_of(config, own.spec), config.relation)
        dataset = ledger.dataset(name_on_ledger(config), records=own.prints, units=unit_prints(own.records))
        holds = ledger.set_cap(dataset, cap)  # site.toml is the site's own word; a change is logged in the chain
        if holds != cap and not said:
            self._log().warning("%s", smaller_cap(config, holds))
        return dataset

    # What leaves, and when

    def _turn(self, job: Job, state: State, host: Host, request: Request) -> bytes:
        """A round's release, or this turn's answer where the run asks for secure sums."""
        if job.secure is None:
            return self._release(job, state, host, request, lambda: site_step(job, state, host))
        roster = self._roster(request.job)
        answer = partial(secure.site_turn, job, state, host, roster, turn=request.turn, told=request.told)
        if request.turn == "numbers":
            return self._release(job, state, host, request, answer)
        self._egress.word(job.run, state.round, f"{request.turn} of a secure sum")
        return answer()

    def _release(self, job: Job, state: State, host: Host, request: Request, make: Callable[[], bytes]) -> bytes:
        self._confirm(job, host, before=state.round - 1)
        raw = self._sent_before(job, host, state.round) or make()
        release = Release.decode(raw)
        if self.config.approval:
            approvals = Approvals(self.folder)
            name = approvals.hold(
                release,
                raw,
                request.job,
                plan=self._price(job),
                left=self._left(host),
                needed=self.config.approvers,
                records=host.records(),
                tell=self._notify,
            )
            most = self.config.max_seconds  # nobody waits for ever because a server says so
            seconds = request.seconds if 0.0 <= request.seconds <= most else most
            decision = approvals.wait(name, max(0.0, seconds - APPROVAL_MARGIN))
            told = {"by": [word.by for word in approvals.find(name).words], "egress": self._egress.head()}
            if decision == "denied":
                host.ledger.deny(release.id, told)
            if decision != "approved":
                raise RefusedError(REFUSED, f"Release {name} is {decision}; it stays charged.")
            host.ledger.approve(release.id, told)
        self._egress.release(release, raw)
        return raw

    def _price(self, job: Job) -> str:
        """What the whole run costs, as this site counts it."""
        plan, delta = job.site_plan(), self.config.delta
        epsilon = account.epsilon(plan, delta)
        return f"epsilon {epsilon:.4g} at delta {delta:g} for the whole run, per {plan.unit}, {plan.relation}"

    def _left(self, host: Host) -> str:
        """What is left of the cap once this run, whose plan is reserved already, and other open ones are paid for."""
        cap = host.ledger.cap(host.dataset)
        if cap is None:
            return "there is no cap"
        held = account.epsilon(reduce(Cost.beside, host.ledger.held(host.dataset)), cap.delta)
        return (
            f"epsilon {max(0.0, cap.epsilon - held):.4g} of the cap of {cap.describe()}, once this run and every open "
            "one is paid for"
        )

    def _notify(self, name: str) -> None:
        """Tell a person that something waits: a command of site.toml with the id, which is 16 hexadecimal digits. No
        word of a server reaches it, and no shell."""
        if not self.config.notify:
            return
        try:
            subprocess.run(
                [*self.config.notify, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=NOTIFY_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._log().warning("the command `notify` of site.toml failed: %s", type(error).__name__)

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
        """The end of the run, once: keep the final state, close the account, make the site's own model. Whatever comes
        of that stays here: the server hears the same word."""
        folder = self._run_folder(description)
        if (folder / "final.safetensors").exists():
            return
        write_atomically(folder / "final.safetensors", encode(state.items, {"round": state.round}))
        own = adopt_step(job, state, host)
        if own:
            write_atomically(folder / "own.safetensors", encode(own, {"round": state.round}))
        secure.forget(host)
        self._confirm(job, host, before=state.round)
        host.ledger.close(job.run, forget=True)

    def _run_folder(self, description: JsonDict) -> Path:
        """Named by a hash: no two runs, whatever they are called, share a folder."""
        named = f"{description['run']}\0{description['digest']}"
        return self.folder / "runs" / hashlib.sha256(named.encode()).hexdigest()[:32]

    def _log(self) -> logging.Logger:
        log = logging.getLogger(f"prismfl.site.{self.folder}")
        if not log.handlers:
            make_folder(self.folder)
            handler = SiteLog(self.folder / "site.log", maxBytes=LOG_BYTES, backupCount=3)
            handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
            log.addHandler(handler)
            log.propagate = False
        return log
