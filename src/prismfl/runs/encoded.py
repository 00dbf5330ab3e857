"""The fair baseline: a method that takes no encoder itself, on records that were looked at through a public one.

Each picture becomes the row that the encoder makes of it alone, and the task a table of such rows. The ledger knows the
records, and their own random numbers follow, by the pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from prismfl.core.method import Method
from prismfl.core.task import Task
from prismfl.data import Dataset, Spec
from prismfl.errors import UserError
from prismfl.nets.encoders.rows import WIDTH, EncodedRows, encoded_rows
from prismfl.runs.config import RunConfig

Shown = Callable[[str, int, int], None]
STAGE = "looking through the encoder"
LINEAR = "logreg"


class Through(nn.Module):
    """A network behind a public encoder: from images to logits."""

    def __init__(self, rows: EncodedRows, network: nn.Module) -> None:
        super().__init__()
        self.rows, self.network = rows, network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A row of logits an image."""
        with torch.no_grad():
            found: torch.Tensor = self.network(self.rows(images))
        return found


def wanted(config: RunConfig, method: Method) -> bool:
    """Whether the records of a run are to be looked at through an encoder that its method does not take itself.

    "auto" is for methods that take one: it does not make another task of a baseline.
    """
    return config.encoder not in (None, "none", "auto") and not method.takes_encoder


def looked_through(task: Task, method: Method) -> bool:
    """Whether the records of this task are rows that its encoder made."""
    return task.encoder is not None and not method.takes_encoder


def spec_of_rows(spec: Spec, config: RunConfig, method: Method) -> Spec:
    """What is declared of the rows; data or a method that an encoder is no use to are an error."""
    if spec.kind != "image":
        raise UserError(f"Encoder '{config.encoder}' looks at images, '{spec.name}' is {spec.kind}; leave it out.")
    if method.predict is not None or method.models is not None or method.kinds != ("image", "table"):
        raise UserError(
            f"Method '{method.name}' looks through no public encoder; leave out encoder '{config.encoder}'."
        )
    return replace(spec, kind="table", shape=(WIDTH,))


def rows_of(task: Task) -> EncodedRows:
    """What looks at the pictures of a task whose records are rows."""
    assert task.encoder is not None
    assert task.public is not None
    return encoded_rows(task.encoder, task.public)


def look(dataset: Dataset, task: Task, method: Method, shown: Shown = lambda *_: None) -> Dataset:
    """The data set as the method sees it: the same, or its pictures as rows, each by itself."""
    if not looked_through(task, method):
        return dataset
    rows, first = rows_of(task), len(dataset.x_train)
    total = first + len(dataset.x_test)
    x_train = rows.one_by_one(dataset.x_train, lambda done: shown(STAGE, done, total))
    x_test = rows.one_by_one(dataset.x_test, lambda done: shown(STAGE, first + done, total))
    spec = replace(dataset.spec, kind="table", shape=task.shape)
    return replace(dataset, spec=spec, x_train=x_train, x_test=x_test, pictures=dataset.x_train)
