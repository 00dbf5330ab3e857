"""A linear classifier of rows: multinomial logistic regression."""

from __future__ import annotations

import torch


def fit_linear(x: torch.Tensor, y: torch.Tensor, *, strength: float = 1.0) -> dict[str, torch.Tensor]:
    """`weight` (width, classes) and `bias` of rows x with labels y = 0, 1, ...; `strength` is the inverse penalty.

    Rows are brought to unit variance first, so that the penalty means the same for all of them.
    """
    from sklearn.linear_model import LogisticRegression

    if int(y.max()) == 0:
        return {"weight": torch.zeros(x.shape[1], 1), "bias": torch.zeros(1)}
    scale = float(x.std(0).square().mean().sqrt().clamp_min(1e-9))
    found = LogisticRegression(C=strength, max_iter=300).fit((x / scale).numpy(), y.numpy())
    weight, bias = torch.from_numpy(found.coef_), torch.from_numpy(found.intercept_)
    if len(weight) == 1:  # two classes: one row that speaks for the second
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    return {"weight": (weight.T / scale).float().contiguous(), "bias": bias.float()}
