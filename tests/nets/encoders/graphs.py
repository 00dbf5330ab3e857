"""Small ONNX files, good and bad, made by the onnx package."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def maps(path: Path, *, batch: Any = "n", channels: Any = 1, side: Any = "s", **changes: Any) -> Path:
    """A convolution's maps and their mean, two outputs. `changes` spoil it."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.linspace(-1, 1, 4 * (channels if isinstance(channels, int) else 1) * 9, dtype=np.float32)
    kernel = numpy_helper.from_array(weight.reshape(4, -1, 3, 3), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["maps"]),
        helper.make_node("ReduceMean", ["squares"], ["rows"], axes=[2, 3], keepdims=0),
    ]
    nodes.insert(1, helper.make_node("Mul", ["maps", "maps"], ["squares"]))
    nodes = changes.get("nodes", lambda found: found)(nodes)
    entry = helper.make_tensor_value_info("x", changes.get("type", TensorProto.FLOAT), [batch, channels, side, side])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("maps", "rows")]
    if changes.get("external"):
        kernel.data_location = TensorProto.EXTERNAL
        kernel.external_data.add(key="location", value=changes["external"])
        kernel.ClearField("raw_data")
    graph = helper.make_graph(nodes, "maps", [entry], outputs, [kernel])
    domains = [helper.make_opsetid("", 13), *(helper.make_opsetid(d, 1) for d in changes.get("domains", ()))]
    model = helper.make_model(graph, opset_imports=domains, functions=changes.get("functions", []), ir_version=8)
    for key, value in changes.get("metadata", {}).items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, str(path))
    return path
