"""A soak over real processes: a SuperLink and three SuperNodes with TLS and keys, and kill -9 at random moments.

    PYTHONPATH=. python benchmarks/process_soak.py --rounds 200 --minutes 120

After a round, at random, the server (with its SuperLink) or one site is killed within five seconds; a killed server is
started again with --resume, a killed site joins again. In the end no site may have been charged twice for a round. The
outcome, finished or not, goes to `results/process_soak.json`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from alternate import save, say
from tests.site.folders import NAMES, make_site
from tests.site.test_processes import Federation, _kill, family

from prismfl.runs.description import job_of
from prismfl.transport.faults import faults


def killed(process: subprocess.Popen[bytes]) -> None:
    for pid in family(process.pid):
        _kill(pid, signal.SIGKILL)
    process.wait()


class Soak:
    def __init__(self, root: Path, *, rounds: int, seed: int, kills: float) -> None:
        self.chance, self.rounds, self.kill_rate = random.Random(seed), rounds, kills
        self.federation = Federation(root)
        self.federation.configure(quorum=2, deadline=60.0)
        run = root / "run.toml"
        run.write_text(run.read_text().replace("rounds = 3", f"rounds = {rounds}").replace("steps = 2", "steps = 1"))
        for name in NAMES:
            make_site(root, name, cap=10_000.0, noise="operating-system")
        self.kills: Counter[str] = Counter()
        self.ended: Counter[int] = Counter()

    def run(self, minutes: float) -> None:
        end = time.monotonic() + 60 * minutes
        sites = {name: self.federation.join(name) for name in NAMES}
        server = self.federation.prismfl("server", "start", "server", "run.toml")
        calm = 0  # at most one kill for each new round: a busy machine must not see kills alone
        while time.monotonic() < end and server.poll() != 0:
            done = self.federation.rounds_done()
            if server.poll() is not None:
                self.ended[server.returncode] += 1
                server = self.federation.prismfl("server", "start", "server", "--resume")
            elif done > calm and self.chance.random() < self.kill_rate:
                time.sleep(self.chance.uniform(0.0, 5.0))
                victim = self.chance.choice(["server", *NAMES])
                killed(server if victim == "server" else sites[victim])
                self.kills["server" if victim == "server" else "site"] += 1
                if victim == "server":
                    server = self.federation.prismfl("server", "start", "server", "--resume")
                else:
                    sites[victim] = self.federation.join(victim)
            calm = max(calm, done)
            time.sleep(0.5)

    def outcome(self) -> dict[str, object]:
        directory = self.federation.directory()
        description = directory.read_json("federation.json")["description"]
        job = job_of(description)
        twice, charges = 0, {}
        for name in NAMES:
            office = make_site(self.federation.root, name, cap=10_000.0, noise="operating-system")
            ids = [c.release for c in office._host(job, description).ledger.charges(run=job.run)]
            twice += len(ids) - len(set(ids))
            charges[name] = len(ids)
        state = directory.load_state()
        return {
            "rounds asked": self.rounds,
            "rounds done": state.round if state else 0,
            "finished": directory.status == "finished",
            "kill -9": dict(self.kills),
            "server ended by itself with": {str(code): n for code, n in self.ended.items()},
            "faults": dict(Counter(fault.code for fault in faults(directory))),
            "charges a site": charges,
            "charged twice": twice,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=float, default=0.15, help="chance of a kill after a round")
    parser.add_argument("--minutes", type=float, default=120.0)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), rounds=given.rounds, seed=given.seed, kills=given.kills)
        try:
            soak.run(given.minutes)
            found = soak.outcome()
        finally:
            soak.federation.end()
    minutes = round((time.monotonic() - started) / 60, 1)
    save("process_soak", {"seed": given.seed, "minutes": minutes, "nice": os.nice(0), **found})
    say(str(found))


if __name__ == "__main__":
    main()
