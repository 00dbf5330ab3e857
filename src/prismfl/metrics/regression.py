"""How close predicted numbers come to true ones on held-out records: R2 and the mean absolute error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.metrics.bootstrap import affordable, drawn_weights, interval

Array = npt.NDArray[Any]


def regression_scores(predicted: Array, true: Array) -> dict[str, Any]:
    """R2 (1 is perfect, 0 is the mean of the true values) and MAE (in their unit), each with its 95 % interval."""
    from sklearn.metrics import mean_absolute_error, r2_score

    predicted, true = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    varied = len(true) > 1 and float(np.ptp(true)) > 0
    return {
        "r2": round(float(r2_score(true, predicted)), 4) if varied else None,
        "mae": round(float(mean_absolute_error(true, predicted)), 6) if len(true) else None,
        "records": len(true),
        "intervals": _intervals(predicted, true) if varied else {"r2": None, "mae": None},
    }


def _intervals(predicted: Array, true: Array) -> dict[str, list[float] | None]:
    """Each draw is a column of weights, and all that is needed of it are four sums."""
    draws, centred = affordable(len(true)), true - true.mean()
    if not draws:
        return {"r2": None, "mae": None}
    columns = np.stack([np.abs(true - predicted), (true - predicted) ** 2, centred, centred**2], axis=1)
    sums = np.concatenate([weights.T @ columns for weights in drawn_weights(len(true), draws)])
    with np.errstate(invalid="ignore", divide="ignore"):
        r2 = 1 - sums[:, 1] / (sums[:, 3] - sums[:, 2] ** 2 / len(true))
    return {"r2": interval(r2), "mae": interval(sums[:, 0] / len(true))}
