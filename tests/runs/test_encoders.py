"""The encoder of a run by names alone: what reads a folder or a request loads no code and no file that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.nets.encoders import efficientnet
from prismfl.nets.encoders.named import named
from prismfl.nets.encoders.wrapped import Wrapped
from prismfl.runs.config import RunConfig
from prismfl.runs.encoders import agreed, asked_for, encoder_of, ready, settled_words, travelling, with_layers
from tests.nets.encoders.graphs import maps
from tests.nets.encoders.tiny import Bad, Maps

HEAD, FEDAVG = METHODS["prism-head"], METHODS["fedavg"]
DIGEST = "0" * 64


def config(encoder: str | None) -> RunConfig:
    return RunConfig(encoder=encoder)


def test_names_and_none() -> None:
    assert encoder_of(config(None), HEAD) is None
    assert encoder_of(config("none"), HEAD) is None
    found = encoder_of(config("scattering@16"), HEAD)
    assert found is not None
    assert found.name == "scattering@16"


def test_auto_is_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "installed", lambda: True)
    assert asked_for(config("auto"), HEAD) == "efficientnet-lite0"
    assert asked_for(config("auto"), FEDAVG) is None
    monkeypatch.setattr(efficientnet, "installed", lambda: False)
    assert asked_for(config("auto"), HEAD) is None
    assert settled_words(config("auto"), None) == "none", "a resumed run finds none either"


@pytest.mark.parametrize("words", ["tests.nets.encoders.tiny:build", "net.onnx", "/x/net.pt", f"net.ts={DIGEST}"])
def test_others_are_refused_and_not_looked_for(words: str) -> None:
    with pytest.raises(UserError, match="only run, plan, resume and synth load others") as error:
        encoder_of(config(words), HEAD)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="only run, plan, resume and synth load others"):
        encoder_of(config(f"scattering+{words}"), HEAD)


def test_in_a_federation_a_method_without_features_takes_none() -> None:
    with pytest.raises(UserError, match="Method 'fedavg' looks through no public encoder"):
        asked_for(config("scattering"), FEDAVG, itself=True)
    found = encoder_of(config("scattering"), FEDAVG)  # alone, its records may be looked at before it sees them
    assert found is not None
    assert found.name == "scattering"


def test_what_a_config_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = Wrapped(Maps(), "theirs:build")
    assert settled_words(config(None), None) is None
    assert settled_words(config("scattering"), named("scattering")) == "scattering"
    assert settled_words(config("theirs:build"), own) == f"theirs:build={own.digest}"
    assert settled_words(config("net.onnx"), own) == f"{tmp_path}/net.onnx={own.digest}"
    both = named("scattering+scattering@16")
    assert settled_words(config("scattering+scattering@16"), both) == "scattering+scattering@16"


def test_layers_stand_in_the_settings() -> None:
    assert with_layers({"rank": 3}, named("scattering"))["layers"] == ["order0", "order1", "order2"]
    assert with_layers({"layers": ["order1"]}, named("scattering")) == {"layers": ["order1"]}
    assert with_layers({"rank": 3}, None) == {"rank": 3}


def test_it_is_tried_on_public_or_drawn_images() -> None:
    task = Task("x", (1, 8, 8), ("a", "b"), ("s",), 10, "mlp")
    assert ready(None, task) is None
    found = ready(Wrapped(Maps(), "x"), task)
    assert found is not None
    assert found.layers == ("maps", "rows")
    public = Task("x", (1, 8, 8), ("a", "b"), ("s",), 10, "mlp", public=torch.zeros(3, 1, 8, 8))
    with pytest.raises(UserError, match="NaN or infinite"):
        ready(Wrapped(Bad("nan"), "x"), public)


# In a federation


def test_names_travel_and_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert travelling(None) == (None, {})
    assert travelling("scattering+efficientnet-lite0@64") == ("scattering+efficientnet-lite0@64", {})
    mine = f"{tmp_path}/net.onnx={DIGEST}"
    assert travelling(f"scattering+mine=net.onnx={DIGEST}") == ("scattering+mine", {"mine": mine})
    assert travelling(f"scattering={named('scattering').digest}") == ("scattering", {})


@pytest.mark.parametrize(
    "words",
    ["net.onnx", "theirs:build", "mine=net.pt", "Bad Name=net.onnx", "scattering=net.onnx", f"scattering={DIGEST}"],
)
def test_what_cannot_travel(words: str) -> None:
    with pytest.raises(UserError, match=r"NAME=FILE\.onnx|as was said"):
        travelling(words)


def test_each_side_has_its_own_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = maps(tmp_path / "net.onnx")
    found: Any = agreed("scattering+mine", {"mine": str(path)})
    assert found.layers[-2:] == ("mine/maps", "mine/rows")
    alone: Any = agreed("mine", {"mine": str(path)})
    assert (alone.name, agreed(None, {})) == ("mine", None)
    with pytest.raises(UserError, match="as was said"):
        agreed("mine", {"mine": f"{path}={DIGEST}"})
    with pytest.raises(UserError, match="Unknown encoder 'yours'"):
        agreed("yours", {"mine": str(path)})
