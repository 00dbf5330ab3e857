"""Membership attacks on a finished run, or on synthetic data made by any tool, scored against what DP allows.

The attacks see the final model or synthetic set and candidate records. The truth (who was used) stays here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.adversary.attacks import membership_model as model_attacks
from prismfl.adversary.attacks import membership_synthetic as set_attacks
from prismfl.adversary.scores.membership import auc, binomial_interval, bound_of, limits, measure
from prismfl.core.payloads import Synthesizer, Weights
from prismfl.errors import UserError
from prismfl.nets.beta_vae import build_decoder
from prismfl.nets.classifier import build
from prismfl.nets.training import fit
from prismfl.privacy.cost import Cost
from prismfl.report.facts import collect
from prismfl.rng import Key
from prismfl.runs.reopen import Reopened

Scores = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]
Found = dict[str, Any]
CONTROL_RECORDS = 100
DECODED = 200


@dataclass(frozen=True)
class Candidates:
    """Members first, then others; `reference` are records of the same kind that are neither."""

    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    members: int
    reference: torch.Tensor = field(repr=False)

    def score(self, name: str, scores: Scores, cost: Cost | None, delta: float, control: float | None) -> Found:
        return judged(name, scores[: self.members], scores[self.members :], cost, delta=delta, control=control)


def judged(
    name: str, members: Scores, others: Scores, cost: Cost | None, *, delta: float, control: float | None
) -> Found:
    """An attack's result beside the bound of the run's cost; `within_bound` is None where there is no bound."""
    result = measure(members, others)
    found: Found = {"attack": name, "kind": "membership", **result.as_dict(), "within_bound": None}
    if control is not None:
        found["control"] = {"auc": round(control, 4)}
    if cost is None or not cost.private:
        return found
    rates = [0.0, *np.geomspace(1e-3, 1.0, 40).tolist()]
    allowed = limits(cost, delta)
    found["bound"] = {"fpr": rates, "tpr": [round(float(v), 6) for v in bound_of(cost, rates)]}
    found["allowed_auc"] = allowed["auc"]
    # Chance must not explain it: the lower end of what was found against the bound at the upper end of the alarms.
    alarms = [binomial_interval(int(rate.fpr * len(others)), len(others))[1] for rate in result.rates]
    most = bound_of(cost, alarms)
    found["within_bound"] = bool(
        result.auc_low <= (allowed["auc"] or 0.0)
        and all(rate.low <= limit for rate, limit in zip(result.rates, most.tolist()))
    )
    return found


class Suite:
    """Every membership attack on one run, with the parts they share made once."""

    def __init__(
        self,
        run: Reopened,
        *,
        records: int = 1000,
        shadows: int = 16,
        epochs: int = 20,
        seed: int = 0,
        progress: Progress = lambda *_: None,
    ) -> None:
        self.run, self.shadow_count, self.epochs, self.progress = run, shadows, epochs, progress
        self.key = Key.seed(seed).child("membership")
        self.task = run.job.task
        self.candidates = _candidates(run, records, self.key)
        stored = collect(run.directory.path)["guarantee"].get("cost")
        self.cost = None if stored is None else Cost.from_json(stored)

    def attack(self, name: str) -> Found:
        """One attack by name; one that a release gives nothing to says so."""
        if name not in ATTACKS:
            raise UserError(f"Unknown attack '{name}'; choose one of {', '.join(ATTACKS)}.")
        needs, make = ATTACKS[name]
        reason = self.why_not(needs)
        if reason is not None:
            return {"attack": name, "kind": "membership", "applies": False, "words": f"does not apply: {reason}"}
        return make(self, name)

    def why_not(self, needs: str) -> str | None:
        items = self.run.state.items
        if not self.run.job.method.leaves:
            return "nothing leaves the sites"
        if needs == "model" and "model" not in items:
            return "no model leaves the sites"
        if needs == "weights" and not (isinstance(items.get("model"), Weights) and self.run.job.method.predict is None):
            return "no model with gradients leaves the sites"
        if needs == "set" and self.run.synthetic is None:
            return "no synthetic set leaves the sites"
        if needs == "decoder" and not self.decoders:
            return "no decoder leaves the sites"
        return None

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self._predict(self.run.state.items, x)

    @cached_property
    def _predict(self) -> Callable[..., torch.Tensor]:
        return self.run.predict()

    @cached_property
    def target(self) -> torch.Tensor:
        return model_attacks.logits_of(self.predict, self.candidates.x)

    @cached_property
    def shadows(self) -> model_attacks.Shadows:
        c = self.candidates
        return model_attacks.train_shadows(
            self.task.model,
            c.x,
            c.y,
            classes=len(self.task.classes),
            shadows=self.shadow_count,
            key=self.key.child("shadows"),
            epochs=self.epochs,
            progress=self.progress,
        )

    @cached_property
    def control(self) -> Control:
        return Control.make(self.candidates, len(self.task.classes), self.key.child("control"))

    @cached_property
    def decoders(self) -> list[tuple[int | None, int, Callable[[torch.Tensor], torch.Tensor]]]:
        """(class or None, latent size, decode) of every decoder that left a site."""
        from prismfl.methods.generators.threedgl import PREFIX, kind_at, recipe_of

        found: list[tuple[int | None, int, Callable[[torch.Tensor], torch.Tensor]]] = []
        for name, payload in self.run.state.items.items():
            if not (
                isinstance(payload, Synthesizer) and payload.spec.get("kind") == "ddp-vae" and name.startswith(PREFIX)
            ):
                continue
            site = name.removeprefix(PREFIX)
            recipe = recipe_of(self.run.job.settings, self.task, kind_at(self.run.job.settings, self.task, site))  # type: ignore[arg-type]
            for c, part in enumerate(recipe.parts):
                prefix = f"{recipe.kind}.{part}."
                own = {k.removeprefix(prefix): v for k, v in payload.tensors.items() if k.startswith(prefix)}
                decoder = build_decoder(recipe.full(), own)
                found.append((None if recipe.joint else c, recipe.full().latent, _expected(decoder, self.task.shape)))
        return found

    def result(self, name: str, scores: Scores, control: float | None) -> Found:
        return self.candidates.score(name, scores, self.cost, self.task.delta, control)


@dataclass(frozen=True)
class Control:
    """A dense model that memorised records with random labels, its shadows, and the attacks' success on it."""

    loss: float
    gradient: float
    lira: float
    offline: float
    rmia: float

    @classmethod
    def make(cls, candidates: Candidates, classes: int, key: Key) -> Control:
        n = min(CONTROL_RECORDS, candidates.members, len(candidates.x) - candidates.members)
        rows = torch.cat([torch.arange(n), torch.arange(candidates.members, candidates.members + n)])
        x = candidates.x[rows].flatten(1)
        y = torch.randint(classes, (2 * n,), generator=key.child("labels").torch())
        classifier, params = build("mlp:128", tuple(x.shape[1:]), classes, key=key)
        params = fit(classifier, params, x=x[:n], y=y[:n], epochs=100, batch=25, lr=0.05, key=key)
        made = model_attacks.train_shadows(
            "mlp:128", x, y, classes=classes, shadows=8, key=key.child("shadows"), epochs=100, batch=25, lr=0.05
        )
        target = model_attacks.logits_of(lambda r: classifier.logits(params, r), x)
        others = torch.arange(n, 2 * n)

        def area(scores: Scores) -> float:
            return auc(scores[:n], scores[n:])

        return cls(
            area(model_attacks.loss_scores(lambda r: classifier.logits(params, r), x, y)),
            area(model_attacks.gradient_scores(classifier, params, x, y)),
            area(model_attacks.lira_scores(target, y, made)),
            area(model_attacks.lira_scores(target, y, made, offline=True)),
            area(model_attacks.rmia_scores(target, y, made, population=others)),
        )


def _loss(s: Suite, name: str) -> Found:
    return s.result(name, model_attacks.loss_scores(s.predict, s.candidates.x, s.candidates.y), s.control.loss)


def _gradient(s: Suite, name: str) -> Found:
    classifier, _ = build(s.task.model, s.task.shape, len(s.task.classes), key=Key.seed(0))
    weights = s.run.state.items["model"].tensors
    scores = model_attacks.gradient_scores(classifier, weights, s.candidates.x, s.candidates.y)
    return s.result(name, scores, s.control.gradient)


def _lira(s: Suite, name: str) -> Found:
    offline = name == "lira-offline"
    scores = model_attacks.lira_scores(s.target, s.candidates.y, s.shadows, offline=offline)
    return s.result(name, scores, s.control.offline if offline else s.control.lira)


def _rmia(s: Suite, name: str) -> Found:
    population = torch.arange(s.candidates.members, len(s.candidates.x))
    scores = model_attacks.rmia_scores(s.target, s.candidates.y, s.shadows, population=population)
    return s.result(name, scores, s.control.rmia)


def _set(s: Suite, name: str) -> Found:
    made = s.run.synthetic
    assert made is not None
    return _set_attack(name, s.candidates, made.x, s.cost, s.task.delta, key=s.key)


def _decoder(s: Suite, name: str) -> Found:
    c = s.candidates
    keep = torch.cat(
        [torch.arange(min(DECODED, c.members)), torch.arange(c.members, min(len(c.x), c.members + DECODED))]
    )
    x, y = c.x[keep], c.y[keep]
    best = np.full(len(x), -np.inf)
    for i, (label, latent, decode) in enumerate(s.decoders):
        s.progress("searching the decoders", i, len(s.decoders))
        rows = torch.arange(len(x)) if label is None else torch.nonzero(y == label).flatten()
        if len(rows):
            scores = set_attacks.decoder_scores(x[rows], decode, latent=latent, key=s.key.child("decoder", i))
            best[rows.numpy()] = np.maximum(best[rows.numpy()], scores)
    best = np.where(np.isfinite(best), best, best[np.isfinite(best)].min(initial=0.0))
    members = int((keep < c.members).sum())
    control = _decoder_control(x[:members][:CONTROL_RECORDS], x[members:], s.key.child("memory"))
    return judged(name, best[:members], best[members:], s.cost, delta=s.task.delta, control=control)


def _decoder_control(known: torch.Tensor, others: torch.Tensor, key: Key, *, latent: int = 16) -> float:
    """The same search of a decoder that knows records by heart: each code gives the one whose mark it is nearest to."""
    marks = torch.nn.functional.normalize(torch.randn(len(known), latent, generator=key.torch()), dim=1)

    def decode(codes: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(30.0 * torch.nn.functional.normalize(codes, dim=1) @ marks.T, 1)
        return weights @ known.flatten(1)

    scores = set_attacks.decoder_scores(torch.cat([known, others]), decode, latent=latent, key=key.child("search"))
    return auc(scores[: len(known)], scores[len(known) :])


ATTACKS: dict[str, tuple[str, Callable[[Suite, str], Found]]] = {
    "loss": ("model", _loss),
    "gradient-norm": ("weights", _gradient),
    "lira": ("model", _lira),
    "lira-offline": ("model", _lira),
    "rmia": ("model", _rmia),
    "nearest": ("set", _set),
    "calibrated": ("set", _set),
    "domias": ("set", _set),
    "copies": ("set", _set),
    "decoder": ("decoder", _decoder),
}
SET_ATTACKS = ("nearest", "calibrated", "domias", "copies")


def attack_set(
    made: torch.Tensor,
    members: torch.Tensor,
    others: torch.Tensor,
    *,
    names: Sequence[str] = SET_ATTACKS,
    seed: int = 0,
) -> list[Found]:
    """The attacks on synthetic data made by any tool: no run, no cost, hence no bound. Half of `others` calibrates."""
    if len(others) < 4:
        raise UserError(f"Expected at least 4 non-members, got {len(others)}.")
    for name, rows in (("members", members), ("non-members", others)):
        if rows.shape[1:] != made.shape[1:]:
            shapes = ["x".join(map(str, r.shape[1:])) for r in (rows, made)]
            raise UserError(
                f"The {name} have shape {shapes[0]}, the synthetic records {shapes[1]}; they must be alike."
            )
    half = len(others) // 2
    x = torch.cat([members, others[:half]])
    candidates = Candidates(x, torch.zeros(len(x), dtype=torch.int64), len(members), others[half:])
    key = Key.seed(seed).child("foreign")
    return [_set_attack(name, candidates, made, None, 1e-5, key=key) for name in names]


def _set_attack(name: str, c: Candidates, made: torch.Tensor, cost: Cost | None, delta: float, *, key: Key) -> Found:
    if name == "copies":
        return _copies(c, made)
    score = _scorer(name, c.reference)
    noise = torch.randn(c.x[: c.members].shape, generator=key.child("memory").torch())
    memorised = c.x[: c.members] + 0.05 * float(c.x.std()) * noise
    control = score(c.x, memorised)
    return c.score(name, score(c.x, made), cost, delta, auc(control[: c.members], control[c.members :]))


def _scorer(name: str, reference: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], Scores]:
    if name == "nearest":
        return set_attacks.nearest_scores
    if name == "calibrated":
        return lambda x, made: set_attacks.calibrated_scores(x, made, reference)
    return lambda x, made: set_attacks.density_scores(x, made, reference)


def _copies(c: Candidates, made: torch.Tensor) -> Found:
    members, others = c.x[: c.members], c.x[c.members :]
    of_members, of_others = set_attacks.exact_copies(made, members), set_attacks.exact_copies(made, others)
    return {
        "attack": "copies",
        "kind": "copies",
        "copies_of_members": of_members,
        "copies_of_others": of_others,
        "synthetic": len(made),
        "control": {"copies": set_attacks.exact_copies(members, members), "of": len(members)},
        "words": f"{of_members} of {len(made)} synthetic records copy a member, {of_others} copy a record never used",
    }


def _candidates(run: Reopened, records: int, key: Key) -> Candidates:
    data = run.dataset
    rows = np.concatenate(run.parts)
    chosen = key.child("members").numpy().permutation(rows)[:records]
    test = key.child("others").numpy().permutation(len(data.y_test))
    count = min(records, math.ceil(len(test) / 2))
    others, rest = test[:count], test[count : count + 4 * records]
    x = torch.cat([data.x_train[chosen], data.x_test[others]])
    y = torch.cat([data.y_train[chosen], data.y_test[others]])
    return Candidates(x, y, len(chosen), data.x_test[rest])


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


def everything(suite: Suite) -> list[Found]:
    return [suite.attack(name) for name in ATTACKS]


def shown(found: Mapping[str, Any]) -> dict[str, str]:
    """A row for people."""
    if "auc" not in found:
        return {
            "attack": found["attack"],
            "AUC": "-",
            "TPR at 1 %": "-",
            "allowed": "-",
            "control": "-",
            "verdict": found["words"],
        }
    verdict = {True: "within the bound", False: "ABOVE the bound", None: "no bound: no guarantee"}[
        found["within_bound"]
    ]
    rate = found["rates"][0]
    return {
        "attack": found["attack"],
        "AUC": f"{found['auc']:.3f} ({found['auc_low']:.3f} to {found['auc_high']:.3f})",
        "TPR at 1 %": f"{100 * rate['tpr']:.1f} %",
        "allowed": f"{found['allowed_auc']:.3f}" if "allowed_auc" in found else "-",
        "control": f"{found['control']['auc']:.3f}" if "control" in found else "-",
        "verdict": verdict,
    }
