"""prismfl: federated learning by exchanging differentially private synthetic data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prismfl.errors import BudgetError, PrismError, UserError

if TYPE_CHECKING:
    from prismfl.experiment import Plan, Result
    from prismfl.holder import PrismSynthesizer

__version__ = "0.2.0"
__all__ = ["BudgetError", "PrismError", "UserError", "__version__", "create", "plan", "run"]


def run(**options: Any) -> Result:
    """Run a method: `prismfl.run(method="dp-fedavg", data="mnist-5k", epsilon=1.0)`.

    Takes the keys of a config file; keys of the method's own settings may stand beside them.
    """
    from prismfl import experiment

    return experiment.run(experiment.configure(options))


def plan(**options: Any) -> Plan:
    """What such a run would cost and send; no record is read."""
    from prismfl import experiment

    return experiment.plan(experiment.configure(options))


def create(name: str, *, epsilon: float, delta: float = 1e-5, **options: Any) -> PrismSynthesizer:
    """A synthesizer for one data holder: `prismfl.create("prism", epsilon=1.0).fit(X, y).sample(100)`."""
    from prismfl.holder import create as make

    return make(name, epsilon=epsilon, delta=delta, **options)
