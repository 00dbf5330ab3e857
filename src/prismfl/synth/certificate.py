"""What is said of a release of one data holder, images or table, to whoever receives the synthetic records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismfl import __version__
from prismfl.core.job import Job
from prismfl.core.once import Made
from prismfl.privacy import account
from prismfl.sources import DEPLOYMENT, NO_PROTECTION


def certify(job: Job, made: Made, mechanism: Mapping[str, Any]) -> dict[str, Any]:
    """The promise and how it is kept. Nothing in it is read off the records: no true count, no clipping count."""
    task, cost, noise = job.task, made.release.cost, made.release.noise
    epsilon, sigma = account.epsilon(cost, task.delta), job.settings.model_dump()["sigma"]
    promise = f"({epsilon:.4g}, {task.delta:g})-differentially private; unit {task.unit}."
    return {
        "schema_version": 2,
        "statement": promise if noise == DEPLOYMENT else f"{NO_PROTECTION} (the noise is seeded).",
        "guarantee": made.guarantee(),
        "method": job.method.name,
        "data": task.data,
        "epsilon": epsilon,
        "delta": task.delta,
        "unit": cost.unit,
        "relation": cost.relation,
        "noise": noise,
        "total_so_far": made.total,
        "mechanism": {**mechanism, "sigma": sigma, "cost": cost.to_json()},
        "cost": cost.to_json(),
        "records": task.records,
        "classes": list(task.classes),
        "settings": job.settings.model_dump(mode="json"),
        "release_digest": next(iter(made.release.items.values())).digest,
        "not_protected": "properties of the whole group; declared classes and sizes; that the release was made",
        "software": f"prismfl {__version__}",
    }
