"""Model inversion and property inference on a run: what a model tells of a class, of a hidden column, of a whole site.

Only members faring worse than others would be a breach of record-level differential privacy; a class's common look and
a site's properties are not what it hides, and the words of each result say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from prismfl.adversary.attacks import inversion
from prismfl.adversary.scores.membership import auc, auc_interval
from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site, State
from prismfl.core.payloads import Payload
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.nets.training import fit
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

Found = dict[str, Any]
CLASS_WORDS = (
    "An image of what a class has in common. No promise of differential privacy covers that, and none is broken."
)
CONTROL_RECORDS = 2000
ROW_WORDS = "Members against others: only a gap between them would be about a record rather than about the population."


def invert(run: Reopened, *, records: int, seed: int) -> tuple[Found, torch.Tensor | None]:
    """Class images of an image model, hidden columns of a table model; and a picture to look at, if there is one."""
    if not run.job.method.leaves or "model" not in run.state.items:
        reason = "no model leaves the sites"
        return _not(reason), None
    key = Key.seed(seed).child("inversion")
    if len(run.job.task.shape) == 3 and run.job.method.predict is not None:
        reason = "the model that leaves is no network that an image could be improved by"
        return _not(reason), None
    if len(run.job.task.shape) == 3:
        return _class_images(run, key)
    return _attributes(run, records, key), None


def _not(reason: str) -> Found:
    return {"attack": "inversion", "kind": "inversion", "applies": False, "words": f"does not apply: {reason}"}


def _class_images(run: Reopened, key: Key) -> tuple[Found, torch.Tensor]:
    task, data, predict = run.job.task, run.dataset, run.predict()
    plain, weights = build("logreg", task.shape, len(task.classes), key=key)
    few = slice(0, CONTROL_RECORDS)
    weights = fit(
        plain, weights, x=data.x_train[few], y=data.y_train[few], epochs=20, batch=50, lr=0.1, key=key.child("control")
    )
    means = torch.stack([data.x_test[data.y_test == c].mean(0) for c in range(len(task.classes))])
    rows, images, control = [], [], 0
    for c, name in enumerate(task.classes):
        image = inversion.class_image(lambda x: predict(run.state.items, x), task.shape, c, key=key.child(c)).cpu()
        like = inversion.likeness(image, means)
        rows.append(
            {"class": name, "likeness": round(float(like[c]), 3), "most like": task.classes[int(like.argmax())]}
        )
        images.append(image)
        seen = inversion.class_image(lambda x: plain.logits(weights, x), task.shape, c, key=key.child(c))
        control += int(inversion.likeness(seen, means).argmax() == c)
    right = sum(row["class"] == row["most like"] for row in rows)
    words = f"{right} of {len(rows)} images look most like their class. {CLASS_WORDS}"
    found = {"attack": "inversion", "kind": "inversion", "rows": rows, "right": right, "words": words}
    found["control"] = {"right": control}
    return found, torch.cat([torch.stack(images), means])


def _attributes(run: Reopened, records: int, key: Key) -> Found:
    """Every column with categories in turn: is it guessed better for members than for others?

    The control is a network that has learnt a hundred members by heart.
    """
    schema, predict = run.dataset.schema, run.predict()
    if schema is None:
        raise UserError("Inversion of rows needs the table's schema, to know which features make up a column.")
    x, y, members = _members_and_others(run, records, key)
    few = min(100, members)
    heart, weights = build("mlp:128", run.job.task.shape, len(run.job.task.classes), key=key)
    weights = fit(heart, weights, x=x[:few], y=y[:few], epochs=100, batch=20, lr=0.1, key=key.child("control"))
    rows: list[dict[str, Any]] = []
    for column, block in schema.blocks():
        if column.type == "numeric":
            continue
        columns = list(range(block.start, block.stop))
        values = torch.tensor([[-1.0], [1.0]]) if column.type == "binary" else torch.eye(len(columns))
        truth = (x[:, columns] > 0).long()[:, 0] if column.type == "binary" else x[:, columns].argmax(1)
        guess = inversion.attribute_guesses(lambda r: predict(run.state.items, r), x, y, columns=columns, values=values)
        known = inversion.attribute_guesses(lambda r: heart.logits(weights, r), x, y, columns=columns, values=values)
        right, right_by_heart = guess == truth, known == truth
        gap = inversion.attribute_advantage(right[:members], right[members:])
        control = inversion.attribute_advantage(right_by_heart[:few], right_by_heart[members:])
        rows.append({"column": column.name, **{k: round(v, 3) for k, v in gap.items()},
                     "control": round(control["advantage"], 3)})  # fmt: skip
    if not rows:
        raise UserError("Inversion of rows guesses columns with categories; this table has none.")
    worst = max(rows, key=lambda row: float(row["advantage"]))
    words = f"Largest gap: {worst['advantage']:+.3f}, column '{worst['column']}'. {ROW_WORDS}"
    return {"attack": "inversion", "kind": "inversion", "rows": rows, "words": words}


def _members_and_others(run: Reopened, records: int, key: Key) -> tuple[torch.Tensor, torch.Tensor, int]:
    data, generator = run.dataset, key.child("rows").torch()
    count = min(records, len(data.x_train), len(data.x_test))
    inside = torch.randperm(len(data.x_train), generator=generator)[:count]
    outside = torch.randperm(len(data.x_test), generator=generator)[:count]
    x, y = (torch.cat([a[inside], b[outside]]) for a, b in ((data.x_train, data.x_test), (data.y_train, data.y_test)))
    return x, y, count


def infer_property(run: Reopened, *, sites: int, records: int, seed: int) -> Found:
    """Is a site rich in the first class? Told from the first release of the run's method, at the run's own settings.

    The attacker makes example sites out of held-out records; the victims are made out of training records.
    """
    if not run.job.method.leaves:
        words = "does not apply: nothing leaves the sites"
        return {"attack": "property", "kind": "property", "applies": False, "words": words}
    data, key = run.dataset, Key.seed(seed).child("property")
    size = min(records, run.job.task.records, len(data.y_test) // 2)
    train, test = Records(data.x_train, data.y_train), Records(data.x_test, data.y_test)
    groups = [
        [(_site(pool, size, rich, key.child(name, i)), key.child(name, i)) for i in range(sites)]
        for name, pool, rich in (("a", test, True), ("b", test, False), ("c", train, True), ("d", train, False))
    ]
    area = _told([[_release(run, *made) for made in group] for group in groups])
    control = _told([[_exact(records, len(run.job.task.classes)) for records, _ in group] for group in groups])
    low, high = auc_interval(area, sites, sites)
    name = run.job.task.classes[0]
    return {
        "attack": "property",
        "kind": "property",
        "rows": [{"property": f"half of the records are '{name}'", "sites": 2 * sites, "records": size,
                  "AUC": round(area, 3), "from": round(low, 3), "to": round(high, 3), "control": round(control, 3)}],
        "words": f"AUC {area:.2f} ({low:.2f} to {high:.2f}) for a site rich in '{name}'. {inversion.NOT_PROMISED}",
    }  # fmt: skip


def _told(groups: list[list[torch.Tensor]]) -> float:
    """AUC of telling victims with the property from those without, by the attacker's own examples of both."""
    with_it, without, rich, plain = (torch.stack(group) for group in groups)
    scores = inversion.property_scores(with_it, without, torch.cat([rich, plain]))
    return auc(scores[: len(rich)], scores[len(rich) :])


def _exact(records: Records, classes: int) -> torch.Tensor:
    """The control's release: exact class shares and the mean record."""
    shares = torch.bincount(records.y, minlength=classes).double() / len(records)
    return torch.cat([shares, records.x.double().mean(0).flatten()])


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
    job, task = run.job, run.job.task
    if job.method.needs_public:
        task = replace(task, public=run.public)
    door = PrivateRecords(
        records,
        declared=len(records),
        classes=len(task.classes),
        noise=key.child("noise").noise(),
        relation=task.relation,
        allow_exact=job.method.guarantee != "site",
    )
    state = State(0, job.method.init(job.settings, task, job.key.child("init")))
    items, _ = job.method.client(job.settings, state, Site(task.sites[0], door, {}, task), key.child("client"))
    return _numbers(items)


def _numbers(items: Mapping[str, Payload]) -> torch.Tensor:
    """Each tensor at its own scale, so that a few large numbers do not drown the rest."""
    found = []
    for _, payload in sorted(items.items()):
        for _, tensor in sorted(payload.tensors.items()):
            flat = tensor.flatten().double()
            if len(flat):
                found.append(flat / math.sqrt(len(flat)))
    return torch.cat(found)
