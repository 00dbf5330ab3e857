"""prismfl: federated learning by exchanging differentially private synthetic data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prismfl.errors import BudgetError, PrismError, UserError

if TYPE_CHECKING:
    from prismfl.runs.planning import Plan
    from prismfl.runs.result import Result
    from prismfl.synth.images import PrismSynthesizer

__version__ = "0.3.0"
__all__ = ["BudgetError", "PrismError", "UserError", "__version__", "create", "plan", "run"]


def run(**options: Any) -> Result:
    """Run a method: `prismfl.run(method="dp-fedavg", data="mnist-5k", epsilon=1.0)`.

    Takes the keys of a config file; keys of the method's own settings may stand beside them.
    """
    from prismfl.runs import planning, simulate

    return simulate.run(planning.configure(options))


def plan(**options: Any) -> Plan:
    """What such a run would cost and send; no record is read."""
    from prismfl.runs import planning

    return planning.plan(planning.configure(options))


def create(name: str, *, epsilon: float, delta: float = 1e-5, **options: Any) -> PrismSynthesizer:
    """A synthesizer for one data holder: `prismfl.create("prism", epsilon=1.0).fit(X, y).sample(100)`."""
    from prismfl.synth.images import create as make

    return make(name, epsilon=epsilon, delta=delta, **options)
