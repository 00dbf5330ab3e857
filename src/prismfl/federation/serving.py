"""One federated run on the server, from its folder: what the ServerApp does once Flower has started it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from prismfl import experiment, runtime
from prismfl.config import RunConfig
from prismfl.data import DATASETS, Schema, Spec, load
from prismfl.engines.remote import Conductor, Post, Rules
from prismfl.errors import PrismError, UserError
from prismfl.federation.description import describe, job_of, public_images
from prismfl.method import State
from prismfl.metrics.utility import accuracy
from prismfl.payloads import SyntheticSet
from prismfl.privacy import account
from prismfl.privacy.ledger import Ledger
from prismfl.report.facts import noise_of
from prismfl.report.pictures import save_grid
from prismfl.rounds import Hub, Job
from prismfl.sources import DEPLOYMENT
from prismfl.transcript import SCHEMA_VERSION, RunDirectory

Say = Callable[[str], None]


def declared(config: RunConfig) -> tuple[Spec, Schema | None]:
    """The public facts of the sites' data, without any of it: a named data set's, or those of a declared schema."""
    if config.data in DATASETS:
        return DATASETS[config.data], None
    if config.schema_file is not None:
        schema = Schema.load(config.schema_file)
        size = config.records or schema.train_size or 0
        return Spec(config.data, "table", (schema.width,), schema.classes, size, "", ""), schema
    if config.classes is None or config.image_size is None:
        raise UserError(
            "For the sites' own data declare what it looks like: schema_file for tables, classes and image_size for "
            "images."
        )
    shape = (config.channels or 3, config.image_size, config.image_size)
    return Spec(config.data, "image", shape, tuple(config.classes), config.records or 0, "", ""), None


def prepare(path: Path, config: RunConfig, sites: Sequence[str], *, rules: Rules, evaluate: bool) -> RunDirectory:
    """A new run directory with everything that the ServerApp needs."""
    if rules.quorum > len(sites):
        raise UserError(f"The quorum of {rules.quorum} is more than the {len(sites)} enrolled sites; enroll more.")
    spec, schema = declared(config)
    created = datetime.now(UTC)
    description = describe(config, spec, sites, schema=schema)
    description["run"] = f"{description['run']}-{created:%Y%m%dT%H%M%S}"
    words = {"run": description["run"], "created": created.isoformat(timespec="seconds"), **description["config"]}
    directory = RunDirectory.create(path, {**words, "data": description["spec"]["name"]}, runtime.environment())
    told = {"description": description, "rules": asdict(rules), "evaluate": evaluate}
    told |= {"public": public_images(config.public)[1], "transcript": config.transcript}
    directory.write_json("federation.json", told)
    return directory


def serve(path: Path, post: Post, *, say: Say | None = None) -> None:
    """Take the run in `path` to its end over `post`; the outcome, good or bad, is in the directory."""
    directory = RunDirectory.open(path)
    told = directory.read_json("federation.json")
    directory.write_json("process.json", {"pid": os.getpid()})
    runtime.tune()
    job = job_of(told["description"], source=told.get("public"))
    speak = say or _log_to(path / "server.log")
    try:
        measure = _measure(job, directory, evaluate=bool(told["evaluate"]))
        conductor = Conductor(
            job,
            told["description"],
            post,
            directory,
            Rules(**told["rules"]),
            hub=_hub(job, path),
            keep=str(told.get("transcript", "ends")),
            say=speak,
            after_round=measure,
        )
        state = conductor.run()
        _save_synthetic(job, state, path / "gen")
        directory.write_json("result.json", asdict(_result(job, directory, state)))
    except PrismError as error:
        speak(f"failed: {error}")
        directory.write_json("failure.json", {"code": error.code, "message": str(error), "exit_code": error.exit_code})
        directory.set_status("failed")
        raise
    directory.set_status("finished")


def _log_to(path: Path) -> Say:
    def say(line: str) -> None:
        with path.open("a") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")

    return say


def _hub(job: Job, path: Path) -> Hub | None:
    if job.method.guarantee != "client":
        return None
    ledger = Ledger.open(path / "ledger" / "hub.sqlite")
    dataset = ledger.dataset("clients", records=[name.encode() for name in job.task.sites])
    ledger.reserve(job.run, dataset, job.plan())
    return Hub(ledger, dataset, deployed=True)


def _measure(job: Job, directory: RunDirectory, *, evaluate: bool) -> Callable[[State, dict[str, int]], None]:
    started = time.monotonic()
    data = load(job.task.data) if evaluate and job.task.data in DATASETS else None
    predict = experiment.predictor(job) if data is not None else None

    def after_round(state: State, traffic: dict[str, int]) -> None:
        score = None
        if data is not None and predict is not None:
            score = accuracy(predict, state.items, data.x_test, data.y_test)
        seconds = round(time.monotonic() - started, 3)
        directory.add_metrics({"round": state.round, "accuracy": score, "epsilon": None, "seconds": seconds, **traffic})

    return after_round


def state_digest(state: State) -> str:
    """The digest of a state; the same number that `prismfl run` reports for it."""
    digests = {name: payload.digest for name, payload in sorted(state.items.items())}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _save_synthetic(job: Job, state: State, folder: Path) -> None:
    made = state.items.get("synthetic")
    if not isinstance(made, SyntheticSet):
        return
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "gen.npz", x=made.x.numpy(), y=made.y.numpy())
    if job.task.kind == "image":
        save_grid(made.x, made.hard_y, folder / "sample.png", classes=job.task.classes)


def _result(job: Job, directory: RunDirectory, state: State) -> experiment.Result:
    """What the run reports. Epsilon is that of the whole plan, which each site's own ledger enforces."""
    rows, crossed = directory.metrics(), directory.messages()
    total = {d: sum(m.bytes for m in crossed if m.direction == d) for d in ("up", "down")}
    cost = job.plan()
    epsilon = account.epsilon(cost, job.task.delta)
    last: dict[str, Any] = rows[-1] if rows else {}
    noise = noise_of(directory, {}, {}) or DEPLOYMENT
    return experiment.Result(
        schema_version=SCHEMA_VERSION,
        status="finished",
        method=job.method.name,
        data=job.task.data,
        split="sites",
        sites=len(job.task.sites),
        rounds=job.settings.rounds,
        seed=job.seed,
        model=job.task.model,
        accuracy=last.get("accuracy"),
        accuracy_min=last.get("accuracy"),
        epsilon=epsilon if epsilon < float("inf") else None,
        guarantee=experiment.guarantee_words(cost, noise),
        delta=job.task.delta,
        unit=cost.unit,
        relation=cost.relation,
        sigma=getattr(job.settings, "sigma", None),
        bytes_up=total["up"],
        bytes_down=total["down"],
        seconds=float(last.get("seconds", 0.0)),
        digest=state_digest(state),
        run_dir=str(directory.path),
        noise=noise,
        own_data=job.task.data not in DATASETS,
        epsilon_total=epsilon if epsilon < float("inf") else None,
        cost_total=cost.to_json(),
    )
