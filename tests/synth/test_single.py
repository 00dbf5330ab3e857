"""One holder's release: settings that the method chooses, public encoders, and both in the certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.core.method import Chosen, Wanted
from prismfl.errors import UserError
from prismfl.methods.prism import prism
from prismfl.nets.encoders.base import Encoder
from prismfl.privacy.ledger.place import ledger_path
from prismfl.synth.synthesizer import Synthesizer
from prismfl.synth.ways import PRISM, WAYS

QUICK = {**prism.METHOD.tiny, "public_count": 60}
IMAGES = np.random.default_rng(0).random((30, 8, 8))
LABELS = np.arange(30) % 3


class Rows(Encoder):
    """The mean of each row of pixels, and of each column."""

    name, layers, trained_on = "rows", ("rows", "columns"), "nothing"

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"rows": images.mean((1, 3)), "columns": images.mean((1, 2))}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """A prism that chooses its rank by the epsilon, and what it was asked."""
    heard: list[Wanted] = []

    def auto(asked: Wanted) -> Chosen:
        heard.append(asked)
        return Chosen({"rank": 5, "ridge": 0.7}, (f"rank 5: epsilon is {asked.epsilon:g}",))

    monkeypatch.setitem(WAYS, "prism", replace(PRISM, method=replace(prism.METHOD, auto=auto)))
    return heard


def made(**options: Any) -> Synthesizer:
    given = {key: value for key, value in QUICK.items() if key != "rank"}
    return Synthesizer(**{"epsilon": 2.0, "seed": 0, "tuning": "auto", **given, **options}).fit(IMAGES, LABELS)


def test_what_was_not_given_is_chosen_and_said(asked: list[Wanted]) -> None:
    found = made()
    assert (found.settings.rank, found.settings.ridge) == (5, 0.7)
    assert found.certificate()["settings_chosen"] == ["rank 5: epsilon is 2"]
    assert found.release.items["statistics"].tensors["sums"].shape[1] == 5 + 3 * 8 + 1, "released at that rank"
    assert (asked[0].epsilon, asked[0].secure, len(asked[0].task.classes)) == (2.0, False, 3)
    assert asked[0].given.keys() == QUICK.keys() - {"rank", "public_count"}


def test_what_was_given_stays(asked: list[Wanted]) -> None:
    found = made(rank=4)
    assert (found.settings.rank, found.settings.ridge) == (4, 0.7)


def test_fixed_settings_are_the_plain_ones(asked: list[Wanted], monkeypatch: pytest.MonkeyPatch) -> None:
    for tuning in ("fixed", None):  # the tests' environment says fixed
        assert made(tuning=tuning).settings.ridge == 0.3
    assert asked == []
    monkeypatch.delenv("PRISMFL_TUNING")
    assert made(tuning=None).settings.ridge == 0.7, "auto unless it is said otherwise"
    with pytest.raises(UserError, match="'tuning' in the arguments"):
        made(tuning="sometimes")


def test_a_choice_that_is_no_setting_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = replace(prism.METHOD, auto=lambda asked: Chosen({"rnak": 5}, ()))
    monkeypatch.setitem(WAYS, "prism", replace(PRISM, method=bad))
    with pytest.raises(UserError, match="did you mean 'rank'"):
        made()
    assert not ledger_path().exists()


def test_the_certificate_names_the_public_encoder() -> None:
    found = made(encoder=Rows(), rank=6).certificate()
    assert found["public_encoder"] == "rows, not pretrained"
    assert found["public_encoder_digest"] == Rows().digest
    assert found["settings"]["layers"] == ["rows", "columns"]
    assert "public_encoder" not in made(encoder="none").certificate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "resnet"}, "Unknown encoder 'resnet'"),
        ({"encoder": 7}, "'encoder' in the arguments"),
        ({"encoder": Rows(), "layers": ["last"]}, "no layer 'last'"),
    ],
)
def test_an_encoder_that_will_not_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(**options)


def test_a_table_is_looked_at_through_no_encoder() -> None:
    table: dict[str, Any] = {
        "records": 30,
        "columns": ["n", "n"],
        "queries": 2,
        "start": 1,
        "rate": 1.0,
        "hidden": (4,),
    }
    with pytest.raises(UserError, match="looks through no public encoder"):
        Synthesizer(1.0, encoder=Rows(), **table).fit(IMAGES[:, 0, :2], LABELS)
    with pytest.raises(UserError, match="looks through no public encoder"):
        Synthesizer(1.0, encoder="efficientnet-lite0", **table).fit(IMAGES[:, 0, :2], LABELS)
    Synthesizer(1.0, encoder="auto", seed=0, **table).fit(IMAGES[:, 0, :2], LABELS)


def test_classes_that_were_not_declared_are_warned_of() -> None:
    assert "declare them with classes=" in made().certificate()["warnings"][0]
    assert made(classes=3).certificate()["warnings"] == []
