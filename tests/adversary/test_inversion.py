"""Inversion finds what a class has in common; attributes of memorised rows; properties of whole sites."""

from __future__ import annotations

import pytest
import torch

from prismfl.adversary.attacks.inversion import attribute_guesses, class_image, property_scores
from prismfl.adversary.scores.membership import auc
from prismfl.adversary.scores.population import attribute_advantage, likeness
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.nets.training import fit
from prismfl.rng import Key


def test_the_image_of_a_class_looks_like_that_class() -> None:
    data = load("digits")
    classifier, params = build("logreg", (1, 8, 8), 10, key=Key.seed(0))
    params = fit(classifier, params, x=data.x_train, y=data.y_train, epochs=10, batch=64, lr=0.3, key=Key.seed(0))
    means = torch.stack([data.x_test[data.y_test == c].mean(0) for c in range(10)])
    right = 0
    for c in range(10):
        image = class_image(lambda x: classifier.logits(params, x), (1, 8, 8), c, key=Key.seed(c))
        assert 0 <= float(image.min()) <= float(image.max()) <= 1
        right += int(likeness(image, means).argmax() == c)
    assert right >= 7
    blank = build("logreg", (1, 8, 8), 10, key=Key.seed(1))
    blind = [
        int(
            likeness(class_image(lambda x: blank[0].logits(blank[1], x), (1, 8, 8), c, key=Key.seed(c)), means).argmax()
        )
        for c in range(10)
    ]
    assert sum(guess == c for c, guess in enumerate(blind)) <= 4


def test_attributes_of_memorised_rows_are_guessed() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 30, generator=g)
    x[:, :2] = torch.eye(2)[torch.randint(2, (200,), generator=g)]
    y = torch.randint(4, (200,), generator=g)
    classifier, params = build("mlp:128", (30,), 4, key=Key.seed(0))
    params = fit(classifier, params, x=x[:100], y=y[:100], epochs=80, batch=25, lr=0.1, key=Key.seed(0))
    hidden = x.clone()
    hidden[:, :2] = 0.0  # the attack may not look at the truth
    guess = attribute_guesses(lambda r: classifier.logits(params, r), hidden, y, columns=[0, 1], values=torch.eye(2))
    right = guess == x[:, :2].argmax(1)
    assert attribute_advantage(right[:100], right[100:])["advantage"] > 0.1
    with pytest.raises(UserError, match="2 columns"):
        attribute_guesses(lambda r: r, hidden, y, columns=[0, 1], values=torch.eye(3))


def test_a_property_of_sites_shows_and_noise_hides_it() -> None:
    g = torch.Generator().manual_seed(0)
    shift = torch.randn(300, generator=g) * 0.3

    def sites(n: int, *, has: bool, noise: float) -> torch.Tensor:
        return torch.randn(n, 300, generator=g) * noise + (shift if has else 0.0)

    for noise, low, high in ((1.0, 0.9, 1.01), (500.0, 0.2, 0.8)):
        scores = property_scores(
            sites(40, has=True, noise=noise),
            sites(40, has=False, noise=noise),
            torch.cat([sites(40, has=True, noise=noise), sites(40, has=False, noise=noise)]),
        )
        assert low <= auc(scores[:40], scores[40:]) <= high
