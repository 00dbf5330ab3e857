"""A part of a FedLAP-DP round at full size: prismfl against the straightforward way, in turns in one process.

    python benchmarks/fedlap.py [--rounds 3] [--queries 1]

A round is 200 private queries of batch 256 and 1000 updates of 20 images a site, on the paper's ConvNet of 318k
parameters. Both sides do `queries` queries with five image updates each, on the same batch and without noise, so that
their images can be compared. Straightforward: per-record gradients by hooks (Opacus), then autograd with create_graph.
The comparison is in double precision; in single precision rounding turns a few ReLUs of millions over, on either side,
and the last columns say how far that takes each from the double result.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch
from alternate import alternated, ratio, save, say, table
from torch import nn

from prismfl import runtime
from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.methods.landscape.matching import Matcher, Schedule, approximate
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.rng import Key

BATCH, CLASSES, IMAGES, CLIP, UPDATES = 256, 10, 20, 1.0, 5
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
Side = Callable[[], torch.Tensor]


def setting(
    shape: tuple[int, ...], kind: torch.dtype
) -> tuple[Classifier, Params, Records, torch.Tensor, torch.Tensor]:
    classifier, params = build("convnet:128", shape, CLASSES, key=Key.seed(0))
    classifier.module.to(kind)
    g = torch.Generator().manual_seed(0)
    x, images = torch.rand(BATCH, *shape, generator=g), torch.randn(IMAGES, *shape, generator=g)
    records = Records(x.to(kind), torch.arange(BATCH) % 2)
    return classifier, {k: p.to(kind) for k, p in params.items()}, records, images.to(kind), torch.arange(IMAGES) % 2


def schedule(queries: int) -> Schedule:
    return Schedule(
        stops=1, batches=queries, updates=UPDATES, model_steps=0, radius=1.5, image_lr=1.0, momentum=0.5, lr=0.1
    )


def ours(shape: tuple[int, ...], queries: int, kind: torch.dtype = torch.float32) -> Side:
    classifier, params, records, x, y = setting(shape, kind)
    door = PrivateRecords(records, declared=BATCH, classes=CLASSES, noise=Key.seed(0).noise())

    def target(at: Params, view: Any) -> Params:
        return door.noisy_gradient(classifier.record_loss, at, batch=BATCH, clip=CLIP, sigma=0.0)

    matcher = Matcher(classifier)
    return lambda: approximate(matcher, params, x=x, y=y, target=target, schedule=schedule(queries))[0]


def straightforward(shape: tuple[int, ...], queries: int, kind: torch.dtype = torch.float32) -> Side:
    from opacus.grad_sample import GradSampleModule

    classifier, params, records, x, y = setting(shape, kind)
    module = GradSampleModule(copy.deepcopy(classifier.module))
    names = [name for name, _ in classifier.module.named_parameters()]

    def target(at: Params, view: Any) -> Params:
        module.zero_grad()
        nn.functional.cross_entropy(module(records.x), records.y, reduction="sum").backward()
        rows: list[torch.Tensor] = [p.grad_sample for p in module.parameters()]  # type: ignore[misc]
        norms = torch.stack([r.flatten(1).norm(dim=1) for r in rows]).norm(dim=0)
        factors = (CLIP / norms).clamp(max=1.0)
        found = {k: torch.einsum("n,n...->...", factors, r) / BATCH for k, r in zip(names, rows)}
        for p in module.parameters():
            p.grad_sample = None  # type: ignore[attr-defined]
        return found

    matcher = Matcher(classifier, reference=True)
    return lambda: approximate(matcher, params, x=x, y=y, target=target, schedule=schedule(queries))[0]


def measure(data: str, *, queries: int, rounds: int) -> dict[str, Any]:
    shape = SHAPES[data]
    sides = {"prismfl": ours(shape, queries), "straightforward": straightforward(shape, queries)}
    exact = straightforward(shape, queries, torch.float64)()
    moved = (exact - setting(shape, torch.float64)[3]).norm()

    def gap(made: torch.Tensor) -> float:
        return float((made - exact).norm() / moved)

    times = alternated(sides, rounds=rounds)
    return {
        "data": data,
        "prismfl, CPU s": statistics.median(times["prismfl"]),
        "straightforward, CPU s": statistics.median(times["straightforward"]),
        "times faster": ratio(times, "straightforward", "prismfl"),
        "difference, double": gap(ours(shape, queries, torch.float64)()),
        "single, prismfl": gap(sides["prismfl"]()),
        "single, straightforward": gap(sides["straightforward"]()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--data", nargs="*", default=list(SHAPES))
    arguments = parser.parse_args()
    runtime.tune()
    warnings.filterwarnings("ignore")
    rows = [measure(data, queries=arguments.queries, rounds=arguments.rounds) for data in arguments.data]
    save("fedlap", {"rounds": arguments.rounds, "queries": arguments.queries, "updates": UPDATES, "rows": rows})
    say(table(rows))


if __name__ == "__main__":
    main()
