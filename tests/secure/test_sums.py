"""Secure sums: right with any quorum, closed below it, unreadable before, and never with less noise than promised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from prismfl.errors import UserError, WireError
from prismfl.privacy.shares import Rules, discrete_gaussian, naive_shortfall, noise_of
from prismfl.rng import Key
from prismfl.secure.masking import join_secret, split_secret
from prismfl.secure.sums import Collector, Party, PublicKeys

SITES = ("a", "b", "c", "d", "e")


def rules(**changes: object) -> Rules:
    values: dict[str, object] = {"sites": SITES, "quorum": 3, "length": 20, "bound": 1.0, "sigma": 0.0}
    values |= {"grid": 1e-3, "largest": 1e6, "label": "round 7"}
    return Rules(**{**values, **changes})  # type: ignore[arg-type]


def numbers(r: Rules) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(0, 100, r.length) for name in r.sites}


def run(
    r: Rules, *, lost_before: Sequence[str] = (), lost_after: Sequence[str] = (), silent: Sequence[str] = ()
) -> tuple[np.ndarray, Collector]:
    """One sum; sites are lost before they send letters, after it, or after they have sent their numbers."""
    parties = {name: Party(r, name) for name in r.sites if name not in lost_before}
    keys = {name: party.keys() for name, party in parties.items()}
    letters = {name: party.shares(keys) for name, party in parties.items()}
    collector = Collector(r, keys, tuple(parties))
    values = numbers(r)
    for name, party in parties.items():
        if name not in lost_after:
            mine = {sender: box[name] for sender, box in letters.items() if sender != name}
            collector.take(name, party.masked(mine, values[name], Key.seed(0).child(name).noise()))
    speakers = [name for name in collector.sent if name not in silent]
    return collector.open({name: parties[name].reveal(collector.sent) for name in speakers}), collector


@pytest.mark.parametrize(
    "lost",
    [
        {},
        {"lost_before": ("b",)},
        {"lost_after": ("a",)},
        {"lost_after": ("b", "e")},
        {"lost_before": ("c",), "lost_after": ("a",)},
        {"silent": ("a", "d")},
        {"lost_after": ("a",), "silent": ("e",)},
    ],
)
def test_the_sum_is_that_of_the_sites_that_sent(lost: dict[str, tuple[str, ...]]) -> None:
    r = rules()
    total, collector = run(r, **lost)
    expected = sum(np.rint(numbers(r)[name] / r.grid) * r.grid for name in collector.sent)
    assert np.allclose(total, expected, atol=1e-9)
    assert set(collector.sent) == set(SITES) - set(lost.get("lost_before", ())) - set(lost.get("lost_after", ()))


def test_below_the_quorum_it_stays_closed() -> None:
    with pytest.raises(UserError, match="nothing is revealed"):
        run(rules(), lost_after=("a", "b", "c"))
    with pytest.raises(UserError, match="stays closed"):
        run(rules(), silent=("a", "b", "c"))
    with pytest.raises(UserError, match="at least 3 known sites"):
        run(rules(), lost_before=("a", "b", "c"))


def test_what_a_site_sends_says_nothing_by_itself() -> None:
    r = rules(length=4000)
    seen = []
    for values in (np.zeros(r.length), np.full(r.length, 1e5)):
        parties = {name: Party(r, name) for name in SITES}
        keys = {name: party.keys() for name, party in parties.items()}
        letters = {name: party.shares(keys) for name, party in parties.items()}
        mine = {sender: box["a"] for sender, box in letters.items() if sender != "a"}
        seen.append(parties["a"].masked(mine, values, Key.seed(1).noise()))
    for masked in seen:
        high = (masked >> np.uint64(56)).astype(np.int64)
        counts = np.bincount(high, minlength=256)
        # 255 degrees of freedom: 99.99 % of uniform vectors stay below 346.
        assert ((counts - r.length / 256) ** 2 / (r.length / 256)).sum() < 346


def test_shares_are_revealed_once_and_letters_belong_to_their_reader() -> None:
    r = rules()
    parties = {name: Party(r, name) for name in SITES}
    keys = {name: party.keys() for name, party in parties.items()}
    letters = {name: party.shares(keys) for name, party in parties.items()}
    with pytest.raises(WireError, match="cannot be opened"):
        parties["a"].masked({"b": letters["b"]["c"]}, np.zeros(r.length), Key.seed(1).noise())
    mine = {sender: box["a"] for sender, box in letters.items() if sender != "a"}
    parties["a"].masked(mine, np.zeros(r.length), Key.seed(1).noise())
    told = parties["a"].reveal(("a", "b", "c"))
    assert {name: kind for name, (kind, _) in told.items()} == {
        "a": "seed",
        "b": "seed",
        "c": "seed",
        "d": "mask",
        "e": "mask",
    }
    with pytest.raises(UserError, match="confirmed, once"):
        parties["a"].reveal(("c", "d", "e"))
    twin = {**keys, "b": keys["c"]}
    with pytest.raises(WireError, match="same key"):
        Party(r, "d", parties["d"]._mask, parties["d"]._letter).shares(twin)
    assert isinstance(keys["a"], PublicKeys)


def test_numbers_that_do_not_fit_are_refused_not_clipped() -> None:
    r = rules(largest=10.0)
    party = Party(r, "a")
    others = {name: Party(r, name) for name in SITES[1:]}
    keys = {name: other.keys() for name, other in {"a": party, **others}.items()}
    party.shares(keys)
    letters = {name: other.shares(keys)["a"] for name, other in others.items()}
    for bad in ([11.0] * 20, [float("nan")] * 20, [1.0] * 19):
        with pytest.raises(UserError, match="secure sum"):
            party.masked(letters, bad, Key.seed(0).noise())
    collector = Collector(r)
    with pytest.raises(WireError, match="masked numbers"):
        collector.take("a", np.zeros(20))  # type: ignore[arg-type]
    collector.take("a", np.zeros(20, dtype=np.uint64))
    with pytest.raises(WireError, match="twice"):
        collector.take("a", np.zeros(20, dtype=np.uint64))


def test_shamir_shares_need_the_quorum() -> None:
    secret = bytes(range(32))
    shares = split_secret(secret, SITES, 3)
    assert join_secret({k: shares[k] for k in "bde"}, SITES, 3) == secret
    with pytest.raises(UserError, match="2 of 3"):
        join_secret({k: shares[k] for k in "bd"}, SITES, 3)
    wrong = {**{k: shares[k] for k in "bd"}, "e": shares["e"] + 1}
    with pytest.raises(WireError, match="do not fit"):
        join_secret(wrong, SITES, 3)


@pytest.mark.parametrize("deviation", [4.0, 37.3])
def test_discrete_gaussian_has_its_deviation(deviation: float) -> None:
    draws = discrete_gaussian(deviation, 200_000, Key.seed(3).noise())
    assert draws.dtype == np.int64
    assert abs(draws.std() / deviation - 1) < 0.01
    assert abs(draws.mean()) < 4 * deviation / np.sqrt(len(draws))
    expected = np.exp(-(np.arange(-3, 4) ** 2) / (2 * deviation**2))
    counts = np.array([(draws == k).sum() for k in range(-3, 4)])
    share = expected / np.exp(-(np.arange(-500, 501) ** 2) / (2 * deviation**2)).sum()
    assert (np.abs(counts - share * len(draws)) < 5 * np.sqrt(share * len(draws))).all()


@pytest.mark.parametrize(("lost", "present"), [((), 5), (("a",), 4), (("a", "b"), 3)])
def test_what_opens_holds_at_least_the_promised_noise(lost: tuple[str, ...], present: int) -> None:
    r = rules(length=20_000, sigma=2.0, bound=1.0)
    total, collector = run(r, lost_after=lost)
    exact = sum(np.rint(numbers(r)[name] / r.grid) * r.grid for name in collector.sent)
    measured = (total - exact).std() / r.rounded_bound
    assert abs(measured / noise_of(r, present) - 1) < 0.03
    assert noise_of(r, present) >= r.sigma


def test_collusion_and_shortfall() -> None:
    r = rules(sigma=2.0, quorum=4, colluding=1)
    assert r.share_deviation == pytest.approx(2.0 * r.rounded_bound / r.grid / np.sqrt(3))
    assert noise_of(r, 4) == pytest.approx(2.0)
    assert noise_of(r, 3) == 0.0
    assert naive_shortfall(rules(), 3) == pytest.approx(1 - np.sqrt(3 / 5))
    assert r.cost().describe().startswith("1 x Gaussian(noise 2)")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quorum": 2}, "above half"),
        ({"sites": ("a", "a", "b")}, "different names"),
        ({"colluding": 3}, "colluding"),
        ({"colluding": 1}, "could open two sums"),
        ({"length": 2**26 + 1}, "length in 1"),
        ({"sigma": 1.0, "grid": 10.0}, "noise share"),
        ({"grid": 1e-14}, "may pass"),
    ],
)
def test_rules_that_cannot_hold_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        rules(**changes)
