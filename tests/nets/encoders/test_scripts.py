"""A TorchScript file as an encoder, for the user's own commands."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.scripts import load_script
from tests.nets.encoders.tiny import Maps, scripted


def test_the_same_rows_and_the_files_digest(tmp_path: Path) -> None:
    path, images = scripted(tmp_path / "net.pt"), torch.rand(5, 1, 9, 9)
    own = check_encoder(load_script(path), images)
    assert (own.name, own.layers) == ("net.pt", ("maps", "rows"))
    assert torch.allclose(own.activations(images)["rows"], Maps()(images)["rows"])
    assert own.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_script(path, digest=own.digest).digest == own.digest


def test_bad_files_are_told_in_one_line(tmp_path: Path) -> None:
    path = scripted(tmp_path / "net.pt")
    with pytest.raises(UserError, match=r"not 0{16}\.\.\. as was said"):
        load_script(path, digest="0" * 64)
    with pytest.raises(UserError, match="There is no encoder's file"):
        load_script(tmp_path / "none.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "tensors.pt")
    (tmp_path / "text.pt").write_text("no archive")
    for name in ("tensors.pt", "text.pt"):
        with pytest.raises(UserError, match="is not a TorchScript file") as error:
            load_script(tmp_path / name)
        assert "\n" not in str(error.value)
