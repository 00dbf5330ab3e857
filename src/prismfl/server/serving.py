"""One federated run on the server, from its folder: what the ServerApp does once Flower has started it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from prismfl import runtime
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.rounds import Hub
from prismfl.data import DATASETS, load
from prismfl.data.schema_file import parse_schema, schema_words
from prismfl.errors import PrismError, UserError
from prismfl.metrics.utility import accuracy
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.config import RunConfig
from prismfl.runs.description import declared, describe, job_of, public_images, table_schema
from prismfl.runs.directory import RunDirectory
from prismfl.runs.encoders import travelling
from prismfl.runs.public_facts import keep_facts
from prismfl.runs.result import predictor, result_of, save_synthetic
from prismfl.runs.starting import started_from
from prismfl.transport.conductor import Conductor
from prismfl.transport.post import Post, RoundRules

Say = Callable[[str], None]


def prepare(
    path: Path,
    config: RunConfig,
    sites: Sequence[str],
    *,
    rules: RoundRules,
    evaluate: bool,
    say: Say = lambda line: None,
) -> RunDirectory:
    """A new run directory with everything that the ServerApp needs. What cannot be is found before it is made."""
    if rules.quorum > len(sites):
        raise UserError(f"The quorum of {rules.quorum} is more than the {len(sites)} enrolled sites; enroll more.")
    spec, schema = declared(config)
    created = datetime.now(UTC)
    description = describe(config, spec, sites, schema=schema)
    # Two servers that begin the same config in the same second are two runs to a site that both may ask.
    description["run"] = f"{description['run']}-{created:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    start = None if config.start is None else str(Path(config.start).resolve())
    source, encoders = public_images(config.public)[1], travelling(config.encoder)[1]
    first = None
    if start is not None:
        first = started_from(start, job_of(description, source=source, encoders=encoders), say)
    words = {"run": description["run"], "created": created.isoformat(timespec="seconds"), **description["config"]}
    words |= {"data": description["spec"]["name"], "start": start}
    directory = RunDirectory.create(path, words, runtime.environment())
    told = {"description": description, "rules": asdict(rules), "evaluate": evaluate}
    told |= {"public": source, "encoders": encoders, "transcript": config.transcript, "start": start}
    columns = table_schema(config)
    told |= {"table": None if columns is None else schema_words(columns)}
    if first is not None:
        directory.save_state(first)  # before there is anything to resume: a run without it would begin afresh
    directory.write_json("federation.json", told)
    return directory


def serve(path: Path, post: Post, *, say: Say | None = None) -> None:
    """Take the run in `path` to its end over `post`; the outcome, good or bad, is in the directory."""
    directory = RunDirectory.open(path)
    told = directory.read_json("federation.json")
    directory.write_json("process.json", {"pid": os.getpid()})
    runtime.tune()
    job = job_of(told["description"], source=told.get("public"), encoders=told.get("encoders") or {})
    schema = None if told.get("table") is None else parse_schema(told["table"], where=f"{path / 'federation.json'}")
    keep_facts(directory, job.task, schema)
    speak = say or _log_to(path / "server.log")
    try:
        measure = _measure(job, directory, evaluate=bool(told["evaluate"]))
        conductor = Conductor(
            job,
            told["description"],
            post,
            directory,
            RoundRules(**told["rules"]),
            hub=_hub(job, path),
            keep=str(told.get("transcript", "ends")),
            say=speak,
            after_round=measure,
        )
        state = conductor.run()
        save_synthetic(state, path / "gen", job.task, schema)
        last = directory.metrics()[-1:]
        scores = [row["accuracy"] for row in last if row["accuracy"] is not None]
        result = result_of(job, directory, state, scores=scores, cost=job.plan(), config=None, start=told.get("start"))
        directory.write_json("result.json", result.as_dict())
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
    predict = predictor(job) if data is not None else None

    def after_round(state: State, traffic: dict[str, int]) -> None:
        score = None
        if data is not None and predict is not None:
            score = accuracy(predict, state.items, data.x_test, data.y_test)
        seconds = round(time.monotonic() - started, 3)
        directory.add_metrics({"round": state.round, "accuracy": score, "epsilon": None, "seconds": seconds, **traffic})

    return after_round
