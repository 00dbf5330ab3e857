"""The auditor plays the server, against every method with a guarantee.

Whatever a site is asked, it answers a round once, with the planned release or with one constant refusal; facts, limits
and peers are its own; a record moves no sum by more than its bound. Each attack yields what broke, in words.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.adversary.audits.hostile_play import influence, noting
from prismfl.adversary.audits.hostile_site import (
    CHANGES,
    LARGEST,
    REFUSED,
    VICTIM,
    WORLDS,
    Bench,
    Town,
    forged,
    honest,
    hostile,
    malformed,
    sealed,
    start,
    watching,
)
from prismfl.adversary.audits.hostile_sums import rosters
from prismfl.core.method import Method, State
from prismfl.core.payloads import JsonDict, encode
from prismfl.core.rounds import receive
from prismfl.data.pictures import save_sheet
from prismfl.errors import WireError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.secure import protocol as secure
from prismfl.transport.post import Answer

Probe = Callable[[Bench], Iterator[str]]
MOST_RUNS = 40


@dataclass(frozen=True)
class Cell:
    """One kind of attack on one method: how much was asked and charged, and what broke."""

    questions: int
    charges: int
    broke: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether nothing broke."""
        return not self.broke


@dataclass(frozen=True)
class Row:
    """A method under all attacks."""

    method: str
    cells: dict[str, Cell] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the method held under every attack."""
        return all(cell.held for cell in self.cells.values())

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, and whether the method passed."""
        return {**asdict(self), "passed": self.passed}


def audited(method: Method) -> bool:
    """Whether something leaves a site under a promise that a server could break."""
    return method.guarantee is not None and not method.pooled and bool(method.leaves)


def audit_hostile(method: Method, attacks: tuple[str, ...] | None = None, *, kind: str = "image") -> Row:
    """All attacks on one method at sites with pictures or with a table, each with sites of its own."""
    runtime.tune(1)
    started, cells = time.monotonic(), {}
    for name in attacks or tuple(PROBES):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(method, Path(folder), kind)
            try:
                broke = tuple(PROBES[name](bench))
            except Exception as error:  # an office never raises; if the audit cannot go on, nothing was shown
                broke = (f"the audit could not go on: {type(error).__name__}: {str(error)[:200]}",)
            cells[name] = Cell(bench.questions, bench.charges, broke)
    name = method.name if kind == "image" else f"{method.name} ({kind})"
    return Row(name, cells, round(time.monotonic() - started, 1))


# Weights


def weights(bench: Bench) -> Iterator[str]:
    """Each hostile state in a run of its own: one answer, charged in full, the same ever after."""
    town, told = bench.town(), bench.describe()
    _, items = start(told)
    finite = {name: encode(hostile(items, change), {"round": 0}) for name, change in CHANGES.items()}
    states = (finite if items else {"zero": finite["zero"]}) | malformed(items, 0)
    for i, (what, state) in enumerate(states.items()):
        run = {**told, "run": f"weights-{i}"}
        for wrong in _one_answer(town, run, state, must_charge=what in finite):
            yield f"{what}: {wrong}"


def _one_answer(town: Town, told: JsonDict, state: bytes, *, must_charge: bool) -> Iterator[str]:
    job, _ = start(told)
    with noting():
        first = town.round(told, state=state)
    yield from _planned(town, told, first)
    charged = town.charged(told["run"])
    if len(charged) != 1 and (must_charge or first.kind == "release" or charged):
        yield f"{len(charged)} charges for one round"
    if any(charge.cost != job.round_cost(0, first=True) for charge in charged):
        yield "the charge is not that of the round"
    with noting() as again:
        second = town.round(told, state=state)
        third = town.round(told) if charged else second
    if {first, second, third} != {first}:
        yield "asked again, the answer is another one"
    if again.calls:
        yield "asked again, something fresh is computed"
    if len(town.charged(told["run"])) != len(charged):
        yield "asked again, it is charged again"


def _planned(town: Town, told: JsonDict, answer: Answer, round: int = 0) -> Iterator[str]:
    """An answer is the planned release (declared items and shapes, finite), or the one refusal."""
    if answer == REFUSED:
        return
    job, _ = start(told)
    try:
        if answer.kind != "release":
            raise WireError(f"{answer.kind} {answer.code}")
        if town.shared:
            secure.check_answer(job, State(round, {}), VICTIM, answer.body, turn="numbers", answers={})
        else:
            # What a server would find possible follows from the weights it sent; here they were absurd.
            receive(replace(job, method=replace(job.method, possible=None)), State(round, {}), VICTIM, answer.body)
    except WireError as error:
        yield f"neither the planned release nor the one refusal: {error}"


# Rounds


def rounds(bench: Bench) -> Iterator[str]:
    """Rounds again, outside of the plan, out of order, after the end."""
    town, told = bench.town(), bench.describe()
    job, items = start(told)
    last = job.settings.rounds
    if {town.ask("hello", told).kind for _ in range(2)} != {"ready"} or town.charged():
        yield "hello is not ready, or charges"
    first = town.round(told)
    yield from _planned(town, told, first)
    large = encode(hostile(items, CHANGES["largest"]), {"round": 0})
    with noting() as noted:
        if town.round(told, state=large) != first:
            yield "the same round with other weights has another answer"
        for round in (-1, last, last + 1, 10**9):
            for turn in secure.TURNS if town.shared else ("",):
                if town.ask("round", told, round, state=honest(told, round), turn=turn) != REFUSED:
                    yield f"round {round} of {last} is not refused"
        for odd in ("numbers", "keys", "x", "") if not town.shared else ("", "x"):
            if odd and town.ask("round", told, 0, state=honest(told), turn=odd) != REFUSED:
                yield f"turn '{odd}' is not refused"
        if town.round({**told, "run": "other"}, state=honest(told, 1)) != REFUSED:
            yield "a state of another round is taken"
    if noted.calls or len(town.charged()) != 1:
        yield f"outside of the plan something is computed or charged ({len(town.charged())} charges)"
    yield from _after_the_end(town, told, first)


def _after_the_end(town: Town, told: JsonDict, first: Answer) -> Iterator[str]:
    """`finish` before the end, twice, with rubbish: one word; and no round has a second answer for it."""
    last = start(told)[0].settings.rounds
    ends = [(0, honest(told)), (0, honest(told)), (last, honest(told, last)), (10**9, b"rubbish"), (-1, b"")]
    if {town.ask("finish", told, round, state=state) for round, state in ends} != {Answer("done", site=VICTIM)}:
        yield "finish does not always say the same"
    for round in range(last):
        answer = town.round(told, round)
        yield from _planned(town, told, answer, round)
        if round == 0 and answer not in (first, REFUSED):
            yield "after the end the first round has another answer"
    charged = [charge.release for charge in town.charged(told["run"])]
    if len(charged) > last or len(set(charged)) != len(charged):
        yield f"{len(charged)} charges for {last} rounds"


# Settings and names


def settings(bench: Bench) -> Iterator[str]:
    """Other numbers under the same name are refused; the same ones under other names are charged up to the cap."""
    told = bench.describe()
    job, _ = start(told)
    one = account.epsilon(job.site_plan(), 1e-5)
    town = bench.town(cap=2.5 * one)
    first = town.round(told)
    yield from _planned(town, told, first)
    for what, other in _others(bench, told).items():
        for kind in ("hello", "round"):
            answer = town.ask(kind, other, state=honest(told), turn="keys" if town.shared else "")
            if answer.kind != "code":
                yield f"another {what} under the same name is answered {answer.kind}"
    if len(town.charged()) != 1:
        yield f"{len(town.charged())} charges for one round"
    taken = 1
    while taken < MOST_RUNS and town.ask("hello", {**told, "run": f"run-{taken}"}).kind == "ready":
        taken += 1
    plan = job.site_plan()
    spent = account.epsilon(sum((plan for _ in range(taken)), start=Cost.zero(plan.unit, plan.relation)), 1e-5)
    if taken == MOST_RUNS or spent > 2.5 * one * (1 + 1e-9):
        yield f"{taken} runs of epsilon {one:.3g} were taken under a cap of {2.5 * one:.3g}"
    before = len(town.charged())
    if town.round({**told, "run": f"run-{taken}"}) != REFUSED or len(town.charged()) != before:
        yield "a run beyond the cap is computed or charged"


def _others(bench: Bench, told: JsonDict) -> dict[str, JsonDict]:
    numbers = told["config"]["settings"]
    found = {
        "seed": forged(told, seed=told["config"]["seed"] + 1),
        "delta": forged(told, delta=0.5),
        "number of records": forged(told, records=1),
        "epsilon": forged(told, epsilon=1e6),
    }
    if "sigma" in numbers:
        found["sigma"] = forged(told, settings={**numbers, "sigma": numbers["sigma"] / 2})
    found["number of rounds"] = forged(told, settings={**numbers, "rounds": numbers.get("rounds", 1) + 1})
    return found


# Facts


def facts(bench: Bench) -> Iterator[str]:
    """What the server says about the site's data, files and machine decides nothing and opens nothing."""
    town, told = bench.town(), bench.describe()
    canary = bench.folder / "canary"
    for i in range(3):
        save_sheet(torch.rand(1, 8, 8), canary / f"{i}.png", scale=1)
    lies = _lies(told, canary)
    with watching([*town.places(), canary.resolve()]) as opened:
        for what, lie in lies.items():
            for kind in ("hello", "round"):
                turn = "keys" if town.shared else ""
                answer = town.ask(kind, lie, state=honest(told), turn=turn)
                if answer.kind != "code" or answer.body:
                    yield f"{what} is answered {answer.kind}"
            if town.ask("finish", lie, state=honest(told)).kind not in ("code", "done"):
                yield f"{what} is answered at the end"
    if opened:
        yield f"files of the site were opened: {sorted(set(opened))[:3]}"
    if town.reserved():
        yield "the ledger was opened"
    if town.ask("hello", told).kind != "ready":
        yield "an honest request is refused"


def _lies(told: JsonDict, canary: Path) -> dict[str, JsonDict]:
    spec = told["spec"]
    classes, shape = spec["classes"], spec["shape"]
    found = {
        "fewer classes": sealed(told, spec={**spec, "classes": classes[:-1]}),
        "more classes": sealed(told, spec={**spec, "classes": [*classes, "more"]}),
        "other classes": sealed(told, spec={**spec, "classes": classes[::-1]}),
        "another shape": sealed(told, spec={**spec, "shape": [n + 1 for n in shape]}),
        "another kind": sealed(told, spec={**spec, "kind": "table" if spec["kind"] == "image" else "image"}),
        "no facts": sealed(told, spec=None),
        "parts of a record": sealed(told, spec={**spec, "parts": {"parts": [{"name": str(canary)}], "schema": None}}),
        "another schema": sealed(told, schema="0" * 64),
        "a schema in words": sealed(told, schema={"columns": []}),
        "an extra key": sealed(told, surprise=str(canary)),
        "another unit": forged(told, unit="patient_id"),
        "another relation": forged(told, relation="replace-one"),
        "no such site": sealed(told, sites=["south", "west"]),
        "one site twice": sealed(told, sites=[VICTIM, VICTIM]),
        "a site with a path": sealed(told, sites=[VICTIM, "../south"]),
        "another method": forged(told, method="fedavg"),
        "no method": forged(told, method=None),
        "another version": sealed(told, prismfl="0.0"),
        "a wrong digest": {**told, "digest": "0" * 64},
    }
    for place in (str(canary), f"x={canary}", "../canary", "/", "~", "", "."):
        found[f"public images from '{place[:8]}'"] = forged(told, public=place)
    for words in (str(canary), f"{canary}/net.onnx", "os:system", "no-such-encoder", "scattering", ["scattering"]):
        found[f"the encoder {str(words)[:16]!r}"] = sealed(forged(told, encoder=words), encoder="0" * 64)
    for key in ("device", "data", "data_dir", "schema_file", "label", "classes", "ledger", "start", "out", "threads"):
        found[f"the config key {key}"] = forged(told, **{key: str(canary)})
    for run in ("..", ".", "../../x", "a/b", "", "x" * 81, "a\nb"):
        found[f"the run name '{run[:5]!r}'"] = {**told, "run": run}
    return found


# Limits


def limits(bench: Bench) -> Iterator[str]:
    """Sizes of 10 million to a thousand million are refused before anything is reserved or computed."""
    town, told = bench.town(), bench.describe()
    asked = {name: forged(told, settings=huge) for name, huge in _huge(told["config"]["settings"])}
    asked |= {f"model {m}": forged(told, model=m) for m in ("convnet:99999999", "mlp:100000", "/etc/passwd", None)}
    asked |= {f"{n} public images": forged(told, public_count=n) for n in (10**9, -1, "9", None)}
    asked["a thousand sites"] = sealed(told, sites=[VICTIM, *(f"site-{i}" for i in range(1000))])
    with noting() as noted:
        for what, lie in asked.items():
            if town.ask("hello", lie).kind != "code":
                yield f"{what} is answered"
    if town.reserved() or noted.calls:
        yield "something was reserved or computed"


def _huge(numbers: JsonDict) -> Iterator[tuple[str, JsonDict]]:
    """Each number of a method's settings, far too large; but seeds, and class sizes, may be."""
    for name, value in numbers.items():
        if name.endswith("seed") or name == "class_sizes" or isinstance(value, bool | str) or value is None:
            continue
        if isinstance(value, list):
            whole = value and type(value[0]) is int
            yield f"{name}, too many", {**numbers, name: [10**9] * len(value) if whole else (value or [1]) * 20_000}
            continue
        for large in (10**7, 10**9) if isinstance(value, int) else (1e300, -1e300):
            yield f"{name} of {large:g}", {**numbers, name: large}


# Codes


def codes(bench: Bench, worlds: tuple[str, ...] = WORLDS) -> Iterator[str]:
    """What a server sees besides noisy numbers (kinds, codes, lengths) is the same with and without any one record."""
    seen = {world: _script(bench, world) for world in worlds}
    for world, found in seen.items():
        for (what, one), (_, other) in zip(seen[worlds[0]], found):
            if one != other:
                yield f"{what} tells of a record ({world}): {one} and {other}"
                break


def _script(bench: Bench, world: str) -> list[tuple[str, tuple[str, str, int]]]:
    town, told = bench.town(world=world), bench.describe()
    job, items = start(told)
    answers = [("hello", town.ask("hello", told)), ("a round", town.round(told)), ("again", town.round(told))]
    for what in ("zero", "1e30 times", "needle") if items else ():
        state = encode(hostile(items, CHANGES[what]), {"round": 0})
        answers.append((f"{what} weights", town.round({**told, "run": what.replace(" ", "-")}, state=state)))
    bad = malformed(items, 0)["NaN"]
    answers.append(("NaN weights", town.round({**told, "run": "nan"}, state=bad)))
    spec = told["spec"]
    answers.append(("other classes", town.ask("hello", sealed(told, spec={**spec, "classes": spec["classes"][:-1]}))))
    answers.append(("another round", town.ask("round", told, job.settings.rounds, state=honest(told, 9))))
    end = encode(hostile(items, lambda i, t: torch.full_like(t, LARGEST)), {"round": job.settings.rounds})
    answers += [("the end", town.ask("finish", told, job.settings.rounds, state=end)) for _ in range(2)]
    return [(what, (answer.kind, answer.code, len(answer.body))) for what, answer in answers]


PROBES: dict[str, Probe] = {
    "weights": weights,
    "rounds": rounds,
    "settings": settings,
    "facts": facts,
    "limits": limits,
    "rosters": rosters,
    "codes": codes,
    "influence": influence,
}


def save(rows: list[Row], path: Path) -> None:
    """Write the rows to a JSON file, and make its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row.as_dict() for row in rows], indent=2, sort_keys=True) + "\n")
