import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.method import Items, Settings, Site, State
from prismfl.core.payloads import Statistics
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.methods.gradients import fedem, fedsgd, noisy_sgd
from prismfl.nets.classifier import build
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from prismfl.runs.config import RunConfig
from prismfl.runs.planning import plan

SHAPE, PIXEL = (1, 8, 8), 1 / 255
TASK = Task("digits", SHAPE, tuple("0123456789"), ("a", "b"), 40, "mlp:16")
KEY = Key.seed(3)


def records(n: int = 40, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    return Records(torch.rand(n, *SHAPE, generator=generator), torch.randint(0, 10, (n,), generator=generator))


def door(data: Records | None = None, *, allow_exact: bool = True, declared: int = 40) -> PrivateRecords:
    data = records() if data is None else data
    return PrivateRecords(data, declared=declared, classes=10, noise=Key.seed(9).noise(), allow_exact=allow_exact)


def settings_of(name: str, **given: Any) -> Settings:
    return METHODS[name].settings(**given)


def send(name: str, cfg: Settings, opened: PrivateRecords, memory: Items | None = None) -> tuple[Items, Items]:
    state = State(0, dict(METHODS[name].init(cfg, TASK, KEY)))
    return METHODS[name].client(cfg, state, Site("a", opened, memory or {}, TASK), KEY)


def flat(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensors[k].flatten() for k in sorted(tensors)])


def test_without_perturbation_it_is_fedsgd_bit_for_bit() -> None:
    mine = fedem.Config(rounds=4, batch=8, lr=0.2, optimiser="sgd", iterations=0, rho_max=0.0)
    theirs = fedsgd.Config(rounds=4, batch=8, lr=0.2)
    sent, _ = send("fedem", mine, door())
    expected, _ = send("fedsgd", theirs, door())
    assert sent["gradient"].digest == expected["gradient"].digest
    state = State(1, dict(METHODS["fedsgd"].init(theirs, TASK, KEY)))
    after = fedem.server(mine, TASK, state, {"a": sent}, KEY)
    assert after["model"].digest == fedsgd.server(theirs, TASK, state, {"a": sent}, KEY)["model"].digest


def test_one_step_by_hand_goes_down_the_loss() -> None:
    # Two inputs, two classes, x = 0, label 0: dL/dx = -0.5 (1, -1) + 0.5 (-1, 1) = (-1, 1), so descent adds (1, -1).
    classifier, params = build("logreg", (1, 1, 2), 2, key=KEY)
    params = {"1.weight": torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), "1.bias": torch.zeros(2)}
    x, y = torch.zeros(1, 1, 1, 2), torch.tensor([0])
    cfg = fedem.Config(iterations=1, stride=2.0, rho_max=8.0, start="zero")
    shift = fedem.perturbation(classifier, params, x, y, cfg=cfg, start=torch.zeros_like(x))
    torch.testing.assert_close(shift.flatten(), torch.tensor([2.0, -2.0]) * PIXEL)
    assert classifier.loss(params, x + shift, y) < classifier.loss(params, x, y)
    along = cfg.model_copy(update={"direction": "normalised", "norm": "l2"})
    shift = fedem.perturbation(classifier, params, x, y, cfg=along, start=torch.zeros_like(x))
    torch.testing.assert_close(shift.flatten(), torch.tensor([1.0, -1.0]) * (2.0 * PIXEL / math.sqrt(2)))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("start", ["zero", "random"])
def test_norm_stays_between_the_bounds(norm: Literal["linf", "l2"], start: Literal["zero", "random"]) -> None:
    cfg = fedem.Config(norm=norm, start=start, rho_min=3.0, rho_max=5.0, iterations=7, stride=2.0)
    classifier, params = build("mlp:16", SHAPE, 10, key=KEY)
    data = records(12)
    first = fedem.first_shift(data.x.shape, cfg, KEY.torch())
    shift = fedem.perturbation(classifier, params, data.x, data.y, cfg=cfg, start=first)
    order = math.inf if norm == "linf" else 2
    sizes = torch.linalg.vector_norm(shift.flatten(1), ord=order, dim=1) / PIXEL
    assert float(sizes.min()) >= 3.0 - 1e-4
    assert float(sizes.max()) <= 5.0 + 1e-4
    zero = fedem.project(torch.zeros(1, *SHAPE), cfg)
    assert float(torch.linalg.vector_norm(zero.flatten(), ord=order)) == pytest.approx(3.0 * PIXEL, rel=1e-5)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="rho_min <= rho_max"):
        fedem.Config(rho_min=2.0, rho_max=1.0)


def test_perturbations_are_memory_and_never_on_the_wire() -> None:
    cfg = fedem.Config(rounds=2, batch=8, carry=True)
    sent, kept = send("fedem", cfg, door())
    assert set(sent) == {"gradient"}
    assert sent["gradient"].shapes() == fedem.METHOD.shapes(cfg, TASK)["gradient"]
    delta = kept["perturbation"].tensors["delta"]
    used = delta.flatten(1).abs().sum(1) > 0
    assert int(used.sum()) == 8
    state = fedem.server(cfg, TASK, State(0, dict(fedem.init(cfg, TASK, KEY))), {"a": sent, "b": sent}, KEY)
    assert set(state) == {"model", "moments"}
    assert all("delta" not in name for payload in state.values() for name in payload.tensors)


def test_carried_perturbation_is_where_the_next_batch_starts() -> None:
    cfg = fedem.Config(rounds=2, batch=8, carry=True, iterations=0, rho_max=200.0)
    data = records()
    memory = {"perturbation": Statistics({"delta": torch.full_like(data.x, 0.25)})}
    sent, _ = send("fedem", cfg, door(data), memory)
    moved, _ = send("fedem", cfg.model_copy(update={"rho_max": 0.0}), door(Records(data.x + 0.25, data.y)))
    torch.testing.assert_close(flat(sent["gradient"].tensors), flat(moved["gradient"].tensors))


@pytest.mark.parametrize("name", ["fedem", "fedsgd-gauss", "fedsgd-laplace", "fedsgd-clip"])
def test_no_guarantee_is_sold(name: str) -> None:
    with pytest.raises(UserError, match="no DP guarantee"):
        plan(RunConfig(method=name, data="digits", epsilon=8.0))
    assert plan(RunConfig(method=name, data="digits")).epsilon is None


def test_server_adam_equals_torch() -> None:
    cfg = fedem.Config(rounds=3, lr=0.01)
    state = State(0, dict(fedem.init(cfg, TASK, KEY)))
    weight = flat(state.items["model"].tensors).clone().requires_grad_()
    optimiser = torch.optim.Adam([weight], lr=0.01)
    for r in range(3):
        sent, _ = METHODS["fedem"].client(cfg, state, Site("a", door(), {}, TASK), KEY.child(r))
        weight.grad = flat(sent["gradient"].tensors)
        optimiser.step()
        state = State(r + 1, dict(fedem.server(cfg, TASK, state, {"a": sent}, KEY)))
    torch.testing.assert_close(flat(state.items["model"].tensors), weight.detach(), rtol=1e-4, atol=1e-6)


def test_private_fedem_without_noise_is_fedem() -> None:
    shared: dict[str, Any] = {"rounds": 2, "batch": 40, "start": "zero", "rho_max": 20.0, "iterations": 3}
    private = settings_of("fedem-dp", **shared, sigma=0.0, clip=math.inf)
    sent, _ = send("fedem-dp", private, door(allow_exact=False))
    expected, _ = send("fedem", fedem.Config(**shared), door())
    plain, _ = send("fedem", fedem.Config(**{**shared, "iterations": 0}), door())
    one, other = flat(sent["gradient"].tensors), flat(expected["gradient"].tensors)
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert float((flat(plain["gradient"].tensors) - other).abs().max()) > 1e-3


def test_one_record_moves_private_fedem_by_at_most_the_clip() -> None:
    cfg = settings_of("fedem-dp", rounds=1, batch=40, sigma=0.0, clip=0.1, rho_max=60.0)
    data = records()
    whole, _ = send("fedem-dp", cfg, door(data))
    less, _ = send("fedem-dp", cfg, door(Records(data.x[:-1], data.y[:-1])))
    moved = torch.linalg.vector_norm(flat(whole["gradient"].tensors) - flat(less["gradient"].tensors)) * 40
    assert 0.05 < float(moved) <= 0.1 * (1 + 1e-4)


@pytest.mark.parametrize(
    ("name", "extra"),
    [("fedem-dp", {}), ("ldp-fedsgd", {"kind": "gaussian"}), ("ldp-fedsgd", {"kind": "laplace"})],
)
def test_the_door_charges_what_was_planned(name: str, extra: dict[str, str]) -> None:
    cfg = settings_of(name, rounds=5, batch=8, sigma=1.3, **extra)
    opened = door(allow_exact=False)
    send(name, cfg, opened)
    total = sum((opened.meter.cost for _ in range(5)), start=Cost.zero())
    assert total == Job("run", METHODS[name], cfg, TASK, 0).plan()


def test_laplace_is_accounted_end_to_end() -> None:
    found = plan(RunConfig(method="ldp-fedsgd", data="digits", epsilon=4.0, settings={"rounds": 5, "kind": "laplace"}))
    assert found.epsilon is not None
    assert 0.97 * 4.0 <= found.epsilon <= 4.0


def noise_of(name: str, **settings: float) -> torch.Tensor:
    big = replace(TASK, model="mlp:400")
    method = METHODS[name]
    sent = []
    for scale in (settings.pop("scale"), 0.0):
        cfg = settings_of(name, rounds=1, batch=8, scale=scale, **settings)
        state = State(0, dict(method.init(cfg, big, KEY)))
        sent.append(flat(method.client(cfg, state, Site("a", door(), {}, big), KEY)[0]["gradient"].tensors))
    return sent[0] - sent[1]


def test_fixed_noise_has_the_scale_it_says() -> None:
    gauss = noise_of("fedsgd-gauss", scale=0.3)
    assert float(gauss.std()) == pytest.approx(0.3, rel=0.03)
    assert float(gauss.abs().mean()) == pytest.approx(0.3 * math.sqrt(2 / math.pi), rel=0.03)
    laplace = noise_of("fedsgd-laplace", scale=0.3)
    assert float(laplace.abs().mean()) == pytest.approx(0.3, rel=0.03)
    assert float(laplace.std()) == pytest.approx(0.3 * math.sqrt(2), rel=0.05)


def test_clip_cuts_the_batch_gradient() -> None:
    sent, _ = send("fedsgd-clip", noisy_sgd.Clipped(rounds=1, batch=8, clip=0.01), door())
    plain, _ = send("fedsgd-gauss", noisy_sgd.Noisy(rounds=1, batch=8, scale=0.0), door())
    one, other = flat(sent["gradient"].tensors), flat(plain["gradient"].tensors)
    assert float(one.norm()) == pytest.approx(0.01, rel=1e-4)
    torch.testing.assert_close(one / one.norm(), other / other.norm(), rtol=1e-3, atol=1e-6)


def test_perturbation_of_a_record_does_not_depend_on_its_batch() -> None:
    classifier, params = build("mlp:16", SHAPE, 10, key=KEY)
    data, cfg = records(6), fedem.Config(start="zero", iterations=3)
    zero = torch.zeros_like(data.x)
    together = fedem.perturbation(classifier, params, data.x, data.y, cfg=cfg, start=zero)
    alone = fedem.perturbation(classifier, params, data.x[2:3], data.y[2:3], cfg=cfg, start=zero[2:3])
    torch.testing.assert_close(together[2:3], alone)
