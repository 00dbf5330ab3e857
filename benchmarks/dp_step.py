"""One DP-SGD step: prismfl against Opacus (hooks, ghost clipping), with plain SGD as the floor.

    python benchmarks/dp_step.py [--rounds 9]

All sides: the same network and batch of 256 images of 28x28, every record in the batch, one torch thread, the same
memory allocator settings (`prismfl.runtime.tune`), clipping, noise and the update of the weights included.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from alternate import alternated, in_own_process, peak_of, ratio, save, say, table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from prismfl import runtime
from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import step
from prismfl.rng import Key

BATCH, SHAPE, CLASSES, CLIP, SIGMA, LR = 256, (1, 28, 28), 10, 0.1, 1.0, 0.01
MODELS = ("convnet", "lenet")
SIDES = ("sgd", "prismfl", "opacus-hooks", "opacus-ghost")


def setting(model: str) -> tuple[Classifier, Params, torch.Tensor, torch.Tensor]:
    classifier, params = build(model, SHAPE, CLASSES, key=Key.seed(0))
    x = torch.rand(BATCH, *SHAPE, generator=torch.Generator().manual_seed(0))
    return classifier, params, x, torch.arange(BATCH) % CLASSES


def sgd(model: str) -> Callable[[], object]:
    classifier, _, x, y = setting(model)
    module = classifier.module
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def one() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()

    return one


def ours(model: str) -> Callable[[], object]:
    classifier, start, x, y = setting(model)
    door = PrivateRecords(Records(x, y), declared=BATCH, classes=CLASSES, noise=Key.seed(0).noise())
    params = start

    def one() -> None:
        nonlocal params
        noisy = door.noisy_gradient(classifier.record_loss, params, batch=BATCH, clip=CLIP, sigma=SIGMA)
        params = step(params, noisy, LR)

    return one


def opacus_parts(model: str, mode: str, sigma: float) -> tuple[Any, Any, Any, torch.Tensor, torch.Tensor]:
    from opacus import PrivacyEngine

    classifier, _, x, y = setting(model)
    module = copy.deepcopy(classifier.module).train()
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=LR),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=BATCH),
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    return made[0], made[1], criterion, x, y


def opacus(model: str, mode: str) -> Callable[[], object]:
    module, optimizer, criterion, x, y = opacus_parts(model, mode, SIGMA)

    def one() -> None:
        optimizer.zero_grad()
        criterion(module(x), y).backward()
        optimizer.step()

    return one


def make(model: str, side: str) -> Callable[[], object]:
    if side == "sgd":
        return sgd(model)
    return ours(model) if side == "prismfl" else opacus(model, side.removeprefix("opacus-"))


def difference(model: str) -> float:
    """Distance of our clipped mean gradient from Opacus's without noise, relative to its norm, in double precision.

    In single precision rounding turns a few ReLUs over, and two sides that add in different orders differ by 1e-3.
    """
    module, optimizer, criterion, x, y = opacus_parts(model, "hooks", 0.0)
    module.double()
    criterion(module(x.double()), y).backward()
    optimizer.pre_step()
    theirs = torch.cat([p.grad.flatten() for p in module.parameters()])
    classifier, params, x, y = setting(model)
    classifier.module.double()
    params = {name: p.double() for name, p in params.items()}
    sums = clipped_gradient_sum(classifier.record_loss, params, batch=(x.double(), y), clip=CLIP)
    mine = torch.cat([sums[name].flatten() for name in params]) / BATCH
    return float((mine - theirs).norm() / theirs.norm())


def memory(model: str, side: str) -> float:
    """Peak of three steps, in MB above what the imports and the data take."""
    one = make(model, side)

    def three() -> None:
        for _ in range(3):
            one()

    return peak_of(three)


def measure(model: str, rounds: int) -> list[dict[str, Any]]:
    times = alternated({side: make(model, side) for side in SIDES}, rounds=rounds)
    peaks = {side: in_own_process(__file__, "--memory", model, side) for side in SIDES}
    quickest = min(("opacus-hooks", "opacus-ghost"), key=lambda side: ratio(times, side, "sgd"))
    return [
        {
            "network": model,
            "side": side,
            "CPU s a step": statistics.median(times[side]),
            "to plain SGD": ratio(times, side, "sgd"),
            "to the faster Opacus": ratio(times, side, quickest),
            "peak MB": round(peaks[side]),
        }
        for side in SIDES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory", nargs=2, metavar=("MODEL", "SIDE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    runtime.tune()
    warnings.filterwarnings("ignore")
    if arguments.memory:
        sys.stdout.write(json.dumps(memory(*arguments.memory)) + "\n")
        return
    rows = [row for model in MODELS for row in measure(model, arguments.rounds)]
    differences = {model: difference(model) for model in MODELS}
    save("dp_step", {"rounds": arguments.rounds, "difference from Opacus": differences, "rows": rows})
    say(table(rows) + f"\nDifference from Opacus's gradient: {differences}")


if __name__ == "__main__":
    main()
