"""A long run with random kills: `PYTHONPATH=. python benchmarks/federation_soak.py` in the project folder.

The server is cut off at random lines of its log and resumed; sites fall silent, answer twice or send garbage at random.
In one process over Flower's Grid interface, so that hours of faults fit into minutes; the process-level twin is
tests/site/test_processes.py. At the end: every round done, nobody charged twice, every fault named.

With `--hours 24 --minutes 15` a day of an operator instead, with real processes and clocks that run as fast as that
takes: see simulated_day.py. Its outcome goes to `results/day_soak.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from alternate import save, say
from flwr.app import Message
from simulated_day import soak_day
from tests.site.folders import NAMES, make_run, make_site, run_config
from tests.transport.grid import OneProcessGrid

from prismfl.runs.description import job_of
from prismfl.server import serving
from prismfl.transport.conductor import QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.flower import adapter as flower
from prismfl.transport.post import RoundRules


class Killed(BaseException):
    """The server, cut off."""


def soak(rounds: int, seed: int, minutes: float) -> None:
    chance = random.Random(seed)
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        changes = {"cap": 1000.0, "noise": "operating-system"}
        offices = [make_site(root, name, **changes) for name in NAMES]
        rules = RoundRules(2, deadline=1.0, join=5.0, poll=0.01, ask_again=0.05)
        directory = make_run(root / "run", rules, run_config(settings={"rounds": rounds, "steps": 1, "batch": 16}))
        apps = {i: flower.client_app(lambda request, context, o=o: o.answer(request)) for i, o in enumerate(offices)}
        kills = quorums = 0

        def tamper(place: int, request: Message, reply: Message) -> list[Message]:
            luck = chance.random()
            if flower.read_answer(reply).kind != "release" or luck > 0.06:
                return [reply]
            if luck < 0.02:
                return []
            if luck < 0.04:
                return [reply, reply]
            return [Message(flower.pack({"kind": "release", "code": "", "site": ""}, b"garbage"), reply_to=request)]

        def say_or_die(line: str) -> None:
            if chance.random() < 0.02:
                raise Killed

        while directory.status != "finished" and time.monotonic() < end:
            grid = OneProcessGrid(apps)
            grid.tamper = tamper
            try:
                serving.serve(directory.path, flower.GridPost(grid, {}, refresh=0.0), say=say_or_die)
            except Killed:
                kills += 1
            except QuorumError:
                quorums += 1
        state = directory.load_state()
        done = state.round if state else 0
        description = directory.read_json("federation.json")["description"]
        job = job_of(description)
        charges = [len(o._host(job, description).ledger.charges(run=job.run)) for o in offices]
        assert all(count <= done + 1 for count in charges), "a site was charged twice for a round"
        codes = sorted({fault.code for fault in faults(directory)})
        say(f"{done} of {rounds} rounds, {kills} kills, {quorums} missed quorums, {len(faults(directory))} faults")
        say(f"charges a site {charges}, codes {', '.join(codes)}, seed {seed}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--hours", type=float, help="a day of so many hours, within --minutes")
    given = parser.parse_args()
    if given.hours is None:
        soak(given.rounds, given.seed, given.minutes)
    else:
        day = soak_day(given.hours, given.minutes, given.seed)
        save("day_soak", day)
        say(json.dumps(day, indent=2))
