"""Sealing and the codec: nothing shared, nothing unpickled, nothing malformed gets through."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies

from prismfl.core import payloads, wire
from prismfl.core.payloads import Statistics, SyntheticSet, Weights, decode, encode
from prismfl.core.release import Release
from prismfl.errors import BoundaryError, WireError
from prismfl.privacy.cost import Cost


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


# Bounds, before any tensor is made


def message(tensors: Mapping[str, object], meta: object, body: bytes = b"", *, more: object = None) -> bytes:
    words = meta if isinstance(meta, str) else json.dumps(meta)
    text = json.dumps({"__metadata__": {"prismfl": words, **(more or {})}, **tensors}).encode()  # type: ignore[dict-item]
    return len(text).to_bytes(8, "little") + text + body


def tensor(*shape: object, dtype: object = "F32", place: object = (0, 0)) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": place}


ONE: dict[str, Any] = {"items": {"w": {"kind": "weights", "spec": {}}}, "header": {}}


def spec(text: str) -> str:
    return '{"items": {"w": {"kind": "weights", "spec": ' + text + '}}, "header": {}}'


def header(text: str) -> str:
    return '{"items": {}, "header": {"round": ' + text + "}}"


UNBOUNDED: dict[str, Callable[[], bytes]] = {
    "300,000 tensors": lambda: message({f"w/{i}": tensor(0) for i in range(300_000)}, ONE),
    "10,001 tensors": lambda: message({f"w/{i}": tensor(0) for i in range(10_001)}, ONE),
    "65 items": lambda: message({}, {**ONE, "items": {f"i{i}": ONE["items"]["w"] for i in range(65)}}),
    "a long header": lambda: message({}, spec('{"a": "' + "x" * wire.HEADER_BYTES + '"}')),
    "a long spec": lambda: message({}, spec('{"a": "' + "x" * wire.SPEC_BYTES + '"}')),
    "a long header of the caller": lambda: message({}, header('"' + "x" * wire.MESSAGE_BYTES + '"')),
    "a deep spec": lambda: message({}, spec('{"a": ' + "[" * 12 + "]" * 12 + "}")),
    "a very deep spec": lambda: message({}, spec('{"a": ' + "[" * 900 + "]" * 900 + "}")),
    "deeper than Python": lambda: message({}, spec("[" * 100_000)),
    "a deep shape": lambda: message({"w/a": tensor([[[1]]])}, ONE),
    "nine dimensions": lambda: message({"w/a": tensor(*[1] * 9, place=(0, 4))}, ONE, b"\0" * 4),
    "a long name": lambda: message({"w/" + "a" * 1_000: tensor(0)}, ONE),
    "a name with a line break": lambda: message({"w/\na": tensor(0)}, ONE),
    "an item's name with a line break": lambda: message({}, {**ONE, "items": {"w\n": ONE["items"]["w"]}}),
    "a slash in an item's name": lambda: message({}, {**ONE, "items": {"w/a": ONE["items"]["w"]}}),
    "a key twice": lambda: message({}, '{"items": {}, "header": {}, "header": {"round": 1}}'),
    "not finite": lambda: message({}, header("1e999")),
    "NaN": lambda: message({}, header("NaN")),
    "digits": lambda: message({}, header("9" * 5_000)),
    "kind is a list": lambda: message({}, {**ONE, "items": {"w": {"kind": [], "spec": {}}}}),
    "more metadata": lambda: message({}, ONE, more={"x": "y"}),
    "more keys": lambda: message({}, {**ONE, "x": 1}),
    "negative dimensions": lambda: message({"w/a": tensor(-1, -1, place=(0, 4))}, ONE, b"\0" * 4),
    "a dimension that is true": lambda: message({"w/a": tensor(True, place=(0, 4))}, ONE, b"\0" * 4),
    "a fraction as dimension": lambda: message({"w/a": tensor(1.0, place=(0, 4))}, ONE, b"\0" * 4),
    "an enormous dimension beside zero": lambda: message({"w/a": tensor(2**62, 0)}, ONE),
    "more bytes than there are": lambda: message({"w/a": tensor(10**6, place=(0, 4 * 10**6))}, ONE, b"\0" * 4),
    "fewer bytes than there are": lambda: message({"w/a": tensor(1, place=(0, 4))}, ONE, b"\0" * 8),
    "a shape larger than its bytes": lambda: message({"w/a": tensor(10, place=(0, 4))}, ONE, b"\0" * 4),
    "overlap": lambda: message({f"w/{i}": tensor(1, place=(0, 4)) for i in range(2)}, ONE, b"\0" * 8),
    "another dtype": lambda: message({"w/a": tensor(2, dtype="F16", place=(0, 4))}, ONE, b"\0" * 4),
    "a dtype that is a list": lambda: message({"w/a": tensor(1, dtype=[], place=(0, 4))}, ONE, b"\0" * 4),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_is_out_of_bounds_is_refused_before_any_tensor_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = UNBOUNDED[name]()
    made: list[int] = []

    def load(raw: bytes) -> dict[str, torch.Tensor]:
        made.append(len(raw))
        return {}

    monkeypatch.setattr(payloads, "_load", load)
    with pytest.raises(WireError):
        decode(raw)
    assert made == []


def test_what_is_within_bounds_passes() -> None:
    many = {f"w/{i}": tensor(0) for i in range(100)}
    items, header = decode(message({**many, "w/x": tensor(1, 1, 1, 1, 1, 1, 1, 1, place=(0, 4))}, ONE, b"\0" * 4))
    assert (len(items["w"].tensors), header) == (101, {})


def test_what_would_be_refused_there_is_refused_here() -> None:
    with pytest.raises(BoundaryError, match="over the limit"):
        encode({f"i{i}": Weights({}) for i in range(65)})
    with pytest.raises(BoundaryError, match="not fit for the wire"):
        encode({"w": Weights({}, {"a": "x" * wire.SPEC_BYTES})})


def test_a_refusal_quotes_nothing() -> None:
    sentinel = "Jane-Doe"
    nan = b"\x00\x00\xc0\x7f"
    for raw in (
        message({f"w/{sentinel}": tensor(1, place=(0, 4))}, ONE, nan),
        message({}, {**ONE, "items": {sentinel: {"kind": "x", "spec": {}}}}),
        message({f"{sentinel}/a": tensor(0)}, ONE),
        message({"w/a": tensor(0, dtype=sentinel)}, ONE),
    ):
        with pytest.raises(WireError) as caught:
            decode(raw)
        assert sentinel not in str(caught.value)
        assert caught.value.__cause__ is None


RELEASE = Release("run", "north", 3, {"w": Weights({"a": torch.ones(2)})}, Cost.gaussian(1.0, times=2), "seeded")
COST = RELEASE.cost.to_json()
BRANCH = COST["branches"][0][0]
HEADERS: dict[str, dict[str, object]] = {
    "run is a number": {"run": 1},
    "a long run": {"run": "x" * 501},
    "a run with a line break": {"run": "a\nb"},
    "site is a list": {"site": ["north"]},
    "no site": {"site": ""},
    "round is true": {"round": True},
    "round is a fraction": {"round": 3.0},
    "round is a text": {"round": "3"},
    "round is negative": {"round": -1},
    "round is huge": {"round": 10**4000},
    "noise is nothing": {"noise": None},
    "cost is nothing": {"cost": None},
    "cost is a list": {"cost": []},
    "cost is a text": {"cost": "free"},
    "branches is a text": {"cost": {**COST, "branches": "abc"}},
    "noise is huge": {"cost": {**COST, "branches": [[{**BRANCH, "noise": 10**400}]]}},
    "times is huge": {"cost": {**COST, "branches": [[{**BRANCH, "times": 10**100}]]}},
    "times is true": {"cost": {**COST, "branches": [[{**BRANCH, "times": True}]]}},
    "kind is a list": {"cost": {**COST, "branches": [[{**BRANCH, "kind": ["gaussian"]}]]}},
    "a unit with a line break": {"cost": {**COST, "unit": "a\nb"}},
    "a million mechanisms": {"cost": {**COST, "branches": [[[0]] * 400_000]}},
    "something more": {"surprise": 1},
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_release_with_a_bad_header_is_malformed(name: str) -> None:
    assert Release.decode(RELEASE.encode()).cost == RELEASE.cost
    size = int.from_bytes(RELEASE.encode()[:8], "little")
    outer = json.loads(RELEASE.encode()[8 : 8 + size])
    meta = json.loads(outer["__metadata__"]["prismfl"])
    meta["header"] |= HEADERS[name]
    raw = message({k: v for k, v in outer.items() if k != "__metadata__"}, meta, RELEASE.encode()[8 + size :])
    with pytest.raises(WireError):
        Release.decode(raw)


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(data=strategies.data())
def test_truncated_and_flipped_messages_are_malformed_or_whole(data: strategies.DataObject) -> None:
    """Whatever happens to the bytes: a release, or a WireError."""
    raw = bytearray(RELEASE.encode())
    for place in data.draw(strategies.lists(strategies.integers(0, len(raw) - 1), max_size=4)):
        raw[place] ^= data.draw(strategies.integers(1, 255))
    end = data.draw(strategies.one_of(strategies.just(len(raw)), strategies.integers(0, len(raw))))
    with contextlib.suppress(WireError):
        Release.decode(bytes(raw[:end]))


JSON = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=8),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=8), inner),
    max_leaves=6,
)


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(
    tensors=strategies.dictionaries(
        strategies.sampled_from(["w/a", "w", "/", "x/y"]),
        JSON | strategies.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": JSON}),
    ),
    meta=JSON
    | strategies.fixed_dictionaries({"items": JSON | strategies.fixed_dictionaries({"w": JSON}), "header": JSON}),
    change=JSON,
    key=strategies.sampled_from(["run", "site", "round", "cost", "noise"]),
)
def test_lying_headers_are_malformed(tensors: Any, meta: Any, change: Any, key: str) -> None:
    honest = {"run": "r", "site": "s", "round": 0, "cost": COST, "noise": "x"}
    for raw in (message(tensors, meta), message({}, {"items": {}, "header": {**honest, key: change}})):
        with contextlib.suppress(WireError):
            Release.decode(raw)


def test_a_payload_knows_its_bytes() -> None:
    made = Statistics({"a": torch.zeros(3), "b": torch.zeros(2, 2, dtype=torch.float64)})
    assert made.nbytes == 3 * 4 + 4 * 8


def test_a_synthetic_set_is_records_and_labels() -> None:
    with pytest.raises(BoundaryError, match="tensors x and y"):
        SyntheticSet({"x": torch.zeros(2), "z": torch.zeros(2)})
    with pytest.raises(BoundaryError, match="as many labels as records"):
        SyntheticSet.of(torch.zeros(2, 3), torch.zeros(1, dtype=torch.int64))


def test_what_our_own_check_passes_and_safetensors_refuses_is_malformed() -> None:
    """Half a character: Python's JSON does not mind, and safetensors does."""
    raw = encode({"w": Weights({"a": torch.ones(2)})}, {"word": "half"})
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].replace(b"half", rb"\ud800")
    with pytest.raises(WireError, match="well-formed"):
        decode(len(header).to_bytes(8, "little") + header + raw[8 + size :])


def test_a_spec_is_an_object() -> None:
    raw = encode({"w": Weights({"a": torch.ones(2)}, {})})
    changed = raw.replace(rb"\"spec\": {}", rb"\"spec\": []")
    assert changed != raw
    with pytest.raises(WireError, match="kind and spec"):
        decode(changed)
