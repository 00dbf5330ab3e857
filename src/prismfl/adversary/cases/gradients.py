"""The gradients of one round as an adversary saw them, and the records behind them."""

from __future__ import annotations

import torch

from prismfl.adversary.attacks.gradient_inversion import Effort, Problem, SeenGradients, stack
from prismfl.adversary.cases import Asked, Case, Need, Scene
from prismfl.adversary.scores.reconstruction import Behind
from prismfl.adversary.view import Target, kept, look
from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.methods.gradients.fedem import Perturbing
from prismfl.nets.classifier import build
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened


def _gradients(scene: Scene) -> Case[SeenGradients, Behind] | str:
    """All victims of a round at once: they share the model. The truth also lends labels, if the attacker is to know."""
    run, asked, task = scene.run, scene.asked, scene.run.job.task
    view = look(run.directory, run.job, adversary=asked.adversary, round=asked.round)
    if view.why_not is not None:
        return view.why_not
    effort, targets = _effort(run.job, asked), view.targets[: asked.victims]
    behind = _behind(run, targets)
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    problem = Problem(
        classifier,
        targets[0].model,
        stack([target.gradient for target in targets]),
        targets[0].records,
        task.shape,
        len(task.classes),
        _known(behind, targets[0].records) if asked.known_labels else None,
        rescaled=targets[0].rescaled,
    )
    truth = Behind(targets, tuple((b.x, b.y) for b in behind), task.data, classifier, asked.adversary)
    return Case(SeenGradients(problem, effort, scene.key("attack")), truth)


GRADIENTS = Need("the gradients of a round", "gradient", _gradients)


def _effort(job: Job, asked: Asked) -> Effort:
    if asked.restarts < 1 or asked.iterations < 1 or asked.victims < 1:
        raise UserError(
            "Expected restarts, iterations and victims >= 1, "
            f"got {asked.restarts}, {asked.iterations} and {asked.victims}."
        )
    against = job.settings if isinstance(job.settings, Perturbing) else None
    if asked.adaptive and against is None:
        raise UserError(f"--adaptive is for runs of fedem; this run is of '{job.method.name}'.")
    return Effort(restarts=asked.restarts, iterations=asked.iterations, against=against if asked.adaptive else None)


def _behind(run: Reopened, targets: tuple[Target, ...]) -> list[Records]:
    states, _ = kept(run.directory)
    found = []
    for target in targets:
        state = State(target.round, states[target.round])
        parts = [run.batch_behind(site, state) for site in target.sites]
        found.append(Records(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts])))
    return found


def _known(behind: list[Records], batch: int) -> torch.Tensor:
    if any(len(records) != batch for records in behind):
        raise UserError("--known-labels needs batches of a fixed size; this method draws batches of random size.")
    return torch.stack([records.y for records in behind])
