"""The public encoder of a run, by names alone: whatever reads a config, a request or a run folder comes here.

Names run no code but prismfl's own. Where a federation runs an encoder of its own, each side has an ONNX file for its
name on a list of its own. What stands for code is in `choosing`, which only the user's own commands reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from prismfl.core.method import Method
from prismfl.core.task import Encodes, Task
from prismfl.errors import UserError
from prismfl.nets.encoders import efficientnet
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.checks import TRIED, check_encoder
from prismfl.nets.encoders.files import SUFFIX, load_onnx
from prismfl.nets.encoders.joined import Joined
from prismfl.nets.encoders.named import built, ours
from prismfl.nets.encoders.names import OWN_NAME, Part, is_ours, parts_of, pinned
from prismfl.runs.config import RunConfig
from prismfl.runs.parted import part_seen, parted


def encoder_of(config: RunConfig, method: Method) -> Encoder | None:
    """The public encoder that a config names; with "auto" the pretrained one if it is installed; None for none."""
    words = asked_for(config, method)
    if words is None:
        return None
    for part in parts_of(words):
        if not is_ours(part.body) and (":" in part.body or Path(part.body).suffix):
            raise UserError(
                f"Encoder '{part.body:.80}' is not one of prismfl's own; only run, plan, resume and synth load others."
            )
    return built(words, ours)


def asked_for(config: RunConfig, method: Method, *, itself: bool = False) -> str | None:
    """The words of the encoder that a run asks for, None for none. With `itself` it is an error if the method does not
    look through one itself; without, its records may be looked at before it sees them (see `encoded`)."""
    words = config.encoder
    if words == "auto":
        words = efficientnet.NAME if method.takes_encoder and efficientnet.installed() else None
    if words is None or words == "none":
        return None
    if itself and not method.takes_encoder:
        raise UserError(f"Method '{method.name}' looks through no public encoder; leave out encoder '{words:.80}'.")
    return words


def settled_words(config: RunConfig, encoder: Encoder | None) -> str | None:
    """How a config keeps its encoder: names as they are; others with their digest, and files with their whole path, so
    that a resumed run has the same one."""
    if encoder is None:
        return "none" if config.encoder == "auto" else config.encoder
    if config.encoder is None or config.encoder == "auto":
        return encoder.name
    given = parts_of(config.encoder)
    digests = encoder.digests if isinstance(encoder, Joined) else [encoder.digest]
    return "+".join(_settled(part, digest) for part, digest in zip(given, digests))


def _settled(part: Part, digest: str) -> str:
    if is_ours(part.body):
        return part.body if part.digest is None else f"{part.body}={part.digest}"
    place = part.body if ":" in part.body else str(Path(part.body).resolve())
    return f"{place}={digest}"


def with_layers(settings: Mapping[str, Any], encoder: Encodes | None) -> dict[str, Any]:
    """The settings with the encoder's layers, where none are given: what a release looks like then follows from the
    settings alone."""
    if encoder is None or settings.get("layers"):
        return dict(settings)
    return {**settings, "layers": list(encoder.layers)}


def ready(encoder: Encoder | None, task: Task) -> Encoder | None:
    """The encoder where the run computes, tried on the task's public images or on drawn ones of its shape."""
    if task.parts is not None:
        encoder = parted(encoder, task.parts)
    if encoder is None:
        return None
    if task.parts is None and (sees := part_seen(encoder)) != "image":
        raise UserError(f"Encoder '{encoder.name:.80}' looks at {sees}, '{task.data}' has none; leave it out.")
    images = task.public
    if images is None:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand((TRIED, *task.shape), generator=generator)
    found: Encoder = encoder.to(task.device)
    return check_encoder(found, images[:TRIED].to(task.device))


# In a federation


def travelling(given: str | None) -> tuple[str | None, dict[str, str]]:
    """The words under which an encoder travels, and where whoever asks has those from that are not ours: NAME=FILE."""
    if given is None or given in ("auto", "none"):
        return None, {}
    names, own = [], {}
    for part in parts_of(given):
        name, equals, file = part.body.partition("=")
        if not equals and is_ours(name):
            if part.digest is not None:
                built(f"{name}={part.digest}", ours)  # refuses another
        elif equals and OWN_NAME.fullmatch(name) and not is_ours(name) and Path(file).suffix == SUFFIX:
            place = str(Path(file).resolve())
            own[name] = place if part.digest is None else f"{place}={part.digest}"
        else:
            raise UserError(
                "Expected an encoder of prismfl's own, or NAME=FILE.onnx with NAME on the list of each site, got "
                f"'{part.body:.80}'."
            )
        names.append(name)
    return "+".join(names), own


def agreed(name: str | None, own: Mapping[str, str]) -> Encoder | None:
    """The encoder that a description names, from ours and from this side's own files."""
    if name is None:
        return None

    def one(part: Part) -> Encoder:
        if part.body not in own:
            return ours(part)
        file = pinned(own[part.body])
        return load_onnx(Path(file.body), digest=file.digest, name=part.body)

    return built(name, one)
