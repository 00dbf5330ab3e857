"""FedLAP and FedLAP-DP: the hand-written double backward, the account, and the traps of published code."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site, State
from prismfl.core.payloads import Statistics, SyntheticSet
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.errors import BoundaryError, UserError
from prismfl.methods import METHODS
from prismfl.methods.landscape import fedlap, fedlap_dp, image_exchange
from prismfl.methods.landscape.matching import Criterion, Matcher, Schedule, approximate, detectable, walk
from prismfl.nets import siamese
from prismfl.nets.classifier import Params, build
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from prismfl.runs.config import RunConfig
from prismfl.runs.planning import configure, plan
from tests.laws.world import make_job, make_world, some_records

KEY = Key.seed(4)
TASK = Task("tiny", (1, 8, 8), tuple("abc"), ("site-0", "site-1"), 24, "convnet:4")
SMALL: dict[str, Any] = {
    "rounds": 2, "images": 2, "paths": 2, "stops": 2, "batches": 2, "updates": 2, "batch": 8, "sigma": 1.0,
    "server_lr": 0.01, "image_lr": 1.0, "server_steps": 5,
}  # fmt: skip


class Watched(PrivateRecords):
    """A door that keeps what it answered."""

    answers: list[Params]

    def noisy_gradient(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        found = super().noisy_gradient(*args, **kwargs)
        self.answers = [*getattr(self, "answers", []), found]
        return found


def door(records: Records | None = None, *, declared: int = 24) -> Watched:
    records = some_records(24, seed=0) if records is None else records
    return Watched(records, declared=declared, classes=3, noise=Key.seed(9).noise())


def send(cfg: fedlap_dp.Config, opened: PrivateRecords, *, memory: Any = None, task: Task = TASK) -> Any:
    state = State(0, dict(image_exchange.init(cfg, task, KEY)))
    return fedlap_dp.client(cfg, state, Site("site-0", opened, memory or {}, task), KEY)


def moved(params: Params, seed: int = 1) -> Params:
    generator = torch.Generator().manual_seed(seed)
    return {k: p + 0.1 * torch.randn(p.shape, generator=generator) for k, p in params.items()}


def in_double(params: Params) -> Params:
    """Without rounding that could turn a ReLU over."""
    return {k: p.double() for k, p in params.items()}


# The double backward


@pytest.mark.parametrize("width", [6, 64])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 20, 20)])
@pytest.mark.parametrize("criterion", [Criterion(), Criterion(mse=0.1), Criterion(cosine=False, mse=1.0)])
def test_by_hand_is_autograd(shape: tuple[int, ...], criterion: Criterion, width: int) -> None:
    classifier, params = build(f"convnet:{width}", shape, 4, key=KEY)
    classifier.module.double()
    params, target = in_double(moved(params)), in_double(moved(params, seed=2))
    x, y = torch.randn(5, *shape, generator=KEY.torch()).double(), torch.tensor([0, 1, 2, 3, 1])
    view = siamese.draw(("rotate",), KEY.torch())
    fast, slow = Matcher(classifier, criterion), Matcher(classifier, criterion, reference=True)
    assert fast.plain is not None
    assert slow.plain is None
    for seen in (None, view):
        mine = fast.image_gradient(params, x=x, y=y, target=target, view=seen)
        theirs = slow.image_gradient(params, x=x, y=y, target=target, view=seen)
        assert float((mine - theirs).norm() / theirs.norm()) < 1e-9
    plain, exact = fast.gradient(params, x, y), classifier.gradient(params, x, y)
    for name in fast.names:
        assert float((plain[name] - exact[name]).norm() / exact[name].norm()) < 1e-9


def test_a_gain_of_zero_does_no_harm() -> None:
    classifier, params = build("convnet:4", (1, 8, 8), 3, key=KEY)
    params = moved(params)
    params["1.weight"][2] = 0.0
    x, y = torch.randn(3, 1, 8, 8, generator=KEY.torch()), torch.tensor([0, 1, 2])
    target = moved(params, seed=3)
    mine = Matcher(classifier).image_gradient(params, x=x, y=y, target=target)
    theirs = Matcher(classifier, reference=True).image_gradient(params, x=x, y=y, target=target)
    assert float((mine - theirs).norm() / theirs.norm()) < 1e-4


def test_images_of_an_odd_size_go_by_autograd() -> None:
    classifier, params = build("convnet:4", (1, 9, 9), 3, key=KEY)
    x, y = torch.randn(3, 1, 9, 9, generator=KEY.torch()), torch.tensor([0, 1, 2])
    target = moved(params, seed=3)
    mine, theirs = (
        Matcher(classifier, reference=reference).image_gradient(params, x=x, y=y, target=target)
        for reference in (False, True)
    )
    assert torch.equal(mine, theirs)
    assert float(mine.norm()) > 0


@pytest.mark.parametrize("name", ["mlp:4", "lenet:2", "logreg"])
def test_other_networks_go_by_autograd(name: str) -> None:
    classifier, params = build(name, (1, 8, 8), 3, key=KEY)
    matcher = Matcher(classifier)
    assert matcher.plain is None
    x, y = torch.rand(3, 1, 8, 8, generator=KEY.torch()), torch.tensor([0, 1, 2])
    assert float(matcher.image_gradient(params, x=x, y=y, target=moved(params)).norm()) > 0


def test_biases_before_a_norm_are_not_matched() -> None:
    classifier, params = build("convnet:4", (1, 8, 8), 3, key=KEY)
    assert set(params) - set(detectable(classifier.module)) == {"0.bias", "4.bias", "8.bias"}


def test_distance_by_hand() -> None:
    # Rows (1, 0) and (0, 2) against (0, 1) and (0, 1): cosine distances 1 and 0, mean 0.5; the vector (3, 4) against
    # (-3, -4) is one row at distance 2. Squared errors: 2 + 1 and 36 + 64.
    found = {"w": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "b": torch.tensor([3.0, 4.0])}
    wanted = {"w": torch.tensor([[0.0, 1.0], [0.0, 1.0]]), "b": torch.tensor([-3.0, -4.0])}
    assert float(Criterion().distance(found, wanted, ["w", "b"])) == pytest.approx(2.5, abs=1e-5)
    assert float(Criterion(mse=0.1).distance(found, wanted, ["w", "b"])) == pytest.approx(2.5 + 10.3, abs=1e-4)
    assert float(Criterion(cosine=False, mse=1.0).distance(found, wanted, ["w", "b"])) == pytest.approx(103.0)


def test_images_come_to_point_where_the_records_do() -> None:
    classifier, params = build("mlp:8", (1, 8, 8), 3, key=KEY)
    matcher, records = Matcher(classifier), some_records(24, seed=3)
    target = classifier.gradient(params, records.x, records.y)
    x, y = torch.randn(6, 1, 8, 8, generator=KEY.torch()), torch.arange(6) % 3
    schedule = Schedule(stops=1, updates=100, model_steps=0, radius=1.0, image_lr=3.0, momentum=0.5, lr=0.1)

    def distance(images: torch.Tensor) -> float:
        return float(matcher.criterion.distance(classifier.gradient(params, images, y), target, matcher.names))

    fitted, asked = approximate(matcher, params, x=x, y=y, target=lambda p, view: target, schedule=schedule)
    assert asked == 1
    assert distance(fitted) < 0.5 * distance(x)


def test_a_walk_stays_inside() -> None:
    start = {"w": torch.zeros(1)}
    far = walk(lambda params: {"w": -torch.ones(1)}, start, lr=0.3, radius=1.0, steps=9)
    assert far.steps == 3
    assert far.distance == pytest.approx(0.9)
    assert walk(lambda params: {"w": -torch.ones(1)}, start, lr=3.0, radius=1.0, steps=9).steps == 0
    assert walk(lambda params: {"w": -torch.ones(1)}, start, lr=3.0, radius=1.0, steps=9, at_least=1).steps == 1


# The account


def test_the_papers_epsilon() -> None:
    """Round 1 and round 15 of a CIFAR-10 site with the default settings: 2.79 and 10.18 by RDP."""
    for rounds, epsilon in ((1, 2.79), (15, 10.18)):
        config = RunConfig(
            method="fedlap-dp", data="cifar10", split="fedlap", settings={"sigma": 1.0, "rounds": rounds}
        )
        assert plan(config).epsilon_rdp == pytest.approx(epsilon, abs=0.011)


def test_every_planned_query_is_charged_however_early_the_radius_stops() -> None:
    cfg = fedlap_dp.Config(**{**SMALL, "radius": 1e-9, "rounds": 1})
    opened = door()
    send(cfg, opened)
    assert len(opened.answers) == cfg.paths * cfg.batches  # one stop a path instead of two
    assert opened.meter.cost == fedlap_dp.plan(cfg, TASK)


def closed_form(*, first: float, rest: float, sigma: float, queries: int, rounds: int, delta: float) -> float:
    """Theorem 5.8 with A_alpha as a binomial sum, over whole orders."""

    def xi(order: int, q: float) -> float:
        terms = [
            math.comb(order, k) * (1 - q) ** (order - k) * q**k * math.exp((k * k - k) / (2 * sigma * sigma))
            for k in range(order + 1)
        ]
        return math.log(math.fsum(terms)) / (order - 1)

    return min(
        rounds * xi(a, first)
        + rounds * (queries - 1) * xi(a, rest)
        + math.log((a - 1) / a)
        - (math.log(delta) + math.log(a)) / (a - 1)
        for a in range(2, 30)
    )


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_theorem_5_8_is_the_closed_form(share: float) -> None:
    cfg = fedlap_dp.Config(rounds=3, sigma=1.0)
    task = replace(TASK, records=10_000, participation=share)
    mine = account.epsilon_rdp(fedlap_dp.theorem_5_8(cfg, task), 1e-5)
    q = 256 / 10_000
    theirs = closed_form(first=share * q, rest=q, sigma=1.0, queries=200, rounds=3, delta=1e-5)
    assert mine == pytest.approx(theirs, rel=5e-3)
    assert mine <= theirs * (1 + 1e-9)  # broken orders may only help
    if share == 1.0:
        assert fedlap_dp.theorem_5_8(cfg, task) == fedlap_dp.plan(cfg, task)
    else:
        assert fedlap_dp.theorem_5_8(cfg, task).describe().startswith("3 x Gaussian(noise 1, rate 0.01024)")


def test_a_run_with_partial_participation_says_both_figures() -> None:
    cfg, task = fedlap_dp.Config(rounds=3, sigma=1.0), replace(TASK, records=10_000, participation=0.4)
    (said,) = fedlap_dp.advice(cfg, task)
    charged, published = (
        account.epsilon_rdp(cost(cfg, task), 1e-5) for cost in (fedlap_dp.plan, fedlap_dp.theorem_5_8)
    )
    assert published < charged
    assert f"pays epsilon {charged:.2f} (RDP)" in said
    assert f"Theorem 5.8 would say {published:.2f} at participation 0.4" in said
    assert fedlap_dp.advice(cfg, replace(task, relation="replace-one")) == []


def test_theorem_5_8_needs_its_relation() -> None:
    with pytest.raises(UserError, match="needs relation add-remove, got replace-one"):
        fedlap_dp.theorem_5_8(fedlap_dp.Config(sigma=1.0), replace(TASK, relation="replace-one"))


def test_a_public_draw_is_paid_in_full() -> None:
    """Who takes part is public here, so no query is cheaper for it: the plan does not know the share."""
    cfg = fedlap_dp.Config(sigma=1.0)
    assert fedlap_dp.plan(cfg, replace(TASK, participation=0.4)) == fedlap_dp.plan(cfg, TASK)


# Traps of the public code


def test_augmentation_never_touches_the_noise() -> None:
    """On an empty data set answers are noise alone: fresh in each query, and the same with augmentation as without."""
    empty = some_records(2, seed=0).take(torch.arange(0))
    plain, augmented = door(empty), door(empty)
    send(fedlap_dp.Config(**SMALL), plain)
    send(fedlap_dp.Config(**SMALL, augment=("flip", "rotate")), augmented)
    assert len(plain.answers) == len(augmented.answers) == 8
    for a, b in zip(plain.answers, augmented.answers):
        assert all(torch.equal(a[k], b[f"net.{k}"]) for k in a)
    first, second = (torch.cat([g.flatten() for g in a.values()]) for a in augmented.answers[:2])
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.15


def test_augmentation_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    send(fedlap_dp.Config(**SMALL, augment=tuple(siamese.OPERATIONS)), door())
    assert torch.equal(torch.get_rng_state(), before)


def test_records_and_images_are_seen_through_the_same_view() -> None:
    """Without noise or clip the door's gradient of viewed records is the plain gradient of viewed records."""
    records = some_records(24, seed=0)
    classifier, params = build("convnet:4", (1, 8, 8), 3, key=KEY)
    view = siamese.draw(("scale",), KEY.torch())
    assert view is not None
    cfg = fedlap_dp.Config(**{**SMALL, "sigma": 0.0, "clip": math.inf, "batch": 24})
    found = fedlap_dp.noisy_target(cfg, classifier, Site("site-0", door(records), {}, TASK), params, view)
    exact = classifier.gradient(params, view(records.x), records.y)
    for k in detectable(classifier.module):
        torch.testing.assert_close(found[k], exact[k], rtol=1e-3, atol=1e-5)


def test_division_is_by_the_expected_batch() -> None:
    """Half the declared records: the gradient is half as large, so its size tells nothing of the realised batch."""
    records = some_records(12, seed=0)
    classifier, params = build("convnet:4", (1, 8, 8), 3, key=KEY)
    cfg = fedlap_dp.Config(**{**SMALL, "sigma": 0.0, "clip": math.inf, "batch": 24})
    found = fedlap_dp.noisy_target(cfg, classifier, Site("site-0", door(records), {}, TASK), params, None)
    exact = classifier.gradient(params, records.x, records.y)
    torch.testing.assert_close(found["13.weight"], 0.5 * exact["13.weight"], rtol=1e-3, atol=1e-6)


def test_labels_are_those_of_every_declared_class_whatever_the_site_holds() -> None:
    cfg = fedlap_dp.Config(**SMALL)
    sent, _ = send(cfg, door(some_records(24, seed=0, classes=(1,))))
    assert sent["images"].y.tolist() == [0, 0, 1, 1, 2, 2]
    assert fedlap_dp.advice(cfg, TASK) == []


def test_classes_declared_public_shape_the_release_and_are_said() -> None:
    cfg = fedlap_dp.Config(**SMALL, public_classes=((2, 0), (1, 2)))
    sent, _ = send(cfg, door(some_records(24, seed=0, classes=(1,))))  # what it declares, not what it holds
    assert sent["images"].y.tolist() == [2, 2, 0, 0]
    assert {"images": sent["images"].shapes()} == image_exchange.shapes(cfg, TASK)
    (said,) = fedlap_dp.advice(cfg, TASK)
    assert "declared public (site-0: c, a; site-1: b, c)" in said


# Rounds


def test_images_are_carried_over_or_begin_anew() -> None:
    kept = SyntheticSet.of(torch.full((6, 1, 8, 8), 7.0), torch.arange(3).repeat_interleave(2))
    still = {**SMALL, "image_lr": 1e-12}
    carried, memory = send(fedlap_dp.Config(**still), door(), memory={"images": kept})
    assert torch.allclose(carried["images"].x, kept.x)
    assert memory["images"].digest == carried["images"].digest
    anew, _ = send(fedlap_dp.Config(**still, start="noise"), door(), memory={"images": kept})
    assert abs(float(anew["images"].x.mean())) < 0.5


@pytest.mark.parametrize(("strategy", "steps"), [("min", 2), ("median", 4), ("max", 6), ("fixed", 100)])
def test_radius_strategies(strategy: str, steps: int) -> None:
    """The server goes as far as the strategy allows, and the state says how far that was."""
    task = replace(TASK, model="logreg")
    cfg = fedlap.Config(rounds=3, images=1, lr=0.01, strategy=strategy, server_steps=500)
    state = State(0, dict(image_exchange.init(cfg, task, KEY)))
    images = SyntheticSet.of(torch.rand(3, 1, 8, 8, generator=KEY.torch()), torch.arange(3))
    one = {"images": images, "quality": Statistics({"radius": torch.tensor([1e-9])})}
    length = float(fedlap.server(cfg.model_copy(update={"strategy": "min"}), task, state, {"a": one}, KEY)["taken"].tensors["radius"])  # fmt: skip  # noqa: E501
    inbox = {
        site: {"images": images, "quality": Statistics({"radius": torch.tensor([length * k])})}
        for site, k in (("a", 2.02), ("b", 4.04), ("c", 6.06))
    }
    taken = fedlap.server(cfg, task, state, inbox, KEY)["taken"]
    assert abs(int(taken.tensors["steps"]) - steps) <= (1 if strategy != "fixed" else 0)


def test_fedlap_calibrated_gives_gradients_the_records_norms() -> None:
    cfg = fedlap.Config(rounds=1, images=2, batches=2, stops=1, batch=8, criterion="calibrated", image_lr=0.1)
    task = replace(TASK, model="mlp:4")
    state = State(0, dict(image_exchange.init(cfg, task, KEY)))
    sent, _ = fedlap.client(cfg, state, Site("site-0", door(), {}, task), KEY)
    assert {k: p.shapes() for k, p in sent.items()} == fedlap.shapes(cfg, task)
    classifier, _ = build("mlp:4", (1, 8, 8), 3, key=KEY)
    gradient = fedlap.calibrated(Matcher(classifier), state.items["model"].to("cpu"), {"site-0": sent}, task)
    norms = torch.stack([torch.linalg.vector_norm(gradient[k]) for k in sorted(gradient)])
    torch.testing.assert_close(norms, sent["quality"].tensors["norms"], rtol=1e-4, atol=1e-6)


def test_fedlap_learns_where_each_site_has_one_class(tmp_path: Path) -> None:
    settings = {
        "rounds": 3, "images": 4, "batches": 10, "image_lr": 1.0, "lr": 0.3, "batch": 24, "server_steps": 40,
        "public_classes": ((0,), (1,), (2,)), "strategy": "max",
    }  # fmt: skip
    job = make_job("fedlap", settings=settings)
    owned = {f"site-{i}": some_records(24, seed=i, classes=(i,)) for i in range(3)}
    state, _ = make_world(job, tmp_path, records=owned).run()
    classifier, _ = build("mlp:8", (1, 8, 8), 3, key=KEY)
    test = some_records(60, seed=77)
    found = classifier.logits(state.items["model"].to("cpu"), test.x).argmax(1)
    assert float((found == test.y).float().mean()) > 0.9


# Bad input


@pytest.mark.parametrize("method", ["fedlap", "fedlap-dp"])
def test_no_images_is_refused(method: str) -> None:
    with pytest.raises(UserError, match=r"Bad value for 'images'.*greater than or equal to 1, got 0"):
        configure({"method": method, "images": 0})


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (((0,),), "Expected public_classes of 2 sites, got 1"),
        (((0,), (1, 2)), r"one size > 0, .* got sizes \[1, 2\]"),
        (((), ()), r"got sizes \[0, 0\]"),
        (((0,), (3,)), r"Expected public_classes out of 0 to 2, each once, got \[3\]"),
        (((0, 0), (1, 2)), r"each once, got \[0, 0\]"),
    ],
)
def test_public_classes_that_cannot_be(declared: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        image_exchange.init(fedlap_dp.Config(**SMALL, public_classes=declared), TASK, KEY)


def test_unknown_augmentation_is_refused() -> None:
    with pytest.raises(UserError, match="expected operations out of colour, crop"):
        configure({"method": "fedlap-dp", "augment": ["mirror"]})


def test_a_radius_that_allows_no_step_is_said() -> None:
    cfg = fedlap_dp.Config(**{**SMALL, "radius": 1e-9})
    sent, _ = send(cfg, door())
    state = State(0, dict(image_exchange.init(cfg, TASK, KEY)))
    with pytest.raises(UserError, match=r"Radius 1e-09 allows no step of the server at server_lr 0.01"):
        fedlap_dp.server(cfg, TASK, state, {"site-0": sent}, KEY)


@pytest.mark.parametrize("method", ["fedlap", "fedlap-dp", "feddm", "psg-sites"])
def test_images_that_blow_up_are_not_sent(method: str, tmp_path: Path) -> None:
    world = make_world(make_job(method, settings={"image_lr": 1e38}), tmp_path)
    with pytest.raises(BoundaryError, match=r"site-0 in round 1 are not finite at image_lr 1e\+38; nothing was sent"):
        world.run()
    assert world.releases == []
    assert [[c.status for c in host.ledger.charges()] for host in world.hosts] == [["charged"], [], []], "charged first"


def test_fedlap_refuses_a_site_without_records_of_its_classes() -> None:
    cfg = fedlap.Config(rounds=1, images=1, public_classes=((0,), (1,)))
    state = State(0, dict(image_exchange.init(cfg, TASK, KEY)))
    opened = door(some_records(24, seed=0, classes=(1,)))
    with pytest.raises(UserError, match=r"site-0 has no record of its declared classes \[0\]; nothing was sent"):
        fedlap.client(cfg, state, Site("site-0", opened, {}, TASK), KEY)


def test_without_a_guarantee_the_plan_says_so() -> None:
    assert METHODS["fedlap"].plan(fedlap.Config(), TASK) == Cost.non_private()
