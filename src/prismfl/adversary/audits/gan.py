"""The GAN attack on a run: a site draws classes that it does not hold, from the models that it received."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from prismfl.adversary.attacks import gan
from prismfl.adversary.view import kept
from prismfl.core.payloads import Weights
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import fit
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

MOST_CLASSES = 5
DRAWN = 100
SHOWN = 8
JUDGE_RECORDS, JUDGE_BATCH, JUDGE_STEPS = 2000, 50, 400
WORDS = "Record-level differential privacy does not promise to hide what a class has in common."
Found = dict[str, Any]


def draw_classes(run: Reopened, *, seed: int) -> tuple[Found, torch.Tensor | None]:
    """Shares of drawn pictures that an independent classifier takes for the hidden class; and some of the pictures.

    Beside it stands what the same attack gets from the untrained model of round 0. The site's records of a hidden
    class, if it has any, are kept from the attack; the judge learns from held-out records that the attack never sees.
    """
    models = _models(run)
    why_not = _why_not(run, models)
    if why_not is not None:
        return {"attack": "gan", "kind": "gan", "applies": False, "words": f"does not apply: {why_not}"}, None
    task, data, key = run.job.task, run.dataset, Key.seed(seed).child("gan")
    rows = torch.as_tensor(run.parts[0])
    x, y = data.x_train[rows], data.y_train[rows]
    held = torch.bincount(y, minlength=len(task.classes))
    judge, weights = _judge(run, key.child("judge"))
    table, pictures = [], []
    for label in _hidden(held):
        line: Found = {"class": task.classes[label], "held": int(held[label])}
        for name, seen in (("judged so", models[1:]), ("untrained", models[:1])):
            made = gan.train(seen, x[y != label], label, effort=gan.Effort(), key=key.child(label))
            drawn = made.draw(DRAWN, key.child(label, "draw"))
            line[name] = round(float((judge.logits(weights, drawn).argmax(1) == label).float().mean()), 2)
            if name == "judged so":
                pictures.append(drawn[:SHOWN])
        table.append(line)
    mean, control = (sum(line[name] for line in table) / len(table) for name in ("judged so", "untrained"))
    words = (
        f"{100 * mean:.0f} % of the drawn pictures pass for the class the site does not hold "
        f"({100 * control:.0f} % without training), from the models of {len(models) - 1} rounds. {WORDS}"
    )
    found = {"attack": "gan", "kind": "gan", "rows": table, "share": mean, "untrained": control, "words": words}
    return found, _beside_truth(run, table, pictures)


def _models(run: Reopened) -> list[Any]:
    """The kept models in the order of their rounds, as functions of pictures; empty where none is sent."""
    task = run.job.task
    states, _ = kept(run.directory)
    sent = [states[r]["model"] for r in sorted(states) if isinstance(states[r].get("model"), Weights)]
    classifier, fresh = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    networks = [{k: v.float() for k, v in payload.tensors.items()} for payload in sent]
    return [partial(classifier.logits, network) for network in networks if set(network) == set(fresh)]


def _why_not(run: Reopened, models: list[Any]) -> str | None:
    if len(run.job.task.shape) != 3:
        return "the attack draws pictures, and the data are tables"
    if not run.job.method.leaves or run.job.method.predict is not None or len(models) < 2:
        return "no model leaves"
    if not len(run.dataset.x_test):
        return "there are no held-out records that a judge could learn from"
    return None


def _hidden(held: torch.Tensor) -> list[int]:
    """Classes that the site has no record of, or else the one it has the fewest of."""
    none = [int(c) for c in (held == 0).nonzero().flatten()]
    return none[:MOST_CLASSES] or [int(held.argmin())]


def _judge(run: Reopened, key: Key) -> tuple[Classifier, Params]:
    data, task = run.dataset, run.job.task
    judge, weights = build("lenet", task.shape, len(task.classes), key=key)
    x, y = data.x_test[:JUDGE_RECORDS], data.y_test[:JUDGE_RECORDS]
    epochs = -(-JUDGE_STEPS * JUDGE_BATCH // len(x))
    return judge, fit(judge, weights, x=x, y=y, epochs=epochs, batch=JUDGE_BATCH, lr=0.05, key=key.child("fit"))


def _beside_truth(run: Reopened, table: list[Found], pictures: list[torch.Tensor]) -> torch.Tensor:
    """A row a class: held-out records of the class on the left, what was drawn on the right."""
    data, rows = run.dataset, []
    for line, drawn in zip(table, pictures):
        label = run.job.task.classes.index(line["class"])
        real = data.x_test[data.y_test == label][:SHOWN]
        rows += [real, drawn.new_zeros(SHOWN - len(real), *drawn.shape[1:]), drawn]
    return torch.cat(rows)
