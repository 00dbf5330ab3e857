"""The accountant against golden values, closed forms and itself. Golden values: docs of the methods, delta 1e-5."""

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost, Mechanism, Relation

DELTA = 1e-5
TARGETS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# sigma, rate, steps, the RDP interval, the PLD interval
GOLDEN = [
    (1.5, 0.04, 2250, (7.328, 7.331), (6.76, 6.78)),
    (1.0, 256 / 10000, 200, (2.782, 2.792), (2.38, 2.40)),
    (1.0, 256 / 10000, 3000, (10.179, 10.189), (9.36, 9.39)),
    (5.0, 0.1, 5, (0.1875, 0.1885), (0.1640, 0.1650)),
]


@pytest.mark.parametrize(("sigma", "rate", "steps", "rdp", "pld"), GOLDEN)
def test_golden_values_and_the_wrong_sigma_is_seen(
    sigma: float, rate: float, steps: int, rdp: tuple[float, float], pld: tuple[float, float]
) -> None:
    right = Cost.gaussian(sigma, rate, times=steps)
    assert rdp[0] <= account.epsilon_rdp(right, DELTA) <= rdp[1]
    assert pld[0] <= account.epsilon(right, DELTA) <= pld[1]
    for factor in (0.97, 1.03):
        wrong = Cost.gaussian(factor * sigma, rate, times=steps)
        assert not rdp[0] <= account.epsilon_rdp(wrong, DELTA) <= rdp[1]
        assert not pld[0] <= account.epsilon(wrong, DELTA) <= pld[1]


@pytest.mark.parametrize(("rounds", "golden"), [(7, 6.725), (17, 10.93), (27, 14.33)])
def test_fedlap_rounds(rounds: int, golden: float) -> None:
    cost = Cost.gaussian(1.0, 256 / 10000, times=200) * rounds
    assert account.epsilon_rdp(cost, DELTA) == pytest.approx(golden, abs=0.01)


@pytest.mark.parametrize(
    ("target", "sigma", "slack"),
    [(0.2, 16.30, 0.005), (0.5, 7.03, 0.005), (1, 3.73, 0.005), (2, 1.99, 0.005), (5, 0.892, 5e-4), (10, 0.5, 5e-4)],
)
def test_one_gaussian_release(target: float, sigma: float, slack: float) -> None:
    exact = account.gaussian_sigma(target, DELTA)
    assert exact == pytest.approx(sigma, abs=slack)
    assert account.epsilon(Cost.gaussian(exact), DELTA) == pytest.approx(target, rel=1e-3)
    assert account.delta_of(Cost.gaussian(exact), target) == pytest.approx(DELTA, rel=0.02)


def test_pld_agrees_with_an_own_fourier_accountant() -> None:
    noise, rate, steps = 1.0, 256 / 10000, 3000
    assert account.epsilon(Cost.gaussian(noise, rate, times=steps), DELTA) == pytest.approx(
        _fourier_epsilon(noise, rate, steps), rel=2e-3
    )


def _fourier_epsilon(noise: float, rate: float, steps: int) -> float:
    """Loss of 'remove' on a grid, composed by FFT, epsilon by bisection: shares no code with dp_accounting."""
    step, size = 4e-4, 1 << 18
    x = np.linspace(-12, 13, 400_001)
    base, shifted = stats.norm.pdf(x, 0, noise), stats.norm.pdf(x, 1, noise)
    mixture = (1 - rate) * base + rate * shifted
    loss, weight = np.log(mixture / base), mixture * (x[1] - x[0])
    cell = np.floor(loss / step).astype(np.int64)
    part = loss / step - cell
    mass = np.bincount(cell % size, weight * (1 - part), size) + np.bincount((cell + 1) % size, weight * part, size)
    total = np.real(np.fft.ifft(np.fft.fft(mass) ** steps))
    values = np.arange(size) * step
    values += np.round((steps * np.sum(weight * loss) - values) / (size * step)) * size * step
    low, high = 0.0, 40.0
    for _ in range(50):
        middle = (low + high) / 2
        delta = np.sum(total * -np.expm1(np.minimum(0.0, middle - values)))
        low, high = (middle, high) if delta > DELTA else (low, middle)
    return high


def test_epsilon_is_monotone_in_steps_rate_and_noise() -> None:
    def grows(costs: list[Cost]) -> bool:
        values = [account.epsilon(cost, DELTA) for cost in costs] + [math.inf]
        bounds = [account.epsilon_rdp(cost, DELTA) for cost in costs] + [math.inf]
        return all(a < b for line in (values, bounds) for a, b in pairwise(line))

    assert grows([Cost.gaussian(2.0, 0.05, times=n) for n in (1, 10, 100, 1000)])
    assert grows([Cost.gaussian(2.0, q, times=100) for q in (0.01, 0.05, 0.2, 0.9, 1.0)])
    assert grows([Cost.gaussian(s, 0.05, times=100) for s in (8.0, 4.0, 2.0, 1.0, 0.7)])
    assert grows([Cost.laplace(s) for s in (8.0, 4.0, 2.0)])


def test_no_guarantee_is_infinite_and_nothing_spent_is_zero() -> None:
    for none in (Cost.gaussian(0.0), Cost.non_private(), Cost.gaussian(1.0) + Cost.laplace(0.0)):
        assert account.epsilon(none, DELTA) == account.epsilon_rdp(none, DELTA) == math.inf
        assert account.delta_of(none, 1.0) == 1.0
        assert set(account.rdp_curve(none)) == {math.inf}
    zero = Cost.zero()
    assert account.epsilon(zero, DELTA) == account.epsilon_rdp(zero, DELTA) == account.delta_of(zero, 0.0) == 0.0
    assert set(account.rdp_curve(zero)) == {0.0}


def test_small_epsilon_stays_tight_over_many_tiny_steps() -> None:
    # With a fixed grid of 1e-3 this comes out at 0.125. As a Gaussian limit mu = rate sqrt(steps) / noise = 0.0063.
    tight = account.epsilon(Cost.gaussian(50.0, 0.001, times=100_000), DELTA)
    assert 0.0155 <= tight <= 0.0168


@pytest.mark.parametrize("make", [Cost.gaussian, Cost.laplace])
def test_extreme_numbers_give_a_bound_and_not_a_crash(make) -> None:  # type: ignore[no-untyped-def]
    for noise in (5e-324, 1e-7):
        for rate in (1.0, 0.5):
            assert (
                account.epsilon(make(noise, rate), DELTA) == account.epsilon_rdp(make(noise, rate), DELTA) == math.inf
            )
            assert account.delta_of(make(noise, rate), 1.0) == 1.0
    for cost in (make(1e300), make(1.0, 5e-324), make(1e300, 5e-324)):
        assert 0 <= account.epsilon(cost, DELTA) <= account.epsilon_rdp(cost, DELTA) < 0.2
    assert account.epsilon(make(0.2, 0.001, times=10), DELTA) <= account.epsilon_rdp(make(0.2, 0.001, times=10), DELTA)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_laplace_is_at_most_its_pure_epsilon(noise: float) -> None:
    pure = 1 / noise
    assert account.epsilon(Cost.laplace(noise), DELTA) == pytest.approx(pure, rel=2e-3)
    sampled = math.log1p(0.1 * math.expm1(pure))
    assert account.epsilon(Cost.laplace(noise, 0.1), DELTA) <= sampled * 1.005
    assert account.epsilon(Cost.laplace(noise, 0.1, times=30), DELTA) <= account.epsilon_rdp(
        Cost.laplace(noise, 0.1, times=30), DELTA
    )
    assert account.epsilon_rdp(Cost.laplace(noise, times=50), DELTA) >= account.epsilon(
        Cost.laplace(noise, times=50), DELTA
    )
    assert max(account.rdp_curve(Cost.laplace(noise))) <= pure


def test_laplace_rdp_matches_integration() -> None:
    noise, order = 1.3, 8.0
    x = np.linspace(-60, 60, 2_400_001)
    logs = order * stats.laplace.logpdf(x, 1, noise) + (1 - order) * stats.laplace.logpdf(x, 0, noise)
    expected = math.log(np.exp(logs).sum() * (x[1] - x[0])) / (order - 1)
    assert account.rdp_curve(Cost.laplace(noise))[account.ORDERS.index(order)] == pytest.approx(expected, rel=1e-6)


def test_branches_cost_the_worst_one() -> None:
    loud, quiet = Cost.gaussian(5.0, times=3), Cost.gaussian(1.0)
    both = Cost.parallel([loud, quiet, loud])
    assert account.epsilon(both, DELTA) == account.epsilon(quiet, DELTA) < account.epsilon(loud + quiet, DELTA)
    assert account.rdp_curve(both) == account.rdp_curve(quiet)
    assert account.delta_of(both, 1.0) == account.delta_of(quiet, 1.0)


def test_replace_one_doubles_the_sensitivity() -> None:
    for make in (Cost.gaussian, Cost.laplace):
        replaced, half = make(2.0, relation="replace-one"), make(1.0)
        assert account.epsilon(replaced, DELTA) == pytest.approx(account.epsilon(half, DELTA), rel=1e-9)
        assert account.rdp_curve(replaced) == account.rdp_curve(half)


@pytest.mark.parametrize(("noise", "rate"), [(1.5, 0.04), (0.7, 0.3), (8.0, 0.01)])
def test_sampled_replace_one_lies_between_its_bounds(noise: float, rate: float) -> None:
    replaced = Cost.gaussian(noise, rate, times=100, relation="replace-one")
    once, without = Cost.gaussian(noise, rate, times=100), Cost.gaussian(noise / 2, times=100)
    value = account.epsilon(replaced, DELTA)
    assert account.epsilon(once, DELTA) < value < account.epsilon(without, DELTA)
    assert value <= account.epsilon_rdp(replaced, DELTA) <= 1.5 * value
    curves = zip(*(account.rdp_curve(cost) for cost in (once, replaced, without)), account.ORDERS, strict=True)
    assert all(a <= b * (1 + 1e-9) <= c * (1 + 1e-6) for a, b, c, order in curves if order >= 2)


def test_what_has_no_exact_accounting_is_refused() -> None:
    sampled = Cost.laplace(1.0, 0.1, relation="replace-one")
    for ask in (account.epsilon, account.epsilon_rdp):
        with pytest.raises(UserError, match="replace-one"):
            ask(sampled, DELTA)
    with pytest.raises(UserError, match="cauchy"):
        Mechanism("cauchy", 1.0)  # type: ignore[arg-type]
    strange = Mechanism("gaussian", 1.0)
    object.__setattr__(strange, "kind", "cauchy")
    with pytest.raises(UserError, match="cauchy"):
        account.mechanism_rdp(strange, "add-remove")
    unknown = Cost((((strange, 1),),))
    with pytest.raises(UserError, match="cauchy"):
        account.epsilon(unknown, DELTA)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
def test_delta_outside_zero_one_is_refused(delta: float) -> None:
    for ask in (account.epsilon, account.epsilon_rdp):
        with pytest.raises(UserError, match="delta"):
            ask(Cost.gaussian(1.0), delta)
    with pytest.raises(UserError, match="delta"):
        account.gaussian_sigma(1.0, delta)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rate", "steps"), [(0.04, 2250), (1.0, 1), (0.5, 20)])
def test_calibration_meets_the_target(target: float, rate: float, steps: int) -> None:
    sigma = account.calibrate(lambda s: Cost.gaussian(s, rate, times=steps), target, DELTA)
    spent = account.epsilon(Cost.gaussian(sigma, rate, times=steps), DELTA)
    assert 0.98 * target <= spent <= target
    assert account.epsilon(Cost.gaussian(0.97 * sigma, rate, times=steps), DELTA) > target


def test_calibration_beside_a_fixed_cost() -> None:
    fixed = Cost.gaussian(6.0)
    sigma = account.calibrate(lambda s: fixed + Cost.gaussian(s, 0.01, times=500), 1.0, DELTA)
    assert 0.98 <= account.epsilon(fixed + Cost.gaussian(sigma, 0.01, times=500), DELTA) <= 1.0


def test_impossible_calibration_says_so() -> None:
    with pytest.raises(UserError, match="No sigma reaches epsilon 1"):
        account.calibrate(lambda s: Cost.gaussian(1.0) + Cost.gaussian(s), 1.0, DELTA)
    with pytest.raises(UserError, match="not used up"):
        account.calibrate(lambda s: Cost.gaussian(50.0), 1.0, DELTA)
    with pytest.raises(UserError, match="No sigma reaches"):
        account.calibrate(lambda s: Cost.non_private(), 1.0, DELTA)
    for target in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="epsilon"):
            account.calibrate(lambda s: Cost.gaussian(s), target, DELTA)


def test_no_heavy_import_before_it_is_needed() -> None:
    code = (
        "import sys; from prismfl.privacy import account, cost, ledger;"
        "account.rdp_curve(cost.Cost.gaussian(2.0));"
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'dp_accounting')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_a_delta_is_asked_for_a_finite_epsilon(epsilon: float) -> None:
    with pytest.raises(UserError, match="finite epsilon >= 0"):
        account.delta_of(Cost.gaussian(1.0), epsilon)


def test_too_little_noise_has_no_curve() -> None:
    """Replacing a record moves twice as far, so the least noise is reached at twice the multiplier."""
    least = Cost.gaussian(1.5e-6, relation="replace-one").branches[0][0][0]
    assert set(account.mechanism_rdp(least, "replace-one")) == {math.inf}
    assert account.mechanism_rdp(least, "add-remove")[0] < math.inf
    assert set(account.mechanism_rdp(Mechanism("gaussian", 0.0, 1.0), "add-remove")) == {math.inf}


def test_a_cost_that_jumps_over_the_target_has_no_sigma() -> None:
    """A plan that changes with sigma: dear below 10, next to nothing above."""
    with pytest.raises(UserError, match="the cost jumps"):
        account.calibrate(lambda sigma: Cost.gaussian(0.5 if sigma < 10 else 1e5), 1.0, 1e-5)


def test_calibration_from_no_guarantee_goes_by_halves() -> None:
    """Below 10 the plan has no guarantee, an infinity that no power law goes through."""
    found = account.calibrate(lambda sigma: Cost.non_private() if sigma < 10 else Cost.gaussian(sigma / 5), 1.5, 1e-5)
    assert found >= 10
    assert 0.99 * 1.5 <= account.epsilon(Cost.gaussian(found / 5), 1e-5) <= 1.5


def test_a_run_too_long_for_pld_has_the_bound_by_rdp() -> None:
    """Of two million sampled answers the delta must cover what less than a million of them cost by PLD."""
    long, short = (Cost.gaussian(1500.0, 0.5, times=times) for times in (2_000_000, 900_000))
    assert account.delta_of(short, 2.0) < account.delta_of(long, 2.0) < 1.0
    assert account.epsilon(long, account.delta_of(long, 2.0)) == pytest.approx(2.0, rel=1e-6)


def test_sampling_is_left_out_where_integration_would_take_too_many_points() -> None:
    """An upper bound: replace-one without sampling."""
    mechanism = Cost.gaussian(0.02, rate=0.1, relation="replace-one").branches[0][0][0]
    curve = account.mechanism_rdp(mechanism, "replace-one")
    assert curve[-1] == pytest.approx(2 * account.ORDERS[-1] / 0.02**2)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_unsampled_gaussians_of_any_noise_are_exactly_one(epsilon: float, relation: Relation) -> None:
    """1 / sigma^2 adds up. Composed one by one on a grid, two shares of a budget came out above it (0.2000047)."""
    sigma = account.gaussian_sigma(epsilon, 1e-5)
    shares = [Cost.gaussian(sigma / math.sqrt(share), relation=relation) for share in (0.1, 0.6, 0.3)]
    whole = account.epsilon(Cost.gaussian(sigma, relation=relation), 1e-5)
    assert account.epsilon(shares[0] + shares[1] + shares[2], 1e-5) == pytest.approx(whole, rel=1e-9)
    sampled = Cost.gaussian(2.0, rate=0.1, times=5, relation=relation)
    assert account.epsilon(shares[0] + sampled + shares[2], 1e-5) > account.epsilon(shares[0] + shares[2], 1e-5)
