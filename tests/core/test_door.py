"""The door: what it answers, what it charges, and how far its answers on neighbouring data lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from prismfl.core.door import PrivateRecords
from prismfl.core.hub import PrivateSum
from prismfl.core.payloads import Gradient, Statistics, Weights
from prismfl.core.records import Records, as_floats
from prismfl.core.release import Release, make_release
from prismfl.errors import BoundaryError, UserError
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.kernels.loss import Loss
from prismfl.nets.classifier import build, cross_entropy_of_one
from prismfl.privacy import mechanisms
from prismfl.privacy.cost import Cost
from prismfl.privacy.shares import Rules, Secrecy
from prismfl.rng import Key


def some_records(n: int, *, seed: int = 0, unit: list[int] | None = None) -> Records:
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return Records(x, torch.arange(n) % 3, None if unit is None else torch.tensor(unit))


def open_door(records: Records, *, declared: int = 40, seed: int = 0, **kwargs: object) -> PrivateRecords:
    return PrivateRecords(records, declared=declared, classes=3, noise=Key.seed(seed).noise(), **kwargs)  # type: ignore[arg-type]


CLASSIFIER, PARAMS = build("convnet:4", (1, 8, 8), 3, key=Key.seed(0))


def mean_pixel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.flatten(1)


def two_tables(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The label, and the brightness of the first pixel in four bins."""
    return torch.stack([y.double(), (4 * x[:, 0, 0, 0]).double().floor()], 1)


TABLES = {"sizes": (3, 4), "weights": (0.6, 0.8), "bound": 1.0, "sigma": 2.0}
JITTERED = Loss(CLASSIFIER.module, lambda output, y, z: cross_entropy_of_one(output + 3.0 * z, y))
"""A loss that looks at the answer for a record through noise of the record's own."""


def ask_everything(door: PrivateRecords) -> None:
    """Each mechanism of the door once."""
    door.noisy_sum(mean_pixel, bound=1.0, sigma=2.0)
    door.noisy_sum(mean_pixel, bound=0.5, sigma=2.0, batch=10)
    door.noisy_histogram(sigma=1.5)
    door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=10, clip=0.2, sigma=1.1)
    door.noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=2.5)
    door.noisy_gradient(JITTERED, PARAMS, batch=40, clip=0.2, sigma=1.2, normals=3)
    door.noisy_tables(two_tables, **TABLES)  # type: ignore[arg-type]
    door.noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=1.0, apart=True)


class Spy:
    """Records every input to the noise, and its public parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[torch.Tensor, float, float, str]] = []
        real = mechanisms.add_noise

        def spying(
            total: torch.Tensor, *, bound: float, sigma: float, stream: object, kind: str = "gaussian"
        ) -> torch.Tensor:
            self.calls.append((total.clone(), bound, sigma, kind))
            return real(total, bound=bound, sigma=sigma, stream=stream, kind=kind)  # type: ignore[arg-type]

        monkeypatch.setattr(mechanisms, "add_noise", spying)

    def play(
        self, script: Callable[[PrivateRecords], None], door: PrivateRecords
    ) -> list[tuple[torch.Tensor, float, float, str]]:
        self.calls = []
        script(door)
        return self.calls


def neighbours() -> list[tuple[str, Records, Records]]:
    base = some_records(41)
    rare = Records(base.x, torch.where(torch.arange(41) == 40, 2, 0))
    wild = Records(torch.cat([base.x[:40], torch.full((1, 1, 8, 8), 1e6)]), base.y)
    twice = Records(base.x[torch.arange(41) % 20], base.y[torch.arange(41) % 20])
    return [
        ("last record removed", base, base.take(torch.arange(40))),
        ("first record removed", base, base.take(torch.arange(1, 41))),
        ("middle record removed", base, base.take(torch.tensor([i for i in range(41) if i != 20]))),
        ("first of three equal ones removed", twice, twice.take(torch.arange(1, 41))),
        ("only record of its class removed", rare, rare.take(torch.arange(40))),
        ("outlier removed", wild, wild.take(torch.arange(40))),
        ("one record or none", some_records(1), some_records(1).take(torch.arange(0))),
    ]


@pytest.mark.parametrize(("what", "one", "other"), neighbours(), ids=[n[0] for n in neighbours()])
def test_record_play(monkeypatch: pytest.MonkeyPatch, what: str, one: Records, other: Records) -> None:
    """Neighbouring data, same randomness: the same noise calls, inputs no further apart than the declared bound."""
    spy = Spy(monkeypatch)
    a = spy.play(ask_everything, open_door(one))
    b = spy.play(ask_everything, open_door(other))
    assert [call[1:] for call in a] == [call[1:] for call in b]
    for (left, bound, _, _), (right, _, _, _) in zip(a, b):
        assert left.shape == right.shape
        assert float((left - right).norm()) <= bound * (1 + 1e-5)


def jitter(door: PrivateRecords) -> torch.Tensor:
    """An answer that is (almost) the sum of the numbers that the door drew for its records."""
    loss = Loss(nn.Linear(64, 1), lambda output, y, z: (output[0] * z.sum()).sum())
    params = {"weight": torch.zeros(1, 64), "bias": torch.zeros(1)}
    return door.noisy_gradient(loss, params, batch=40, clip=1e6, sigma=1e-9, normals=7)["bias"] * 40


def test_a_records_numbers_are_the_sites_secret_and_its_own() -> None:
    """Other entropy, other numbers; with the same, each record has the same ones whoever else is there."""
    base = Records(some_records(12).x.flatten(1), torch.arange(12) % 3)
    whole = float(jitter(open_door(base)))
    parts = [float(jitter(open_door(base.take(torch.tensor([i]))))) for i in range(12)]
    assert whole == pytest.approx(sum(parts), abs=1e-3)
    assert len({round(p, 3) for p in parts}) == 12
    assert whole != pytest.approx(float(jitter(open_door(base, seed=1))), abs=1e-2)
    secret = [PrivateRecords(base, declared=40, classes=3, noise=Key.from_os().noise()) for _ in range(2)]
    assert float(jitter(secret[0])) != pytest.approx(float(jitter(secret[1])), abs=1e-2)
    door = open_door(base)
    assert float(jitter(door)) != pytest.approx(float(jitter(door)), abs=1e-2), "the same numbers in two steps"


def test_every_answer_is_charged() -> None:
    door = open_door(some_records(30))
    ask_everything(door)
    expected = Cost.gaussian(2.0) + Cost.gaussian(2.0, rate=0.25) + Cost.gaussian(1.5) + Cost.gaussian(1.1, rate=0.25)
    expected = expected + Cost.gaussian(2.5) + Cost.gaussian(1.2) + Cost.gaussian(2.0) + Cost.gaussian(1.0)
    assert door.meter.cost == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_a_row_that_is_not_finite_counts_for_nothing(value: float) -> None:
    """A public encoder may overflow on one record: no exception tells of it, and it moves no sum."""
    records = some_records(12)

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        odd = torch.isclose(x[:, 0, 0, 0], records.x[5, 0, 0, 0])
        found = x.flatten(1)[:, :6].clone()
        found[odd, 2] = value
        found[odd, 4] = value
        return found

    rest = torch.arange(12) != 5
    others = Records(records.x[rest], records.y[rest])
    ask = {"second": 4, "scale": 0.7, "bound": 1.3, "sigma": 2.0}
    with_it = open_door(records).noisy_moments(rows, **ask)  # type: ignore[arg-type]
    without = open_door(others).noisy_moments(rows, **ask)  # type: ignore[arg-type]
    for mine, theirs in zip(with_it, without):
        assert bool(torch.isfinite(mine).all())
        if not math.isfinite(value):
            assert torch.equal(mine, theirs)


def test_moments_are_class_sums_and_outer_products_of_clipped_vectors() -> None:
    """Against a plain loop that writes every vector out."""
    records = some_records(30)
    records.x[4] *= 100
    got = open_door(records).noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=1e-9)
    sums, moment = torch.zeros(3, 64).double(), torch.zeros(5, 5).double()
    for x, y in zip(records.x.flatten(1).double(), records.y):
        outer = 0.7 * torch.outer(x[:5], x[:5])
        factor = min(1.0, 1.3 / float(torch.cat([x, outer.flatten()]).norm()))
        sums[y] += factor * x
        moment += factor * outer
    torch.testing.assert_close(got[0].double(), sums, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got[1].double(), moment, rtol=1e-4, atol=1e-4)


def moments_of_classes_apart() -> None:
    """A record's outer product is in its own class's matrix and in no other; clipped with the rest."""
    records, door = some_records(30), open_door(some_records(30))
    whole = open_door(records).noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=1e-9)
    sums, apart = door.noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=1e-9, apart=True)
    assert apart.shape == (3, 5, 5)
    torch.testing.assert_close(sums, whole[0])
    torch.testing.assert_close(apart.sum(0), whole[1])
    for c in range(3):
        own = Records(records.x[records.y == c], records.y[records.y == c])
        alone = open_door(own).noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=1e-9)[1]
        torch.testing.assert_close(apart[c], alone)
    assert door.meter.cost == Cost.gaussian(1e-9)


def test_moments_of_classes_apart() -> None:
    moments_of_classes_apart()


@pytest.mark.parametrize("unit", [None, "patient"])
def test_tables_are_weighted_histograms_side_by_side(unit: str | None) -> None:
    """Against a plain loop; a patient's records share one count."""
    records = some_records(30)
    sizes = torch.ones(30).double()
    more: dict[str, object] = {}
    if unit is not None:
        ids = torch.arange(30) // 4
        records, more = Records(records.x, records.y, ids), {"unit": unit}
        sizes = torch.bincount(ids)[ids].double()
    asked = {**TABLES, "sigma": 1e-9}
    got = open_door(records, **more).noisy_tables(two_tables, **asked)  # type: ignore[arg-type]
    plain = open_door(records, reference=True, **more).noisy_tables(two_tables, **asked)  # type: ignore[arg-type]
    found = torch.zeros(7).double()
    for x, y, size in zip(records.x, records.y, sizes):
        found[int(y)] += 0.6 / size
        found[3 + min(3, int(4 * x[0, 0, 0]))] += 0.8 / size
    torch.testing.assert_close(got.double(), found, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain.double(), found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38, -7.0, 2.0**70])
def test_a_record_outside_every_table_counts_once_in_each(value: float) -> None:
    def places(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 2), value, dtype=torch.float64)

    got = open_door(some_records(5)).noisy_tables(places, sizes=(3, 4), weights=(0.6, 0.8), bound=1.0, sigma=1e-9)
    torch.testing.assert_close(torch.stack([got[:3].sum(), got[3:].sum()]), torch.tensor([3.0, 4.0]))


def test_tables_whose_weights_are_longer_than_their_bound_are_refused() -> None:
    door = open_door(some_records(5))
    for weights in ((0.7, 0.8), (math.nan, 0.1), (math.inf, 0.1)):
        with pytest.raises(BoundaryError, match="longer than the bound"):
            door.noisy_tables(two_tables, sizes=(3, 4), weights=weights, bound=1.0, sigma=1.0)
    for sizes in ((3,), (3, 0)):
        with pytest.raises(UserError, match="tables with cells"):
            door.noisy_tables(two_tables, sizes=sizes, weights=(0.6, 0.8), bound=1.0, sigma=1.0)
    assert door.meter.cost.is_zero


def test_noise_of_the_moments() -> None:
    """Off-diagonal entries appear twice in the matrix's norm, so each carries 1 / sqrt 2 of the noise."""
    door = PrivateRecords(some_records(0), declared=1, classes=3, noise=Key.seed(3).noise())
    sums, moment = door.noisy_moments(mean_pixel, second=60, scale=1.0, bound=0.5, sigma=4.0)
    assert abs(float(sums.std()) / 2.0 - 1) < 0.2
    off = moment[torch.triu_indices(60, 60, 1).unbind()]
    assert abs(float(off.std()) / (2.0 / 2**0.5) - 1) < 0.1
    assert torch.equal(moment, moment.T)


def test_gradient_is_divided_by_the_expected_batch() -> None:
    """With a tiny noise and all records drawn, sum / declared comes back, whatever the true number of records is."""
    records = some_records(30)
    door = open_door(records, declared=60)
    got = door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=60, clip=1e6, sigma=1e-12)
    sums = clipped_gradient_sum(CLASSIFIER.record_loss, PARAMS, batch=(records.x, records.y), clip=1e6)
    for name in PARAMS:
        torch.testing.assert_close(got[name].double(), sums[name] / 60, rtol=1e-3, atol=1e-5)


def test_sigma_zero_and_no_clip_is_the_exact_gradient_and_is_marked_non_private() -> None:
    records = some_records(30)
    door = open_door(records, declared=30)
    got = door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=30, clip=math.inf, sigma=0.0)
    exact = CLASSIFIER.gradient(PARAMS, records.x, records.y)
    for name in PARAMS:
        torch.testing.assert_close(got[name], exact[name], rtol=1e-4, atol=1e-6)
    assert not door.meter.cost.private


@pytest.mark.parametrize("n", [0, 1])
def test_none_or_one_record_still_answers_noised_and_charged(n: int) -> None:
    door = open_door(some_records(n), declared=40)
    answer = door.noisy_sum(mean_pixel, bound=1.0, sigma=3.0)
    gradient = door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=8, clip=1.0, sigma=1.0)
    assert answer.shape == (64,)
    assert float(answer.std()) > 1.0
    assert all(bool(torch.isfinite(g).all()) and float(g.abs().sum()) > 0 for g in gradient.values())
    assert door.meter.cost == Cost.gaussian(3.0) + Cost.gaussian(1.0, rate=0.2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_bad_numbers_stay_inside(bad: float) -> None:
    records = some_records(20)
    records.x[7] = bad
    door = open_door(records)
    ask_everything(door)
    assert bool(torch.isfinite(door.noisy_sum(mean_pixel, bound=1.0, sigma=1.0)).all())


def test_exact_marks_everything_after_it_non_private() -> None:
    door = open_door(some_records(10))
    door.noisy_histogram(sigma=1.0)
    assert len(door.exact()) == 10
    door.noisy_histogram(sigma=1.0)
    assert door.meter.cost == Cost.non_private()


def test_a_door_that_promises_refuses_exact() -> None:
    with pytest.raises(BoundaryError, match="guarantee"):
        open_door(some_records(10), allow_exact=False).exact()


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)])
def test_layers_that_mix_records_are_refused_by_name(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(64, 4), layer)
    door = open_door(some_records(10))
    with pytest.raises(UserError, match=type(layer).__name__):
        door.noisy_gradient(
            Loss(module, cross_entropy_of_one), dict(module.named_parameters()), batch=2, clip=1.0, sigma=1.0
        )


def test_classes_compose_in_parallel() -> None:
    door = open_door(some_records(30))
    with door.by_class([10, 10, 20]) as doors:
        for d, sigma in zip(doors, (1.0, 2.0, 3.0)):
            d.noisy_sum(mean_pixel, bound=1.0, sigma=sigma, batch=5)
    assert door.meter.cost == Cost.parallel(
        [Cost.gaussian(1.0, rate=0.5), Cost.gaussian(2.0, rate=0.5), Cost.gaussian(3.0, rate=0.25)]
    )


def test_a_record_moves_one_class_only(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)

    def script(door: PrivateRecords) -> None:
        with door.by_class([10, 10, 10]) as doors:
            for d in doors:
                d.noisy_sum(mean_pixel, bound=1.0, sigma=1.0)

    base = some_records(31)
    a, b = (spy.play(script, open_door(r)) for r in (base, base.take(torch.arange(30))))
    gaps = [float((left[0] - right[0]).norm()) for left, right in zip(a, b)]
    assert sum(gap > 0 for gap in gaps) == 1


def test_classes_of_a_person_do_not_compose_in_parallel() -> None:
    door = open_door(some_records(4, unit=[0, 0, 1, 1]), unit="patient_id")
    with pytest.raises(UserError, match="patient_id"), door.by_class([2, 1, 1]):
        pass


def test_a_patient_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    records = some_records(30, unit=[0] * 20 + [1] * 5 + [2] * 5)

    def script(door: PrivateRecords) -> None:
        door.noisy_histogram(sigma=1.0)
        door.noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=2.5)
        door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=40, clip=0.3, sigma=1.0)
        door.noisy_gradient(JITTERED, PARAMS, batch=25, clip=0.3, sigma=1.0, normals=3)

    keep = torch.arange(20)  # patient 0 stays, 1 and 2 leave one after the other; then 0 alone
    a = spy.play(script, open_door(records, unit="patient_id"))
    b = spy.play(script, open_door(records.take(torch.arange(25)), unit="patient_id"))
    c = spy.play(script, open_door(records.take(keep), unit="patient_id"))
    d = spy.play(script, open_door(records.take(torch.arange(20, 30)), unit="patient_id"))
    for one, other in ((a, b), (b, c), (a, d)):
        for (left, bound, _, _), (right, _, _, _) in zip(one, other):
            assert float((left - right).norm()) <= bound * (1 + 1e-5)
    assert float(a[0][0].sum()) == pytest.approx(3.0, rel=1e-5)
    door = open_door(records, unit="patient_id")
    script(door)
    assert door.meter.cost.unit == "patient_id"


def test_a_unit_needs_its_column() -> None:
    with pytest.raises(UserError, match="patient_id"):
        open_door(some_records(4), unit="patient_id")


def test_stopping_early_never_lowers_the_charge() -> None:
    door = open_door(some_records(10))
    door.noisy_sum(mean_pixel, bound=1.0, sigma=1.0, batch=4)
    door.forfeit(sigma=1.0, times=9, batch=4)
    assert door.meter.cost == Cost.gaussian(1.0, rate=0.1, times=10)


def hub_of(sizes: list[float], sigma: float = 1e-9) -> tuple[PrivateSum, dict[str, torch.Tensor]]:
    like = {"w": torch.zeros(4)}
    inbox = {f"site-{i}": {"update": Gradient({"w": torch.full((4,), s)})} for i, s in enumerate(sizes)}
    return PrivateSum(inbox, declared=len(sizes), noise=Key.seed(0).noise()), like


def test_the_hub_bounds_each_client_and_charges_its_own_unit() -> None:
    hub, like = hub_of([1e6, 0.1])
    total = hub.noisy(lambda items: items["update"].tensors, like, bound=1.0, sigma=1e-9)["w"]
    torch.testing.assert_close(total, torch.full((4,), 0.5 + 0.1), rtol=1e-4, atol=1e-4)
    assert hub.meter.cost == Cost.gaussian(1e-9, unit="client")


def test_a_release_carries_exactly_what_was_declared() -> None:
    door = open_door(some_records(10))
    counts = Statistics({"counts": door.noisy_histogram(sigma=1.0)})
    kwargs = {"leaves": {"stats": Statistics}, "run": "r", "site": "s", "round": 0}
    release = make_release(door, {"stats": counts}, **kwargs)  # type: ignore[arg-type]
    assert release.cost == Cost.gaussian(1.0)
    assert release.noise == "seeded: simulation only"
    assert Release.decode(release.encode()).cost == release.cost
    for items in ({}, {"stats": counts, "more": counts}, {"stats": Weights({"w": torch.ones(1)})}):
        with pytest.raises(BoundaryError):
            make_release(door, items, **kwargs)  # type: ignore[arg-type]


# What is refused, and what an early stop costs


def test_public_numbers_of_no_sense_are_refused() -> None:
    with pytest.raises(UserError, match="declared number of records >= 1, got 0"):
        open_door(some_records(3), declared=0)
    for batch in (0.0, -1.0, math.nan):
        with pytest.raises(UserError, match="batch > 0"):
            open_door(some_records(3)).noisy_sum(mean_pixel, bound=1.0, sigma=1.0, batch=batch)


def test_class_sizes_are_declared_for_every_class() -> None:
    door = open_door(some_records(9))
    with pytest.raises(UserError, match="3 declared class sizes, got 2"), door.by_class([3, 3]):
        pass
    assert door.meter.cost.is_zero


def test_what_was_planned_and_not_asked_is_charged_and_nothing_for_nothing() -> None:
    door = open_door(some_records(9))
    door.forfeit(sigma=2.0, times=0)
    assert door.meter.cost.is_zero
    door.forfeit(sigma=2.0, times=3, batch=10)
    assert door.meter.cost == Cost.gaussian(2.0, rate=0.25, times=3)


def test_a_secure_sum_takes_one_noisy_sum_and_nothing_else() -> None:
    rules = Rules.fit(("a", "b"), Secrecy(2), length=64, bound=1.0, sigma=2.0, label="run/0")
    door = open_door(some_records(9), shared=rules)
    with pytest.raises(BoundaryError, match="a gradient cannot be part of it"):
        door.noisy_gradient(CLASSIFIER.record_loss, PARAMS, batch=4, clip=1.0, sigma=2.0)
    with pytest.raises(BoundaryError, match="by class"), door.by_class([3, 3, 3]):
        pass
    assert door.meter.cost.is_zero


def test_bytes_get_the_same_answers_as_the_floats_they_stand_for() -> None:
    """Also from one question to the next: samples and numbers of a record's own follow from its content."""
    x = torch.randint(256, (30, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    answers = []
    for kept in (x, as_floats(x)):
        door = open_door(Records(kept, torch.arange(30) % 3))
        found = [door.noisy_sum(mean_pixel, bound=0.5, sigma=2.0, batch=10)]
        found += door.noisy_moments(mean_pixel, second=5, scale=0.7, bound=1.3, sigma=2.5)
        found += door.noisy_gradient(JITTERED, PARAMS, batch=20, clip=0.2, sigma=1.2, normals=3).values()
        with door.by_class([10, 10, 10]) as doors:
            found += [one.noisy_histogram(sigma=1.0) for one in doors]
        answers.append([*found, door.exact().x])
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_of_large_records_few_are_looked_at_at_a_time() -> None:
    seen: list[tuple[torch.dtype, int]] = []

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, len(x)))
        return x.mean((1, 2, 3))[:, None]

    large = Records(torch.zeros(40, 3, 512, 512, dtype=torch.uint8), torch.zeros(40, dtype=torch.int64))
    open_door(large, declared=1000).noisy_sum(rows, bound=1.0, sigma=1.0)
    assert seen == [(torch.float32, 1), *[(torch.float32, 7)] * 6]
