"""Sealing and the codec: nothing shared, nothing unpickled, nothing malformed gets through."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from prismfl.errors import BoundaryError, WireError
from prismfl.payloads import Statistics, SyntheticSet, Weights, decode, encode


def test_sealed_tensors_share_nothing_with_their_source() -> None:
    source = torch.ones(3, requires_grad=True)
    payload = Weights({"w": source})
    with torch.no_grad():
        source.add_(5)
    assert payload.tensors["w"].tolist() == [1, 1, 1]
    assert not payload.tensors["w"].requires_grad


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_leave(bad: float) -> None:
    with pytest.raises(BoundaryError, match="finite"):
        Weights({"w": torch.tensor([1.0, bad])})


def test_half_precision_does_not_leave() -> None:
    with pytest.raises(BoundaryError, match="dtype"):
        Weights({"w": torch.ones(2, dtype=torch.float16)})


def test_round_trip_keeps_bits_kinds_specs_and_header() -> None:
    items = {
        "w": Weights({"a": torch.randn(3, 2), "b": torch.zeros(0)}),
        "s": SyntheticSet.of(
            torch.randint(0, 256, (4, 1, 2, 2), dtype=torch.uint8), torch.arange(4), seed="procedural"
        ),
    }
    raw = encode(items, {"round": 3})
    back, header = decode(raw)
    assert header == {"round": 3}
    assert encode(back, header) == raw
    assert isinstance(back["s"], SyntheticSet)
    assert back["s"].spec == {"seed": "procedural"}
    assert {k: p.digest for k, p in back.items()} == {k: p.digest for k, p in items.items()}


def test_bytes_do_not_depend_on_the_order_of_tensors() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    assert encode({"x": Weights({"a": a, "b": b})}) == encode({"x": Weights({"b": b, "a": a})})


def test_uint8_images_come_back_in_unit_range() -> None:
    made = SyntheticSet.of(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), torch.tensor([0]))
    assert made.x.flatten().tolist() == [0.0, 1.0]


def test_a_synthetic_set_needs_as_many_labels_as_records() -> None:
    with pytest.raises(BoundaryError, match="as many labels"):
        SyntheticSet.of(torch.zeros(3, 1, 2, 2), torch.zeros(2, dtype=torch.int64))


GOOD = encode({"w": Statistics({"a": torch.arange(6.0)})}, {"k": 1})


def tampered() -> dict[str, bytes]:
    size = int.from_bytes(GOOD[:8], "little")
    header = json.loads(GOOD[8 : 8 + size])

    def rebuilt(change: dict[str, object]) -> bytes:
        text = json.dumps({**header, **change}).encode()
        return len(text).to_bytes(8, "little") + text + GOOD[8 + size :]

    meta = json.loads(header["__metadata__"]["prismfl"])
    lying = dict(header["w/a"], data_offsets=[0, 10**12])
    return {
        "empty": b"",
        "cut off": GOOD[:-3],
        "pickle": pickle.dumps({"w": [1, 2]}),
        "zip": b"PK\x03\x04" + GOOD,
        "lying length": (2**62).to_bytes(8, "little") + GOOD[8:],
        "lying offsets": rebuilt({"w/a": lying}),
        "lying shape": rebuilt({"w/a": dict(header["w/a"], shape=[10**9, 10**9])}),
        "no metadata": rebuilt({"__metadata__": {}}),
        "unknown kind": rebuilt(
            {"__metadata__": {"prismfl": json.dumps({**meta, "items": {"w": {"kind": "os", "spec": {}}}})}}
        ),
        "undescribed item": rebuilt({"__metadata__": {"prismfl": json.dumps({**meta, "items": {}})}}),
        "deep json": b"\x40\x9c\0\0\0\0\0\0" + b"[" * 40000,
    }


@pytest.mark.parametrize("name", list(tampered()))
def test_malformed_messages_are_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode(tampered()[name])


def test_nan_on_the_wire_is_refused() -> None:
    raw = bytearray(GOOD)
    raw[-4:] = b"\x00\x00\xc0\x7f"
    with pytest.raises(WireError, match="finite"):
        decode(bytes(raw))


def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(WireError, match="limit"):
        decode(GOOD, limit=10)
