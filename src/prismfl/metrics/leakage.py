"""How much of the records a reconstruction shows. The scorer holds the truth; attacks never see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch.nn import functional as F

from prismfl.nets.classifier import Classifier, Params

WINDOW, SPREAD, K1, K2 = 11, 1.5, 0.01, 0.03
RECOVERED = 0.9
# Publicly known standard deviations by which the leakage papers normalise pixels, hence the unit of their MSE.
CONTRAST: dict[str, tuple[float, ...]] = {
    "mnist": (0.3081,),
    "mnist-5k": (0.3081,),
    "fashion-mnist": (0.3530,),
    "cifar10": (0.2470, 0.2435, 0.2616),
}


@dataclass(frozen=True)
class Leakage:
    """Means over the records of one victim; `mse_normalised` is in the papers' units (pixels / standard deviation)."""

    records: int
    mse: float
    mse_normalised: float | None
    feature_mse: float | None
    psnr: float
    ssim: float | None
    labels: float
    recovered: int

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def leakage(
    found: tuple[torch.Tensor, torch.Tensor],
    truth: tuple[torch.Tensor, torch.Tensor],
    *,
    data: str = "",
    features: tuple[Classifier, Params] | None = None,
) -> Leakage:
    """Score found records (x, y) against the true ones, each found record against its partner in the best matching."""
    (x, y), (true_x, true_y) = found, truth
    if not len(true_x) or not len(x):
        raise ValueError(f"Expected at least one record to score, got {len(x)} found and {len(true_x)} true.")
    rows, partners = match(x, true_x)
    a, b = x[rows], true_x[partners]
    similarity = ssim(a, b) if x.dim() == 4 else None  # tables have no neighbourhoods to compare
    return Leakage(
        records=len(a),
        mse=float(mse(a, b).mean()),
        mse_normalised=None if data not in CONTRAST else float(mse(a, b, contrast=CONTRAST[data]).mean()),
        feature_mse=None if features is None else float(feature_mse(a, b, *features).mean()),
        psnr=float(psnr(a, b).mean()),
        ssim=None if similarity is None else float(similarity.mean()),
        labels=label_recovery(y, true_y),
        recovered=0 if similarity is None else int((similarity > RECOVERED).sum()),
    )


def match(x: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers (found, true) of the one-to-one matching with the least total squared error."""
    cost = torch.cdist(x.flatten(1).double(), truth.flatten(1).double()) ** 2
    rows, partners = linear_sum_assignment(cost.numpy())
    return torch.as_tensor(rows), torch.as_tensor(partners)


def mse(a: torch.Tensor, b: torch.Tensor, *, contrast: tuple[float, ...] = (1.0,)) -> torch.Tensor:
    """Mean squared error of each record; `contrast` is the standard deviation of each channel."""
    unit = torch.tensor(contrast, dtype=a.dtype).reshape(1, -1, *[1] * (a.dim() - 2))
    return (((a - b) / unit) ** 2).flatten(1).mean(1)


def psnr(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio in dB of each record, for values in [0, 1]; at most 100."""
    return -10.0 * torch.log10(mse(a, b).clamp(min=1e-10))


def ssim(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Structural similarity (Wang et al. 2004) of each image in [0, 1]: Gaussian window, whole windows only.

    Images smaller than the window get the largest odd window that fits.
    """
    side = min(WINDOW, a.shape[-1] - 1 + a.shape[-1] % 2, a.shape[-2] - 1 + a.shape[-2] % 2)
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    bell = torch.exp(-(axis**2) / (2 * SPREAD**2))
    window = (torch.outer(bell, bell) / bell.sum() ** 2)[None, None]

    def blurred(image: torch.Tensor) -> torch.Tensor:
        return F.conv2d(image.double().flatten(0, 1).unsqueeze(1), window)

    mean_a, mean_b = blurred(a), blurred(b)
    var_a = blurred(a.double() ** 2) - mean_a**2
    var_b = blurred(b.double() ** 2) - mean_b**2
    both = blurred(a.double() * b.double()) - mean_a * mean_b
    light = (2 * mean_a * mean_b + K1**2) / (mean_a**2 + mean_b**2 + K1**2)
    shape = (2 * both + K2**2) / (var_a + var_b + K2**2)
    return (light * shape).flatten(1).mean(1).reshape(len(a), -1).mean(1)


def feature_mse(a: torch.Tensor, b: torch.Tensor, classifier: Classifier, params: Params) -> torch.Tensor:
    """Squared error of the inputs of the last layer."""
    module = classifier.module
    assert isinstance(module, torch.nn.Sequential)
    body = module[:-1]
    inner = {k: v for k, v in params.items() if k in dict(body.named_parameters())}
    with torch.no_grad():
        first = torch.func.functional_call(body, inner, (a,))
        second = torch.func.functional_call(body, inner, (b,))
    distance: torch.Tensor = ((first - second) ** 2).flatten(1).mean(1)
    return distance


def label_recovery(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Share of the found labels that are right, as multisets: order says nothing in a batch."""
    top = int(max(found.max(), truth.max())) + 1
    both = torch.minimum(torch.bincount(found, minlength=top), torch.bincount(truth, minlength=top))
    return float(both.sum()) / len(found)
