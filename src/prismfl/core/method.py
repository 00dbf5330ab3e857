"""What a method is: a few pure functions around one privacy boundary, and the public facts they may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field

from prismfl.core.door import PrivateRecords
from prismfl.core.hub import PrivateSum
from prismfl.core.payloads import Items, JsonDict, Payload
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


class Settings(BaseModel):
    """Base of every method's settings: frozen, unknown keys are errors. `sigma` is what calibration solves for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rounds: int = Field(1, ge=1, description="communication rounds")


class DPSettings(Settings):
    """Settings of a method with a guarantee."""

    sigma: float | None = Field(None, ge=0, description="noise multiplier; solved from epsilon when not given")

    @property
    def noise(self) -> float:
        """The noise multiplier, once it is known; before that it is an error."""
        if self.sigma is None:
            raise ValueError("Expected sigma to be resolved before the run, got None.")
        return self.sigma


@dataclass(frozen=True)
class State:
    """What the server holds and sends down."""

    round: int
    items: Mapping[str, Payload]


@dataclass(frozen=True)
class Site:
    """What a method sees of a site: the door, what it remembers, the public task."""

    name: str
    records: PrivateRecords
    memory: Mapping[str, Payload]
    task: Task


@dataclass(frozen=True)
class OwnSite:
    """What code that never sends anything sees on a site: its own raw records. Its results stay on the site."""

    name: str
    records: Records = field(repr=False)
    memory: Mapping[str, Payload]
    task: Task


@dataclass(frozen=True)
class Summed:
    """The item of which the server needs only the sum over the sites: one clipped vector a site, one noise.

    `tensors` are its parts that are summed; none means all of them.
    """

    item: str
    bound: float
    sigma: float
    tensors: tuple[str, ...] = ()


Shapes = Mapping[str, Mapping[str, tuple[str, tuple[int, ...]]]]  # item -> tensor -> (dtype, shape)
Inbox = Mapping[str, Items]
Init = Callable[[Any, Task, Key], Items]
Client = Callable[[Any, State, Site, Key], tuple[Items, Items]]
Server = Callable[[Any, Task, State, Any, Key], Items]
Adopt = Callable[[Any, State, OwnSite, Key], Items]
Specs = Callable[[Any, Task, str], Mapping[str, JsonDict]]
Possible = Callable[[Any, Task, State, str, Items], str | None]
Models = Callable[[Any, Task, Items], Mapping[str, torch.nn.Module]]


class Folding(Protocol):
    """A server's step that takes releases in as they arrive, so that none of them need be kept."""

    def add(self, items: Items) -> None:
        """One release more; they come in the order of their sites' names."""

    def server(self, key: Key) -> Items | None:
        """What `Method.server` makes of the same releases, bit for bit; None where it needs them all at once after
        all."""


@dataclass(frozen=True)
class Fold:
    """How a server function can take releases in one by one. It holds for that `server` alone: a method that was made
    from another with a server of its own does not fold. `begin` gives None where the settings need all releases."""

    server: Server
    begin: Callable[[Any, Task, State], Folding | None]


@dataclass(frozen=True)
class Wanted:
    """What automatic settings are chosen for: what the user gave, the public facts, and the budget. With `free_model`
    the network of the task is a default that may be another."""

    given: Mapping[str, Any]
    task: Task
    epsilon: float
    secure: bool = False
    free_model: bool = False


@dataclass(frozen=True)
class Chosen:
    """Settings that were chosen, without those that were given, and why, a line each; and the network, if another."""

    settings: Mapping[str, Any]
    words: tuple[str, ...]
    model: str | None = None


Auto = Callable[[Wanted], Chosen]


@dataclass(frozen=True)
class Method:
    """A method of federated learning.

    `leaves` is the manifest: exactly these items leave a site each round, with the public `shapes`. `guarantee` is the
    protected unit ("site": whatever unit the run declares at each site; "client": at the hub; None: no differential
    privacy). With "client" the server function gets a `PrivateSum` instead of the inbox. `adopt` runs on each site
    after the last round and never sends anything. `model_at` says where the final model is; `predict` scores records
    with it where it is not the task's classifier. `pooled` methods run on all records in one place. `tiny` are
    settings under which the method runs in a second: the laws and audits use them. `advice` warns, from public numbers,
    before anything is spent. `summed` says what a secure sum would add up, where the server needs no more than that.
    `round_cost` is what a round costs (whether the site remembers nothing yet is its last argument), where that is not
    the plan of one round. `specs` are the words that a site's items carry, exactly (none where it does not say), and
    `possible` tells from public numbers why no honest site can have sent these items, or None.
    `models` are the classifiers that the final items hold, by name, as modules from records to logits; without it there
    is one, the task's classifier. `recommended` names the one to take. `takes_encoder`: it looks through the task's
    public encoder. `auto` chooses the settings that were not given, from public numbers and public images alone.
    `fold` says how the server can take releases in one by one; without it a step has them all. `prepare` makes, from
    public facts alone, what each site would make by itself and keep: sites of one machine then share it. `unlabelled`:
    it serves tables without classes too, where a number is predicted from the others.
    """

    name: str
    summary: str
    paper: str
    settings: type[Settings]
    leaves: Mapping[str, type[Payload]]
    guarantee: Literal["site", "client"] | None
    init: Init
    client: Client
    server: Server
    plan: Callable[[Any, Task], Cost]
    shapes: Callable[[Any, Task], Shapes]
    adopt: Adopt | None = None
    predict: Callable[[Any, Task, Items, torch.Tensor], torch.Tensor] | None = None
    model_at: Literal["server", "sites"] = "server"
    pooled: bool = False
    needs_public: bool = False
    kinds: tuple[str, ...] = ("image", "table")
    tiny: Mapping[str, Any] = field(default_factory=dict)
    advice: Callable[[Any, Task], list[str]] | None = None
    summed: Callable[[Any, Task], Summed] | None = None
    round_cost: Callable[[Any, Task, int, bool], Cost] | None = None
    specs: Specs | None = None
    possible: Possible | None = None
    models: Models | None = None
    recommended: Callable[[Any], str] | None = None
    takes_encoder: bool = False
    auto: Auto | None = None
    fold: Fold | None = None
    prepare: Callable[[Any, Task], object] | None = None
    unlabelled: bool = False


__all__ = [
    "Chosen",
    "DPSettings",
    "Fold",
    "Folding",
    "Inbox",
    "Items",
    "Method",
    "OwnSite",
    "PrivateRecords",
    "PrivateSum",
    "Records",
    "Settings",
    "Shapes",
    "Site",
    "State",
    "Summed",
    "Task",
    "Wanted",
]
