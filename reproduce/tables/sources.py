"""The six tables, split: five public ones and one that is drawn here, with missing values and 5 % positives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from prismfl.data.datasets import load
from prismfl.data.schema import words

DRAWN = "drawn"
NAMES = ("adult", "mushroom", "titanic", "breast-cancer", "wine-quality", DRAWN)
ROWS = 12_000


@dataclass(frozen=True)
class Source:
    """A table's declared columns and classes, and its training and test part, encoded."""

    words: tuple[str, ...]
    classes: tuple[str, ...]
    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def source(name: str, seed: int) -> Source:
    """Adult in its official split, the others in one of their own for each seed, one row in five held out."""
    from sklearn.model_selection import train_test_split

    if name == "adult":
        found = load(name)
        assert found.schema is not None
        parts = found.x_train, found.y_train, found.x_test, found.y_test
        return Source(words(found.schema), found.schema.classes, *parts)
    columns, classes, x, y = drawn() if name == DRAWN else _whole(name)
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y.numpy(), random_state=seed)
    return Source(columns, classes, x[train], y[train], x[test], y[test])


def _whole(name: str) -> tuple[tuple[str, ...], tuple[str, ...], torch.Tensor, torch.Tensor]:
    found = load(name)
    assert found.schema is not None
    x, y = torch.cat([found.x_train, found.x_test]), torch.cat([found.y_train, found.y_test])
    return words(found.schema), found.schema.classes, x, y


def drawn() -> tuple[tuple[str, ...], tuple[str, ...], torch.Tensor, torch.Tensor]:
    """A made-up clinic: age, pressure, three laboratory values (often missing, more so in the healthy), ward, sex,
    smoker; 5 % are readmitted, by an interaction of age, one value and the ward, and by smoking."""
    draw = np.random.default_rng(20261118)
    age = np.clip(draw.normal(0.1, 0.4, ROWS), -1, 1)
    pressure = np.clip(0.5 * age + draw.normal(0, 0.3, ROWS), -1, 1)
    sugar = np.clip(-0.6 + draw.gamma(2.0, 0.15, ROWS) + 0.2 * (age > 0.4), -1, 1)
    iron = np.clip(draw.normal(0, 0.3, ROWS) - 0.3 * sugar, -1, 1)
    liver = np.clip(-0.9 + draw.exponential(0.25, ROWS), -1, 1)
    ward = np.minimum(draw.geometric(0.35, ROWS) - 1, 7)
    sex, smoker = (draw.random(ROWS) < 0.5), (draw.random(ROWS) < 0.2 + 0.1 * (age < 0))
    risk = 2.5 * age * sugar + 1.5 * smoker + 1.2 * (ward >= 3) * (sugar > -0.2) + 1.5 * liver - 1.0 * iron
    risk = risk + draw.logistic(0, 0.6, ROWS)
    y = (risk > np.quantile(risk, 0.95)).astype(np.int64)
    columns: list[np.ndarray] = [age, pressure]
    for value, rate in ((sugar, 0.1), (iron, 0.35), (liver, 0.3)):
        gone = draw.random(ROWS) < rate * np.where(y == 1, 0.3, 1.0)
        columns += [np.where(gone, 0.0, value), gone.astype(float)]
    columns += [*np.eye(8)[ward].T, 2.0 * sex - 1, 2.0 * smoker - 1]
    x = torch.from_numpy(np.stack(columns, 1)).to(torch.float32)
    return ("n", "n", "m", "m", "m", "c8", "b", "b"), ("home", "readmitted"), x, torch.from_numpy(y)


def plain(found: Source, x: torch.Tensor) -> np.ndarray:
    """One value a column: a number (not a number where it is missing), or the place of a category."""
    out, at = [], 0
    for word in found.words:
        wide = {"n": 1, "b": 1, "m": 2}.get(word) or int(word[1:])
        part = x[:, at : at + wide].double().numpy()
        if word == "m":
            out.append(np.where(part[:, 1] > 0.5, np.nan, part[:, 0]))
        else:
            out.append(part.argmax(1).astype(float) if wide > 1 else part[:, 0])
        at += wide
    return np.stack(out, 1)


def encoded(found: Source, values: np.ndarray) -> torch.Tensor:
    """The inverse of `plain`."""
    out = []
    for word, column in zip(found.words, values.T):
        if word == "m":
            out += [np.nan_to_num(column).clip(-1, 1), np.isnan(column).astype(float)]
        elif word in ("n", "b"):
            out.append(column.clip(-1, 1))
        else:
            out += list(np.eye(int(word[1:]))[column.astype(int)].T)
    return torch.from_numpy(np.stack(out, 1)).to(torch.float32)
