"""A round in which the server reads only the sum over the sites: the turns of a secure sum, seen from both sides.

Four turns: every site publishes keys, writes letters to the others, sends its masked numbers (the one release of the
round, charged before it leaves), and reveals the shares that take the masks off the sum. Engines move the bytes. Asked
twice, a site answers the same; asked anything else, it refuses.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.atomic import write_atomically
from prismfl.boundary import OpenedSum, PrivateRecords, PrivateShare, Release, make_release
from prismfl.errors import WireError
from prismfl.method import DPSettings, State
from prismfl.payloads import Items, Payload, Statistics
from prismfl.privacy.cost import Cost
from prismfl.privacy.masking import Vector
from prismfl.privacy.secure_sum import Collector, Party, PublicKeys, Rules, naive_shortfall, noise_in, noise_of
from prismfl.rounds import Host, Hub, Job, ask_method, charged_release, check_cost, server_step

TURNS = ("keys", "letters", "numbers", "shares")
ITEM = "masked"
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


def site_turn(job: Job, state: State, host: Host, *, turn: str, told: str = "", arrived: Sequence[str] = ()) -> bytes:
    """A site's answer in one turn of a round; `told` is what the server passes on from the others."""
    rules = job.sum_rules(state.round)
    place = _place(host, state.round)
    party = _party(rules, host.name, place)
    if turn == "keys":
        keys = party.keys()
        return _dump({"mask": keys.mask.hex(), "letter": keys.letter.hex()})
    if turn == "letters":
        letters = party.shares({site: _keys(entry) for site, entry in _load(told).items()})
        write_atomically(place, _dump(party.words()))
        return _dump({site: letter.hex() for site, letter in letters.items()})
    if turn == "numbers":
        return _numbers(job, state, host, party=party, told=told, arrived=arrived)
    shares = party.reveal(tuple(_load(told)["sent"]))
    write_atomically(place, _dump(party.words()))
    return _dump({site: [kind, f"{share:x}"] for site, (kind, share) in shares.items()})


def forget(host: Host) -> None:
    """Throw away the secrets of a run's sums; what they protected has been added up."""
    shutil.rmtree(host.folder / "secure", ignore_errors=True)


def _numbers(job: Job, state: State, host: Host, *, party: Party, told: str, arrived: Sequence[str]) -> bytes:
    """The one release of the round. Nothing is remembered of it: unmasked, it holds only a share of the noise."""
    letters = {site: _bytes(letter) for site, letter in _load(told).items()}

    def make(cost: Cost) -> tuple[Release, Items]:
        charged, vector = _vector(job, state, host, party.rules)
        check_cost(charged.meter.cost, cost)
        masked = party.masked(letters, vector.numpy(), None)
        write_atomically(_place(host, state.round), _dump(party.words()))
        sealed = {ITEM: Statistics({ITEM: torch.from_numpy(masked.view(np.int64).copy())})}
        leaves: dict[str, type[Payload]] = {ITEM: Statistics}
        return make_release(charged, sealed, leaves=leaves, run=job.run, site=host.name, round=state.round), {}

    return charged_release(job, state, host, make, arrived=arrived)


def _vector(job: Job, state: State, host: Host, rules: Rules) -> tuple[PrivateRecords | PrivateShare, torch.Tensor]:
    """The door that was gone through, and the vector to mask: with this site's share of the noise."""
    at_site = job.method.guarantee == "site"
    door, items, _ = ask_method(job, state, host, shared=rules if at_site else None)
    vector = _flat(job, items)
    if at_site:
        return door, vector
    noise = host.noise_key(job, state.round).child("share").noise()
    share = PrivateShare(rules, noise, unit=job.task.unit, relation=job.task.relation)
    return share, share.noisy(vector)


def _place(host: Host, round: int) -> Path:
    return host.folder / "secure" / f"{round}.json"


def _party(rules: Rules, name: str, place: Path) -> Party:
    """The party of this round, made once: of two processes that make one at a time, both use the first."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = place.with_suffix(f".{os.getpid()}")
        write_atomically(fresh, _dump(Party(rules, name).words()))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, place)
        fresh.unlink()
    return Party.from_words(rules, name, json.loads(place.read_bytes()))


def _flat(job: Job, items: Items) -> torch.Tensor:
    found = job.summed()
    tensors = items[found.item].tensors
    return torch.cat([tensors[name].flatten().to(torch.float64) for name in found.tensors])


# The server's side


def told(job: Job, turn: str, answers: Answers) -> dict[str, str]:
    """What each site is told in a turn; only those who answered the turn before are asked."""
    if turn == "keys":
        return dict.fromkeys(job.task.sites, "")
    if turn == "letters":
        keys = _text({site: _load(raw) for site, raw in answers["keys"].items()})
        return dict.fromkeys(answers["keys"], keys)
    if turn == "numbers":
        boxes = {sender: _load(raw) for sender, raw in answers["letters"].items()}
        return {site: _text({sender: box[site] for sender, box in boxes.items() if sender != site}) for site in boxes}
    sent = _text({"sent": sorted(answers["numbers"])})
    return dict.fromkeys(answers["numbers"], sent)


def check_answer(job: Job, state: State, site: str, raw: bytes, *, turn: str, answers: Answers) -> None:
    """Refuse an answer that is not what the turn asks for, by a `WireError`."""
    if turn == "numbers":
        _masked(job, state, site, raw)
        return
    words = _load(raw)
    if turn == "keys":
        _keys(words)
    elif turn == "letters":
        if set(words) != set(answers["keys"]) - {site} or not all(len(_bytes(w)) == LETTER for w in words.values()):
            raise WireError("The letters are not one for each site that has a key.")
    elif set(words) != set(answers["letters"]) or not all(_share(entry) for entry in words.values()):
        raise WireError("The shares are not one for each site that wrote letters.")


def secure_server_step(job: Job, state: State, answers: Answers, *, hub: Hub | None = None) -> tuple[State, Opened]:
    """The server's step on what it can read: the sum."""
    rules = job.sum_rules(state.round)
    collector = Collector(
        rules, {s: _keys(_load(raw)) for s, raw in answers["keys"].items()}, tuple(answers["letters"])
    )
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
    door = partial(OpenedSum, items, declared=len(job.task.sites), rules=rules, held=noise, source=source)
    after = server_step(known, state, {"sum": items}, hub=hub, opened=door)
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
    if set(release.items) != {ITEM} or not isinstance(release.items[ITEM], Statistics):
        raise WireError("Message does not carry exactly the masked numbers.")
    length = job.sum_rules(state.round).length
    if release.items[ITEM].shapes() != {ITEM: ("int64", (length,))}:
        raise WireError("The masked numbers do not have the declared shape.")
    return release, release.items[ITEM].tensors[ITEM].numpy().view(np.uint64)


def _items(job: Job, total: np.ndarray[Any, np.dtype[np.float64]]) -> Items:
    found = job.summed()
    shapes = job.shapes[found.item]
    sizes = [int(np.prod(shapes[name][1])) for name in found.tensors]
    parts = torch.split(torch.from_numpy(total), sizes)
    tensors = {n: part.reshape(shapes[n][1]).to(torch.float32) for n, part in zip(found.tensors, parts)}
    return {found.item: job.method.leaves[found.item](tensors)}


# Words on the wire

LETTER = 12 + 2 * 66 + 16  # nonce, two shares, tag


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
    if not isinstance(entry, dict) or set(entry) != {"mask", "letter"}:
        raise WireError("The message holds no pair of keys.")
    keys = PublicKeys(_bytes(entry["mask"]), _bytes(entry["letter"]))
    if not len(keys.mask) == len(keys.letter) == 32:
        raise WireError("A key does not have 32 bytes.")
    return keys


def _share(entry: Any) -> tuple[str, int]:
    if not isinstance(entry, list) or len(entry) != 2 or entry[0] not in ("seed", "mask"):
        raise WireError("The message holds no share.")
    return entry[0], int.from_bytes(_bytes(str(entry[1]).zfill(132)[:132]), "big")
