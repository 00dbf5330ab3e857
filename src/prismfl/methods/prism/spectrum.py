"""What a noisy covariance says about the exact one: eigenvalues cleaned of noise whose size is public.

Paper: Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices",
https://arxiv.org/abs/1502.06736, for additive Gaussian noise. The eigenvectors stay; each eigenvalue moves to what the
exact matrix has along its eigenvector, on average. Post-processing of the release, with nothing to be tuned.
"""

from __future__ import annotations

import math

import torch

FLOOR = 0.15  # of the noise's edge: no direction is taken to be surer than the noise allows


def cleaned(values: torch.Tensor, *, noise: float) -> torch.Tensor:
    """Ascending eigenvalues of a symmetric matrix with independent noise of this standard deviation beside its diagonal
    (and about that much on it), cleaned; ascending still."""
    size = len(values)
    spread = noise**2 * size  # the noise alone would have eigenvalues between -2 and 2 times the root of this
    if spread == 0:
        return values
    gaps = values[:, None] - values[None]
    width = math.sqrt(spread / size)
    hilbert = (gaps / (gaps.square() + width**2)).sum(1) / size
    return torch.cummax(values - 2.0 * spread * hilbert, 0).values


def floor_of(values: torch.Tensor, *, noise: float) -> float:
    """The least variance that is believed."""
    return FLOOR * 2.0 * noise * math.sqrt(len(values)) + 1e-4 * float(values[-1])
