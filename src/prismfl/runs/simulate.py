"""From a config to a finished run: plan, run, resume. The command line and `prismfl.run` are thin layers over this."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl import runtime, stages
from prismfl.core.job import Job
from prismfl.core.method import Method, Settings, State
from prismfl.core.task import Task
from prismfl.data import Dataset
from prismfl.errors import UserError
from prismfl.files.fresh import check_place
from prismfl.metrics.utility import accuracy
from prismfl.nets.encoders.base import Encoder
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs import encoded, pulse
from prismfl.runs.choosing import choose, choose_encoder
from prismfl.runs.config import RunConfig, check, validate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.encoders import encoder_of, ready, settled_words
from prismfl.runs.hosts import check_memory, open_hosts, own_ledger
from prismfl.runs.judging import judge_parts, judge_table
from prismfl.runs.models import recommended, scores_of_models, scores_of_sites
from prismfl.runs.opened import read_config, read_result
from prismfl.runs.planning import (
    Warn,
    check_path,
    check_records,
    find_method,
    finite,
    is_own,
    mixed_public,
    public_images_of,
    resolve,
    sent_up,
    settled,
    task_of,
    tuned,
    warnings_of,
    with_columns,
)
from prismfl.runs.public_facts import keep_facts
from prismfl.runs.records import (
    Rows,
    parts_digest,
    parts_given,
    read_data,
    spec_of,
    split_records,
)
from prismfl.runs.result import Result, charged, charged_sites, predictor, result_of, save_synthetic, spent_on
from prismfl.runs.starting import started_from
from prismfl.transport import in_process as local
from prismfl.transport.workers import fitting, transport

ROOM = 20_000_000  # bytes: checkpoints, metrics, what is drawn; releases come on top, kept on the way and at their end


def run(
    config: RunConfig,
    *,
    method: Method | None = None,
    encoder: Encoder | None = None,
    given: Dataset | None = None,
    progress: stages.Progress = lambda *_: None,
    warn: Warn = lambda _: None,
    tell: Warn = lambda _: None,
) -> Result:
    """A whole run in a new directory. Everything that can be wrong with the request is found before it is made.

    A `method` or an `encoder` that is not one of ours comes by itself: the config only keeps its words. So do records
    that a program has in hand (`given`): then each says its site, and no file is read.
    """
    with stages.listening(progress):
        found = method or find_method(config.method)
        return _run(config, found, encoder=encoder, given=given, progress=progress, warn=warn, tell=tell)


def _run(
    config: RunConfig,
    method: Method,
    *,
    encoder: Encoder | None,
    given: Dataset | None,
    progress: stages.Progress,
    warn: Warn,
    tell: Warn,
) -> Result:
    check(config)
    config = with_columns(mixed_public(settled(config), method), method, None if given is None else given.schema)
    if given is None:
        check_path(config)
        check_records(config)
    spec = spec_of(config) if given is None else given.spec
    resolve(config, task_of(config, spec, method), method)  # refuses what cannot be before anything is rehearsed
    encoder = encoder or encoder_of(config, method)
    task = task_of(config, spec, method, public_images_of(config, spec, method, warn))
    config = config.model_copy(update={"encoder": settled_words(config, encoder)})
    task = replace(task, encoder=ready(encoder, task))
    config, why = tuned(config, task, method)
    for line in why:
        tell(line)
    settings = resolve(config, task, method)
    resolved = config.model_copy(update={"settings": settings.model_dump(mode="json")})
    places = {name: str(Path(value).resolve()) for name in ("ledger", "start") if (value := getattr(config, name))}
    if is_own(config):
        places["ledger"] = str(own_ledger(config).parent.resolve())
    resolved = resolved.model_copy(update=places)
    config = config.model_copy(update=places)
    created = datetime.now(UTC)
    identity = _identity(resolved, created if config.ledger or is_own(config) else None)
    path = Path(config.out) if config.out else _default_path(config, method, created)
    check_place(path, needed=ROOM + 2 * sent_up(settings, task, method), option="--out")
    job, dataset = _job(identity, resolved, settings, task, method, warn, given=given)
    check_memory(job, config)
    parts = split_records(config, dataset, job) if given is None else parts_given(given, job)
    predictor(job)
    if encoded.looked_through(task, method):
        encoded.rows_of(task)
    stored = {"run": identity, "created": created.isoformat(timespec="seconds"), **resolved.model_dump(mode="json")}
    first = started_from(config.start, job, warn)
    directory = RunDirectory.create(path, stored, runtime.environment(), closed=is_own(config))
    keep_facts(directory, job.task, dataset.schema)
    if why:
        directory.write_json("choices.json", {"settings": config.settings, "why": why})
    if is_own(config):
        directory.write_json("parts.json", {"digest": parts_digest(dataset, parts)})
    directory.save_state(first)
    return _execute(job, resolved, dataset, parts, directory=directory, progress=progress)


def resume(path: Path, *, progress: stages.Progress = lambda *_: None, warn: Warn = lambda _: None) -> Result:
    """Take a killed run to its end; a finished one just reports."""
    with stages.listening(progress):
        return _resume(path, progress=progress, warn=warn)


def _resume(path: Path, *, progress: stages.Progress, warn: Warn) -> Result:
    directory = RunDirectory.open(path)
    if directory.status == "finished":
        return read_result(directory)
    other = pulse.at_work_elsewhere(directory)
    if other is not None:
        raise UserError(f"The run in '{path}' is still at work (process {other}); wait for it, or end it first.")
    identity, config = read_config(directory)
    config = settled(config)
    _, method = choose(config.method)
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    spec = spec_of(config)
    task = task_of(config, spec, method, public_images_of(config, spec, method, warn))
    task = replace(task, encoder=ready(choose_encoder(config, method), task))
    job, dataset = _job(identity, config, settings, task, method, warn)
    parts = split_records(config, dataset, job)
    same = not is_own(config) or directory.read_json("parts.json")["digest"] == parts_digest(dataset, parts)
    _check_resumed(directory, identity, config, same=same)
    return _execute(job, config, dataset, parts, directory=directory, progress=progress)


def _check_resumed(directory: RunDirectory, identity: str, config: RunConfig, *, same: bool) -> None:
    """A run on one's own data goes on with the records and on the ledger that it began with."""
    state = directory.load_state()
    if not is_own(config) or state is None:
        return
    if not same:
        raise UserError(f"The data changed since '{directory.path}' began; a run on other records is a new run.")
    with Ledger.open(own_ledger(config), create=state.round == 0) as ledger:
        if state.round > 0 and not ledger.charges(run=identity):
            raise UserError(f"The ledger {ledger.path} does not know this run, which has released; restore its own.")


def _job(
    identity: str,
    config: RunConfig,
    settings: Settings,
    task: Task,
    method: Method,
    warn: Warn,
    *,
    given: Dataset | None = None,
) -> tuple[Job, Dataset]:
    dataset = read_data(config) if given is None else given
    task = replace(task_of(config, dataset.spec, method), public=task.public, encoder=task.encoder)
    for line in (*dataset.notices, *warnings_of(config, task, settings, method)):
        warn(line)
    return Job(identity, method, settings, task, config.seed or 0, config.secure), dataset


def _execute(
    job: Job,
    config: RunConfig,
    dataset: Dataset,
    parts: Sequence[Rows],
    *,
    directory: RunDirectory,
    progress: stages.Progress,
) -> Result:
    with pulse.beating(directory) as clock:
        return _to_its_end(job, config, dataset, parts, directory=directory, progress=progress, clock=clock)


def _to_its_end(
    job: Job,
    config: RunConfig,
    dataset: Dataset,
    parts: Sequence[Rows],
    *,
    directory: RunDirectory,
    progress: stages.Progress,
    clock: Callable[[], float],
) -> Result:
    runtime.tune(config.threads)
    count = fitting(1 if config.workers is None else config.workers, job)
    dataset = encoded.look(dataset, job.task, job.method, progress)
    hosts, hub = open_hosts(job, config, dataset, parts, folder=directory.path)
    predict = predictor(job)
    spent = ""

    def shown(what: str, done: int, total: int) -> None:
        progress(what + spent, done, total)

    def after_round(state: State, traffic: dict[str, int]) -> None:
        nonlocal spent
        epsilon = finite(spent_on(job, hosts, hub)[0])
        spent = f", epsilon {epsilon:.3g} spent" if epsilon else ""
        directory.add_metrics(
            {
                "round": state.round,
                "accuracy": accuracy(predict, state.items, dataset.x_test, dataset.y_test),
                "epsilon": epsilon,
                "seconds": clock(),
                **traffic,
            }
        )

    with stages.listening(shown):
        outcome = local.run(
            job,
            hosts,
            directory=directory,
            hub=hub,
            keep=config.transcript,
            progress=shown,
            after_round=after_round,
            transport=transport(count, *([hub.ledger] if hub else ())),
        )
        scores = scores_of(job, predict, outcome, dataset)
        _, cost = spent_on(job, hosts, hub)
        result = result_of(job, directory, outcome.state, scores=scores, cost=cost, config=config, start=config.start)
        if job.method.model_at == "server":
            models = scores_of_models(job, outcome.state.items, dataset)
            result = replace(result, models=models, recommended=recommended(job, models) if models else None)
        else:
            result = replace(result, scores=scores_of_sites(job, predict, list(outcome.own.values()), dataset))
        result = replace(result, tables=judge_table(job, outcome.state.items, dataset))
        result = replace(result, parts=judge_parts(job, outcome.state.items, dataset))
    if is_own(config):
        book, spent_so_far = hosts[0].ledger, hosts[0].ledger.total_so_far(hosts[0].dataset, job.task.delta)
        result = replace(result, ledger=str(book.path), spent_so_far=spent_so_far)
    save_synthetic(outcome.state, directory.path / "gen", job.task, dataset.schema)
    extract = {name: cost.to_json() for name, cost in charged_sites(job, hosts).items()}
    if hub is not None:
        extract["hub"] = charged(hub.ledger, job, "client", "add-remove").to_json()
    directory.write_json("ledger.json", extract)
    for ledger in {id(known): known for known in (*(h.ledger for h in hosts), *([hub.ledger] if hub else ()))}.values():
        ledger.close(job.run, forget=job.settings.rounds == 1 and not is_own(config))
        if not ledger.lasting:
            ledger.shrink()
        ledger.shut()
    directory.write_json("result.json", result.as_dict())
    directory.set_status("finished")
    shutil.rmtree(directory.path / "memory", ignore_errors=True)  # locks and secrets of a run that is over
    return result


def _default_path(config: RunConfig, method: Method, when: datetime) -> Path:
    budget = "inf" if method.guarantee is None else f"{config.epsilon:g}" if config.epsilon else "sigma"
    data = Path(config.data).stem
    base = Path("runs") / method.name / f"{data}_eps{budget}-{when:%Y%m%dT%H%M%S}"
    path, n = base, 1
    while path.exists():
        n += 1
        path = base.with_name(f"{base.name}-{n}")
    return path


def _identity(config: RunConfig, when: datetime | None) -> str:
    """The same config is the same run; on a ledger that lasts, each start is a run of its own."""
    kept_out = {"out", "ledger", "data_dir", "threads", "workers", "memory", "test", "features"}
    public = config.model_dump(mode="json", exclude=kept_out)
    name = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
    return name if when is None else f"{name}@{when:%Y%m%dT%H%M%S.%f}"


def scores_of(job: Job, predict: Any, outcome: local.Outcome, dataset: Dataset) -> list[float]:
    """Test accuracy of the server's model, or of each site's own."""
    places = [outcome.state.items] if job.method.model_at == "server" else list(outcome.own.values())
    found = [accuracy(predict, items, dataset.x_test, dataset.y_test) for items in places]
    return [score for score in found if score is not None]
