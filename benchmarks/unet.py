"""One DP-SGD step of the diffusion model's U-Net: prismfl against Opacus hooks; and how long sampling takes.

    python benchmarks/unet.py [--rounds 5]

Both sides: the same network (width 16, 28x28), batch of 128 images with one noise draw each, every record in the batch,
one torch thread, clipping, noise and the update included. Several draws a record, which prismfl averages inside the
record's gradient, have no counterpart in the hooks and are not timed against them.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from alternate import alternated, ratio, save, say, table
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from prismfl import runtime
from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.nets import diffusion
from prismfl.nets.diffusion import SIGMA_DATA, Learner, Sampler
from prismfl.nets.training import step
from prismfl.nets.unet import UNetShape
from prismfl.rng import Key

BATCH, CLASSES, CLIP, SIGMA, LR = 128, 10, 0.05, 1.0, 1e-3
SHAPE = UNetShape((1, 28, 28), CLASSES, 16)
SIDES = ("sgd", "prismfl", "opacus-hooks")


def setting() -> tuple[Any, Learner, torch.Tensor, torch.Tensor, torch.Tensor]:
    module, learner = diffusion.fresh(SHAPE, Key.seed(0))
    with torch.no_grad():
        module.out.weight.normal_(std=0.05, generator=Key.seed(1).torch())  # a zero last layer would hide all others
    learner = Learner.start({k: p.detach().clone() for k, p in module.named_parameters()})
    x = torch.rand(BATCH, *SHAPE.image, generator=Key.seed(2).torch())
    return (
        module,
        learner,
        x,
        torch.arange(BATCH) % CLASSES,
        torch.randn(BATCH, diffusion.normals(SHAPE.image, 1), generator=Key.seed(3).torch()),
    )


def batch_loss(module: Any) -> torch.Tensor:
    """The mean misfit of the batch with the module called as it is, which is what hooks need."""
    _, _, x, y, z = setting()
    sigma, noise = diffusion.noise_draws(z, SHAPE.image)
    picture, wide = 2.0 * x - 1.0, sigma[:, :1, None, None]
    noisy = picture + wide * noise[:, 0]
    total = (wide.square() + SIGMA_DATA**2).sqrt()
    raw = module(noisy / total, sigma[:, 0].log() / 4, F.one_hot(y, CLASSES).float())
    skip, out = SIGMA_DATA**2 / total.square(), wide * SIGMA_DATA / total
    return (raw - (picture - skip * noisy) / out).square().mean()


def sgd() -> Callable[[], object]:
    module = setting()[0]
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def one() -> None:
        optimizer.zero_grad()
        batch_loss(module).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return one


def ours() -> Callable[[], object]:
    module, learner, x, y, z = setting()
    door = PrivateRecords(Records(x, y), declared=BATCH, classes=CLASSES, noise=Key.seed(0).noise())
    params, loss = learner.params, diffusion.record_misfit(module, CLASSES)

    def one() -> None:
        nonlocal params
        noisy = door.noisy_gradient(loss, params, batch=BATCH, clip=CLIP, sigma=SIGMA, normals=z.shape[1])
        params = step(params, noisy, LR)

    return one


def opacus_parts(sigma: float) -> tuple[Any, Any]:
    from opacus import PrivacyEngine

    module, _, x, y, _ = setting()
    module = copy.deepcopy(module).train()
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=LR),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=BATCH),
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
        poisson_sampling=False,
    )
    return made[0], made[1]


def opacus() -> Callable[[], object]:
    module, optimizer = opacus_parts(SIGMA)

    def one() -> None:
        optimizer.zero_grad()
        batch_loss(module).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return one


def difference() -> float:
    """Distance of our clipped mean gradient from Opacus's without noise, relative to its norm."""
    module, optimizer = opacus_parts(0.0)
    batch_loss(module).backward()  # type: ignore[no-untyped-call]
    optimizer.pre_step()
    theirs = torch.cat([p.grad.flatten() for p in module.parameters()])
    module, learner, x, y, z = setting()
    sums = clipped_gradient_sum(diffusion.record_misfit(module, CLASSES), learner.params, batch=(x, y, z), clip=CLIP)
    mine = torch.cat([g.flatten() for g in sums.values()]) / BATCH
    return float((mine - theirs).norm() / theirs.norm())


def sampling(images: int = 1000) -> list[dict[str, Any]]:
    module, learner, _, _, _ = setting()
    found = []
    for kind, steps in (("euler", 10), ("heun", 10), ("stochastic", 10)):
        start = time.process_time()
        Sampler(kind, steps)(module, learner.mean, torch.arange(images) % CLASSES, shape=SHAPE, key=Key.seed(0))  # type: ignore[arg-type]
        found.append({"sampler": kind, "steps": steps, "images": images, "CPU s": time.process_time() - start})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runtime.tune()
    warnings.filterwarnings("ignore")
    times = alternated({"sgd": sgd(), "prismfl": ours(), "opacus-hooks": opacus()}, rounds=arguments.rounds)
    rows = [
        {
            "side": side,
            "CPU s a step": statistics.median(times[side]),
            "to plain SGD": ratio(times, side, "sgd"),
            "to Opacus hooks": ratio(times, side, "opacus-hooks"),
        }
        for side in SIDES
    ]
    drawn, apart = sampling(), difference()
    save("unet", {"rounds": arguments.rounds, "difference from Opacus": apart, "rows": rows, "sampling": drawn})
    say(table(rows) + "\n" + table(drawn) + f"\nDifference from Opacus's gradient: {apart:.1e}")


if __name__ == "__main__":
    main()
