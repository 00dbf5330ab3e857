"""3DGL with DDP-beta-VAE (Lomurno et al. 2022): a pool of differentially private generators.

Paper: Lomurno, Di Perna, Cazzella, Samele, Matteucci, "A Generative Federated Learning Framework for Differential
Privacy", 2022.

Each site trains one DP beta-VAE per class and shares only the decoders; the server collects them into the pool; each
site samples the pool and trains what it likes. What leaves: once, a `Synthesizer` (decoders, and the noisy class sizes
where they are not declared). The encoders and the chosen number of synthetic records never leave. `server` is a pure
function of the releases without randomness of its own, so peers that pass each other the releases build the same pool.

Differs from the paper: class sizes are declared or noised (and charged), batches are Poisson at the same rate in every
class, so that one noise multiplier serves all of them; some of the queries go to noisy moments, from which the decoder
starts (`start = 0` gives the paper's); outputs are typed (numbers with a spread, binaries, categories). One generator
with the label as a column serves tables without classes, and units other than a record, where classes are not disjoint.
Every kind of synthesizer asks the door alike, so a mixed pool has one plan. Other kinds than the paper's: dp-gaussian
(moments of the encoded records), dp-copula (noisy marginals and products) and dp-marginals (noisy tables, and a
graphical model); the releases of the last two can be added up over sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, field_validator

from prismfl.core.door import PrivateRecords
from prismfl.core.method import DPSettings, Inbox, Items, Method, OwnSite, Shapes, Site, State
from prismfl.core.payloads import JsonDict, Payload, Synthesizer, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.data.declared import declared_words
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.generators import auto, synthesizers
from prismfl.methods.generators.copula import Look, look
from prismfl.methods.generators.moments import Queries
from prismfl.methods.generators.synthesizers import Recipe, Training, draw, fit, merge
from prismfl.nets.beta_vae import Shape
from prismfl.nets.classifier import network
from prismfl.nets.columns import Columns
from prismfl.nets.training import fit as train
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

COUNTS = "counts"
PREFIX = "generator-"
SUMS = ("dp-copula", "dp-marginals")  # kinds whose releases can be added up over sites
LOOK_FACTOR = math.sqrt(1.3 / 0.2)  # noise of a class size in the copula's first look, against a histogram's


class Config(DPSettings):
    """Which generators, how they are fitted behind the door, and how the pool is sampled."""

    rounds: int = Field(1, ge=1, le=1, description="one round: generators are shared once")
    synthesizers: tuple[str, ...] = Field(("ddp-vae",), min_length=1, description="kinds, dealt to the sites in turn")
    columns: tuple[str, ...] | None = Field(None, description="columns of a table: n, b or c5; known for named data")
    class_sizes: tuple[int, ...] | None = Field(None, description="public class sizes of a site; None noises them")
    count_share: float = Field(0.1, gt=0, lt=1, description="share of the budget that noisy class sizes get, about")
    joint: bool = Field(False, description="one generator, with the label as a column, instead of one per class")
    queries: int = Field(100, ge=1, description="questions to the door: moments and gradients")
    start: int = Field(20, ge=0, description="how many are noisy moments for the decoder's start (marginals)")
    rate: float = Field(0.125, gt=0, le=1, description="Poisson rate in every class: 1, 1/2, 1/4, ...")
    hidden: tuple[int, ...] = Field((64, 32), description="tanh layers of the encoder; the decoder mirrors them")
    latent: int = Field(8, ge=1, description="latent dimensions")
    beta: float = Field(0.05, ge=0, description="weight of the divergence term, below 1")
    clip: float = Field(1.0, gt=0, description="bound on the norm of a record's gradient")
    lr: float = Field(0.05, gt=0, description="learning rate of DP-Adam, falling to 0")
    conv: int = Field(8, ge=1, description="channels of the convolutional VAE for images")
    pool: Literal["uniform", "counts", "merged"] = Field(
        "uniform", description="share of each generator: equal, by its size; merged adds up releases that are sums"
    )
    balance: Literal["equal", "noised"] = Field(
        "equal", description="classes of synthetic records: equal, or as noised"
    )
    candidates: tuple[int, ...] = Field(
        (200, 1000, 5000),
        min_length=1,
        description="numbers of synthetic records, of which each site takes the best for itself",
    )
    samples: int = Field(1000, ge=1, description="records in the server's own synthetic set")

    @field_validator("rate")
    @classmethod
    def _power_of_two(cls, rate: float) -> float:
        # Only then is rate * size / size the same number for every class size, and the ledger equal to the plan.
        if math.frexp(rate)[0] != 0.5:
            raise ValueError("expected 1 divided by a power of two")
        return rate

    @field_validator("class_sizes")
    @classmethod
    def _positive(cls, sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if sizes is not None and min(sizes, default=0) < 1:
            raise ValueError("expected class sizes >= 1")
        return sizes

    @property
    def count_noise(self) -> float:
        """Noise of the class sizes: grows with sigma, by a public factor."""
        return self.noise / (self.rate * math.sqrt(self.count_share * self.queries))


def is_joint(cfg: Config, task: Task) -> bool:
    """Classes are disjoint only where the unit is a record that is added or removed."""
    return cfg.joint or len(task.classes) < 2 or task.unit != "record" or task.relation != "add-remove"


def columns_of(cfg: Config, task: Task) -> Columns:
    """The declared columns of a record; pixels where records are images."""
    width = math.prod(task.shape)
    if task.kind == "image":
        return Columns.parse(["p"] * width)
    columns = Columns.parse(cfg.columns or declared_words(task.data) or ["n"] * width)
    if columns.width != width:
        raise UserError(f"Expected columns of {width} features in all, got {columns.width}.")
    return columns


def recipe_of(cfg: Config, task: Task, kind: str) -> Recipe:
    """The public structure of one kind of generator for this task."""
    joint = is_joint(cfg, task)
    conv = task.kind == "image" and not joint and task.shape[1] == task.shape[2] and task.shape[1] % 4 == 0
    shape = Shape(columns_of(cfg, task), cfg.hidden, cfg.latent, task.shape if conv else None, cfg.conv)
    return Recipe(kind, shape, len(task.classes), joint)


def kind_at(cfg: Config, task: Task, site: str) -> str:
    """The kind of generator that a site makes: kinds are dealt in turn."""
    return cfg.synthesizers[task.sites.index(site) % len(cfg.synthesizers)]


def init(cfg: Config, task: Task, key: Key) -> Items:
    """Nothing to begin with, but settings that do not fit the task are refused."""
    for kind in cfg.synthesizers:
        recipe_of(cfg, task, kind)
    if cfg.class_sizes is not None and len(cfg.class_sizes) != len(task.classes):
        raise UserError(f"Expected {len(task.classes)} class_sizes, got {len(cfg.class_sizes)}.")
    return {}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """One generator per class behind the door of that class, or one for all."""
    recipe = recipe_of(cfg, site.task, kind_at(cfg, site.task, site.name))
    how = training(cfg, 0.0 if recipe.joint or cfg.class_sizes is not None else cfg.count_noise)
    made: dict[str, torch.Tensor] = {}
    if recipe.joint:
        made |= _named(recipe, "all", fit(site.records, recipe, how, key=key.child("all")))
    else:
        sizes, seen = first_look(cfg, recipe, site.records)
        made[COUNTS] = sizes
        with site.records.by_class([max(1, round(float(n))) for n in sizes]) as doors:
            for part, door in zip(recipe.parts, doors):
                made |= _named(recipe, part, fit(door, recipe, how, key=key.child(part), seen=seen))
    # A mixed pool's releases all have the same names and sizes; what a site does not use is zero.
    blank = {k: torch.zeros(size) for k, (_, size) in shapes(cfg, site.task)["generator"].items() if k not in made}
    return {"generator": Synthesizer(made | blank, specs(cfg, site.task, site.name)["generator"])}, {}


def specs(cfg: Config, task: Task, site: str) -> dict[str, JsonDict]:
    """The words that a site's generator carries: its kind, the declared classes, whether it is joint."""
    words = {"kind": kind_at(cfg, task, site), "classes": list(task.classes), "joint": is_joint(cfg, task)}
    return {"generator": words}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Class sizes of declared records, and a generator of the site's own kind as its fit can make one."""
    tensors, recipe = dict(items["generator"].tensors), recipe_of(cfg, task, kind_at(cfg, task, site))
    counts, own = tensors.pop(COUNTS, None), f"{recipe.kind}."
    if cfg.class_sizes is not None and counts is not None:
        if not torch.equal(counts, torch.tensor(cfg.class_sizes, dtype=torch.float32)):
            return "class sizes are not the declared ones"
        counts = None
    if any(bool(t.any()) for name, t in tensors.items() if not name.startswith(own)):
        return "it fills in generators of a kind that is not its own"
    return robust.first_fault(
        lambda: None if counts is None else robust.count_fault(counts, task, size_noise(cfg)),
        lambda: synthesizers.fault(
            recipe, {k: v for k, v in tensors.items() if k.startswith(own)}, training(cfg), robust.most_held(task)
        ),
    )


def size_noise(cfg: Config) -> float:
    """Standard deviation of a class size, in the query that tells it least."""
    return LOOK_FACTOR * cfg.count_noise if "dp-copula" in cfg.synthesizers else cfg.count_noise


def training(cfg: Config, doubt: float = 0.0) -> Training:
    """The public settings of a fit."""
    return Training(Queries(cfg.queries, cfg.noise, cfg.rate, doubt), cfg.start, cfg.beta, cfg.clip, cfg.lr)


def first_look(cfg: Config, recipe: Recipe, door: PrivateRecords) -> tuple[torch.Tensor, Look | None]:
    """Class sizes; the copula's query for them, which costs the same, also finds the centre of all records."""
    if recipe.kind != "dp-copula" or cfg.class_sizes is not None:
        return class_sizes(cfg, door), None
    seen = look(door, recipe.layout(), sigma=cfg.count_noise)
    return seen.sizes, seen


def class_sizes(cfg: Config, door: PrivateRecords) -> torch.Tensor:
    """Declared class sizes, or noisy ones, which cost."""
    if cfg.class_sizes is not None:
        return torch.tensor(cfg.class_sizes, dtype=torch.float32)
    return door.noisy_histogram(sigma=cfg.count_noise).clamp(min=0.0)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The pool of all sites' generators, and a set drawn from it."""
    pool: dict[str, Payload] = {f"{PREFIX}{site}": items["generator"] for site, items in sorted(inbox.items())}
    x, y = sample_pool(cfg, task, pool, cfg.samples, key=key)
    return pool | {"synthetic": SyntheticSet.of(x, y)}


def sample_pool(
    cfg: Config, task: Task, items: Mapping[str, Payload], count: int, *, key: Key
) -> tuple[torch.Tensor, torch.Tensor]:
    """About `count` records from all generators of a state, shuffled. The share of each is public or noised."""
    pool = {name.removeprefix(PREFIX): p for name, p in sorted(items.items()) if name.startswith(PREFIX)}
    if not pool:
        raise UserError("Expected generators in the pool, got none.")
    weights = dict(zip(pool, _shares(cfg, task, pool)))
    made = []
    for sites in _groups(cfg, task, list(pool)):
        recipe = recipe_of(cfg, task, kind_at(cfg, task, sites[0]))
        released = [pool[site].tensors for site in sites]
        tensors = released[0]
        if len(sites) > 1:
            factors = None
            if COUNTS in tensors:
                factors = size_weights(cfg, task, torch.stack([one[COUNTS] for one in released]))
            tensors = merge(recipe, released, factors)
        share = torch.stack([weights[site] for site in sites]).sum(0)
        made.append(draw(recipe, tensors, (share * count).round().to(torch.int64), key=key.child(sites[0])))
    x, y = torch.cat([m[0] for m in made]), torch.cat([m[1] for m in made])
    order = torch.randperm(len(y), generator=key.child("shuffle").torch())
    return x[order].reshape(-1, *task.shape), y[order]


def _groups(cfg: Config, task: Task, sites: list[str]) -> list[list[str]]:
    """Sites that are sampled together: those with sums, where the pool is merged; else each alone."""
    kinds = {kind: [s for s in sites if kind_at(cfg, task, s) == kind] for kind in SUMS} if cfg.pool == "merged" else {}
    together = [group for group in kinds.values() if group]
    return together + [[s] for s in sites if not any(s in group for group in together)]


def _shares(cfg: Config, task: Task, pool: Mapping[str, Payload]) -> torch.Tensor:
    """The part of all records that each generator (row) makes of each class (column); sums to 1."""
    classes = len(task.classes)
    sizes = torch.ones(len(pool), classes)
    if not is_joint(cfg, task):
        sizes = torch.stack([p.tensors[COUNTS] for p in pool.values()])
        sizes = (sizes * size_weights(cfg, task, sizes)).clamp(min=1e-3)
    by_site = sizes / sizes.sum(0) if cfg.pool == "counts" else torch.full_like(sizes, 1.0 / len(pool))
    by_class = sizes.sum(0) / sizes.sum() if cfg.balance == "noised" else torch.full((classes,), 1.0 / classes)
    return by_site * by_class


def size_weights(cfg: Config, task: Task, sizes: torch.Tensor) -> torch.Tensor:
    """What each site (row) counts for in each class, so that none outweighs the others where shares go by size."""
    if cfg.class_sizes is not None:
        return torch.ones_like(sizes)
    return robust.capped(sizes, records=task.records, noise=size_noise(cfg))


def adopt(cfg: Config, state: State, site: OwnSite, key: Key) -> Items:
    """A model from the pool. How many records serve best is found on the site's own records, and stays here.

    A table without classes has no classifier."""
    if len(site.task.classes) < 2:
        return {}  # nothing to tell apart
    task = site.task
    best, least = None, -1.0
    x, y = sample_pool(cfg, task, state.items, max(cfg.candidates), key=key.child("pool"))
    classifier, fresh = network(task, key=key.child("model"))
    for count in sorted(cfg.candidates):
        part, labels = x[:count].to(task.device), y[:count].to(task.device)
        epochs = max(3, min(60, 20_000 // max(1, len(part))))
        params = train(classifier, fresh, x=part, y=labels, epochs=epochs, batch=64, lr=0.05, key=key.child("fit"))
        with torch.no_grad():
            found = classifier.logits(params, site.records.x.to(task.device)).argmax(1).cpu()
        score = float((found == site.records.y).to(torch.float32).mean()) if len(found) else 0.0
        if score > least:
            best, least = params, score
    assert best is not None
    return {"model": Weights(best)}


def plan(cfg: Config, task: Task) -> Cost:
    """The questions of one generator; or of all classes in parallel, and the class sizes where they are noised."""
    if is_joint(cfg, task):
        return task.gaussian(cfg.noise, batch=cfg.rate * task.records, times=cfg.queries)
    one = Cost.gaussian(cfg.noise, rate=cfg.rate, times=cfg.queries)
    classes = Cost.parallel([one] * len(task.classes))
    return classes if cfg.class_sizes is not None else task.gaussian(cfg.count_noise) + classes


def shapes(cfg: Config, task: Task) -> Shapes:
    """The union over the pool's kinds: every release looks alike, whatever its site trained."""
    described: dict[str, tuple[str, tuple[int, ...]]] = {}
    for kind in cfg.synthesizers:
        described |= recipe_of(cfg, task, kind).shapes()
    if not is_joint(cfg, task):
        described[COUNTS] = ("float32", (len(task.classes),))
    return {"generator": dict(sorted(described.items()))}


def _named(recipe: Recipe, part: str, tensors: Params) -> dict[str, torch.Tensor]:
    return {f"{recipe.kind}.{part}.{name}": tensor for name, tensor in tensors.items()}


METHOD = Method(
    name="3dgl",
    summary="a pool of DP generators, one decoder per class from each site",
    paper="Lomurno et al. 2022",
    settings=Config,
    leaves={"generator": Synthesizer},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    specs=specs,
    possible=possible,
    adopt=adopt,
    model_at="sites",
    auto=auto.decoders,
    unlabelled=True,
    tiny={"queries": 4, "start": 2, "hidden": (8,), "latent": 2, "conv": 2, "candidates": (40, 80), "samples": 20},
)
