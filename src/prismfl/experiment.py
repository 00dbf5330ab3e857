"""From a config to a finished run: plan, run, resume. The command line and `prismfl.run` are thin layers over this."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl import runtime
from prismfl.boundary import Records
from prismfl.config import RunConfig, check, validate
from prismfl.data import DATASETS, Dataset, Spec, load, load_path, load_public, parse_split, partition
from prismfl.data.facts import UndeclaredError, declared_facts
from prismfl.engines import local
from prismfl.errors import UserError
from prismfl.method import Method, Settings, State, Task
from prismfl.methods import METHODS
from prismfl.metrics.utility import accuracy
from prismfl.models.classifier import build
from prismfl.payloads import Payload, SyntheticSet
from prismfl.privacy import account
from prismfl.privacy.admission import Cap
from prismfl.privacy.cost import Cost, Relation
from prismfl.privacy.ledger import Ledger
from prismfl.privacy.place import LEDGER_FILE, ledger_path
from prismfl.privacy.secure_sum import Secrecy
from prismfl.report.pictures import save_grid
from prismfl.rng import Identities, Key
from prismfl.rounds import Host, Hub, Job, initial_state
from prismfl.sources import DEPLOYMENT, NO_PROTECTION, SIMULATION
from prismfl.transcript import SCHEMA_VERSION, RunDirectory

Warn = Callable[[str], None]
Rows = np.ndarray[Any, Any]
TEST_FRACTION = 0.2  # of own data without a test part of its own


@dataclass(frozen=True)
class Plan:
    """What a run will cost and send, from public numbers only."""

    method: str
    sigma: float | None
    epsilon: float | None
    epsilon_rdp: float | None
    epsilon_per_round: float | None
    delta: float
    unit: str
    relation: str
    guarantee: str
    rounds: int
    releases: int
    bytes_up: int
    records: int
    cost: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What a finished run reports; `as_dict` is the JSON form.

    `epsilon` is what this run cost, `epsilon_total` (with `cost_total`) all that the final model depends on: a run that
    started from another's model depends on both. `spent_so_far` is what the user's own data have paid over all their
    releases, on the `ledger`.
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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(METHODS)}."
    raise UserError(f"Unknown method '{name}'; {hint}")


def configure(options: Mapping[str, Any]) -> RunConfig:
    """A config from keyword arguments: what is not a key of the run is a setting of its method."""
    own = {k: v for k, v in options.items() if k in RunConfig.model_fields}
    rest = {k: v for k, v in options.items() if k not in RunConfig.model_fields}
    own["settings"] = {**own.get("settings", {}), **rest}
    config: RunConfig = validate(RunConfig, own, "the arguments")
    validate(find_method(config.method).settings, config.settings, f"the settings of {config.method}")
    return config


def is_own(config: RunConfig) -> bool:
    """Whether the data are the user's own, not a public benchmark's."""
    return config.data not in DATASETS


def settled(config: RunConfig) -> RunConfig:
    """The config with its seed and its source of noise decided.

    A seed makes a simulation: whoever knows it can take the noise off. So on one's own data the noise comes from the
    operating system unless a seed is asked for; a named benchmark is a simulation unless one asks for the real thing.
    """
    own = is_own(config)
    noise = config.noise or ("operating-system" if own and config.seed is None else "seeded")
    seed = config.seed if config.seed is not None else Key.from_os().integer() % 2**31 if own else 0
    return config.model_copy(update={"seed": seed, "noise": noise})


def declared_spec(config: RunConfig) -> Spec:
    """The declared facts of the data, without opening a file of records; what is not declared is an error."""
    if config.data in DATASETS:
        return DATASETS[config.data]
    _check_path(config)
    return declared_facts(
        config.data,
        classes=config.classes,
        image_size=config.image_size,
        channels=config.channels,
        schema=config.schema_file,
        unit=_unit_column(config),
        records=None if config.records is None else config.records * config.sites,
    )


def spec_of(config: RunConfig) -> Spec:
    """The declared facts of the data; a run may take what is left open (an image size) from the files."""
    try:
        return declared_spec(config)
    except UndeclaredError:
        return read_data(config).spec


def read_data(config: RunConfig, *, held_out: bool = True) -> Dataset:
    """The records. Own data without a test part of its own keep a fifth back for it, unless `held_out` is False."""
    if config.data in DATASETS:
        return load(config.data, data_dir=config.data_dir, subset=config.subset)
    _check_path(config)
    split = parse_split(config.split)
    return load_path(
        Path(config.data),
        label=config.label,
        classes=config.classes,
        image_size=config.image_size,
        channels=config.channels,
        schema=config.schema_file,
        unit=_unit_column(config),
        natural=split.column if split.name == "natural" else None,
        train_size=None if config.records is None else config.records * config.sites,
        test_fraction=TEST_FRACTION if held_out else 0.0,
    )


def _check_path(config: RunConfig) -> None:
    if not Path(config.data).exists():
        near = difflib.get_close_matches(config.data, DATASETS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(DATASETS)}."
        raise UserError(f"'{config.data}' is neither a data set's name nor a path; {hint}")


def _unit_column(config: RunConfig) -> str | None:
    return None if config.unit in ("record", "client") else config.unit


def task_of(config: RunConfig, spec: Spec, method: Method, public: torch.Tensor | None = None) -> Task:
    if method.kinds and spec.kind not in method.kinds:
        kinds = " and ".join(method.kinds)
        raise UserError(f"Method '{method.name}' works on {kinds} data, '{spec.name}' is {spec.kind}.")
    sites = 1 if method.pooled else config.sites
    if config.records is None and config.data not in DATASETS:
        raise UserError("For your own data, declare a public (rounded) number of records a site: --set records=1000.")
    size = config.subset or spec.train_size
    records = config.records * (config.sites if method.pooled else 1) if config.records else max(1, size // sites)
    model = config.model
    if spec.kind == "table" and model.partition(":")[0] in ("convnet", "lenet"):
        model = "mlp"
    return Task(
        data=spec.name,
        shape=spec.shape,
        classes=spec.classes,
        sites=tuple(f"site-{i}" for i in range(sites)),
        records=records,
        model=model,
        unit=spec.unit if config.unit == "record" and spec.unit else config.unit,
        relation=config.relation,
        delta=config.delta,
        participation=1.0 if method.pooled else config.participation,
        device=config.device,
        public=public,
    )


def resolve(config: RunConfig, task: Task, method: Method) -> Settings:
    """The method's settings with sigma solved from epsilon over the whole run."""
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    wants_noise = "sigma" in method.settings.model_fields
    if method.guarantee is None and config.epsilon is not None:
        raise UserError(
            f"Method '{method.name}' has no DP guarantee, so epsilon {config.epsilon} cannot be met; leave it out."
        )
    if not wants_noise or getattr(settings, "sigma", None) is not None:
        return settings
    if config.epsilon is None:
        raise UserError(f"Method '{method.name}' needs a privacy budget: give --epsilon (say 1.0) or --set sigma=1.0.")

    def cost(sigma: float) -> Cost:
        return method.plan(settings.model_copy(update={"sigma": sigma}), task)

    return settings.model_copy(update={"sigma": account.calibrate(cost, config.epsilon, config.delta)})


def warnings_of(config: RunConfig, task: Task, settings: Settings) -> list[str]:
    advice = find_method(config.method).advice
    found = advice(settings, task) if advice is not None else []
    if config.delta >= 1.0 / task.records:
        found.append(f"delta {config.delta:g} is not below 1 / {task.records} (records a site): the guarantee is weak.")
    return found


def plan(config: RunConfig) -> Plan:
    """Sigma, epsilon and bytes of a run, before any record is read."""
    method = find_method(config.method)
    check(config)
    task = task_of(config, declared_spec(config), method)
    settings = resolve(config, task, method)
    cost = method.plan(settings, task)
    once = method.plan(settings.model_copy(update={"rounds": 1}), task)
    shapes = method.shapes(settings, task)
    size = sum(_width(dtype) * math.prod(shape) for item in shapes.values() for dtype, shape in item.values())
    releases = settings.rounds * len(task.sites)
    return Plan(
        method=method.name,
        sigma=getattr(settings, "sigma", None),
        epsilon=_finite(account.epsilon(cost, config.delta)),
        epsilon_rdp=_finite(account.epsilon_rdp(cost, config.delta)),
        epsilon_per_round=_finite(account.epsilon(once, config.delta)),
        delta=config.delta,
        unit=cost.unit,
        relation=cost.relation,
        guarantee=guarantee_words(cost),
        rounds=settings.rounds,
        releases=releases,
        bytes_up=size * releases,
        records=task.records,
        cost=cost.describe(),
        warnings=tuple(warnings_of(config, task, settings)),
    )


def guarantee_words(cost: Cost, noise: str = DEPLOYMENT) -> str:
    """What is promised, in words. Noise that follows from a seed protects nobody."""
    if not cost.private:
        return "none"
    if cost.is_zero:
        return "nothing leaves"
    return "differential privacy" if noise == DEPLOYMENT else NO_PROTECTION


def run(config: RunConfig, *, progress: local.Progress = lambda *_: None, warn: Warn = lambda _: None) -> Result:
    """A whole run in a new directory. Everything that can be wrong with the request is found before it is made."""
    method = find_method(config.method)
    check(config)
    config = settled(config)
    settings = resolve(config, task_of(config, spec_of(config), method), method)
    resolved = config.model_copy(update={"settings": settings.model_dump(mode="json")})
    places = {name: str(Path(value).resolve()) for name in ("ledger", "start") if (value := getattr(config, name))}
    if is_own(config):
        places["ledger"] = str(own_ledger(config).parent.resolve())
    resolved = resolved.model_copy(update=places)
    config = config.model_copy(update=places)
    created = datetime.now(UTC)
    identity = _identity(resolved, created if config.ledger or is_own(config) else None)
    job, dataset = _job(identity, resolved, settings, warn)
    parts = split_records(config, dataset, job)
    predictor(job)
    stored = {"run": identity, "created": created.isoformat(timespec="seconds"), **resolved.model_dump(mode="json")}
    path = Path(config.out) if config.out else _default_path(config, method, created)
    first = started_from(config, job, warn)
    directory = RunDirectory.create(path, stored, runtime.environment(), closed=is_own(config))
    if is_own(config):
        directory.write_json("parts.json", {"digest": _parts_digest(dataset, parts)})
    directory.save_state(first)
    return _execute(job, resolved, dataset, parts, directory=directory, progress=progress)


def started_from(config: RunConfig, job: Job, warn: Warn) -> State:
    """The first state: the method's own, or with the model that an earlier run ended with."""
    state = initial_state(job)
    if config.start is None:
        return state
    earlier = RunDirectory.open(Path(config.start))
    ended = earlier.load_state() if earlier.status == "finished" else None
    if ended is None or "model" not in ended.items or "model" not in state.items:
        raise UserError(f"'{config.start}' has no finished model for '{job.method.name}' to start from.")
    if ended.items["model"].shapes() != state.items["model"].shapes():
        raise UserError(f"The model in '{config.start}' is not a {job.task.model}; use the same --model in both runs.")
    cost = _total_of(earlier)
    words = f"cost epsilon {account.epsilon(cost, config.delta):.3g}" if cost.private else "has no guarantee"
    warn(f"the model to start from {words}, beside what this run costs; the result states both together.")
    return State(0, {**state.items, "model": ended.items["model"]})


def _total_of(directory: RunDirectory) -> Cost:
    """All that a finished run's model depends on."""
    told = directory.read_json("result.json")
    if told.get("cost_total") is not None:
        return Cost.from_json(told["cost_total"])
    costs = [Cost.from_json(entry) for entry in directory.read_json("ledger.json").values()]
    return max(costs, key=lambda cost: account.epsilon(cost, float(told["delta"])))


def _whole_noise(config: RunConfig) -> str:
    """Where the noise came from that the final model depends on: a seed anywhere in the chain leaves no protection."""
    own = DEPLOYMENT if config.noise == "operating-system" else SIMULATION
    if config.start is None or own == SIMULATION:
        return own
    earlier = RunDirectory.open(Path(config.start)).read_json("result.json")
    return DEPLOYMENT if earlier.get("noise") == DEPLOYMENT or not earlier.get("own_data", True) else SIMULATION


def _whole_cost(config: RunConfig, cost: Cost) -> Cost:
    """A run's cost and that of the run it started from."""
    if config.start is None:
        return cost
    earlier = _total_of(RunDirectory.open(Path(config.start)))
    if (earlier.unit, earlier.relation) != (cost.unit, cost.relation):
        return Cost.non_private(cost.unit, cost.relation)  # unlike units never add: nothing can be said of both
    return earlier.beside(cost)


def resume(path: Path, *, progress: local.Progress = lambda *_: None, warn: Warn = lambda _: None) -> Result:
    """Take a killed run to its end; a finished one just reports."""
    directory = RunDirectory.open(path)
    if directory.status == "finished":
        return Result(**directory.read_json("result.json"))
    stored = directory.read_json("config.json")
    identity = str(stored.pop("run"))
    stored.pop("created", None)
    config = settled(validate(RunConfig, stored, str(path / "config.json")))
    method = find_method(config.method)
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    job, dataset = _job(identity, config, settings, warn)
    parts = split_records(config, dataset, job)
    same = not is_own(config) or directory.read_json("parts.json")["digest"] == _parts_digest(dataset, parts)
    _check_resumed(directory, identity, config, same=same)
    return _execute(job, config, dataset, parts, directory=directory, progress=progress)


def _parts_digest(dataset: Dataset, parts: Sequence[Rows]) -> str | None:
    """Which of the user's records each simulated site holds: a record pays for one of them only if that stays so."""
    names = dataset.identity
    if names is None:
        return None
    sites = [hashlib.sha256(b"".join(sorted(names[i] for i in part))).hexdigest() for part in parts]
    return hashlib.sha256("".join(sites).encode()).hexdigest()


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


def _job(identity: str, config: RunConfig, settings: Settings, warn: Warn) -> tuple[Job, Dataset]:
    method = find_method(config.method)
    dataset = read_data(config)
    task = task_of(config, dataset.spec, method, _public(config, dataset.spec, method, warn))
    for line in (*dataset.notices, *warnings_of(config, task, settings)):
        warn(line)
    return Job(identity, method, settings, task, config.seed or 0, secrecy(config)), dataset


def secrecy(config: RunConfig) -> Secrecy | None:
    return None if config.secure is None else Secrecy(config.secure.quorum, config.secure.colluding)


def _execute(
    job: Job,
    config: RunConfig,
    dataset: Dataset,
    parts: Sequence[Rows],
    *,
    directory: RunDirectory,
    progress: local.Progress,
) -> Result:
    runtime.tune(config.threads)
    started = time.monotonic()
    hosts, hub = open_hosts(job, config, dataset, parts, folder=directory.path)
    predict = predictor(job)
    spent = ""

    def shown(what: str, done: int, total: int) -> None:
        progress(what + spent, done, total)

    def after_round(state: State, traffic: dict[str, int]) -> None:
        nonlocal spent
        epsilon = _finite(_spent(job, hosts, hub)[0])
        spent = f", epsilon {epsilon:.3g} spent" if epsilon else ""
        directory.add_metrics(
            {
                "round": state.round,
                "accuracy": accuracy(predict, state.items, dataset.x_test, dataset.y_test),
                "epsilon": epsilon,
                "seconds": round(time.monotonic() - started, 3),
                **traffic,
            }
        )

    outcome = local.run(
        job, hosts, directory=directory, hub=hub, keep=config.transcript, progress=shown, after_round=after_round
    )
    scores = _scores(job, predict, outcome, dataset)
    epsilon, cost = _spent(job, hosts, hub)
    result = _result(job, config, directory, outcome.state, scores=scores, epsilon=epsilon, cost=cost)
    if is_own(config):
        book, spent_so_far = hosts[0].ledger, hosts[0].ledger.total_so_far(hosts[0].dataset, job.task.delta)
        result = replace(result, ledger=str(book.path), spent_so_far=spent_so_far)
    _save_synthetic(outcome.state, directory.path / "gen", dataset.spec)
    unit, relation = job.task.unit, job.task.relation
    extract = {host.name: charged(host.ledger, job, unit, relation, host.part).to_json() for host in hosts}
    if hub is not None:
        extract["hub"] = charged(hub.ledger, job, "client", "add-remove").to_json()
    directory.write_json("ledger.json", extract)
    for ledger in {id(known): known for known in (*(h.ledger for h in hosts), *([hub.ledger] if hub else ()))}.values():
        ledger.close(job.run)
    directory.write_json("result.json", result.as_dict())
    directory.set_status("finished")
    shutil.rmtree(directory.path / "memory", ignore_errors=True)  # locks and secrets of a run that is over
    return result


def open_hosts(
    job: Job, config: RunConfig, dataset: Dataset, parts: Sequence[Rows], *, folder: Path
) -> tuple[list[Host], Hub | None]:
    """Each site with its records and ledger; the plan is reserved before any record is used.

    The user's own data are one data set on the user's one ledger, of which each simulated site holds a part.
    """
    plan = job.plan()
    client_level = job.method.guarantee == "client"
    cap = None if config.cap is None else Cap(config.cap, config.delta, plan.unit, plan.relation)
    own, deployed = is_own(config), config.noise == "operating-system"
    book = Ledger.open(own_ledger(config)) if own else None
    identity = "" if book is None else _declare_own(book, job, config, dataset, None if client_level else cap)
    ledgers = Path(config.ledger) if config.ledger else folder / "ledger"
    hosts = []
    for name, rows in zip(job.task.sites, parts):
        records, place = _records(dataset, rows), folder / "memory" / name
        if book is not None:
            hosts.append(Host(name, records, book, identity, place, part=name, deployed=deployed))
            continue
        ledger = Ledger.open(ledgers / f"{name}.sqlite")
        known = ledger.dataset(
            f"{config.data}/{name}", records=_raw_records(records()), cap=None if client_level else cap
        )
        ledger.reserve(job.run, known, job.site_plan())
        hosts.append(Host(name, records, ledger, known, place, deployed=deployed))
    if not client_level:
        return hosts, None
    ledger = Ledger.open(ledgers / "hub.sqlite")
    clients = ledger.dataset("clients", records=[name.encode() for name in job.task.sites], cap=cap)
    ledger.reserve(job.run, clients, plan)
    return hosts, Hub(ledger, clients, deployed=deployed)


def own_ledger(config: RunConfig) -> Path:
    """The one ledger of the user's own data."""
    return Path(config.ledger) / LEDGER_FILE if config.ledger else ledger_path()


def _declare_own(book: Ledger, job: Job, config: RunConfig, dataset: Dataset, cap: Cap | None) -> str:
    """The user's data on their ledger, by name, records and units, with the whole plan reserved."""
    name = config.dataset or str(Path(config.data).resolve())
    units = () if dataset.unit_train is None else (int(code).to_bytes(8, "little") for code in dataset.unit_train)
    prints = dataset.prints_train
    assert prints is not None, "a reader of own data fingerprints what it reads"
    identity = book.dataset(name, records=[*prints, *dataset.more_prints], units=units, cap=cap)
    plan, known = job.site_plan(), book.cap(identity)
    if known is not None and config.noise == "seeded" and plan.private and not plan.is_zero:
        raise UserError(
            f"The data have a cap of {known.describe()}, and seeded noise protects nobody; leave out the seed."
        )
    book.reserve(job.run, identity, plan)
    return identity


def split_records(config: RunConfig, dataset: Dataset, job: Job) -> list[Rows]:
    if job.method.pooled:
        return [np.arange(len(dataset.y_train))]
    return list(
        partition(
            dataset.y_train.numpy(),
            config.sites,
            split=config.split,
            seed=config.seed or 0,
            natural=dataset.natural_train,
            classes=len(dataset.spec.classes),
            identity=dataset.identity,
        )
    )


def predictor(job: Job) -> Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]:
    """How the final model scores records."""
    custom = job.method.predict
    if custom is not None:
        return lambda items, x: custom(job.settings, job.task, items, x)
    task = job.task
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0), device=task.device)
    return lambda items, x: classifier.logits(items["model"].to(task.device), x.to(task.device))


def _records(dataset: Dataset, rows: Rows) -> Callable[[], Records]:
    index = torch.from_numpy(np.asarray(rows))
    unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)
    named: list[Identities] = []  # the same records in every round: named once

    def take() -> Records:
        return Records(dataset.x_train[index], dataset.y_train[index], None if unit is None else unit[index], named)

    return take


def _raw_records(records: Records) -> list[bytes]:
    x, y = records.x.numpy(), records.y.numpy()
    return [x[i].tobytes() + int(y[i]).to_bytes(4, "little") for i in range(len(y))]


def _spent(job: Job, hosts: list[Host], hub: Hub | None) -> tuple[float, Cost]:
    """The largest epsilon that any site (or the hub) has on its ledger for this run."""
    if hub is not None:
        costs = [charged(hub.ledger, job, "client", "add-remove")]
    else:
        costs = [charged(host.ledger, job, job.task.unit, job.task.relation, host.part) for host in hosts]
    worst = {cost: account.epsilon(cost, job.task.delta) for cost in set(costs)}
    cost = max(worst, key=lambda c: worst[c])
    return worst[cost], cost


def charged(ledger: Ledger, job: Job, unit: str, relation: Relation, part: str = "") -> Cost:
    """What a run has on a ledger (for one part of the data): the sum of its releases."""
    mine = (charge.cost for charge in ledger.charges(run=job.run) if charge.part == part)
    return sum(mine, start=Cost.zero(unit, relation))


def _scores(job: Job, predict: Any, outcome: local.Outcome, dataset: Dataset) -> list[float]:
    """Test accuracy of the server's model, or of each site's own."""
    places = [outcome.state.items] if job.method.model_at == "server" else list(outcome.own.values())
    found = [accuracy(predict, items, dataset.x_test, dataset.y_test) for items in places]
    return [score for score in found if score is not None]


def _result(
    job: Job,
    config: RunConfig,
    directory: RunDirectory,
    state: State,
    *,
    scores: list[float],
    epsilon: float,
    cost: Cost,
) -> Result:
    rows, crossed = directory.metrics(), directory.messages()
    total = {d: sum(m.bytes for m in crossed if m.direction == d) for d in ("up", "down")}
    digests = {name: payload.digest for name, payload in sorted(state.items.items())}
    noise, whole = _whole_noise(config), _whole_cost(config, cost)
    return Result(
        schema_version=SCHEMA_VERSION,
        status="finished",
        method=job.method.name,
        data=job.task.data,
        split=config.split,
        sites=len(job.task.sites),
        rounds=job.settings.rounds,
        seed=job.seed,
        model=job.task.model,
        accuracy=round(float(np.mean(scores)), 4) if scores else None,
        accuracy_min=round(min(scores), 4) if scores else None,
        epsilon=_finite(epsilon),
        guarantee=guarantee_words(whole, noise),
        delta=job.task.delta,
        unit=cost.unit,
        relation=cost.relation,
        sigma=getattr(job.settings, "sigma", None),
        bytes_up=total["up"],
        bytes_down=total["down"],
        seconds=round(rows[-1]["seconds"] if rows else 0.0, 2),
        digest=hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest(),
        run_dir=str(directory.path),
        noise=noise,
        own_data=is_own(config),
        epsilon_total=_finite(account.epsilon(whole, job.task.delta)),
        cost_total=whole.to_json(),
    )


def _public(config: RunConfig, spec: Spec, method: Method, warn: Warn) -> torch.Tensor | None:
    if not method.needs_public:
        return None
    found = load_public(
        config.public or "procedural",
        shape=(spec.shape[0], spec.shape[1], spec.shape[2]),
        count=config.public_count,
        key_seed=config.seed or 0,
        data_dir=config.data_dir,
    )
    for notice in found.notices:
        warn(notice)
    return found.images


def _save_synthetic(state: State, folder: Path, spec: Spec) -> None:
    made = state.items.get("synthetic")
    if not isinstance(made, SyntheticSet):
        return
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "gen.npz", x=made.x.numpy(), y=made.y.numpy())
    if spec.kind == "image":
        save_grid(made.x, made.hard_y, folder / "sample.png", classes=spec.classes)


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
    public = config.model_dump(mode="json", exclude={"out", "ledger", "data_dir", "threads"})
    name = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
    return name if when is None else f"{name}@{when:%Y%m%dT%H%M%S.%f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _width(dtype: str) -> int:
    return {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}[dtype]
