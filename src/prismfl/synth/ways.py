"""The methods that one data holder can use: the noise that meets epsilon, how to draw, and the mechanism in words.

Seeded noise follows from every public fact of a release, so `site`, `data` and `model` stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from prismfl.core.method import Items, Method
from prismfl.core.payloads import Payload
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods.generators import ddp_vae, graphical, marginals, threedgl
from prismfl.methods.prism import head as prism_head
from prismfl.methods.prism import prism, statistics
from prismfl.methods.prism import table as prism_table
from prismfl.privacy import account
from prismfl.rng import Key
from prismfl.runs.config import RunConfig, merge

Drawn = tuple[torch.Tensor, torch.Tensor]
COPULA = "dp-copula"


@dataclass(frozen=True)
class Way:
    """`sigma(settings, task, epsilon)`; `draw(settings, task, items, n, key)`; `mechanism(settings, task)`.

    `heads(settings, task, items, key)` are the models that need no images; without it, all that the method has.
    `called(settings)` is what it is called with these settings, where that is not the method's name.
    """

    method: Method
    site: str
    data: str
    model: str
    sigma: Callable[[Any, Task, float], float]
    draw: Callable[[Any, Task, Items, int, Key], Drawn] | None
    mechanism: Callable[[Any, Task], dict[str, Any]]
    records: int | None = None  # where only an order of magnitude matters
    heads: Callable[[Any, Task, Items, Key], Items] | None = None
    called: Callable[[Any], str] | None = None

    def name(self, settings: Any) -> str:
        """What ran, for a certificate."""
        return self.method.name if self.called is None else self.called(settings)


def _gaussian_sigma(cfg: Any, task: Task, epsilon: float) -> float:
    return account.gaussian_sigma(epsilon, task.delta) * (1 + 1e-6)  # on the safe side of rounding


def _prism_draw(cfg: prism.Config, task: Task, items: Items, n: int, key: Key) -> Drawn:
    """Public images moved to the released statistics: bytes, classes in turn."""
    classes, each = len(task.classes), -(-n // len(task.classes))
    cfg = cfg.model_copy(update={"images": each})
    enc, pooled = prism_head.read_releases(cfg, task, {task.sites[0]: items})
    if task.parts is not None:
        made = prism.synthetic_records(cfg, task, enc, pooled, key.child("images"))
        return made.tensors["x"][:n], made.hard_y[:n]
    task = prism.nearest_public(cfg, task, enc, pooled)
    x, y = prism.synthesise(cfg, task, enc, pooled, key.child("images"))
    order = torch.arange(classes * each).reshape(classes, each).T.flatten()[:n]
    return x[order], y[order]


def _prism_heads(cfg: prism.Config, task: Task, items: Items, key: Key) -> Items:
    """The closed-form head and the linear model, without a picture."""
    _, pooled = prism_head.read_releases(cfg, task, {task.sites[0]: items})
    return prism.heads_of(cfg, task, pooled, key)


def _prism_mechanism(cfg: prism_head.HeadConfig, task: Task) -> dict[str, Any]:
    found = _moments(statistics.row_layout(cfg, task), task)
    if cfg.centring:
        found |= {"name": f"{found['name']}, measured from a noisy centre", "numbers": found["numbers"] + cfg.rank}
    return found


def _table_mechanism(cfg: prism_table.TableConfig, task: Task) -> dict[str, Any]:
    return _moments(prism_table.layout(cfg, task), task)


def _moments(form: statistics.RowLayout, task: Task) -> dict[str, Any]:
    numbers = len(task.classes) * form.width + form.second * (form.second + 1) // 2
    words = "one Gaussian release of class sums and the pooled second moment"
    return {"name": words, "sensitivity": 1.0, "numbers": numbers}


def _vae_sigma(cfg: threedgl.Config, task: Task, epsilon: float) -> float:
    return ddp_vae.solve(cfg, task, epsilon).noise


def _vae_draw(cfg: threedgl.Config, task: Task, items: Items, n: int, key: Key) -> Drawn:
    """About `n` encoded records (each class is rounded), or images as bytes."""
    pool = {f"{threedgl.PREFIX}{task.sites[0]}": items["generator"]}
    x, y = threedgl.sample_pool(cfg, task, pool, n, key=key.child("sample"))
    return ((x.clamp(0, 1) * 255).round().to(torch.uint8) if task.kind == "image" else x), y


def _vae_mechanism(cfg: threedgl.Config, task: Task) -> dict[str, Any]:
    counts = "" if threedgl.is_joint(cfg, task) or cfg.class_sizes is not None else "class sizes, "
    what = "sums of columns and of their products" if _vae_called(cfg) == COPULA else "moments and gradients"
    return {"name": f"Gaussian answers: {counts}{what} of bounded norm, over Poisson batches"}


def _vae_called(cfg: threedgl.Config) -> str:
    """The copula is one of the generators that ddp-vae can train, and has nothing of a VAE."""
    return COPULA if set(cfg.synthesizers) == {COPULA} else ddp_vae.METHOD.name


@lru_cache(maxsize=2)
def _fitted(cfg: marginals.Config, task: Task, release: _Tables) -> Payload:
    """The model of a release, kept for the next draw: a fit takes a while, drawing does not."""
    return marginals.fitted(cfg, marginals.questions_of(cfg, task), release.payload.tensors["counts"], cfg.noise)


@dataclass(frozen=True)
class _Tables:
    """A release of tables, known by its digest."""

    digest: str
    payload: Payload = field(compare=False)


def _marginals_draw(cfg: marginals.Config, task: Task, items: Items, n: int, key: Key) -> Drawn:
    """`n` encoded records from the model of the released tables."""
    released = _Tables(items["tables"].digest, items["tables"])
    return marginals.sample(cfg, task, _fitted(cfg, task, released), n, key=key.child("sample"))


def _marginals_mechanism(cfg: marginals.Config, task: Task) -> dict[str, Any]:
    asked = marginals.questions_of(cfg, task)
    words = f"one Gaussian release of {len(asked.sizes)} tables of one to three columns, side by side"
    return {"name": words, "sensitivity": 1.0, "numbers": sum(asked.sizes)}


def table_method() -> str:
    """What serves a table best with what is installed."""
    return marginals.METHOD.name if graphical.installed() else ddp_vae.METHOD.name


PRISM = Way(
    prism.METHOD, "holder", "own", "convnet", _gaussian_sigma, _prism_draw, _prism_mechanism, 1000, _prism_heads
)
HEAD = Way(prism_head.METHOD, "holder", "own", "convnet", _gaussian_sigma, None, _prism_mechanism, 1000)
TABLE = Way(prism_table.METHOD, "holder", "own", "logreg", _gaussian_sigma, None, _table_mechanism, 1000)
VAE = Way(ddp_vae.METHOD, ddp_vae.SITE, "own data", "mlp", _vae_sigma, _vae_draw, _vae_mechanism, called=_vae_called)
MARGINALS = Way(marginals.METHOD, "holder", "own", "logreg", _gaussian_sigma, _marginals_draw, _marginals_mechanism)
WAYS = {way.method.name: way for way in (PRISM, VAE, MARGINALS)}
CLASSIFIERS = {way.method.name: way for way in (PRISM, HEAD, TABLE)}


def way_of(name: str) -> Way:
    """The way of a method's name."""
    return WAYS[name] if name in WAYS else CLASSIFIERS[name]


def read_sets(method: str, sets: Sequence[str], facts: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `--set` says: those of the run's keys that a reader may be told, and the method's own settings."""
    kind = WAYS[method].method.settings
    own = [f"settings.{one}" if one.partition("=")[0].strip() in kind.model_fields else one for one in sets]
    found = merge({}, own, settings=kind)
    settings: dict[str, Any] = found.pop("settings")
    taken = (RunConfig.model_fields.keys() - kind.model_fields.keys()) & settings.keys()
    for key in sorted(taken | (found.keys() - set(facts))):
        raise UserError(f"Expected a setting of {method} in --set, got '{key}'; --help lists the other options.")
    return found, settings
