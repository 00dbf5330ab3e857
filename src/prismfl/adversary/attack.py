"""Every attack in one shape and one table: what it needs to see, how it guesses, how its guess is scored.

The attack never holds the truth: `run` gets a view. The score gets the guess, what the same attack guessed of the
control (a world in which it must succeed), and the truth. The types tie the three together: a view that holds less
than an attack looks at, or a truth that its score does not know, is an error of types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prismfl.adversary.attacks import gan, inversion
from prismfl.adversary.attacks import gradient_inversion as gradients
from prismfl.adversary.attacks import membership_model as models
from prismfl.adversary.attacks import membership_synthetic as synthetic
from prismfl.adversary.cases import Case, Need, Scene, population
from prismfl.adversary.cases import membership as members
from prismfl.adversary.cases.gradients import GRADIENTS
from prismfl.adversary.scores import Found, Scored
from prismfl.adversary.scores import population as drawn
from prismfl.adversary.scores.membership import copied, told_apart
from prismfl.adversary.scores.reconstruction import reconstructed

View = TypeVar("View")
Guess = TypeVar("Guess")
Truth = TypeVar("Truth")


@dataclass(frozen=True)
class Attack(Generic[View, Guess, Truth]):
    """`run`: view -> guess. `score`: guess, guess of the control, truth -> numbers."""

    name: str
    needs: Need[View, Truth]
    run: Callable[[View], Guess]
    score: Callable[[Guess, Guess | None, Truth], Scored]

    def on(self, scene: Scene) -> Scored:
        """The attack on a run; one that the run shows nothing to says so."""
        case = scene.once(self.needs.look)
        if isinstance(case, str):
            words = f"does not apply: {case}"
            return Scored({"attack": self.name, "kind": self.needs.kind, "applies": False, "words": words})
        return self.tried(case)

    def tried(self, case: Case[View, Truth]) -> Scored:
        """The attack on a case and on its control, scored against the truth."""
        guess = self.run(case.view)
        control = None if case.control is None else self.run(case.control)
        scored = self.score(guess, control, case.truth)
        found: Found = {"attack": self.name, **scored.found}
        return Scored(found, scored.sheet)


DLG = Attack("dlg", GRADIENTS, gradients.by_dlg, reconstructed)
IDLG = Attack("idlg", GRADIENTS, gradients.by_idlg, reconstructed)
INVERTING = Attack("inverting", GRADIENTS, gradients.by_inverting, reconstructed)
LOSS = Attack("loss", members.MODEL, models.by_loss, told_apart)
GRADIENT_NORM = Attack("gradient-norm", members.WEIGHTS, models.by_gradient, told_apart)
LIRA = Attack("lira", members.MODEL, models.by_lira, told_apart)
LIRA_OFFLINE = Attack("lira-offline", members.MODEL, models.by_lira_offline, told_apart)
RMIA = Attack("rmia", members.MODEL, models.by_rmia, told_apart)
NEAREST = Attack("nearest", members.SYNTHETIC, synthetic.by_nearest, told_apart)
CALIBRATED = Attack("calibrated", members.SYNTHETIC, synthetic.by_calibrated, told_apart)
DOMIAS = Attack("domias", members.SYNTHETIC, synthetic.by_density, told_apart)
COPIES = Attack("copies", members.COPIES, synthetic.copies, copied)
DECODER = Attack("decoder", members.DECODERS, synthetic.by_decoders, told_apart)
INVERSION = Attack("inversion", population.CLASSIFIER, inversion.invert, drawn.inverted)
PROPERTY = Attack("property", population.RELEASES, inversion.by_property, drawn.property_told)
GAN = Attack("gan", population.MODELS, gan.draw_hidden, drawn.judged_pictures)

ATTACKS: dict[str, Attack[Any, Any, Any]] = {
    attack.name: attack
    for attack in (
        *(DLG, IDLG, INVERTING),
        *(LOSS, GRADIENT_NORM, LIRA, LIRA_OFFLINE, RMIA),
        *(NEAREST, CALIBRATED, DOMIAS, COPIES, DECODER),
        *(INVERSION, PROPERTY, GAN),
    )
}
"""What `prismfl attack` offers."""
