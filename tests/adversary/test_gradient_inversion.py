import time

import pytest
import torch

from prismfl.adversary.attacks.gradient_inversion import (
    Effort,
    Problem,
    Reconstruction,
    cosine_distance,
    dlg,
    idlg,
    infer_labels,
    inverting,
    stack,
    tv_slope,
)
from prismfl.adversary.attacks.lbfgs import minimise
from prismfl.core.door import PrivateRecords
from prismfl.core.method import Settings, Site, State
from prismfl.core.payloads import Weights
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.data import load
from prismfl.methods import METHODS
from prismfl.methods.gradients import fedem
from prismfl.metrics.leakage import Leakage, leakage
from prismfl.nets.classifier import Params, build
from prismfl.privacy import account
from prismfl.rng import Key

SHAPE = (1, 28, 28)
TASK = Task("mnist-5k", SHAPE, tuple("0123456789"), ("a",), 4000, "sigmoid-lenet")
CLASSIFIER, PARAMS = build("sigmoid-lenet", SHAPE, 10, key=Key.seed(0))
SIX = [3 + 600 * i for i in range(6)]


@pytest.fixture(scope="module")
def six() -> Records:
    data = load("mnist-5k")
    return Records(data.x_train[SIX], data.y_train[SIX])


def problem(gradients: list[Params], records: int = 1, *, rescaled: bool = False) -> Problem:
    return Problem(CLASSIFIER, PARAMS, stack(gradients), records, SHAPE, 10, rescaled=rescaled)


def exact(data: Records) -> list[Params]:
    return [CLASSIFIER.gradient(PARAMS, x[None], y[None]) for x, y in zip(data.x, data.y)]


def score(found: Reconstruction, truth: Records) -> Leakage:
    return leakage((found.x.flatten(0, 1), found.y.flatten()), (truth.x, truth.y), data="mnist")


def released(name: str, cfg: Settings, data: Records) -> list[Params]:
    """What the method sends of each record alone in its batch."""
    method = METHODS[name]
    sent: list[Params] = []
    state = State(0, {**method.init(cfg, TASK, Key.seed(0)), "model": Weights(PARAMS)})
    for i in range(len(data)):
        one = data.take(torch.tensor([i]))
        door = PrivateRecords(one, declared=1, classes=10, noise=Key.seed(i).noise())
        items, _ = method.client(cfg, state, Site("a", door, {}, TASK), Key.seed(i))
        sent.append(dict(items["gradient"].tensors))
    return sent


def test_dlg_recovers_digits_from_exact_gradients_in_a_minute(six: Records) -> None:
    began = time.process_time()
    found = dlg(problem(exact(six)), Effort(restarts=2, iterations=180), key=Key.seed(1))
    assert time.process_time() - began < 60
    assert found.x.shape == (6, 1, *SHAPE)
    assert score(found, six).recovered >= 4
    assert found.y.flatten().tolist() == six.y.tolist()


def test_dlg_recovers_nothing_from_accounted_gradients(six: Records) -> None:
    method = METHODS["ldp-fedsgd"]
    base = method.settings.model_validate({"rounds": 10, "batch": 1, "clip": 1.0})
    sigma = account.calibrate(lambda s: method.plan(base.model_copy(update={"sigma": s}), TASK), 8.0, 1e-5)
    noisy = released("ldp-fedsgd", base.model_copy(update={"sigma": sigma}), six)
    for attack in (dlg, inverting):
        seen = score(attack(problem(noisy, rescaled=True), Effort(restarts=2, iterations=100), key=Key.seed(1)), six)
        assert seen.recovered == 0
        assert seen.ssim is not None
        assert seen.ssim < 0.3


def test_clipping_alone_hides_nothing(six: Records) -> None:
    short: list[Params] = [{k: g / 20 for k, g in gradient.items()} for gradient in exact(six)]
    effort = Effort(restarts=2, iterations=180)
    assert score(idlg(problem(short, rescaled=True), effort, key=Key.seed(1)), six).recovered >= 4


def test_labels_of_single_records_are_read_off(six: Records) -> None:
    found = idlg(problem(exact(six)), Effort(restarts=1, iterations=1), key=Key.seed(1))
    assert found.y.flatten().tolist() == six.y.tolist()


def test_labels_of_a_batch_are_counted() -> None:
    data = load("mnist-5k")
    rows = torch.tensor([0, 400, 401, 402, 1200, 1201, 2500, 3999])
    gradient = CLASSIFIER.gradient(PARAMS, data.x_train[rows], data.y_train[rows])
    guessed = infer_labels(problem([gradient], 8), key=Key.seed(0))
    assert guessed.shape == (1, 8)
    assert len(set(guessed[0].tolist()) & set(data.y_train[rows].tolist())) >= 4


def test_inverting_gradients_sees_the_digits(six: Records) -> None:
    found = inverting(problem(exact(six)), Effort(restarts=1, iterations=150), key=Key.seed(1))
    seen = score(found, six)
    assert seen.ssim is not None
    assert seen.ssim > 0.8
    assert float(found.x.min()) >= 0.0
    assert float(found.x.max()) <= 1.0


def test_adaptive_attack_takes_fedems_perturbation_off(six: Records) -> None:
    cfg = fedem.Config(norm="l2", rho_max=765.0, stride=50.0, direction="normalised", start="zero", batch=1)
    sent = problem(released("fedem", cfg, six))
    plain = score(idlg(sent, Effort(restarts=1, iterations=150), key=Key.seed(1)), six)
    knowing = score(idlg(sent, Effort(restarts=1, iterations=150, against=cfg), key=Key.seed(1)), six)
    assert plain.ssim is not None
    assert knowing.ssim is not None
    assert plain.ssim < 0.9
    assert knowing.ssim > plain.ssim + 0.05


def test_of_the_restarts_the_best_fit_is_kept(six: Records) -> None:
    data = six.take(torch.tensor([0, 1]))
    one = dlg(problem(exact(data)), Effort(restarts=1, iterations=40), key=Key.seed(1))
    more = dlg(problem(exact(data)), Effort(restarts=4, iterations=40), key=Key.seed(1))
    assert more.mismatch.shape == (2,)
    assert float(more.mismatch.max()) <= 1.5 * float(one.mismatch.max())


def test_same_seed_same_loot(six: Records) -> None:
    gradients = problem(exact(six.take(torch.tensor([0]))))
    torch.manual_seed(1)
    first = inverting(gradients, Effort(restarts=1, iterations=5), key=Key.seed(4))
    torch.manual_seed(2)
    again = inverting(gradients, Effort(restarts=1, iterations=5), key=Key.seed(4))
    assert torch.equal(first.x, again.x)


def test_cosine_distance_ignores_length() -> None:
    g = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])}
    assert float(cosine_distance(g, {k: 7 * v for k, v in g.items()})) == pytest.approx(0.0, abs=1e-6)
    assert float(cosine_distance(g, {k: -v for k, v in g.items()})) == pytest.approx(2.0, abs=1e-6)


def test_tv_slope_is_the_derivative() -> None:
    x = torch.rand(2, 3, 1, 5, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    total = (x.diff(dim=-1).abs().sum() + x.diff(dim=-2).abs().sum()) / x[0, 0].numel()
    (expected,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(tv_slope(x.detach()), expected)


def test_lbfgs_solves_many_unlike_problems_at_once() -> None:
    scales = torch.logspace(-3, 3, 7)[:, None] * torch.linspace(1.0, 30.0, 12)[None]
    goal = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))

    def evaluate(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (0.5 * scales * (z - goal) ** 2).sum(1), scales * (z - goal)

    z, value = minimise(evaluate, torch.zeros(7, 12), iterations=60)
    assert float((z - goal).abs().max()) < 1e-2
    assert bool((value <= evaluate(torch.zeros(7, 12))[0]).all())


def test_lbfgs_leaves_a_hopeless_row_where_it_is() -> None:
    def evaluate(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = (z**2).sum(1)
        bad = torch.tensor([False, True])
        return torch.where(bad, torch.full_like(value, float("nan")), value), 2 * z

    z, _ = minimise(evaluate, torch.ones(2, 3), iterations=10)
    assert float(z[0].abs().max()) < 1e-3
    assert torch.equal(z[1], torch.ones(3))
