"""The in-process engine: one site at a time, real bytes, a ledger a site, a checkpoint a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Payload, encode
from prismfl.core.release import Release
from prismfl.core.rounds import Host, Hub, adopt_step, initial_state, participants, receive, site_step, surviving_step
from prismfl.errors import WireError
from prismfl.runs.directory import Message, RunDirectory, digest
from prismfl.secure import protocol as secure
from prismfl.transport.faults import SPOILS, note

Progress = Callable[[str, int, int], None]
AfterRound = Callable[[State, dict[str, int]], None]


@dataclass(frozen=True)
class Outcome:
    """What an engine hands back: the final state and what each site made for itself."""

    state: State
    own: dict[str, dict[str, Payload]]


def run(
    job: Job,
    hosts: Sequence[Host],
    *,
    directory: RunDirectory,
    hub: Hub | None = None,
    keep: str = "ends",
    progress: Progress = lambda what, done, total: None,
    after_round: AfterRound = lambda state, traffic: None,
) -> Outcome:
    """Run to the end, or on from the last checkpoint. Killed at any point, it ends with the same bytes."""
    by_name = {host.name: host for host in hosts}
    state = directory.load_state()
    if state is None:
        state = initial_state(job)
        directory.save_state(state)
    one_round = _round if job.secure is None else _secure_round
    while state.round < job.settings.rounds:
        state = one_round(
            job, state, by_name, directory=directory, hub=hub, keep=keep, progress=progress, after_round=after_round
        )
    for host in hosts:
        secure.forget(host)
        for release in _waiting(job, host, before=state.round):
            host.ledger.confirm(release)
    own = {}
    for i, host in enumerate(hosts):
        if job.method.adopt is not None:
            progress("training on each site", i, len(hosts))
        own[host.name] = adopt_step(job, state, host)
    return Outcome(state, own)


def _round(
    job: Job,
    state: State,
    hosts: dict[str, Host],
    *,
    directory: RunDirectory,
    hub: Hub | None,
    keep: str,
    progress: Progress,
    after_round: AfterRound,
) -> State:
    chosen = participants(job, state.round)
    whole = keep == "full" or (keep == "ends" and state.round in (0, job.settings.rounds - 1))
    down = encode(state.items, {"round": state.round})
    inbox: dict[str, Release] = {}
    refused: WireError | None = None
    traffic = {"bytes_up": 0, "bytes_down": 0}
    for i, name in enumerate(chosen):
        progress(f"round {state.round + 1}, {name}", state.round * len(chosen) + i, job.settings.rounds * len(chosen))
        # Both checkpoints are past what is two rounds old; what is younger may have to be sent again.
        raw = site_step(job, state, hosts[name], arrived=_waiting(job, hosts[name], before=state.round - 1))
        _note(directory, state.round, name, "down", down, whole=whole and i == 0)
        _note(directory, state.round, name, "up", raw, whole=whole)
        traffic["bytes_up"] += len(raw)
        traffic["bytes_down"] += len(down) if state.items else 0
        try:
            inbox[name] = receive(job, state, name, raw)
        except WireError as error:
            refused = error
            progress(note(directory, state.round, name, error.code).line(str(error)), i, len(chosen))
    if refused is not None and not inbox:
        raise refused
    progress(f"round {state.round + 1}, server", (state.round + 1) * len(chosen), job.settings.rounds * len(chosen))
    items = {name: release.items for name, release in inbox.items()}
    after, dropped = surviving_step(job, state, items, hub=hub)
    for name, why in dropped.items():
        progress(note(directory, state.round, name, SPOILS).line(why), len(chosen), len(chosen))
    directory.save_state(after)
    if hub is not None:
        hub.ledger.confirm(f"{job.run}/hub/{state.round}")
    after_round(after, traffic)
    return after


def _secure_round(
    job: Job,
    state: State,
    hosts: dict[str, Host],
    *,
    directory: RunDirectory,
    hub: Hub | None,
    keep: str,
    progress: Progress,
    after_round: AfterRound,
) -> State:
    """A round whose releases the server can read only as a sum; every turn's bytes are counted."""
    whole = keep == "full" or (keep == "ends" and state.round in (0, job.settings.rounds - 1))
    down = encode(state.items, {"round": state.round})
    traffic = {"bytes_up": 0, "bytes_down": len(job.task.sites) * (len(down) if state.items else 0)}
    answers: dict[str, dict[str, bytes]] = {}
    for turn in secure.TURNS:
        words, answers[turn] = secure.told(job, turn, answers), {}
        for i, (name, told) in enumerate(words.items()):
            progress(f"round {state.round + 1}, {turn} of {name}", state.round * len(words) + i, len(words))
            arrived = _waiting(job, hosts[name], before=state.round - 1)
            roster = secure.simulated(job, name)
            raw = secure.site_turn(job, state, hosts[name], roster, turn=turn, told=told, arrived=arrived)
            secure.check_answer(job, state, name, raw, turn=turn, answers=answers)
            answers[turn][name] = raw
            traffic["bytes_up"] += len(raw)
            traffic["bytes_down"] += len(told)
            if turn == "numbers":
                _note(directory, state.round, name, "down", down, whole=whole and i == 0)
                _note(directory, state.round, name, "up", raw, whole=whole)
    after, opened = secure.secure_server_step(job, state, answers, hub=hub)
    directory.save_state(after)
    secure.note(directory.path, opened)
    if hub is not None:
        hub.ledger.confirm(f"{job.run}/hub/{state.round}")
    after_round(after, traffic)
    return after


def _waiting(job: Job, host: Host, *, before: int) -> list[str]:
    """The site's releases of earlier rounds whose bytes its ledger still keeps."""
    mine = f"{job.run}/{host.name}/"
    kept = [charge.release for charge in host.ledger.charges(run=job.run) if not charge.confirmed]
    return [release for release in kept if release.startswith(mine) and int(release.rsplit("/", 1)[1]) < before]


def _note(directory: RunDirectory, round: int, site: str, direction: str, raw: bytes, *, whole: bool) -> None:
    file = f"transcript/{round:04d}-{direction}-{site}.safetensors" if whole else None
    directory.record(Message(round, site, direction, len(raw), digest(raw), file), raw if whole else None)
