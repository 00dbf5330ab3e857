"""The things that can cross a site's border, and the one codec that carries them (safetensors bytes, never pickle)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as _load
from safetensors.torch import save as _save

from prismfl.core import wire
from prismfl.errors import BoundaryError, WireError

DTYPES = {torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool}
MAX_BYTES = 512 * 1024 * 1024
JsonDict = dict[str, Any]


def seal(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A private copy that shares nothing with the computation it came from: detached, CPU, contiguous, finite."""
    if tensor.dtype not in DTYPES:
        raise BoundaryError(f"Tensor '{name}' has dtype {tensor.dtype}, which may not cross; use float32 or int64.")
    sealed = tensor.detach().cpu().contiguous().clone()
    if sealed.is_floating_point() and not bool(torch.isfinite(sealed).all()):
        raise BoundaryError(f"Tensor '{name}' holds values that are not finite; nothing was released.")
    return sealed


@dataclass(frozen=True, eq=False)
class Payload:
    """Named tensors plus a small public specification; sealed on construction."""

    tensors: Mapping[str, torch.Tensor]
    spec: JsonDict = field(default_factory=dict)
    kind: ClassVar[str] = "payload"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", {k: seal(k, self.tensors[k]) for k in sorted(self.tensors)})

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together, without what describes them."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    @property
    def digest(self) -> str:
        """The SHA-256 of the encoded payload, in hex."""
        return hashlib.sha256(encode({"payload": self})).hexdigest()

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtype and shape of each tensor, by name."""
        return {k: (str(t.dtype).removeprefix("torch."), tuple(t.shape)) for k, t in self.tensors.items()}

    def to(self, device: str | torch.device) -> dict[str, torch.Tensor]:
        """Copies of the tensors on a device: what a method works on."""
        return {k: t.to(device, copy=True) for k, t in self.tensors.items()}


class Weights(Payload):
    """A model's parameters."""

    kind = "weights"


class Gradient(Payload):
    """A gradient or an update of a model's parameters."""

    kind = "gradient"


class Statistics(Payload):
    """Sums over records: counts, means, moments."""

    kind = "statistics"


class Synthesizer(Payload):
    """A generator network (decoder, diffusion network) and, in `spec`, how to sample from it."""

    kind = "synthesizer"


class SyntheticSet(Payload):
    """Synthetic records `x` with labels `y`: hard (int64 vector) or soft (float32 rows). Images may travel as uint8."""

    kind = "synthetic-set"

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.tensors) != {"x", "y"}:
            raise BoundaryError(f"A synthetic set has tensors x and y, got {sorted(self.tensors)}.")
        if len(self.tensors["x"]) != len(self.tensors["y"]):
            raise BoundaryError(
                f"A synthetic set has as many labels as records, got {len(self.tensors['y'])} and "
                f"{len(self.tensors['x'])}."
            )

    @classmethod
    def of(cls, x: torch.Tensor, y: torch.Tensor, **spec: Any) -> SyntheticSet:
        """A synthetic set of these records and labels, with `spec` as its specification."""
        return cls({"x": x, "y": y}, spec)

    @property
    def x(self) -> torch.Tensor:
        """Records as float32; uint8 images are scaled to [0, 1]."""
        x = self.tensors["x"]
        return x.to(torch.float32) / 255.0 if x.dtype == torch.uint8 else x.to(torch.float32)

    @property
    def y(self) -> torch.Tensor:
        """The labels, hard or soft as they came."""
        return self.tensors["y"]

    @property
    def hard_y(self) -> torch.Tensor:
        """The labels as class numbers: of soft ones, the likeliest class."""
        return self.y if self.y.dtype == torch.int64 else self.y.argmax(1)


class SyntheticEmbeddings(SyntheticSet):
    """Synthetic rows in the coordinates of public features, with labels; `spec` names the encoder by its digest."""

    kind = "synthetic-embeddings"


KINDS: dict[str, type[Payload]] = {
    cls.kind: cls for cls in (Weights, Gradient, Statistics, SyntheticSet, SyntheticEmbeddings, Synthesizer)
}
Items = Mapping[str, Payload]


def encode(items: Items, header: Mapping[str, Any] | None = None) -> bytes:
    """Items and a JSON header as safetensors bytes; the same input gives the same bytes."""
    described = {name: {"kind": p.kind, "spec": p.spec} for name, p in items.items()}
    tensors = {f"{name}/{t}": tensor for name, p in sorted(items.items()) for t, tensor in p.tensors.items()}
    meta = json.dumps({"items": described, "header": dict(header or {})}, sort_keys=True, allow_nan=False)
    raw = bytes(_save(tensors, metadata={"prismfl": meta}))
    try:
        wire.check(raw)
    except WireError as error:  # better here than at whoever receives it
        raise BoundaryError(f"What is to cross is not fit for the wire: {error}") from None
    return raw


def decode(raw: bytes, *, limit: int = MAX_BYTES) -> tuple[dict[str, Payload], JsonDict]:
    """Inverse of `encode`; anything malformed is a `WireError` that quotes nothing of the content."""
    if len(raw) > limit:
        raise WireError(f"Message of {len(raw)} bytes is over the limit of {limit}.")
    described, header = wire.check(raw)
    try:
        tensors: dict[str, torch.Tensor] = _load(raw)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError):
        raise WireError("Message is not well-formed safetensors.") from None
    grouped: dict[str, dict[str, torch.Tensor]] = {name: {} for name in described}
    for name, tensor in tensors.items():
        item, _, part = name.partition("/")
        grouped[item][part] = tensor
    return {name: _payload(entry, grouped[name]) for name, entry in described.items()}, header


def _payload(entry: JsonDict, tensors: dict[str, torch.Tensor]) -> Payload:
    if entry["kind"] not in KINDS:
        raise WireError("Message has an item of no known kind.")
    try:
        return KINDS[entry["kind"]](tensors, entry["spec"])
    except BoundaryError:
        raise WireError("Message has an item with values that are not finite or with wrong tensors.") from None
