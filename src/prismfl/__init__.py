"""prismfl: federated learning by exchanging differentially private synthetic data."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prismfl.errors import BudgetError, PrismError, UserError
from prismfl.version import __version__

if TYPE_CHECKING:
    from prismfl.core.method import Method as Method
    from prismfl.methods import METHODS as METHODS
    from prismfl.runs.config import RunConfig
    from prismfl.runs.federation import Federation as Federation
    from prismfl.runs.opened import Run as Run
    from prismfl.runs.planning import Plan as Plan
    from prismfl.runs.result import Result as Result
    from prismfl.synth.classifier import PrismClassifier as PrismClassifier
    from prismfl.synth.synthesizer import Synthesizer as Synthesizer

__all__ = [
    "METHODS",
    "BudgetError",
    "Federation",
    "Method",
    "Plan",
    "PrismClassifier",
    "PrismError",
    "Result",
    "Run",
    "Synthesizer",
    "UserError",
    "__version__",
    "create",
    "open_run",
    "plan",
    "run",
]

_LAZY = {
    "Federation": "prismfl.runs.federation:Federation",
    "METHODS": "prismfl.methods:METHODS",
    "Method": "prismfl.core.method:Method",
    "Plan": "prismfl.runs.planning:Plan",
    "PrismClassifier": "prismfl.synth.classifier:PrismClassifier",
    "Result": "prismfl.runs.result:Result",
    "Run": "prismfl.runs.opened:Run",
    "Synthesizer": "prismfl.synth.synthesizer:Synthesizer",
}
"""What needs torch is loaded when it is first asked for."""


if not TYPE_CHECKING:  # a checker that saw it would take any name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'prismfl' has no attribute '{name}'")
        module, _, inner = _LAZY[name].partition(":")
        return getattr(import_module(module), inner)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def run(
    method: str | Method = "prism",
    *,
    data: str = "mnist-5k",
    data_dir: str | None = None,
    schema_file: str | None = None,
    label: str | None = None,
    classes: list[str] | None = None,
    image_size: int | None = None,
    channels: Literal[1, 3] | None = None,
    features: int | None = None,
    unit: str = "record",
    relation: Literal["add-remove", "replace-one"] = "add-remove",
    test: float | str = 0.2,
    subset: int | None = None,
    sites: int = 5,
    split: str = "iid",
    records: int | None = None,
    participation: float = 1.0,
    epsilon: float | None = None,
    delta: float = 1e-5,
    model: str | None = None,
    public: str | None = None,
    public_text: str | None = None,
    public_count: int = 2000,
    encoder: str | None = None,
    tuning: Literal["auto", "fixed"] | None = None,
    seed: int | None = None,
    noise: Literal["seeded", "operating-system"] | None = None,
    device: str = "cpu",
    threads: int = 1,
    workers: int | None = None,
    memory: float | None = None,
    transcript: Literal["none", "digests", "ends", "full"] = "ends",
    ledger: str | None = None,
    dataset: str | None = None,
    cap: float | None = None,
    out: str | None = None,
    start: str | None = None,
    secure: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Result:
    """Run a method on data and keep everything in a run directory: `prismfl.run("dp-fedavg", epsilon=1.0, rounds=5)`.

    The keywords are the keys of a config file. The method is one of `METHODS` by its name, or any other as
    "pkg.mod:METHOD" or as a `Method`. Its own settings may stand in `settings` or beside the other keywords.
    """
    config, chosen = _asked(locals())
    from prismfl.runs import bar, choosing, simulate

    with bar.shown() as progress:
        looked = choosing.choose_encoder(config, chosen)
        return simulate.run(config, method=chosen, encoder=looked, progress=progress)


def plan(
    method: str | Method = "prism",
    *,
    data: str = "mnist-5k",
    data_dir: str | None = None,
    schema_file: str | None = None,
    label: str | None = None,
    classes: list[str] | None = None,
    image_size: int | None = None,
    channels: Literal[1, 3] | None = None,
    features: int | None = None,
    unit: str = "record",
    relation: Literal["add-remove", "replace-one"] = "add-remove",
    test: float | str = 0.2,
    subset: int | None = None,
    sites: int = 5,
    split: str = "iid",
    records: int | None = None,
    participation: float = 1.0,
    epsilon: float | None = None,
    delta: float = 1e-5,
    model: str | None = None,
    public: str | None = None,
    public_text: str | None = None,
    public_count: int = 2000,
    encoder: str | None = None,
    tuning: Literal["auto", "fixed"] | None = None,
    seed: int | None = None,
    noise: Literal["seeded", "operating-system"] | None = None,
    device: str = "cpu",
    threads: int = 1,
    workers: int | None = None,
    memory: float | None = None,
    transcript: Literal["none", "digests", "ends", "full"] = "ends",
    ledger: str | None = None,
    dataset: str | None = None,
    cap: float | None = None,
    out: str | None = None,
    start: str | None = None,
    secure: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Plan:
    """What such a run would cost and send, from public numbers alone: no record is read. Takes what `run` takes."""
    config, chosen = _asked(locals())
    from prismfl.runs import choosing, planning

    return planning.plan(config, chosen, choosing.choose_encoder(config, chosen))


def open_run(path: str | Path) -> Run:
    """A run directory, finished or not, to be read: `prismfl.open_run("runs/x").release("site-0", 0)`."""
    from prismfl.runs.opened import open_run as opened

    return opened(path)


def create(name: str, *, epsilon: float, delta: float = 1e-5, **options: Any) -> Synthesizer:
    """A synthesizer for one data holder: `prismfl.create("prism", epsilon=1.0).fit(X, y).sample(100)`."""
    from prismfl.synth.synthesizer import Synthesizer

    return Synthesizer(epsilon, delta, method=name, **options)


def _asked(arguments: Mapping[str, Any]) -> tuple[RunConfig, Method]:
    """What the arguments of `run` and `plan` mean."""
    from prismfl.runs.choosing import configure

    own = {key: value for key, value in arguments.items() if key != "more"}
    return configure({**arguments["more"], **own, "settings": own["settings"] or {}})
