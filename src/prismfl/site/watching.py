"""What a monitor may know of a site: counts of what left, what it cost by the public plan, what waits, how long the
certificate lasts. No second of computing, no size of a file, no balance of a joint data set: each would follow records.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

from prismfl.errors import PrismError
from prismfl.files.bounded import read_json
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.site.approvals import Approvals
from prismfl.site.certificates import look_at_trust
from prismfl.site.config import SiteConfig, ledger_of, load_site
from prismfl.site.egress import EgressLog
from prismfl.transport.faults import clean_code
from prismfl.transport.flower.children import pid_of
from prismfl.transport.watch import Metric, Watched, one
from prismfl.version import __version__

PORT = 9464


def watched(folder: Path) -> Watched:
    """The site in a folder, for a monitor."""
    return Watched(lambda: metrics(folder), lambda: is_running(folder), lambda: is_ready(folder))


def is_running(folder: Path) -> bool:
    """Whether `prismfl site join` is at work."""
    return any(pid_of(path) is not None for path in (folder / "site.pid", *folder.glob("servers/*/site.pid")))


def is_ready(folder: Path) -> bool:
    """Whether a request could be answered: the words of site.toml hold, the ledger is whole, the trust has not ended.
    Not whether the data can be read: that would be an answer about them."""
    config = load_site(folder, thorough=False)
    return _ledger_is_whole(folder, config) and not look_at_trust(folder / "keys" / "ca.pem").faults


def metrics(folder: Path) -> list[Metric]:
    """All numbers of a site."""
    config = load_site(folder, thorough=False)
    rows = EgressLog(folder).rows()
    sent = [row for row in rows if row["what"] == "release"]
    words = Counter(_plain(row["word"]) for row in rows if row["what"] == "word")
    whole = _ledger_is_whole(folder, config)
    waiting = sum(held.decision == "waiting" for held in Approvals(folder).all())
    trust = look_at_trust(folder / "keys" / "ca.pem")
    found = [
        Metric("prismfl_site_info", "The site and its version.", [({"site": config.name, "version": __version__}, 1)]),
        one("prismfl_site_up", "Whether `prismfl site join` is running.", is_running(folder)),
        one("prismfl_site_ledger_whole", "Whether the ledger verifies.", whole),
        one("prismfl_site_releases_total", "Releases that left.", sum(not r["resend"] for r in sent), "counter"),
        one("prismfl_site_resends_total", "Releases that left again.", sum(r["resend"] for r in sent), "counter"),
        one("prismfl_site_sent_bytes_total", "Bytes of releases that left.", sum(r["bytes"] for r in sent), "counter"),
        Metric(
            "prismfl_site_words_total",
            "Words that left: ready, done, and refusals by their code.",
            [({"word": word}, count) for word, count in sorted(words.items())],
            "counter",
        ),
        one("prismfl_site_last_answer_seconds", "When an answer last left.", last_answer(rows, config.answer_every)),
        one("prismfl_site_waiting", "Releases that wait for a person.", waiting),
        one("prismfl_site_certificate_days", "Days that ca.pem is good.", -1 if trust.days is None else trust.days),
    ]
    return found + (_budget(folder, config) if whole else [])


def last_answer(rows: list[dict[str, Any]], every: float) -> float:
    """Unix time of the last answer, or 0; where answers leave at multiples of so many seconds, when it left and not
    when it was ready."""
    if not rows:
        return 0.0
    moment = datetime.fromisoformat(rows[-1]["time"]).timestamp()
    return math.ceil(moment / every) * every if every > 0 else moment


def _budget(folder: Path, config: SiteConfig) -> list[Metric]:
    """What this site's own runs were charged. Not the balance of its data set, which others' runs join where they share
    a record."""
    place, runs = ledger_of(folder, config), {read_json(note)["run"] for note in folder.glob("runs/*/job.json")}
    mine: list[Cost] = []
    if place.exists():
        with Ledger.open(place, create=False) as ledger:
            mine = [charge.cost for charge in ledger.charges() if charge.run in runs]
    spent = account.epsilon(reduce(Cost.beside, mine), config.delta) if mine else 0.0
    labels = {"dataset": config.name, "unit": config.unit}
    found = [Metric("prismfl_site_epsilon_spent", "Epsilon of all that this site was asked for.", [(labels, spent)])]
    if config.cap != "none":
        left = max(0.0, config.cap - spent)
        found.append(
            Metric("prismfl_site_epsilon_left", "The cap of site.toml, without what was spent.", [(labels, left)])
        )
    return found


def _ledger_is_whole(folder: Path, config: SiteConfig) -> bool:
    place = ledger_of(folder, config)
    if not place.exists() and not place.with_name(place.name + ".anchor").exists():
        return True
    try:
        Ledger.open(place, create=False).shut()
    except PrismError:
        return False
    return True


def _plain(word: str) -> str:
    """A word of ours as a label: a turn of a secure sum counts as one."""
    return "secure-sum" if word.endswith("of a secure sum") else clean_code(word)
