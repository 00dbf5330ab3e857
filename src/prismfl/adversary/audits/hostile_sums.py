"""The auditor as a server of secure sums: it invents sites, makes keys, and tells each site something else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prismfl.adversary.audits.hostile_site import NAMES, VICTIM, Bench, Town, forged, honest, sealed
from prismfl.core.payloads import JsonDict
from prismfl.runs.description import job_of
from prismfl.secure import protocol as secure
from prismfl.transport.post import Answer


def rosters(bench: Bench) -> Iterator[str]:
    """Sites that do not exist, keys that nobody signed, lists that do not agree: nothing opens, nothing is charged."""
    if bench.method.summed is None:
        yield from _no_sums(bench)
        return
    town, told = bench.town(shared=True), bench.describe(shared=True)
    yield from _crowds(town, told)
    yield from _keys(town, told)
    if town.charged():
        yield "a lie before the numbers was charged for"
    yield from _lists(town, told)
    if len(town.charged()) != 1:
        yield f"{len(town.charged())} charges for one round"


def _no_sums(bench: Bench) -> Iterator[str]:
    """A method without secure sums cannot be asked for one."""
    town, told = bench.town(shared=False), bench.describe(shared=False)
    for secrecy in ({"quorum": 2, "colluding": 0}, {"quorum": 1, "colluding": 0}, {"quorum": 2}, 7):
        lie = forged(told, secure=secrecy)
        answers = [town.ask("hello", lie)]
        answers += [town.ask("round", lie, state=honest(told), turn=turn) for turn in ("", *secure.TURNS)]
        if any(answer.kind != "code" for answer in answers):
            yield "a sum that the method does not have is answered"
    if town.reserved():
        yield "something was reserved"


def _refused(answer: Answer) -> bool:
    return answer.kind == "code" and not answer.body


def _crowds(town: Town, told: JsonDict) -> Iterator[str]:
    crowd = [VICTIM, *(f"invented-{i}" for i in range(400))]
    config = told["config"]
    lies = {
        "400 invented sites": sealed(told, sites=crowd, config={**config, "secure": {"quorum": 401, "colluding": 0}}),
        "one invented site": sealed(told, sites=[*NAMES, "stranger"]),
        "a sum of one site": sealed(told, sites=[VICTIM]),
        "a quorum of one": forged(told, secure={"quorum": 1, "colluding": 0}),
        "colluding sites that make up the quorum": forged(told, secure={"quorum": 2, "colluding": 2}),
    }
    for what, lie in lies.items():
        answers = [town.ask("hello", lie)]
        answers += [town.ask("round", lie, state=honest(told), turn=turn) for turn in ("", *secure.TURNS)]
        if not all(map(_refused, answers)):
            yield f"{what}: answered"
    if town.reserved():
        yield "invented sites: something was reserved"
    if not _refused(town.ask("round", told, state=honest(told))):
        yield "something leaves unmasked"


def _turn(town: Town, told: JsonDict, turn: str, words: Mapping[str, Any] | str, site: str = VICTIM) -> Answer:
    text = words if isinstance(words, str) else json.dumps(words)
    return town.ask("round", told, state=honest(told), turn=turn, words=text, site=site)


def _keys(town: Town, told: JsonDict) -> Iterator[str]:
    """Keys that were swapped, copied, or signed by nobody."""
    if not _refused(_turn(town, told, "numbers", {})):
        yield "numbers leave before there are keys"
    answers = {site: _turn(town, told, "keys", "", site) for site in NAMES}
    if any(map(_refused, answers.values())):
        yield "an honest sum is refused"
        return
    found = {site: json.loads(answer.body) for site, answer in answers.items()}
    keys = {site: {k: words[k] for k in ("mask", "letter", "signature")} for site, words in found.items()}
    _, south, west = NAMES
    lies: dict[str, Any] = {
        "swapped keys": {**keys, south: keys[west], west: keys[south]},
        "a copied key": {**keys, south: keys[VICTIM]},
        "a key of the server's": {**keys, south: {**keys[south], "mask": keys[west]["mask"]}},
        "a key that nobody signed": {**keys, south: {**keys[south], "signature": "00" * 64}},
        "the key 0": {**keys, south: {**keys[south], "mask": "00" * 32}},
        "a stranger's key": {**keys, "stranger": keys[south]},
        "no keys": {},
        "rubbish": "rubbish",
    }
    for what, lie in lies.items():
        if not _refused(_turn(town, told, "letters", lie)):
            yield f"{what}: answered"


def _lists(town: Town, told: JsonDict) -> Iterator[str]:
    """Each site is told of other senders: at most one list is signed by each, and no shares leave."""
    job = job_of(told, with_public=False)
    answers: dict[str, dict[str, bytes]] = {}
    for turn in ("keys", "letters", "numbers"):
        words = secure.told(job, turn, answers)
        if turn == "numbers":
            mine = json.loads(words[VICTIM])
            cut: dict[str, Any] = {"a cut letter": {k: v[:-2] for k, v in mine.items()}, "no letters": {}}
            for what, words_too in cut.items():
                if not _refused(_turn(town, told, "numbers", words_too)) or town.charged():
                    yield f"{what}: answered or charged"
        said = {site: _turn(town, told, turn, words[site], site) for site in NAMES}
        if any(map(_refused, said.values())):
            yield f"the {turn} of an honest sum are refused"
            return
        answers[turn] = {site: answer.body for site, answer in said.items()}
    first, second, third = NAMES
    lists = {first: [first, second], second: [second, third], third: [first, third]}
    signed = {}
    for site, sent in lists.items():
        answer = _turn(town, told, "sent", {"sent": sent}, site)
        signed[site] = json.loads(answer.body)["signature"] if answer.kind == "release" else ""
    for lie in ([first, third], list(NAMES), [first], [second, third], []):
        if not _refused(_turn(town, told, "sent", {"sent": lie})):
            yield f"a second list of {len(lie)} senders is signed"
    for site in NAMES:
        for sent in (*lists.values(), list(NAMES)):
            for signatures in (signed, dict.fromkeys(NAMES, signed[site]), {}):
                if not _refused(_turn(town, told, "shares", {"sent": sent, "signatures": signatures}, site)):
                    yield f"shares leave for a list that no quorum has signed ({site})"
    again = _turn(town, told, "numbers", secure.told(job, "numbers", answers)[VICTIM])
    if again.body != answers["numbers"][VICTIM]:
        yield "asked again, the numbers are other ones"
