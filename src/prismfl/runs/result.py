"""What a finished run reports, whoever drove it: scores, cost, bytes, digest, and the synthetic set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Payload, SyntheticSet
from prismfl.core.release import Release
from prismfl.core.rounds import Host, Hub
from prismfl.core.task import Task
from prismfl.data import DATASETS
from prismfl.data.patients_out import write_patients
from prismfl.data.pictures import save_grid
from prismfl.data.schema import Schema
from prismfl.errors import PrismError
from prismfl.files import inside as run_files
from prismfl.nets.classifier import network
from prismfl.privacy import account
from prismfl.privacy.cost import Cost, Relation
from prismfl.privacy.ledger.book import Ledger
from prismfl.rng import Key
from prismfl.runs import html
from prismfl.runs.config import RunConfig
from prismfl.runs.directory import MOST_PAYLOAD_BYTES, SCHEMA_VERSION, RunDirectory
from prismfl.runs.models import models_of, recommended
from prismfl.runs.planning import finite, guarantee_words
from prismfl.runs.starting import whole_cost, whole_noise
from prismfl.runs.synthetic_table import save_table
from prismfl.sources import DEPLOYMENT, SIMULATION


@dataclass(frozen=True)
class Result:
    """What a finished run reports; `as_dict` is the JSON form.

    `epsilon` is what this run cost, `epsilon_total` (with `cost_total`) all that the final model depends on: a run that
    started from another's model depends on both. `spent_so_far` is what the user's own data have paid over all their
    releases, on the `ledger`. `models` are the scores of every model that the run holds, in percent; `accuracy` is that
    of the `recommended` one. Where every site keeps its own model, `scores` are those of all. `encoder` is the public
    encoder, `pretrained_on` what it was trained on, if on anything.
    `tables` says what models learn from a synthetic table, and how far it is from held-out records.
    """

    schema_version: int
    status: str
    method: str
    data: str
    split: str
    sites: int
    rounds: int
    seed: int
    model: str
    accuracy: float | None
    accuracy_min: float | None
    epsilon: float | None
    guarantee: str
    delta: float
    unit: str
    relation: str
    sigma: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    digest: str
    run_dir: str
    noise: str = SIMULATION
    own_data: bool = False
    epsilon_total: float | None = None
    cost_total: dict[str, Any] | None = None
    ledger: str | None = None
    spent_so_far: dict[str, Any] | None = None
    encoder: str | None = None
    pretrained_on: str | None = None
    models: dict[str, Any] = field(default_factory=dict)
    recommended: str | None = None
    scores: dict[str, Any] | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values, as in `result.json`."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<Result {'; '.join(f'{name}: {value}' for name, value in html.result_facts(self.as_dict()))}>"

    def _repr_html_(self) -> str:
        table = html.facts_table("Result", html.result_facts(self.as_dict()))
        return table + html.sample_picture(Path(self.run_dir))


def predictor(job: Job) -> Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]:
    """How the model to take scores records."""
    custom, task = job.method.predict, job.task
    if job.method.models is not None:
        made: list[tuple[Mapping[str, Payload], torch.nn.Module]] = []

        def scored(items: Mapping[str, Payload], x: torch.Tensor) -> torch.Tensor:
            if not made or made[0][0] is not items:
                models = models_of(job, items)
                made[:] = [(items, models[recommended(job, models)])]
            found: torch.Tensor = made[0][1](x.to(task.device))
            return found

        return scored
    if custom is not None:
        return lambda items, x: custom(job.settings, job.task, items, x)
    classifier, _ = network(task, key=Key.seed(0))
    return lambda items, x: classifier.logits(items["model"].to(task.device), x.to(task.device))


def spent_on(job: Job, hosts: list[Host], hub: Hub | None) -> tuple[float, Cost]:
    """The largest epsilon that any site (or the hub) has on its ledger for this run."""
    if hub is not None:
        costs = [charged(hub.ledger, job, "client", "add-remove")]
    else:
        costs = list(charged_sites(job, hosts).values())
    worst = {cost: account.epsilon(cost, job.task.delta) for cost in set(costs)}
    cost = max(worst, key=lambda c: worst[c])
    return worst[cost], cost


def charged(ledger: Ledger, job: Job, unit: str, relation: Relation) -> Cost:
    """What a run has on a ledger: the sum of its releases."""
    return sum(ledger.charged(job.run).values(), start=Cost.zero(unit, relation))


def charged_sites(job: Job, hosts: Sequence[Host]) -> dict[str, Cost]:
    """What a run has on the ledgers for each site; one ledger that holds many sites is read once."""
    nothing, read = Cost.zero(job.task.unit, job.task.relation), dict[int, dict[str, Cost]]()
    found = {}
    for host in hosts:
        if id(host.ledger) not in read:
            read[id(host.ledger)] = host.ledger.charged(job.run)
            if not host.part:
                host.ledger.shut()
        found[host.name] = read[id(host.ledger)].get(host.part, nothing)
    return found


def result_of(
    job: Job,
    directory: RunDirectory,
    state: State,
    *,
    scores: Sequence[float],
    cost: Cost,
    config: RunConfig | None,
    start: str | None = None,
) -> Result:
    """The result of a run that has ended. Without a `config` it was a federation's: the cost is that of the whole plan,
    which each site's own ledger enforces, and the releases say where the noise came from. `start` is the run whose
    model it began with."""
    rows, crossed = directory.metrics(), directory.messages()
    total = {d: sum(m.bytes for m in crossed if m.direction == d) for d in ("up", "down")}
    if not crossed:  # transcript = none: what crossed is counted a round
        total = {d: sum(int(row.get(f"bytes_{d}", 0)) for row in rows) for d in ("up", "down")}
    if config is None:
        split, own = "sites", noise_of(directory, {}, {}) or DEPLOYMENT
    else:
        split, own = config.split, DEPLOYMENT if config.noise == "operating-system" else SIMULATION
    noise, whole = whole_noise(own, start), whole_cost(cost, start)
    return Result(
        schema_version=SCHEMA_VERSION,
        status="finished",
        method=job.method.name,
        data=job.task.data,
        split=split,
        sites=len(job.task.sites),
        rounds=job.settings.rounds,
        seed=job.seed,
        model=job.task.model,
        accuracy=round(float(np.mean(scores)), 4) if scores else None,
        accuracy_min=round(min(scores), 4) if scores else None,
        epsilon=finite(account.epsilon(cost, job.task.delta)),
        guarantee=guarantee_words(whole, noise),
        delta=job.task.delta,
        unit=cost.unit,
        relation=cost.relation,
        sigma=getattr(job.settings, "sigma", None),
        bytes_up=total["up"],
        bytes_down=total["down"],
        seconds=round(float(rows[-1]["seconds"]) if rows else 0.0, 2),
        digest=state_digest(state),
        run_dir=str(directory.path),
        noise=noise,
        own_data=(config.data if config is not None else job.task.data) not in DATASETS,
        epsilon_total=finite(account.epsilon(whole, job.task.delta)),
        cost_total=whole.to_json(),
        encoder=getattr(job.task.encoder, "name", None),
        pretrained_on=pretrained_on(job.task),
    )


def pretrained_on(task: Task) -> str | None:
    """What the public encoder was trained on, where it was trained on anything."""
    encoder = task.encoder
    return str(getattr(encoder, "trained_on", "")) or None if getattr(encoder, "pretrained", False) else None


def save_synthetic(state: State, folder: Path, task: Task, schema: Schema | None = None) -> None:
    """Writes a state's synthetic set, if it has one, as `gen.npz`: with a picture of samples where they are images, and
    as CSV and Parquet where they are a table of declared columns; records of several parts as a folder of patients."""
    made = state.items.get("synthetic")
    if not isinstance(made, SyntheticSet):
        return
    folder.mkdir(parents=True, exist_ok=True)
    if task.parts is not None:
        names = [task.classes[label] for label in made.hard_y.tolist()]
        told = task.parts.schema.label if task.parts.schema is not None else "label"
        rows, origin = made.tensors["x"].numpy(), made.spec.get("text_origin")
        np.savez_compressed(folder / "gen.npz", x=rows, y=made.y.numpy())
        write_patients(folder, task.parts, rows, names, label=told, origin=origin)
        return
    np.savez_compressed(folder / "gen.npz", x=made.x.numpy(), y=made.y.numpy())
    if task.kind == "image":
        save_grid(made.x, made.hard_y, folder / "sample.png", classes=task.classes)
    elif schema is not None:
        save_table(made, folder, schema, task.classes)


def state_digest(state: State) -> str:
    """The digest of a state; the same number that `prismfl run` reports for it."""
    digests = {name: payload.digest for name, payload in sorted(state.items.items())}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def noise_of(run: RunDirectory, config: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """Where the noise came from: as the result, the config or a kept release says. One that says "seeded" is enough."""
    said = [str(place["noise"]) for place in (result, config) if place.get("noise")] or [_kept_noise(run) or ""]
    if any(words.startswith("seeded") for words in said):
        return SIMULATION
    return DEPLOYMENT if any(words.startswith("operating") for words in said) else None


def _kept_noise(run: RunDirectory) -> str | None:
    """Where the noise came from, as a release says: the first of the transcript, or one of a federation's last round,
    which is there whatever the transcript keeps."""
    kept = (m.file for m in run.messages() if m.direction == "up" and m.file is not None)
    last = (str(path.relative_to(run.path)) for path in sorted(run.path.glob("inbox/*/*.safetensors")))
    for name in chain(kept, last):
        if (run.path / name).is_file():
            try:
                return Release.decode(run_files.read_bytes(run.path, name, most=MOST_PAYLOAD_BYTES)).noise
            except PrismError:
                continue
    return None
