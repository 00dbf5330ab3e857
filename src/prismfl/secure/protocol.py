"""A round in which the server reads only the sum over the sites: the turns of a secure sum, seen from both sides.

Five turns: every site publishes keys, writes letters to the others, sends its masked numbers (the one release of the
round, charged before it leaves), signs the list of those who sent, and reveals the shares that take the masks off the
sum. Transports move the bytes. Asked twice, a site answers the same; asked anything else, it refuses.

The server may lie. A site takes part with sites alone whose keys it holds; keys and lists are signed, over a digest of
all that was agreed (`Roster.bind`), which is in every mask and letter as well; shares leave only for a list that a
quorum has signed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from prismfl.core.hub import Opening
from prismfl.core.job import Job
from prismfl.core.method import DPSettings, State
from prismfl.core.payloads import Items, Statistics
from prismfl.core.release import Release
from prismfl.core.rounds import MASKED, Host, Hub, Masking, server_step, site_step
from prismfl.errors import BoundaryError, BudgetError, WireError
from prismfl.files.atomic import write_atomically
from prismfl.privacy.shares import Rules, naive_shortfall, noise_in, noise_of
from prismfl.secure.masking import Vector, derive
from prismfl.secure.roster import Roster, signed_by
from prismfl.secure.sums import Collector, Party, PublicKeys

TURNS = ("keys", "letters", "numbers", "sent", "shares")
Answers = Mapping[str, Mapping[str, bytes]]  # turn -> site -> what it answered
WORDS_LIMIT = 4_000_000


@dataclass(frozen=True)
class Opened:
    """What is known of a sum that was opened: who is in it, and how much noise, in multiples of one unit's norm."""

    round: int
    sites: tuple[str, ...]
    enrolled: int
    quorum: int
    promised: float
    held: float
    shortfall_if_shared_by_all: float

    def line(self) -> str:
        """The same in one line of words."""
        return (
            f"round {self.round + 1}: the sum of {len(self.sites)} of {self.enrolled} sites holds noise {self.held:.3g}"
            f", promised {self.promised:.3g}; shared over all {self.enrolled} it would lack "
            f"{100 * self.shortfall_if_shared_by_all:.0f} %"
        )


def note(folder: Path, opened: Opened) -> None:
    """Keep what is known of an opened sum beside the run: `secure.jsonl`."""
    with (folder / "secure.jsonl").open("a") as file:
        file.write(_text(asdict(opened)) + "\n")


# The site's side


def site_turn(
    job: Job,
    state: State,
    host: Host,
    roster: Roster | None,
    *,
    turn: str,
    told: str = "",
    arrived: Sequence[str] = (),
) -> bytes:
    """A site's answer in one turn of a round; `told` is what the server passes on from the others, `roster` is whom the
    site believes.

    One process at a time: two at once could each give half of what must never leave together.
    """
    if not 0 <= state.round < job.settings.rounds:
        raise BudgetError(f"Refused: round {state.round + 1} is not in the plan of {job.settings.rounds} rounds.")
    if roster is None:
        raise BoundaryError("A secure sum needs the keys of the other sites; this site holds none.")
    rules = job.sum_rules(state.round)
    roster.admit(rules)
    with host.computing(f"{job.run}/sums"):
        place = _place(host, state.round)
        party = _party(roster.bind(rules), host.name, place)
        if turn == "keys":
            return _dump({**_signed_keys(roster, party), "label": party.rules.label, "roster": _signers(roster, rules)})
        if turn == "letters":
            letters = party.shares(_checked(roster, party.rules, _load(told)))
            _keep(place, party)
            return _dump({site: letter.hex() for site, letter in letters.items()})
        if turn == "numbers":
            return _numbers(job, state, host, party=party, told=told, arrived=arrived)
        return _last_turns(roster, party, place, turn=turn, told=_load(told))


def simulated(job: Job, name: str) -> Roster:
    """Whom a site believes where all sites live in one process: the keys follow from the run, and protect nobody."""
    seeds = {site: derive(job.digest.encode(), f"prismfl simulated site {site}") for site in job.task.sites}
    keys = {site: Ed25519PrivateKey.from_private_bytes(seed) for site, seed in seeds.items()}
    peers = {site: key.public_key() for site, key in keys.items()}
    return Roster(name, keys[name], peers, job.digest, honest=len(peers))


def _signers(roster: Roster, rules: Rules) -> dict[str, str]:
    keys = roster.keys
    return {site: keys[site] for site in rules.sites}


def _signed_keys(roster: Roster, party: Party) -> dict[str, str]:
    pair = {"mask": party.keys().mask.hex(), "letter": party.keys().letter.hex()}
    return {**pair, "signature": roster.sign(party.rules, "keys", pair).hex()}


def _checked(roster: Roster, rules: Rules, told: Mapping[str, Any]) -> dict[str, PublicKeys]:
    """The keys of all sites, each signed by its site for this very sum."""
    for site, entry in told.items():
        keys = _keys(entry)
        pair = {"mask": keys.mask.hex(), "letter": keys.letter.hex()}
        if not roster.signed(rules, site, "keys", pair, _bytes(entry["signature"])):
            raise WireError(f"The keys said to be of '{site[:40]}' are not signed by it for this sum.")
    return {site: _keys(entry) for site, entry in told.items()}


def _last_turns(roster: Roster, party: Party, place: Path, *, turn: str, told: Mapping[str, Any]) -> bytes:
    """Sign the one list of those who sent; then, once a quorum has signed the same, the shares for it."""
    sent = told.get("sent")
    if not isinstance(sent, list) or not all(isinstance(site, str) for site in sent):
        raise WireError("The message holds no list of sites.")
    confirmed = party.confirm(sent)
    _keep(place, party)
    if turn == "sent":
        return _dump({"signature": roster.sign(party.rules, "sent", confirmed).hex()})
    signatures = told.get("signatures")
    if not isinstance(signatures, dict):
        raise WireError("The message holds no signatures.")
    agreed = [s for s, raw in signatures.items() if roster.signed(party.rules, s, "sent", confirmed, _bytes(raw))]
    if len(agreed) < party.rules.quorum:
        raise WireError(
            f"{len(agreed)} of {party.rules.quorum} sites have signed this site's list of those who sent; nothing is "
            "revealed."
        )
    return _dump({site: [kind, f"{share:x}"] for site, (kind, share) in party.reveal(sent).items()})


def forget(host: Host) -> None:
    """Throw away the secrets of a run's sums; what they protected has been added up."""
    shutil.rmtree(host.folder / "secure", ignore_errors=True)


def _numbers(job: Job, state: State, host: Host, *, party: Party, told: str, arrived: Sequence[str]) -> bytes:
    """The one release of the round."""
    kept = host.ledger.outbox(f"{job.run}/{host.name}/{state.round}")
    if kept is not None:
        return kept
    place = _place(host, state.round)
    letters = {site: _bytes(letter) for site, letter in _load(told).items()}
    party.take(letters)  # before the charge: letters say nothing about a record
    _keep(place, party)

    def mask(vector: torch.Tensor) -> torch.Tensor:
        masked = party.masked(letters, vector.numpy(), None)
        _keep(place, party)
        return torch.from_numpy(masked.view(np.int64).copy())

    return site_step(job, state, host, arrived=arrived, masking=Masking(party.rules, mask))


def _place(host: Host, round: int) -> Path:
    return host.folder / "secure" / f"{round}.json"


def _party(rules: Rules, name: str, place: Path) -> Party:
    """The party of this round, made once."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _keep(place, Party(rules, name))
    words = json.loads(place.read_bytes())
    if words["label"] != rules.label:
        raise WireError("This sum began with other sites, keys or numbers; it goes on with them or not at all.")
    return Party.from_words(rules, name, words)


def _keep(place: Path, party: Party) -> None:
    """What a party has done is on the disk before its answer leaves, name and all."""
    write_atomically(place, _dump({**party.words(), "label": party.rules.label}))
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# The server's side


def told(job: Job, turn: str, answers: Answers) -> dict[str, str]:
    """What each site is told in a turn; only those who answered the turn before are asked."""
    if turn == "keys":
        return dict.fromkeys(job.task.sites, "")
    if turn == "letters":
        _, keys = agreed(answers["keys"])
        return dict.fromkeys(keys, _text(keys))
    if turn == "numbers":
        boxes = {sender: _load(raw) for sender, raw in answers["letters"].items()}
        return {site: _text({sender: box[site] for sender, box in boxes.items() if sender != site}) for site in boxes}
    sent = {"sent": sorted(answers["numbers"])}
    if turn == "sent":
        return dict.fromkeys(answers["numbers"], _text(sent))
    signatures = {site: _load(raw)["signature"] for site, raw in answers["sent"].items()}
    return dict.fromkeys(answers["sent"], _text({**sent, "signatures": signatures}))


def agreed(answers: Mapping[str, bytes]) -> tuple[str, dict[str, dict[str, str]]]:
    """The sum that most sites mean, and the keys of those who mean it and have signed them; the others are left out,
    since every site would refuse theirs."""
    words = {site: _load(raw) for site, raw in answers.items()}
    views = Counter(_text({"label": w["label"], "roster": w["roster"]}) for w in words.values())
    view = json.loads(max(sorted(views), key=views.__getitem__))
    pairs = {site: {name: w[name] for name in ("mask", "letter")} for site, w in words.items()}
    good = [
        site
        for site, w in words.items()
        if {name: w[name] for name in view} == view
        and signed_by(view["roster"].get(site, ""), view["label"], site, "keys", pairs[site], _bytes(w["signature"]))
    ]
    return view["label"], {site: {**pairs[site], "signature": words[site]["signature"]} for site in good}


def check_answer(job: Job, state: State, site: str, raw: bytes, *, turn: str, answers: Answers) -> None:
    """Refuse an answer that is not what the turn asks for, by a `WireError`."""
    if turn == "numbers":
        _masked(job, state, site, raw)
        return
    words = _load(raw)
    if turn == "keys":
        _check_keys(job, words)
    elif turn == "letters":
        readers = set(agreed(answers["keys"])[1]) - {site}
        if set(words) != readers or not all(len(_bytes(w)) == LETTER for w in words.values()):
            raise WireError("The letters are not one for each site that has a key.")
    elif turn == "sent":
        if set(words) != {"signature"} or len(_bytes(words["signature"])) != SIGNATURE:
            raise WireError("The message holds no signature.")
    elif set(words) != set(answers["letters"]) or not all(_share(entry) for entry in words.values()):
        raise WireError("The shares are not one for each site that wrote letters.")


def _check_keys(job: Job, words: Mapping[str, Any]) -> None:
    _keys({name: words[name] for name in words if name not in ("label", "roster")})
    roster = words.get("roster")
    if not isinstance(words.get("label"), str) or len(words["label"]) != 64 or not isinstance(roster, dict):
        raise WireError("The message does not say which sum it is for.")
    if set(roster) != set(job.task.sites) or not all(len(_bytes(key)) == 32 for key in roster.values()):
        raise WireError("The message does not hold one signing key for each site.")


def secure_server_step(job: Job, state: State, answers: Answers, *, hub: Hub | None = None) -> tuple[State, Opened]:
    """The server's step on what it can read: the sum."""
    label, keys = agreed(answers["keys"])
    rules = replace(job.sum_rules(state.round), label=label)
    collector = Collector(rules, {s: _keys(entry) for s, entry in keys.items()}, tuple(answers["letters"]))
    source = "none"
    for site, raw in answers["numbers"].items():
        release, masked = _masked(job, state, site, raw)
        collector.take(site, masked)
        source = release.noise
    shares = {holder: {s: _share(e) for s, e in _load(raw).items()} for holder, raw in answers["shares"].items()}
    items = _items(job, collector.open(shares))
    present = len(collector.sent)
    noise = noise_in(rules, present)
    known = replace(job, settings=_with_noise(job, noise), secure=None)
    after = server_step(known, state, {"sum": items}, hub=hub, opening=Opening(items, rules, noise, source))
    shortfall = naive_shortfall(rules, present)
    told = noise_of(rules, present)
    return after, Opened(state.round, collector.sent, len(rules.sites), rules.quorum, rules.sigma, told, shortfall)


def _with_noise(job: Job, sigma: float) -> Any:
    """The settings as the server reads the sum: with the noise that is in it."""
    assert isinstance(job.settings, DPSettings)
    return job.settings.model_copy(update={"sigma": sigma})


def _masked(job: Job, state: State, site: str, raw: bytes) -> tuple[Release, Vector]:
    try:
        release = Release.decode(raw)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WireError("Message is not a release.") from error
    if (release.run, release.site, release.round) != (job.run, site, state.round):
        raise WireError(f"Message is not from site '{site}' for round {state.round} of this run.")
    if set(release.items) != {MASKED} or not isinstance(release.items[MASKED], Statistics):
        raise WireError("Message does not carry exactly the masked numbers.")
    length = job.sum_rules(state.round).length
    if release.items[MASKED].shapes() != {MASKED: ("int64", (length,))}:
        raise WireError("The masked numbers do not have the declared shape.")
    return release, release.items[MASKED].tensors[MASKED].numpy().view(np.uint64)


def _items(job: Job, total: np.ndarray[Any, np.dtype[np.float64]]) -> Items:
    found = job.summed()
    shapes = job.shapes[found.item]
    sizes = [int(np.prod(shapes[name][1])) for name in found.tensors]
    parts = torch.split(torch.from_numpy(total), sizes)
    tensors = {n: part.reshape(shapes[n][1]).to(torch.float32) for n, part in zip(found.tensors, parts)}
    return {found.item: job.method.leaves[found.item](tensors)}


# Words on the wire

LETTER = 12 + 2 * 66 + 16  # nonce, two shares, tag
SIGNATURE = 64


def _dump(words: Mapping[str, Any]) -> bytes:
    return _text(words).encode()


def _text(words: Mapping[str, Any]) -> str:
    return json.dumps(words, sort_keys=True)


def _load(raw: bytes | str) -> dict[str, Any]:
    if len(raw) > WORDS_LIMIT:
        raise WireError(f"A message of {len(raw)} bytes is too long for this turn.")
    try:
        words = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError("The message is not made of words.") from error
    if not isinstance(words, dict):
        raise WireError("The message is not made of words.")
    return words


def _bytes(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise WireError("The message holds something else than bytes in hexadecimal.") from error


def _keys(entry: Any) -> PublicKeys:
    if not isinstance(entry, dict) or set(entry) != {"mask", "letter", "signature"}:
        raise WireError("The message holds no signed pair of keys.")
    keys = PublicKeys(_bytes(entry["mask"]), _bytes(entry["letter"]))
    if not len(keys.mask) == len(keys.letter) == 32 or len(_bytes(entry["signature"])) != SIGNATURE:
        raise WireError("A key does not have 32 bytes, or its signature 64.")
    return keys


def _share(entry: Any) -> tuple[str, int]:
    if not isinstance(entry, list) or len(entry) != 2 or entry[0] not in ("seed", "mask"):
        raise WireError("The message holds no share.")
    return entry[0], int.from_bytes(_bytes(str(entry[1]).zfill(132)[:132]), "big")
