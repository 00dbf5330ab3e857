"""Secure sums against a server that lies: about who there is, what they said, and what the others were told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from prismfl.core import rounds
from prismfl.core.job import Job
from prismfl.core.method import DPSettings, State
from prismfl.core.payloads import encode
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.core.rounds import Host
from prismfl.errors import BoundaryError, BudgetError, PrismError, UserError, WireError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.shares import Rules, Secrecy
from prismfl.runs.description import declared, describe, digest_of, job_of
from prismfl.secure import protocol as secure
from prismfl.secure.masking import Vector, agree
from prismfl.secure.roster import Roster, RosterError
from prismfl.secure.sums import Collector, Party, PublicKeys, pair_mask
from prismfl.site.keys import peer_keys
from prismfl.site.office import Office
from prismfl.transport.post import Request
from tests.secure.test_protocol import histogram_job, offices, records_of, secure_config
from tests.site.folders import NAMES

ABCDE = ("a", "b", "c", "d", "e")
START = State(0, {})
Told = Mapping[str, Any]


class Town:
    """Sites that have exchanged keys, and a server that may tell each of them what it likes."""

    def __init__(self, folder: Path, job: Job, *, known: Sequence[str] = ABCDE, honest: int | None = None) -> None:
        self.job, self.folder = job, folder
        self.signers = {name: Ed25519PrivateKey.generate() for name in known}
        peers = {name: key.public_key() for name, key in self.signers.items()}
        self.hosts, self.rosters = {}, {}
        for name in known:
            ledger = Ledger.open(folder / f"{name}.sqlite")
            dataset = ledger.dataset(name, records=[name.encode()])
            ledger.reserve(job.run, dataset, job.site_plan())
            self.rosters[name] = Roster(name, self.signers[name], peers, job.digest, honest=honest or len(known))
            self.hosts[name] = Host(name, self.records(name), ledger, dataset, folder / name, final=True)

    def records(self, name: str) -> Any:
        return lambda: records_of(name)

    def ask(self, site: str, turn: str, told: Told | str = "", *, job: Job | None = None, round: int = 0) -> Any:
        words = told if isinstance(told, str) else json.dumps(told)
        raw = secure.site_turn(
            job or self.job, State(round, {}), self.hosts[site], self.rosters[site], turn=turn, told=words
        )
        return raw if turn == "numbers" else json.loads(raw)

    def keys(self, sites: Sequence[str] = ABCDE, **what: Any) -> dict[str, dict[str, str]]:
        """What an honest server passes on of the sites' keys."""
        found = {site: self.ask(site, "keys", **what) for site in sites}
        return {site: {name: words[name] for name in ("mask", "letter", "signature")} for site, words in found.items()}

    def letters(self, keys: Told, sites: Sequence[str] = ABCDE) -> dict[str, dict[str, str]]:
        """The letters by reader."""
        boxes = {site: self.ask(site, "letters", keys) for site in sites}
        return {reader: {site: box[reader] for site, box in boxes.items() if site != reader} for reader in sites}

    def numbers(self, sites: Sequence[str] = ABCDE) -> dict[str, bytes]:
        """All turns up to the numbers, told the truth."""
        inbox = self.letters(self.keys())
        return {site: self.ask(site, "numbers", inbox[site]) for site in sites}

    def signatures(self, sent: Sequence[str], sites: Sequence[str]) -> dict[str, str]:
        return {site: self.ask(site, "sent", {"sent": sent})["signature"] for site in sites}

    def rules(self, round: int = 0) -> Rules:
        return self.rosters["a"].bind(self.job.sum_rules(round))

    def restart(self, site: str) -> None:
        """The site's process ends and another one begins: nothing is left but what is on the disk."""
        host = self.hosts[site]
        self.hosts[site] = replace(host, ledger=Ledger.open(self.folder / f"{site}.sqlite"))

    def charges(self, site: str) -> int:
        return len(self.hosts[site].ledger.charges(run=self.job.run))


def town(folder: Path, secrecy: Secrecy | None = None, *, sigma: float = 1.0, **changes: Any) -> Town:
    given = {name: changes.pop(name) for name in ("known", "honest") if name in changes}
    return Town(folder, histogram_job(sigma, secrecy or Secrecy(4, 1), **{"sites": ABCDE, **changes}), **given)


def vector(raw: bytes) -> Vector:
    values = Release.decode(raw).items[rounds.MASKED].tensors[rounds.MASKED].numpy()
    return values.view(np.uint64)


# Who takes part


def no_records() -> Records:
    raise AssertionError("The records were read.")


def test_invented_sites_are_refused_before_anything_is_read_or_charged(tmp_path: Path) -> None:
    """The attack: 400 sites that the server made up share the noise, and their keys take off the masks."""
    crowd = ("a", *(f"invented-{i}" for i in range(400)))
    there = town(tmp_path)
    there.hosts["a"] = replace(there.hosts["a"], records=no_records)
    job = histogram_job(1.0, Secrecy(401), sites=crowd)
    for turn in secure.TURNS:
        with pytest.raises(RosterError, match="names 400 sites whose keys are not held here"):
            there.ask("a", turn, job=job)
    assert there.charges("a") == 0
    assert not (there.hosts["a"].folder / "secure").exists()
    with pytest.raises(BoundaryError, match="holds none"):
        secure.site_turn(there.job, START, there.hosts["a"], None, turn="keys")


@pytest.mark.parametrize("name", ["North", "NORTH", "n\u043erth", "north ", "north\u200b", "north\0", "x" * 1000, 7])
def test_an_office_knows_no_site_but_those_in_its_folder(tmp_path: Path, name: Any) -> None:
    office = offices(tmp_path, "prism-head")[0]
    config = secure_config("prism-head", quorum=3)
    honest = describe(config, declared(config)[0], NAMES)
    body = {**honest, "sites": [*NAMES, name]}
    lie = {**body, "digest": digest_of(body), "run": digest_of(body)[:16]}
    state = encode({}, {"round": 0})
    assert office.answer(Request("hello", lie)).kind == "code"
    for turn in secure.TURNS:
        assert office.answer(Request("round", lie, 0, 1.0, state, turn)).kind == "code"
    assert not (office.folder / "ledger.sqlite").exists()
    assert office.answer(Request("hello", honest)).kind == "ready"


def test_an_office_refuses_the_crowd_with_one_word(tmp_path: Path) -> None:
    office = offices(tmp_path, "prism-head")[0]
    crowd = ["north", *(f"invented-{i}" for i in range(400))]
    config = secure_config("prism-head", quorum=401)
    lie = describe(config, declared(config)[0], crowd)
    assert office.answer(Request("hello", lie)).code == "sum-refused"
    assert not (office.folder / "ledger.sqlite").exists()
    assert "get their keys/sign.pub from themselves" in (office.folder / "site.log").read_text()


def test_a_folder_of_keys_holds_each_site_once(tmp_path: Path) -> None:
    office = offices(tmp_path, "prism-head")[0]
    (office.folder / "peers" / "West.pub").write_bytes((office.folder / "peers" / "west.pub").read_bytes())
    with pytest.raises(UserError, match="site name"):
        peer_keys(office.folder)
    there = town(tmp_path)
    roster = there.rosters["a"]
    twins = replace(roster, peers={**roster.peers, "c": roster.peers["b"]})
    with pytest.raises(RosterError, match="two sites that have one key"):
        twins.admit(there.rules())


@pytest.mark.parametrize(
    ("sites", "secrecy"),
    [
        (("a",), Secrecy(1)),
        (("a", "b"), Secrecy(1)),
        (ABCDE, Secrecy(0)),
        (ABCDE, Secrecy(-3)),
        (ABCDE, Secrecy(1)),
        (ABCDE, Secrecy(2)),
        (ABCDE, Secrecy(6)),
        (ABCDE, Secrecy(10**400)),
        (ABCDE, Secrecy(4, -1)),
        (ABCDE, Secrecy(4, 4)),
        (ABCDE, Secrecy(3, 1)),
        (("a", "b", "b"), Secrecy(2)),
    ],
)
def test_a_quorum_that_hides_nobody_is_refused(sites: tuple[str, ...], secrecy: Secrecy) -> None:
    with pytest.raises(UserError, match=r"quorum|colluding|two sites"):
        histogram_job(1.0, secrecy, sites=sites)


@pytest.mark.parametrize(
    ("length", "bound", "sigma"),
    [
        (0, 1.0, 1.0),
        (-5, 1.0, 1.0),
        (2**40, 1.0, 1.0),
        (9, 0.0, 1.0),
        (9, -1.0, 1.0),
        (9, float("inf"), 1.0),
        (9, float("nan"), 1.0),
        (9, 1.0, -1.0),
        (9, 1.0, float("nan")),
        (9, 1.0, float("inf")),
        (9, 1.0, 1e300),
        (9, 1.0, 1e-30),
    ],
)
def test_numbers_that_cannot_be_are_refused(length: int, bound: float, sigma: float) -> None:
    with pytest.raises(UserError, match=r"Expected|may pass"):
        Rules.fit(ABCDE, Secrecy(4, 1), length=length, bound=bound, sigma=sigma, label="x")


# How much noise a site adds


@pytest.mark.parametrize(
    ("known", "honest", "secrecy", "taken"),
    [
        (5, 5, Secrecy(3), True),
        (5, 4, Secrecy(3), False),  # the quorum may be two honest sites and the one that is not
        (5, 4, Secrecy(4, 1), True),
        (5, 3, Secrecy(4, 1), False),
        (5, 3, Secrecy(5, 2), True),
        (5, 2, Secrecy(5, 2), False),  # quorum - colluding > honest
        (5, 1, Secrecy(5, 3), False),
        (5, 1, Secrecy(5, 4), True),  # each site adds all the noise
        (5, 1, Secrecy(3, 2), True),
        (7, 6, Secrecy(3), False),  # two that are known do not take part: the dishonest one may
        (7, 6, Secrecy(4, 1), True),
        (5, 6, Secrecy(3), False),
    ],
)
def test_a_site_shares_the_noise_with_those_it_believes_in(
    tmp_path: Path, known: int, honest: int, secrecy: Secrecy, taken: bool
) -> None:
    there = town(tmp_path, secrecy, known="abcdefg"[:known], honest=honest)
    if taken:
        there.ask("a", "keys")
        return
    with pytest.raises(RosterError, match="honest"):
        there.ask("a", "keys")


def opened(there: Town, *, colluding: Sequence[str], dropped: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """What server and colluding sites read together: these add no noise, and the server says that others dropped."""
    inbox, rules = there.letters(there.keys()), there.rules()
    collector = Collector(rules, {}, ABCDE)
    present = [site for site in ABCDE if site not in dropped]
    for site in ABCDE:
        letters = {sender: bytes.fromhex(letter) for sender, letter in inbox[site].items()}
        host, place = there.hosts[site], there.hosts[site].folder / "secure" / "0.json"
        party = Party.from_words(rules, site, json.loads(place.read_bytes()))
        collector.keys[site] = party.keys()
        if site in colluding:
            masked = party.masked(letters, np.zeros(rules.length), None)
            secure._keep(place, party)
        else:
            masked = vector(there.ask(site, "numbers", inbox[site]))
            (charge,) = host.ledger.charges(run=there.job.run)
            assert charge.cost == Cost.gaussian(rules.sigma) == rules.cost()
        if site in present:
            collector.take(site, masked)
    told = {"sent": present, "signatures": there.signatures(present, present)}
    shares = {site: there.ask(site, "shares", told) for site in present}
    words = {h: {s: (kind, int(share, 16)) for s, (kind, share) in box.items()} for h, box in shares.items()}
    return collector.open(words), [site for site in present if site not in colluding]


@pytest.mark.parametrize(
    ("secrecy", "colluding", "dropped"),
    [
        (Secrecy(4, 1), "e", "d"),
        (Secrecy(5, 2), "de", ""),
        (Secrecy(3), "", "de"),
        (Secrecy(5, 4), "bcde", ""),
    ],
)
def test_what_opens_holds_the_noise_that_was_charged(
    tmp_path: Path, secrecy: Secrecy, colluding: str, dropped: str
) -> None:
    many = 2000
    there = town(tmp_path, secrecy, sigma=50.0, classes=tuple(map(str, range(many))), honest=5 - len(colluding))
    total, honest = opened(there, colluding=colluding, dropped=dropped)
    assert len(honest) == secrecy.quorum - secrecy.colluding  # the least that opens
    exact = sum(np.bincount(records_of(site).y.numpy(), minlength=many) for site in honest)
    squares = (((total - exact) / 50.0) ** 2).sum()
    # A chi-square of 2,000 degrees: 1 in 10,000 lies below 2000 - 3.72 * sqrt(4000), as many above the mirror image.
    assert many - 3.72 * np.sqrt(2 * many) < squares < many + 3.8 * np.sqrt(2 * many)


# Keys and letters


def test_keys_that_the_server_made_are_refused(tmp_path: Path) -> None:
    """A server in the middle: the keys of a peer are replaced by its own."""
    there = town(tmp_path)
    keys, rules = there.keys(), there.rules()
    forger = Roster("b", Ed25519PrivateKey.generate(), {}, there.job.digest)
    own = Party(rules, "b").keys()
    pair = {"mask": own.mask.hex(), "letter": own.letter.hex()}
    forged = {**pair, "signature": forger.sign(rules, "keys", pair).hex()}
    half = {**keys["b"], "mask": pair["mask"]}
    swapped = {**keys, "b": keys["c"], "c": keys["b"]}
    lie: dict[str, Any]
    for lie in ({**keys, "b": forged}, {**keys, "b": half}, {**keys, "b": {**pair, "signature": "00" * 64}}, swapped):
        with pytest.raises(WireError, match="not signed by it for this sum"):
            there.ask("a", "letters", lie)
    for lie in ({**keys, "b": pair}, {**keys, "b": None}, {**keys, "b": {**keys["b"], "signature": "0"}}):
        with pytest.raises(WireError):
            there.ask("a", "letters", lie)
    with pytest.raises(WireError, match="not signed"):
        there.ask("a", "letters", {**keys, "stranger": forged})
    assert set(there.ask("a", "letters", keys)) == set(ABCDE) - {"a"}
    assert there.charges("a") == 0


@pytest.mark.parametrize(
    "other",
    [
        {"secrecy": Secrecy(3)},
        {"secrecy": Secrecy(5, 2)},
        {"sites": ("a", "b", "c", "d")},
        {"sigma": 0.5},
        {"sites": ("a", "b", "c", "d", "f"), "known": "abcdef"},
    ],
)
def test_sites_that_were_told_different_things_cannot_be_combined(tmp_path: Path, other: dict[str, Any]) -> None:
    known, honest = other.pop("known", ABCDE), len(other.get("known", ABCDE))
    there = town(tmp_path, known=known, honest=honest)
    given = {"secrecy": Secrecy(4, 1), "sigma": 1.0, "sites": ABCDE, **other}
    second = histogram_job(given.pop("sigma"), given.pop("secrecy"), **given)
    assert second.run == there.job.run
    keys = {**there.keys(("a", "c", "d")), **there.keys(("b",), job=second)}
    with pytest.raises(WireError, match="not signed by it for this sum"):
        there.ask("a", "letters", keys)
    roster = there.rosters["a"]
    mine, theirs = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    masks = [
        pair_mask(roster.bind(job.sum_rules(0)), mine, theirs.public_key().public_bytes_raw(), me="a", other="b")
        for job in (there.job, second)
    ]
    assert not (masks[0][:8] == masks[1][:8]).any()


def test_what_was_said_in_another_round_or_run_does_not_count(tmp_path: Path) -> None:
    there = town(tmp_path)
    job = replace(there.job, settings=DPSettings(sigma=1.0, rounds=2))
    there.rosters = {name: replace(roster, config=job.digest) for name, roster in there.rosters.items()}
    there.job = job
    keys = there.keys()
    later = there.keys(round=1)
    renamed = replace(job, run="another")
    with pytest.raises(WireError, match="not signed"):
        there.ask("a", "letters", {**keys, "b": later["b"]})
    with pytest.raises(WireError, match="other sites, keys or numbers"):
        there.ask("a", "keys", job=renamed)  # same folder: the office gives every run its own
    inbox = there.letters(keys)
    with pytest.raises(WireError, match="not signed"):
        there.ask("a", "letters", {**keys, "b": keys["b"]}, round=1)
    there.ask("a", "letters", later, round=1)
    with pytest.raises(WireError, match="cannot be opened"):
        there.ask("a", "numbers", inbox["a"], round=1)
    for round in (2, 10**9, -1):
        with pytest.raises(BudgetError, match="not in the plan"):
            there.ask("a", "keys", round=round)
    assert there.charges("a") == 0


LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
    2**255 - 19,
    2**255 - 18,
)


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_that_give_everybody_the_same_key_are_refused(tmp_path: Path, point: int) -> None:
    """A peer that helps the server publishes a key under which anybody can read."""
    raw = point.to_bytes(32, "little")
    with pytest.raises(WireError, match="not a point"):
        agree(X25519PrivateKey.generate(), raw, "x")
    there = town(tmp_path)
    keys, rules = there.keys(), there.rules()
    pair = {"mask": keys["b"]["mask"], "letter": raw.hex()}
    roster = there.rosters["b"]
    with pytest.raises(WireError, match="not a point"):
        there.ask("a", "letters", {**keys, "b": {**pair, "signature": roster.sign(rules, "keys", pair).hex()}})


def test_letters_are_whole_and_read_once(tmp_path: Path) -> None:
    there = town(tmp_path)
    keys = there.keys()
    inbox = there.letters(keys)
    mine = inbox["a"]
    flipped = mine["b"][:-2] + f"{int(mine['b'][-2:], 16) ^ 1:02x}"
    for bad in ("", "00", mine["b"][:40], mine["b"][:-2], mine["b"] + "00", flipped, inbox["c"]["b"], "zz", None):
        with pytest.raises(WireError):
            there.ask("a", "numbers", {**mine, "b": bad})
    with pytest.raises(UserError, match="too few"):
        there.ask("a", "numbers", {name: mine[name] for name in "bc"})
    with pytest.raises(WireError, match="without a key"):
        there.ask("a", "numbers", {**mine, "stranger": mine["b"]})
    assert there.charges("a") == 0  # none of this was about a record
    first = there.ask("a", "numbers", mine)
    there.restart("a")
    assert there.ask("a", "numbers", mine) == first
    assert there.charges("a") == 1


def test_a_letter_of_any_other_length_is_refused() -> None:
    rules = Rules.fit(ABCDE, Secrecy(4, 1), length=5, bound=1.0, sigma=1.0, label="x")
    parties = {name: Party(rules, name) for name in ABCDE}
    keys: dict[str, PublicKeys] = {name: party.keys() for name, party in parties.items()}
    letters = {name: party.shares(keys) for name, party in parties.items()}
    mine = {sender: box["a"] for sender, box in letters.items() if sender != "a"}
    for seed in (2**521 - 1, 2**528 - 1):
        with pytest.raises(WireError, match="does not hold two shares"):
            parties["a"].take({**mine, "b": parties["b"]._seal("a", seed, 1)})
    parties["a"].take(mine)
    with pytest.raises(UserError, match="read once"):
        parties["a"].take({**mine, "b": parties["b"]._seal("a", 1, 1)})


# Shares


def test_one_list_is_confirmed_and_no_other_ever(tmp_path: Path) -> None:
    there = town(tmp_path, Secrecy(3))
    there.numbers()
    first, second = ["a", "b", "c"], ["a", "d", "e"]
    signed = there.signatures(first, first)
    told = {"sent": first, "signatures": signed}
    shares = there.ask("a", "shares", told)
    assert {site: kind for site, (kind, _) in shares.items()} == dict(zip(ABCDE, ["seed"] * 3 + ["mask"] * 2))
    for _ in range(2):
        for lie in (second, ["a", "b", "c", "d"], ["a", "b"], ABCDE):
            with pytest.raises(UserError, match="confirmed, once"):
                there.ask("a", "sent", {"sent": lie})
            with pytest.raises(UserError, match="confirmed, once"):
                there.ask("a", "shares", {"sent": lie, "signatures": signed})
        assert there.ask("a", "shares", told) == shares
        there.restart("a")


def test_nothing_leaves_that_is_not_on_the_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = town(tmp_path, Secrecy(3))
    there.numbers()

    def full(path: Path, raw: bytes) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(secure, "write_atomically", full)
        for turn in ("sent", "shares"):
            with pytest.raises(OSError, match="space"):
                there.ask("a", turn, {"sent": ["a", "b", "c"], "signatures": {}})
    assert json.loads((there.hosts["a"].folder / "secure" / "0.json").read_bytes())["confirmed"] == []
    there.ask("a", "sent", {"sent": ["a", "d", "e"]})
    assert json.loads((there.hosts["a"].folder / "secure" / "0.json").read_bytes())["confirmed"] == ["a", "d", "e"]


def test_two_lists_at_once_get_one_answer(tmp_path: Path) -> None:
    there = town(tmp_path, Secrecy(3))
    there.numbers()
    lists = [["a", *pair] for pair in itertools.combinations("bcde", 2)]

    def ask(sent: list[str]) -> bool:
        try:
            there.ask("a", "sent", {"sent": sent})
        except PrismError:
            return False
        return True

    with ThreadPoolExecutor(len(lists)) as pool:
        assert sum(pool.map(ask, lists)) == 1


def test_a_site_confirms_no_list_without_itself_or_with_ghosts(tmp_path: Path) -> None:
    there = town(tmp_path, Secrecy(3))
    inbox = there.letters(there.keys())
    with pytest.raises(UserError, match="has sent no numbers"):
        there.ask("a", "sent", {"sent": ["a", "b", "c"]})
    for site in "bcde":
        there.ask(site, "numbers", inbox[site])
    there.ask("a", "numbers", inbox["a"])
    for lie in (
        ["b", "c", "d"],
        ["a", "b"],
        ["a", "a", "a"],
        ["a", "b", "b", "c"],
        ["a", "b", "x"],
        [],
        ["a", "b", "C"],
    ):
        with pytest.raises(UserError):
            there.ask("a", "sent", {"sent": lie})
    for odd in ({}, {"sent": "abc"}, {"sent": None}, {"sent": [1, 2, 3]}, {"sent": [["a"], "b", "c"]}):
        with pytest.raises(WireError):
            there.ask("a", "sent", odd)
    there.ask("a", "sent", {"sent": ["a", "b", "c"]})


def test_shares_leave_only_for_a_list_that_a_quorum_has_signed(tmp_path: Path) -> None:
    """Told different lists, each fit to be told, five sites would give away the sum of two: with 82 % of the noise."""
    there = town(tmp_path, Secrecy(3))
    there.numbers()
    lists = {"a": "abc", "b": "abd", "c": "abc", "d": "abd", "e": "abe"}
    signed = {site: there.signatures(list(sent), [site])[site] for site, sent in lists.items()}
    for site, sent in lists.items():
        with pytest.raises(WireError, match=r"[12] of 3 sites have signed"):
            there.ask(site, "shares", {"sent": list(sent), "signatures": signed})
    copied = dict.fromkeys("abc", signed["a"])
    for lie in (copied, {"a": signed["a"]}, {"a": signed["a"], "A": signed["a"], "a ": signed["a"]}, {}):
        with pytest.raises(WireError, match=r"[01] of 3 sites have signed"):
            there.ask("a", "shares", {"sent": list("abc"), "signatures": lie})
    odd: Any
    for odd in (None, [], {"a": 1}, {"a": None}):
        with pytest.raises(WireError):
            there.ask("a", "shares", {"sent": list("abc"), "signatures": odd})


@pytest.mark.parametrize("what", ["keys", "letters"])
def test_different_keys_or_letters_for_different_sites_open_nothing(tmp_path: Path, what: str) -> None:
    there = town(tmp_path, Secrecy(3))
    keys = there.keys()
    some = {site: keys[site] for site in "abc"}
    told = {site: some if what == "keys" and site in "abc" else keys for site in ABCDE}
    boxes = {site: there.ask(site, "letters", told[site]) for site in ABCDE}
    for site in "abc":
        senders = [
            s for s in ABCDE if s != site and site in boxes[s] and (s in "abc" or (site == "c" and what != "keys"))
        ]
        there.ask(site, "numbers", {sender: boxes[sender][site] for sender in senders})
    signed = there.signatures(list("abc"), "abc")
    if what == "keys":  # all three were told the same: their sum opens
        there.ask("a", "shares", {"sent": list("abc"), "signatures": signed})
        return
    for site in "abc":
        with pytest.raises(WireError, match=r"[12] of 3 sites have signed"):
            there.ask(site, "shares", {"sent": list("abc"), "signatures": signed})


def test_an_office_never_answers_for_two_lists(tmp_path: Path) -> None:
    """The whole way, over the office: codes and bytes alone."""
    sites = dict(zip(NAMES, offices(tmp_path, "prism-head")))
    config = secure_config("prism-head")
    description = describe(config, declared(config)[0], NAMES)
    state = encode({}, {"round": 0})

    def ask(office: Office, turn: str, told: str = "") -> Any:
        return office.answer(Request("round", description, 0, 1.0, state, turn, told))

    answers: dict[str, dict[str, bytes]] = {}
    job = job_of(description)
    for turn in ("keys", "letters", "numbers"):
        told = secure.told(job, turn, answers)
        answers[turn] = {name: ask(sites[name], turn, told[name]).body for name in NAMES}
    lists = {"north": ["north", "south"], "south": ["south", "west"], "west": ["north", "west"]}
    signed = {n: json.loads(ask(o, "sent", json.dumps({"sent": lists[n]})).body)["signature"] for n, o in sites.items()}
    for office in sites.values():
        for sent in lists.values():
            told_so = json.dumps({"sent": sent, "signatures": signed})
            assert ask(Office.open(office.folder), "shares", told_so).kind == "code"
