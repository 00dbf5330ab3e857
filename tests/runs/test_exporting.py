"""Exported models and synthetic sets: others read them, they say the same, and no name in them leads out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

from prismfl.core.payloads import SyntheticSet
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.methods.prism.encoder import Layers, Linear, PublicFeatures
from prismfl.nets.encoders import efficientnet
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.patches import Frame
from prismfl.nets.portable import onnx_file, run_onnx, torch_file
from prismfl.rng import Key
from prismfl.runs.exporting import Straight, export_model, export_set, parquet_file, structure
from prismfl.runs.fitted import FittedModel
from prismfl.runs.opened import open_run
from prismfl.runs.public_facts import PublicFacts
from tests.runs.usable import prism_run

X = load("digits").x_test[:9]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> FittedModel:
    return open_run(prism_run(tmp_path_factory.mktemp("exporting") / "run")).model_named("head")


def words(digests: object) -> str:
    return f"card {json.dumps(digests)}\n"


def through(encoder: Encoder, shape: tuple[int, ...]) -> Linear:
    """A head on all layers of an encoder, with a frame of its own."""
    look, draw = Layers(encoder, encoder.layers), Key.seed(3).torch()
    width = sum(look.widths(torch.zeros(1, *shape)))
    basis = torch.randn(width, 6, generator=draw) / width**0.5
    frame = Frame(torch.zeros(width), torch.ones(width), basis, values=torch.ones(6), unit=torch.ones(6), clip=0.1)
    return Linear(PublicFeatures((), look, frame), torch.randn(6, 3, generator=draw), torch.zeros(3)).eval()


def test_the_torch_file_of_a_head(head: FittedModel, tmp_path: Path) -> None:
    told = export_model(head, "torch", tmp_path / "new", notes={"method": "prism"}, card=words)
    extra = {"prismfl.json": ""}
    loaded = torch.export.load(tmp_path / "new" / "model.pt2", extra_files=extra).module()
    assert loaded(X).detach().numpy() == pytest.approx(head.decision_function(X), abs=1e-4)
    notes = json.loads(extra["prismfl.json"])
    assert json.loads(notes["classes"]) == list(head.classes)
    assert notes["method"] == "prism"
    assert Path(told["card"]).read_text().startswith("card")


def test_safetensors_hold_every_tensor_and_how_it_is_used(head: FittedModel, tmp_path: Path) -> None:
    export_model(head, "safetensors", tmp_path / "a.safetensors", notes={}, card=words)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["MODEL_CARD.md", "a.safetensors"]
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        told = file.metadata()
    assert torch.equal(found["weight"], head.module.state_dict()["weight"])
    assert {"look.atoms", "frame.basis", "bias"} <= set(found)
    assert json.loads(told["structure"])["pool"] == structure(head.module)["pool"]
    with pytest.raises(UserError, match=r"a\.safetensors' exists already"):
        export_model(head, "safetensors", tmp_path / "a.safetensors", notes={}, card=words)
    with pytest.raises(UserError, match="MODEL_CARD"):
        export_model(head, "safetensors", tmp_path / "b.safetensors", notes={}, card=words)


def test_a_head_on_efficientnet_is_one_path() -> None:
    """Grey, and not square: brought to the encoder's side and channels within the file."""
    shape = (1, 50, 70)
    torch.manual_seed(0)
    encoder = efficientnet.EfficientNetLite0(48)  # 3 x 3 maps pooled to 4 x 4: fields that overlap
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.1)
    model = through(encoder.eval().requires_grad_(False), shape)
    x = torch.rand(3, *shape)
    with torch.no_grad():
        assert torch.allclose(Straight(model)(x), model(x), atol=1e-5)
    loaded = torch.export.load(io.BytesIO(torch_file(Straight(model), shape, notes={}))).module()
    with torch.no_grad():
        assert float((loaded(x) - model(x)).abs().max()) < 1e-4


def test_onnxruntime_agrees_on_the_real_encoder() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime", efficientnet.PACKAGE):
        pytest.importorskip(package)
    model, x = through(efficientnet.build(64), (1, 28, 28)), torch.rand(3, 1, 28, 28)
    raw = onnx_file(Straight(model), (1, 28, 28), notes={})
    assert np.abs(run_onnx(raw, x.numpy()) - model(x).numpy()).max() < 1e-4


def made(classes: int = 2, shape: tuple[int, ...] = (1, 8, 8)) -> SyntheticSet:
    x = torch.randint(0, 256, (classes * 2, *shape), generator=Key.seed(1).torch()).to(torch.uint8)
    return SyntheticSet.of(x, torch.arange(classes).repeat_interleave(2))


def test_pictures_in_class_folders(tmp_path: Path) -> None:
    names = ("../../out", "a/b", "a-b", "..", "con\x00")
    export_set(made(5), PublicFacts((1, 8, 8), names), "images", tmp_path / "new", card=words)
    assert [p.name for p in tmp_path.iterdir()] == ["new"], "no class leads out"
    folders = sorted(p.name for p in (tmp_path / "new").iterdir() if p.is_dir())
    assert folders == ["-..-out", "a-b", "a-b-2", "class-3", "con-"]
    assert len(list((tmp_path / "new").rglob("*.png"))) == 10
    with Image.open(tmp_path / "new" / "a-b" / "00002.png") as picture:
        assert (np.asarray(picture) == made(5).tensors["x"][2, 0].numpy()).all()
    assert (tmp_path / "new" / "DATA_CARD.md").exists()


def test_arrays_for_numpy(tmp_path: Path) -> None:
    export_set(made(), PublicFacts((1, 8, 8), ("cat", "dog")), "npz", tmp_path / "a.npz", card=words)
    with np.load(tmp_path / "a.npz") as found:
        assert found["x"].dtype == np.uint8
        assert (found["x"] == made().tensors["x"].numpy()).all()
        assert found["classes"][found["y"]].tolist() == ["cat", "cat", "dog", "dog"]


def test_parquet_as_datasets_reads_images() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(parquet_file(made(shape=(3, 8, 8)), PublicFacts((3, 8, 8), ("cat", "dog")))))
    rows = table.to_pylist()
    with Image.open(io.BytesIO(rows[3]["image"]["bytes"])) as picture:
        assert (np.asarray(picture).transpose(2, 0, 1) == made(shape=(3, 8, 8)).tensors["x"][3].numpy()).all()
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"]["names"][rows[3]["label"]] == "dog"


def test_a_table_is_written_in_its_own_columns() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    data = load("wine-cultivar")
    assert data.schema is not None
    rows = SyntheticSet.of(data.x_test[:4], data.y_test[:4])
    facts = PublicFacts((13,), data.schema.classes, data.schema)
    table = parquet.read_table(io.BytesIO(parquet_file(rows, facts)))
    assert table.column_names == [*data.schema.names, "cultivar"]
    assert table.column("alcohol").to_pylist() == pytest.approx(data.schema.decode(rows.x)["alcohol"])
    plain = parquet.read_table(io.BytesIO(parquet_file(rows, PublicFacts((13,), data.schema.classes))))
    assert plain.column_names[:2] == ["x0", "x1"]


def test_a_set_that_does_not_fit_its_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="shape or the classes"):
        export_set(made(3), PublicFacts((1, 8, 8), ("a", "b")), "npz", tmp_path / "a.npz", card=words)
    with pytest.raises(UserError, match="shape or the classes"):
        export_set(made(), PublicFacts((1, 9, 9), ("a", "b")), "npz", tmp_path / "a.npz", card=words)
    rows = SyntheticSet.of(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="is a table"):
        export_set(rows, PublicFacts((3,), ("a", "b")), "images", tmp_path / "a", card=words)
    assert list(tmp_path.iterdir()) == []
