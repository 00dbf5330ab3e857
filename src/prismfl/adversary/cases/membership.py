"""Candidate records beside what a run let out: a model, a synthetic set, decoders. Who was used is the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from prismfl.adversary.attacks.membership_model import SeenModel, SeenWeights, Shadows, train_shadows
from prismfl.adversary.attacks.membership_synthetic import OpenDecoder, SeenDecoders, SeenSet
from prismfl.adversary.cases import Case, Need, Scene
from prismfl.adversary.scores.membership import Members, Originals
from prismfl.core.payloads import Synthesizer, Weights
from prismfl.core.records import as_floats
from prismfl.methods.generators.threedgl import PREFIX, Config, kind_at, recipe_of
from prismfl.nets.beta_vae import build_decoder
from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import fit
from prismfl.privacy.cost import Cost
from prismfl.report.facts import collect
from prismfl.rng import Key

CONTROL_RECORDS = 100
DECODED = 200
NOTHING = "nothing leaves the sites"


@dataclass(frozen=True)
class Candidates:
    """Members first, then others; `reference` are records of the same kind that are neither."""

    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    members: int
    reference: torch.Tensor = field(repr=False)


def _candidates(scene: Scene) -> Candidates:
    data, records, key = scene.run.dataset, scene.asked.records, scene.key("membership")
    rows = np.concatenate(scene.run.parts)
    chosen = key.child("members").numpy().permutation(rows)[:records]
    test = key.child("others").numpy().permutation(len(data.y_test))
    count = min(records, math.ceil(len(test) / 2))
    others, rest = test[:count], test[count : count + 4 * records]
    x = torch.cat([as_floats(data.x_train[chosen]), as_floats(data.x_test[others])])
    y = torch.cat([data.y_train[chosen], data.y_test[others]])
    return Candidates(x, y, len(chosen), as_floats(data.x_test[rest]))


def _cost(scene: Scene) -> Cost | None:
    stored = collect(scene.run.directory.path)["guarantee"].get("cost")
    return None if stored is None else Cost.from_json(stored)


def _truth(scene: Scene, members: int, known: int) -> Members:
    return Members(members, known, scene.once(_cost), scene.run.job.task.delta)


# A model


@dataclass(frozen=True)
class Memory:
    """A dense model that knows its first `known` records by heart, with labels drawn at random: the control."""

    classifier: Classifier
    params: Params = field(repr=False)
    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    known: int


def _memory(scene: Scene) -> Memory:
    c, classes = scene.once(_candidates), len(scene.run.job.task.classes)
    key = scene.key("membership").child("control")
    n = min(CONTROL_RECORDS, c.members, len(c.x) - c.members)
    x = c.x[torch.cat([torch.arange(n), torch.arange(c.members, c.members + n)])].flatten(1)
    y = torch.randint(classes, (2 * n,), generator=key.child("labels").torch())
    classifier, params = build("mlp:128", tuple(x.shape[1:]), classes, key=key)
    params = fit(classifier, params, x=x[:n], y=y[:n], epochs=100, batch=25, lr=0.05, key=key)
    return Memory(classifier, params, x, y, n)


def _model(scene: Scene) -> Case[SeenModel, Members] | str:
    run, task, c = scene.run, scene.run.job.task, scene.once(_candidates)
    if not run.job.method.leaves:
        return NOTHING
    if "model" not in run.state.items:
        return "no model leaves the sites"
    key, classes, predict = scene.key("membership"), len(task.classes), run.predict()
    memory = scene.once(_memory)

    def shadows() -> Shadows:
        return train_shadows(
            task.model,
            c.x,
            c.y,
            classes=classes,
            shadows=scene.asked.shadows,
            key=key.child("shadows"),
            epochs=scene.asked.epochs,
            progress=scene.progress,
        )

    def other_shadows() -> Shadows:
        own, x, y = key.child("control").child("shadows"), memory.x, memory.y
        return train_shadows("mlp:128", x, y, classes=classes, shadows=8, key=own, epochs=100, batch=25, lr=0.05)

    view = SeenModel(lambda x: predict(run.state.items, x), c.x, c.y, torch.arange(c.members, len(c.x)), shadows)
    n, by_heart = memory.known, memory.classifier.logits
    control = SeenModel(lambda x: by_heart(memory.params, x), memory.x, memory.y, torch.arange(n, 2 * n), other_shadows)
    return Case(view, _truth(scene, c.members, n), control)


def _weights(scene: Scene) -> Case[SeenWeights, Members] | str:
    run, task, c = scene.run, scene.run.job.task, scene.once(_candidates)
    if not run.job.method.leaves:
        return NOTHING
    model = run.state.items.get("model")
    if not isinstance(model, Weights) or run.job.method.predict is not None:
        return "no model with gradients leaves the sites"
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    memory = scene.once(_memory)
    control = SeenWeights(memory.classifier, memory.params, memory.x, memory.y)
    view = SeenWeights(classifier, dict(model.tensors), c.x, c.y)
    return Case(view, _truth(scene, c.members, memory.known), control)


# A synthetic set


def _synthetic(scene: Scene) -> Case[SeenSet, Members] | str:
    if not scene.run.job.method.leaves:
        return NOTHING
    made = scene.run.synthetic
    if made is None:
        return "no synthetic set leaves the sites"
    c = scene.once(_candidates)
    seen, control = views_of(c, made.x, scene.key("membership"))
    return Case(seen, _truth(scene, c.members, c.members), control)


def views_of(c: Candidates, made: torch.Tensor, key: Key) -> tuple[SeenSet, SeenSet]:
    """What there is to see; and of the control, a set that is the members with a little noise."""
    noise = torch.randn(c.x[: c.members].shape, generator=key.child("memory").torch())
    memorised = c.x[: c.members] + 0.05 * float(c.x.std()) * noise
    return SeenSet(c.x, made, c.reference), SeenSet(c.x, memorised, c.reference)


def _copies(scene: Scene) -> Case[SeenSet, Originals] | str:
    case, c = scene.once(_synthetic), scene.once(_candidates)
    return case if isinstance(case, str) else copies_of(c, case.view.made)


def copies_of(c: Candidates, made: torch.Tensor) -> Case[SeenSet, Originals]:
    """The control is a set that is the members themselves."""
    control = SeenSet(c.x, c.x[: c.members], c.reference)
    return Case(SeenSet(c.x, made, c.reference), Originals(c.members, len(made)), control)


# Decoders


def _decoders(scene: Scene) -> Case[SeenDecoders, Members] | str:
    if not scene.run.job.method.leaves:
        return NOTHING
    key, c = scene.key("membership"), scene.once(_candidates)
    decoders = _open_decoders(scene, key)
    if not decoders:
        return "no decoder leaves the sites"
    keep = torch.cat(
        [torch.arange(min(DECODED, c.members)), torch.arange(c.members, min(len(c.x), c.members + DECODED))]
    )
    x, members = c.x[keep], int((keep < c.members).sum())
    known = x[:members][:CONTROL_RECORDS]
    decoder, rest = _by_heart(known, key.child("memory")), torch.cat([known, x[members:]])
    control = SeenDecoders(rest, torch.zeros(len(rest), dtype=torch.int64), (decoder,))
    view = SeenDecoders(x, c.y[keep], decoders, scene.progress)
    return Case(view, _truth(scene, members, len(known)), control)


def _open_decoders(scene: Scene, key: Key) -> tuple[OpenDecoder, ...]:
    """Every decoder that left a site."""
    settings, task = scene.run.job.settings, scene.run.job.task
    found: list[OpenDecoder] = []
    for name, payload in scene.run.state.items.items():
        if not (isinstance(payload, Synthesizer) and payload.spec.get("kind") == "ddp-vae" and name.startswith(PREFIX)):
            continue
        assert isinstance(settings, Config)
        recipe = recipe_of(settings, task, kind_at(settings, task, name.removeprefix(PREFIX)))
        for label, part in enumerate(recipe.parts):
            prefix = f"{recipe.kind}.{part}."
            own = {k.removeprefix(prefix): v for k, v in payload.tensors.items() if k.startswith(prefix)}
            decode = _expected(build_decoder(recipe.full(), own), task.shape)
            latent, search = recipe.full().latent, key.child("decoder", len(found))
            found.append(OpenDecoder(None if recipe.joint else label, latent, decode, search))
    return tuple(found)


def _by_heart(known: torch.Tensor, key: Key, *, latent: int = 16) -> OpenDecoder:
    """A decoder that knows records by heart: each code gives the one whose mark it is nearest to."""
    marks = F.normalize(torch.randn(len(known), latent, generator=key.torch()), dim=1)

    def decode(codes: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(30.0 * F.normalize(codes, dim=1) @ marks.T, 1)
        return weights @ known.flatten(1)

    return OpenDecoder(None, latent, decode, key.child("search"))


def _expected(decoder: Any, shape: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A decoder's mean record for a code."""
    columns = decoder.columns
    width = math.prod(shape)

    def decode(z: torch.Tensor) -> torch.Tensor:
        out = decoder(z)
        parts = [out[:, i] for i in range(out.shape[1])] if not columns.pixels else None
        if parts is None:
            return torch.sigmoid(out)[:, :width]
        for i in columns.binary:
            parts[i] = torch.tanh(parts[i] / 2)
        whole = torch.stack(parts, dim=1)
        for start, size in columns.blocks:
            soft = torch.softmax(whole[:, start : start + size], 1)
            whole = torch.cat([whole[:, :start], soft, whole[:, start + size :]], dim=1)
        return whole[:, :width]

    return decode


MODEL = Need("a model that answers", "membership", _model)
WEIGHTS = Need("the weights of a model", "membership", _weights)
SYNTHETIC = Need("a synthetic set", "membership", _synthetic)
COPIES = Need("a synthetic set", "membership", _copies)
DECODERS = Need("a decoder", "membership", _decoders)
