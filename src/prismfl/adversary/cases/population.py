"""What a run tells of a class, of a hidden column, of a whole site; and the held-out records that judge it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch

from prismfl.adversary.attacks.gan import SeenModels
from prismfl.adversary.attacks.inversion import HiddenColumn, Predict, SeenClassifier, SeenReleases, SeenRows
from prismfl.adversary.cases import Case, Need, Scene
from prismfl.adversary.scores.population import ClassMeans, ColumnValues, HiddenClasses, RichSites
from prismfl.adversary.view import kept
from prismfl.core.payloads import Payload, Weights
from prismfl.core.records import Records, as_floats
from prismfl.core.rounds import initial_state
from prismfl.core.trial import ask_once
from prismfl.data.schema import Schema
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.nets.training import fit
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

CONTROL_RECORDS = 2000
SITES = 12
MOST_CLASSES = 5
JUDGE_RECORDS, JUDGE_BATCH, JUDGE_STEPS = 2000, 50, 400


# A model: images of its classes, or hidden columns of its rows


def _classifier(scene: Scene) -> Case[SeenClassifier | SeenRows, ClassMeans | ColumnValues] | str:
    run, key = scene.run, scene.key("inversion")
    if not run.job.method.leaves or "model" not in run.state.items:
        return "no model leaves the sites"
    if len(run.job.task.shape) != 3:
        return _rows(scene, key)
    if run.job.method.predict is not None:
        return "the model that leaves is no network that an image could be improved by"
    return _classes(run, key)


def _predict(run: Reopened) -> Predict:
    return partial(run.predict(), run.state.items)


def _classes(run: Reopened, key: Key) -> Case[SeenClassifier | SeenRows, ClassMeans | ColumnValues]:
    """The control is a plain model of many exact records."""
    task, data, few = run.job.task, run.dataset, slice(0, CONTROL_RECORDS)
    count = len(task.classes)
    plain, weights = build("logreg", task.shape, count, key=key)
    x, y = as_floats(data.x_train[few]), data.y_train[few]
    weights = fit(plain, weights, x=x, y=y, epochs=20, batch=50, lr=0.1, key=key.child("control"))
    means = torch.stack([as_floats(data.x_test[data.y_test == c]).mean(0) for c in range(count)])
    view, control = (
        SeenClassifier(predict, task.shape, count, key) for predict in (_predict(run), partial(plain.logits, weights))
    )
    return Case(view, ClassMeans(task.classes, means), control)


def _rows(scene: Scene, key: Key) -> Case[SeenClassifier | SeenRows, ClassMeans | ColumnValues]:
    """Every column with categories in turn. The control is a network that has learnt a hundred members by heart."""
    run, task, schema = scene.run, scene.run.job.task, scene.run.dataset.schema
    if schema is None:
        raise UserError("Inversion of rows needs the table's schema, to know which features make up a column.")
    x, y, members = _members_and_others(run, scene.asked.records, key)
    few = min(100, members)
    heart, weights = build("mlp:128", task.shape, len(task.classes), key=key)
    weights = fit(heart, weights, x=x[:few], y=y[:few], epochs=100, batch=20, lr=0.1, key=key.child("control"))
    hidden = _hidden_columns(schema)
    if not hidden:
        raise UserError("Inversion of rows guesses columns with categories; this table has none.")
    values = torch.stack([_values(x, column) for column in hidden])
    view, control = (SeenRows(p, x, y, hidden) for p in (_predict(run), partial(heart.logits, weights)))
    return Case(view, ColumnValues(tuple(column.name for column in hidden), values, members, few), control)


def _hidden_columns(schema: Schema) -> tuple[HiddenColumn, ...]:
    found = []
    for column, block in schema.blocks():
        if not column.is_number:
            features = tuple(range(block.start, block.stop))
            values = torch.tensor([[-1.0], [1.0]]) if column.word == "b" else torch.eye(len(features))
            found.append(HiddenColumn(column.name, features, values))
    return tuple(found)


def _values(x: torch.Tensor, column: HiddenColumn) -> torch.Tensor:
    """Which of its values the column holds, in each row."""
    own = x[:, list(column.features)]
    return (own > 0).long()[:, 0] if len(column.features) == 1 else own.argmax(1)


def _members_and_others(run: Reopened, records: int, key: Key) -> tuple[torch.Tensor, torch.Tensor, int]:
    data, generator = run.dataset, key.child("rows").torch()
    count = min(records, len(data.x_train), len(data.x_test))
    inside = torch.randperm(len(data.x_train), generator=generator)[:count]
    outside = torch.randperm(len(data.x_test), generator=generator)[:count]
    x, y = (torch.cat([a[inside], b[outside]]) for a, b in ((data.x_train, data.x_test), (data.y_train, data.y_test)))
    return x, y, count


# Releases: is a site rich in the first class?


def _releases(scene: Scene) -> Case[SeenReleases, RichSites] | str:
    """First releases of the run's method at the run's own settings. The attacker makes example sites out of held-out
    records; the victims are made out of training records. The control sees exact class shares and the mean record."""
    run, job, key = scene.run, scene.run.job, scene.key("property")
    if not job.method.leaves:
        return "nothing leaves the sites"
    data = run.dataset
    size = min(scene.asked.records, job.task.records, len(data.y_test) // 2)
    train, test = Records(data.x_train, data.y_train), Records(data.x_test, data.y_test)
    groups = [
        [(_site(pool, size, rich, key.child(name, i)), key.child(name, i)) for i in range(SITES)]
        for name, pool, rich in (("a", test, True), ("b", test, False), ("c", train, True), ("d", train, False))
    ]
    view = _seen([[_release(run, *made) for made in group] for group in groups])
    control = _seen([[_exact(records, len(job.task.classes)) for records, _ in group] for group in groups])
    return Case(view, RichSites(job.task.classes[0], SITES, size), control)


def _seen(groups: list[list[torch.Tensor]]) -> SeenReleases:
    with_it, without, rich, plain = (torch.stack(group) for group in groups)
    return SeenReleases(with_it, without, torch.cat([rich, plain]))


def _site(pool: Records, size: int, rich: bool, key: Key) -> Records:
    """`size` records of the pool; in a rich site half of them are of the first class."""
    generator = key.torch()
    order = torch.randperm(len(pool), generator=generator)
    if not rich:
        return pool.take(order[:size])
    first = order[pool.y[order] == 0][: size // 2]
    return pool.take(torch.cat([first, order[pool.y[order] != 0][: size - len(first)]]))


def _release(run: Reopened, records: Records, key: Key) -> torch.Tensor:
    """All numbers of a site's first release, as one row."""
    job, noise = run.whole_job, key.child("noise").noise()
    asked = ask_once(
        job, initial_state(job), records, noise, key=key.child("client"), declared=len(records), unit="record"
    )
    return _numbers(asked.answer[0])


def _exact(records: Records, classes: int) -> torch.Tensor:
    shares = torch.bincount(records.y, minlength=classes).double() / len(records)
    return torch.cat([shares, as_floats(records.x).double().mean(0).flatten()])


def _numbers(items: Mapping[str, Payload]) -> torch.Tensor:
    """Each tensor at its own scale, so that a few large numbers do not drown the rest."""
    found = []
    for _, payload in sorted(items.items()):
        for _, tensor in sorted(payload.tensors.items()):
            flat = tensor.flatten().double()
            if len(flat):
                found.append(flat / math.sqrt(len(flat)))
    return torch.cat(found)


# The models that a site received: can it draw a class that it does not hold?


def _models(scene: Scene) -> Case[SeenModels, HiddenClasses] | str:
    """The site's records of a hidden class, if it has any, are kept from the attack; the judge learns from held-out
    records that the attack never sees. The control is the untrained model of round 0: from it little can be drawn."""
    run, task, data, key = scene.run, scene.run.job.task, scene.run.dataset, scene.key("gan")
    models = _received(run)
    if len(task.shape) != 3:
        return "the attack draws pictures, and the data are tables"
    if not run.job.method.leaves or run.job.method.predict is not None or len(models) < 2:
        return "no model leaves"
    if not len(data.x_test):
        return "there are no held-out records that a judge could learn from"
    rows = torch.as_tensor(run.parts[0])
    x, y = as_floats(data.x_train[rows]), data.y_train[rows]
    held = torch.bincount(y, minlength=len(task.classes))
    labels = hidden_classes(held)
    own = tuple((label, x[y != label]) for label in labels)
    truth = HiddenClasses(
        tuple(labels),
        tuple(task.classes[label] for label in labels),
        tuple(int(held[label]) for label in labels),
        tuple(as_floats(data.x_test[data.y_test == label]) for label in labels),
        _judge(run, key.child("judge")),
        rounds=len(models) - 1,
    )
    return Case(SeenModels(models[1:], own, key), truth, SeenModels(models[:1], own, key))


def _received(run: Reopened) -> tuple[Predict, ...]:
    """The kept models in the order of their rounds, as functions of pictures; empty where none is sent."""
    task = run.job.task
    states, _ = kept(run.directory)
    sent = [states[r]["model"] for r in sorted(states) if isinstance(states[r].get("model"), Weights)]
    classifier, fresh = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    networks = [{k: v.float() for k, v in payload.tensors.items()} for payload in sent]
    return tuple(partial(classifier.logits, network) for network in networks if set(network) == set(fresh))


def hidden_classes(held: torch.Tensor) -> list[int]:
    """Classes that the site has no record of, or else the one it has the fewest of."""
    none = [int(c) for c in (held == 0).nonzero().flatten()]
    return none[:MOST_CLASSES] or [int(held.argmin())]


def _judge(run: Reopened, key: Key) -> Predict:
    data, task = run.dataset, run.job.task
    judge, weights = build("lenet", task.shape, len(task.classes), key=key)
    x, y = as_floats(data.x_test[:JUDGE_RECORDS]), data.y_test[:JUDGE_RECORDS]
    epochs = -(-JUDGE_STEPS * JUDGE_BATCH // len(x))
    weights = fit(judge, weights, x=x, y=y, epochs=epochs, batch=JUDGE_BATCH, lr=0.05, key=key.child("fit"))
    return partial(judge.logits, weights)


CLASSIFIER = Need("a model that answers", "inversion", _classifier)
RELEASES = Need("the releases of sites", "property", _releases)
MODELS = Need("the models of several rounds", "gan", _models)
