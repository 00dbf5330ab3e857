"""dp-marginals: noisy tables of one, two and three columns from every site, and a graphical model of their sum.

Paper: McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for differential privacy", 2019; and
McKenna, Mullins, Sheldon, Miklau, "AIM: An Adaptive and Iterative Mechanism for Differentially Private Synthetic Data",
2022.

What leaves a site, once: single columns in fine bins, by label; all pairs with the label; further cliques (declared, or
all pairs of columns whose tables are small enough for the noise), as one Gaussian release. A record counts once in each
table, so its row is exactly as long as the weights, whatever it holds. Sums add up over sites, also in a secure sum.
The server fits a graphical model with `mbi` (private-pgm; extra `tables`) and draws records. With `rounds = 2` it first
chooses, from that release alone, which tables tell most, and asks for them in a second, which is planned and charged.

Bins, cliques and weights follow from declared numbers, never from records. Without `mbi` the server makes the copula of
`latent.py` from the same release, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal

import torch
from pydantic import Field

from prismfl.core.method import Chosen, DPSettings, Inbox, Items, Method, Shapes, Site, State, Summed, Wanted
from prismfl.core.payloads import Payload, Statistics, Synthesizer, SyntheticSet, Weights
from prismfl.core.task import Task
from prismfl.data.declared import declared_words
from prismfl.errors import UserError
from prismfl.kernels.loss import Params
from prismfl.methods import robust
from prismfl.methods.generators import graphical, questions, second, table_model
from prismfl.methods.generators.questions import BOUND, Counts, Questions
from prismfl.nets.classifier import network
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Clique, Variables
from prismfl.nets.training import fit as train
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

MOST_DRAWN = 100_000
WITHOUT = (
    "mbi is not installed, so a copula is made of the tables instead of a graphical model; for that: "
    "pip install 'prismfl[tables]'."
)


class Config(DPSettings):
    """Which tables are released, and how the model is fitted and sampled."""

    columns: tuple[str, ...] | None = Field(None, description="columns of a table: n, m, b or c5; known for named data")
    names: tuple[str, ...] | None = Field(None, description="names of the columns, for cliques and messages")
    bins: int = Field(16, ge=2, le=256, description="equal bins of a number over its declared range")
    finer: int = Field(8, ge=1, le=64, description="so many parts of a bin are told apart in single columns")
    cliques: tuple[tuple[str, ...], ...] | None = Field(
        None,
        max_length=2000,
        description="further tables: names (or numbers) of 2 or 3 columns each; None takes all small pairs",
    )
    pair_cells: int = Field(400, ge=0, description="pairs of columns with larger tables are not asked")
    fitter: Literal["auto", "copula"] = Field("auto", description="auto: a graphical model where mbi is installed")
    model_cells: int = Field(
        40_000, ge=100, le=5_000_000, description="size of the graphical model: cells of its tables"
    )
    steps: int = Field(1000, ge=1, description="steps of the model's fit, at most")
    rounds: int = Field(1, ge=1, le=2, description="exchanges; in a second one the server chooses further tables")
    first: float = Field(0.5, gt=0, lt=1, description="share of the squared budget: the first exchange of two")
    further: int = Field(16, ge=1, le=500, description="tables of a second exchange")
    further_cells: int = Field(1500, ge=4, le=100_000, description="cells that each of them may have")
    samples: int | None = Field(None, ge=1, description="synthetic records; None makes as many as all sites declare")

    def share(self, round: int) -> float:
        """The part of the squared budget that an exchange gets."""
        return 1.0 if self.rounds == 1 else self.first if round == 0 else 1.0 - self.first

    def noise_of(self, round: int) -> float:
        """The noise multiplier of an exchange."""
        return self.noise / math.sqrt(self.share(round))


def columns_of(cfg: Config, task: Task) -> Columns:
    """The declared columns of a record."""
    width = math.prod(task.shape)
    columns = Columns.parse(cfg.columns or declared_words(task.data) or ["n"] * width)
    if columns.width != width:
        raise UserError(f"Expected columns of {width} features in all, got {columns.width}.")
    return columns


@lru_cache(maxsize=16)
def _asked(
    columns: Columns,
    labels: int,
    names: tuple[str, ...] | None,
    cliques: tuple[tuple[str, ...], ...] | None,
    bins: int,
    finer: int,
    pair_cells: int,
) -> Questions:
    variables = Variables.of(columns, bins=bins, labels=labels)
    known = _named(variables, names)
    given = None if cliques is None else [_clique(one, known) for one in cliques]
    found = questions.design(variables, finer=finer, given=given, pair_cells=pair_cells)
    questions.check_size(found, known)
    return found


def _named(variables: Variables, names: Sequence[str] | None) -> list[str]:
    """What each variable is called."""
    known = [*(names or (str(k) for k in range(len(variables.columns)))), *(["label"] if variables.labels else [])]
    if len(known) != len(variables):
        raise UserError(f"Expected {len(variables.columns)} names of columns, got {len(names or ())}.")
    return known


def _clique(words: Sequence[str], known: Sequence[str]) -> Clique:
    """The columns of a declared clique."""
    for word in words:
        if word not in known and not (word.isdigit() and int(word) < len(known)):
            raise UserError(f"Unknown column '{word}' in a clique; the columns are {', '.join(known[:20])}.")
    found = sorted({known.index(word) if word in known else int(word) for word in words})
    if len(found) != len(words) or not 2 <= len(found) <= 3:
        raise UserError(f"Expected 2 or 3 different columns in a clique, got {', '.join(words) or 'none'}.")
    return tuple(found)


def questions_of(cfg: Config, task: Task) -> Questions:
    """The tables of the release, from public facts alone."""
    return _asked(columns_of(cfg, task), len(task.classes), cfg.names, cfg.cliques, cfg.bins, cfg.finer, cfg.pair_cells)


def init(cfg: Config, task: Task, key: Key) -> Items:
    """Nothing to begin with, but columns and cliques that do not fit the task are refused. Of two exchanges, the form
    of what the second one needs."""
    asked, limit = questions_of(cfg, task), model_cells(cfg)
    if limit is not None:
        given = () if cfg.cliques is None else asked.cliques
        graphical.check_size(asked.variables, _named(asked.variables, cfg.names), given, limit=limit)
    if cfg.rounds == 1:
        return {}
    if cfg.further * cfg.further_cells > questions.MOST_CELLS:
        raise UserError(
            f"Expected at most {questions.MOST_CELLS:,} cells in the second exchange, got further {cfg.further} x "
            f"further_cells {cfg.further_cells}; lower one of them."
        )
    empty = Statistics({"counts": torch.zeros(sum(asked.sizes)), "noise": torch.zeros(1)})
    return {"wanted": Statistics({"cliques": second.nothing(cfg.further)}), "first": empty}


def client(cfg: Config, state: State, site: Site, key: Key) -> tuple[Items, Items]:
    """All tables of an exchange in one answer of the door."""
    asked = questions_of(cfg, site.task)
    sizes, weights, places = asked.sizes, asked.weights, asked.places
    if state.round == 1:
        cliques = wanted(cfg, asked, state)
        sizes, weights = (cfg.further_cells,) * cfg.further, (second.weight(cfg.further),) * cfg.further
        places = partial(second.places, asked.variables, cliques)
    sigma = cfg.noise_of(state.round)
    answer = site.records.noisy_tables(places, sizes=sizes, weights=weights, bound=BOUND, sigma=sigma)
    if cfg.rounds == 1:
        return {"tables": Statistics({"counts": answer})}, {}
    made = {"counts": torch.zeros(sum(asked.sizes)), "further": torch.zeros(cfg.further * cfg.further_cells)}
    return {"tables": Statistics({**made, ("counts", "further")[state.round]: answer})}, {}


def wanted(cfg: Config, asked: Questions, state: State) -> list[Clique]:
    """The cliques of the second exchange, as far as they can be asked."""
    return second.read(state.items["wanted"].tensors["cliques"], asked.variables, most=cfg.further_cells)


def server(cfg: Config, task: Task, state: State, inbox: Inbox, key: Key) -> Items:
    """The model of all sites' sum, a set drawn from it, and a classifier trained on that; before a second exchange, the
    tables to ask for."""
    asked, variables = questions_of(cfg, task), questions_of(cfg, task).variables
    more: dict[Clique, Counts] = {}
    if state.round == 0:
        flat, noise = together(cfg, task, inbox, "counts", asked.sizes, asked.weights, round=0)
    else:
        kept = state.items["first"].tensors
        flat, noise = kept["counts"].double(), float(kept["noise"])
        sizes, weights = (cfg.further_cells,) * cfg.further, (second.weight(cfg.further),) * cfg.further
        answer, loud = together(cfg, task, inbox, "further", sizes, weights, round=1)
        more = second.tables(answer, variables, wanted(cfg, asked, state), noise=loud)
    if state.round + 1 < cfg.rounds:
        tables = table_model.known(asked, flat, noise)[1]
        found = second.chosen(variables, tables, count=cfg.further, most=cfg.further_cells, limit=cfg.model_cells)
        first = Statistics({"counts": flat.to(torch.float32), "noise": torch.tensor([noise], dtype=torch.float32)})
        return {"wanted": Statistics({"cliques": second.written(found, cfg.further)}), "first": first}
    generator = fitted(cfg, asked, flat, noise, more)
    count = cfg.samples or min(MOST_DRAWN, task.records * len(task.sites))
    x, y = sample(cfg, task, generator, count, key=key.child("draw"))
    made = SyntheticSet.of(x.reshape(-1, *task.shape), y)
    items: Items = {"generator": generator, "synthetic": made}
    if len(task.classes) < 2:
        return items
    return {**items, "model": Weights(classifier(task, x, y, key.child("model")))}


def together(
    cfg: Config, task: Task, inbox: Inbox, name: str, sizes: Sequence[int], weights: Sequence[float], *, round: int
) -> tuple[torch.Tensor, float]:
    """The sum of all sites' tables and its noise; none counts for more than twice the declared records."""
    noise = cfg.noise_of(round)
    rows = [items["tables"].tensors[name] for _, items in sorted(inbox.items())]
    if len(rows) == 1:
        return rows[0].double(), noise
    held = [robust.agreed(*questions.totals(row, sizes, weights, noise * BOUND)) for row in rows]
    counts = torch.tensor([[count] for count, _ in held], dtype=torch.float64)
    factors = robust.site_weights(counts, records=task.records, noise=held[0][1])
    flat = torch.zeros(sum(sizes), dtype=torch.float64)
    for factor, row in zip(factors, rows):  # not all of them at once in double precision
        flat += factor * row.double()
    return flat, noise * float(factors.square().sum().sqrt().clamp(min=1e-9))


def fitted(
    cfg: Config, asked: Questions, flat: torch.Tensor, noise: float, more: Mapping[Clique, Counts] | None = None
) -> Synthesizer:
    """What records are drawn from, as the settings say."""
    return table_model.fitted(asked, flat, noise, cells=model_cells(cfg), steps=cfg.steps, more=more)


def model_cells(cfg: Config) -> int | None:
    """How large a graphical model the server fits; None where it makes a copula."""
    return cfg.model_cells if cfg.fitter == "auto" and graphical.installed() else None


def sample(cfg: Config, task: Task, generator: Payload, count: int, *, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` encoded records and their labels. The structure comes from the settings, never from what was sent."""
    return table_model.records(questions_of(cfg, task), generator.tensors, count, key.child("records").torch())


def classifier(task: Task, x: torch.Tensor, y: torch.Tensor, key: Key) -> Params:
    """The task's network, trained on synthetic records."""
    net, fresh = network(task, key=key.child("network"))
    epochs = max(3, min(60, 100_000 // max(1, len(x))))
    x, y = x.reshape(-1, *task.shape).to(task.device), y.to(task.device)
    return train(net, fresh, x=x, y=y, epochs=epochs, batch=64, lr=0.05, key=key.child("fit"))


def plan(cfg: Config, task: Task) -> Cost:
    """One Gaussian answer an exchange."""
    rounds = (round_cost(cfg, task, round, False) for round in range(cfg.rounds))
    return sum(rounds, start=Cost.zero(task.unit, task.relation))


def round_cost(cfg: Config, task: Task, round: int, first: bool) -> Cost:
    """One Gaussian answer at the noise of this exchange's part of the budget."""
    return task.gaussian(cfg.noise_of(round))


def summed(cfg: Config, task: Task) -> Summed:
    """The server needs no more than the sum of the sites' tables, where there is one exchange."""
    if cfg.rounds != 1:
        raise UserError(f"The secure sum of dp-marginals is one exchange: expected rounds = 1, got {cfg.rounds}.")
    return Summed("tables", bound=BOUND, sigma=cfg.noise)


def shapes(cfg: Config, task: Task) -> Shapes:
    """One number a cell; of two exchanges, the cells of both, of which each fills its own."""
    found = {"counts": ("float32", (sum(questions_of(cfg, task).sizes),))}
    return {"tables": found | ({"further": ("float32", (cfg.further * cfg.further_cells,))} if cfg.rounds > 1 else {})}


def possible(cfg: Config, task: Task, state: State, site: str, items: Items) -> str | None:
    """Tables of the same declared records: none below zero, none of more than there are or of others than the rest, but
    for noise."""
    asked, tensors = questions_of(cfg, task), items["tables"].tensors
    parts = {"counts": (asked.sizes, asked.weights)}
    if cfg.rounds > 1:
        parts["further"] = ((cfg.further_cells,) * cfg.further, (second.weight(cfg.further),) * cfg.further)
    name = "counts" if state.round == 0 else "further"
    if any(bool(tensors[other].any()) for other in parts if other != name):
        return "it fills in tables of another exchange"
    flat, (sizes, weights), noise = tensors[name].double(), parts[name], cfg.noise_of(state.round) * BOUND
    for part, weight in zip(torch.split(flat, list(sizes)), weights):
        why = robust.count_fault(part / weight, task, noise / weight)
        if why is not None:
            return why
    return robust.totals_fault(*questions.totals(flat, sizes, weights, noise))


def auto(asked: Wanted) -> Chosen:
    """Bins and the largest table of two columns, by what the noise of all sites' sum bears."""
    task, given = asked.task, asked.given
    cfg = Config(**given)
    sites = len(task.sites)
    noise = account.gaussian_sigma(asked.epsilon, task.delta) * (1.0 if asked.secure else math.sqrt(sites))
    noise /= math.sqrt(cfg.share(0))
    columns, records = columns_of(cfg, task), float(task.records * sites)
    bins, most = questions.worth_asking(columns, labels=len(task.classes), noise=noise, records=records)
    chosen = {name: value for name, value in (("bins", bins), ("pair_cells", most)) if name not in given}
    words = [f"bins {bins} of a number: as fine as tables of {records:.3g} records with noise {noise:.3g} bear"]
    if cfg.cliques is None:
        words.append(
            f"pair_cells {most}: " + ("pairs of columns would drown" if not most else "larger tables would drown")
        )
    return Chosen(chosen, tuple(words))


def advice(cfg: Config, task: Task) -> list[str]:
    """That there will be a copula, where the fitter of graphical models is not installed."""
    return [WITHOUT] if cfg.fitter == "auto" and not graphical.installed() else []


METHOD = Method(
    name="dp-marginals",
    summary="noisy tables of one, two and three columns; a graphical model of all sites' sum",
    paper="McKenna et al. 2019, 2022 (private-pgm, AIM)",
    settings=Config,
    leaves={"tables": Statistics},
    guarantee="site",
    init=init,
    client=client,
    server=server,
    plan=plan,
    shapes=shapes,
    possible=possible,
    summed=summed,
    round_cost=round_cost,
    auto=auto,
    advice=advice,
    kinds=("table",),
    unlabelled=True,
    tiny={"bins": 3, "finer": 2, "fitter": "copula", "samples": 40},
)
