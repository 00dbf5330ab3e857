"""What a run will cost and send, from public numbers alone: no record is opened here."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prismfl.core.method import Method, Settings, Wanted
from prismfl.core.task import Encodes, Task
from prismfl.data import DATASETS, Schema, Spec, load_public
from prismfl.data.facts import declared_facts
from prismfl.data.public_rows import load_public_rows
from prismfl.data.schema import words
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.nets.encoders.base import Encoder
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from prismfl.runs import encoded, html
from prismfl.runs.config import RunConfig, check, validate
from prismfl.runs.encoders import encoder_of, ready, with_layers
from prismfl.runs.tuning import choose_settings, wanted
from prismfl.sources import DEPLOYMENT, NO_PROTECTION

Warn = Callable[[str], None]
MODEL = "convnet:32"
IN_MEMORY = "in-memory/"  # how a config names data that were handed over in Python


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

    def __repr__(self) -> str:
        return f"<Plan {self.method}; {'; '.join(f'{name}: {value}' for name, value in html.plan_facts(asdict(self)))}>"

    def _repr_html_(self) -> str:
        return html.facts_table(f"Plan: {self.method}", html.plan_facts(asdict(self)))


def find_method(name: str) -> Method:
    """One of prismfl's own methods. Nothing is imported: the name may come from a server, or from a sent folder."""
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        raise UserError(f"Method '{name:.80}' is not one of prismfl's own; only run, plan and resume import code.")
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(METHODS)}."
    raise UserError(f"Unknown method '{name}' (--method); {hint}")


def configure(options: Mapping[str, Any], method: Method | None = None) -> RunConfig:
    """A config from keyword arguments: what is not a key of the run is a setting of its method."""
    own = {k: v for k, v in options.items() if k in RunConfig.model_fields}
    rest = {k: v for k, v in options.items() if k not in RunConfig.model_fields}
    own["settings"] = {**own.get("settings", {}), **rest}
    config: RunConfig = validate(RunConfig, own, "the arguments")
    method = method or find_method(config.method)
    validate(method.settings, config.settings, f"the settings of {method.name}")
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
    check_path(config)
    return declared_facts(
        config.data,
        label=config.label,
        classes=config.classes,
        image_size=config.image_size,
        channels=config.channels,
        features=config.features,
        schema=config.schema_file,
        unit=unit_column(config),
        records=None if config.records is None else config.records * config.sites,
    )


def check_path(config: RunConfig) -> None:
    """An error if the data are neither a known name nor a path that exists."""
    if config.data.startswith(IN_MEMORY) and not Path(config.data).exists():
        raise UserError(
            f"The records of '{config.data}' were handed over in Python (prismfl.Federation) and are kept nowhere; run "
            "it again there."
        )
    if is_own(config) and not Path(config.data).exists():
        near = difflib.get_close_matches(config.data, DATASETS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(DATASETS)}."
        raise UserError(f"'{config.data}' is neither a data set's name nor a path (--data); {hint}")


def check_records(config: RunConfig) -> None:
    """The number of own records is declared, never counted; told before any of them is read."""
    if config.records is None and is_own(config):
        raise UserError(
            f"How many records a site of '{config.data}' has is not declared: give a public, rounded number with "
            "--records 1000 (key: records)."
        )


def unit_column(config: RunConfig) -> str | None:
    """The column that names the unit, None where the unit is the record or the client."""
    return None if config.unit in ("record", "client") else config.unit


def task_of(
    config: RunConfig,
    spec: Spec,
    method: Method,
    public: torch.Tensor | None = None,
    encoder: Encodes | None = None,
) -> Task:
    """The public facts of a run; data that the method cannot work on are an error."""
    through = encoded.wanted(config, method)
    if through:
        spec = encoded.spec_of_rows(spec, config, method)
    if method.kinds and spec.kind not in method.kinds:
        kinds = " and ".join(method.kinds)
        raise UserError(
            f"Method '{method.name}' works on {kinds} data, '{spec.name}' is {spec.kind}; give another --method."
        )
    if len(spec.classes) < 2 and not method.unlabelled:
        raise UserError(
            f"Method '{method.name}' learns classes, and what '{spec.name}' predicts is a number; give --method "
            "dp-marginals (or 3dgl), or declare classes."
        )
    sites = 1 if method.pooled else config.sites
    check_records(config)
    size = config.subset or spec.train_size
    records = config.records * (config.sites if method.pooled else 1) if config.records else max(1, size // sites)
    model = config.model or MODEL
    if spec.kind == "table" and model.partition(":")[0] in ("convnet", "lenet"):
        model = encoded.LINEAR if through else "mlp"
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
        encoder=encoder,
        parts=None if through else spec.parts,
    )


def mixed_public(config: RunConfig, method: Method) -> RunConfig:
    """Where settings are chosen and no public images are named: a drawn mixture, of which the release picks its own."""
    if config.public is not None or not (wanted(config.tuning) and method.auto is not None and method.needs_public):
        return config
    return config.model_copy(update={"public": "procedural-mixed", "public_count": max(4000, config.public_count)})


def with_columns(config: RunConfig, method: Method, schema: Schema | None = None) -> RunConfig:
    """The config with the columns that a schema declares, for a method that has a setting for them and none given."""
    settings = method.settings.model_fields
    if "columns" not in settings or config.settings.get("columns") is not None or config.data in DATASETS:
        return config
    if schema is None and config.schema_file is not None:
        schema = read_schema(config.schema_file)
    if schema is None:
        return config
    told = {"columns": list(words(schema)), "names": [column.name for column in schema.encoded]}
    known = {key: value for key, value in told.items() if key in settings}
    return config.model_copy(update={"settings": {**known, **config.settings}})


def public_images_of(config: RunConfig, spec: Spec, method: Method, warn: Warn) -> torch.Tensor | None:
    """The public images that a method or its encoder asks for, None for none; notices about them go to `warn`."""
    if not method.needs_public and not encoded.wanted(config, method):
        return None
    if spec.parts is not None:
        rows = load_public_rows(
            spec.parts,
            images=config.public or "procedural",
            text=config.public_text,
            count=config.public_count,
            key_seed=config.seed or 0,
            data_dir=config.data_dir,
        )
        for notice in rows.notices:
            warn(notice)
        return rows.images
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


def tuned(config: RunConfig, task: Task, method: Method) -> tuple[RunConfig, tuple[str, ...]]:
    """The config with every setting that was not given chosen by the method, where that is wanted; and why."""
    settings = with_layers(config.settings, task.encoder) if method.takes_encoder else dict(config.settings)
    validate(method.settings, settings, f"the settings of {method.name}")
    ready = method.auto is not None and config.epsilon is not None and settings.get("sigma") is None
    asked, free = wanted(config.tuning), config.model is None
    config = config.model_copy(update={"settings": settings, "tuning": "fixed", "model": task.model})
    if not asked or not ready:
        return config, ()
    assert config.epsilon is not None
    chosen = choose_settings(method, Wanted(settings, task, config.epsilon, config.secure is not None, free))
    found = {"settings": {**chosen.settings, **settings}, "model": chosen.model or task.model}
    return config.model_copy(update=found), chosen.words


def resolve(config: RunConfig, task: Task, method: Method) -> Settings:
    """The method's settings with sigma solved from epsilon over the whole run."""
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    wants_noise = "sigma" in method.settings.model_fields
    if method.guarantee is None and config.epsilon is not None:
        raise UserError(
            f"Method '{method.name}' has no DP guarantee, so --epsilon {config.epsilon} cannot be met; leave it out."
        )
    if not wants_noise or getattr(settings, "sigma", None) is not None:
        return settings
    if config.epsilon is None:
        raise UserError(f"Method '{method.name}' needs a privacy budget: give --epsilon (say 1.0) or --set sigma=1.0.")

    def cost(sigma: float) -> Cost:
        return method.plan(settings.model_copy(update={"sigma": sigma}), task)

    return settings.model_copy(update={"sigma": account.calibrate(cost, config.epsilon, config.delta)})


def warnings_of(config: RunConfig, task: Task, settings: Settings, method: Method) -> list[str]:
    """What to tell the user before the run: the method's advice, and a delta that is too large."""
    found = method.advice(settings, task) if method.advice is not None else []
    weak = large_delta(config.delta, task.records) if method.guarantee is not None else None
    return found if weak is None else [*found, weak]


def large_delta(delta: float | None, records: int) -> str | None:
    """What to say of a delta at which a whole record may be given away."""
    if delta is None or delta * records < 1:
        return None
    return f"delta {delta:g} is not below 1 / {records} (declared records): the guarantee is weak; lower --delta."


def plan(
    config: RunConfig, method: Method | None = None, encoder: Encoder | None = None, *, given: Spec | None = None
) -> Plan:
    """Sigma, epsilon and bytes of a run, before any record is read. A `method` or an `encoder` that is not ours comes
    by itself, and so do the declared facts (`given`) of records that a program has in hand."""
    method = method or find_method(config.method)
    check(config)
    config = with_columns(mixed_public(config, method), method)
    if given is None:
        check_path(config)
        check_records(config)
    spec = declared_spec(config) if given is None else given
    task = task_of(config, spec, method)
    encoder = encoder or encoder_of(config, method)
    if method.needs_public and method.auto is not None and wanted(config.tuning):
        task = replace(task, public=public_images_of(config, spec, method, lambda _: None))
    if method.takes_encoder:
        task = replace(task, encoder=ready(encoder, task))
    config, _ = tuned(config, task, method)
    task = replace(task, model=config.model or MODEL)
    settings = resolve(config, task, method)
    cost = method.plan(settings, task)
    once = method.plan(settings.model_copy(update={"rounds": 1}), task)
    releases = settings.rounds * len(task.sites)
    return Plan(
        method=method.name,
        sigma=getattr(settings, "sigma", None),
        epsilon=finite(account.epsilon(cost, config.delta)),
        epsilon_rdp=finite(account.epsilon_rdp(cost, config.delta)),
        epsilon_per_round=finite(account.epsilon(once, config.delta)),
        delta=config.delta,
        unit=cost.unit,
        relation=cost.relation,
        guarantee=guarantee_words(cost),
        rounds=settings.rounds,
        releases=releases,
        bytes_up=sent_up(settings, task, method),
        records=task.records,
        cost=cost.describe(),
        warnings=tuple(warnings_of(config, task, settings, method)),
    )


def sent_up(settings: Settings, task: Task, method: Method) -> int:
    """The bytes of all releases of a run, by the public shapes of its method."""
    shapes = method.shapes(settings, task)
    size = sum(_width(dtype) * math.prod(shape) for item in shapes.values() for dtype, shape in item.values())
    return size * settings.rounds * len(task.sites)


def guarantee_words(cost: Cost, noise: str = DEPLOYMENT) -> str:
    """What is promised, in words. Noise that follows from a seed protects nobody."""
    if not cost.private:
        return "none"
    if cost.is_zero:
        return "nothing leaves"
    return "differential privacy" if noise == DEPLOYMENT else NO_PROTECTION


def finite(value: float) -> float | None:
    """The number, or None where it is infinite or not a number."""
    return value if math.isfinite(value) else None


def _width(dtype: str) -> int:
    return {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}[dtype]
