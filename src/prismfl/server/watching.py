"""What a monitor may know of a server: its runs, who answered when, who did not count and why, its certificates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from prismfl.server.config import enrolled, load_server
from prismfl.server.contacts import contacts
from prismfl.server.running import PID, runs_of
from prismfl.site.certificates import look_at_server
from prismfl.transport.faults import faults
from prismfl.transport.flower.children import pid_of
from prismfl.transport.watch import Metric, Watched, one
from prismfl.version import __version__

PORT = 9465


def watched(folder: Path) -> Watched:
    """The server in a folder, for a monitor."""
    return Watched(lambda: metrics(folder), lambda: is_running(folder), lambda: is_ready(folder))


def is_running(folder: Path) -> bool:
    """Whether `prismfl server start` is at work."""
    return pid_of(folder / PID) is not None


def is_ready(folder: Path) -> bool:
    """Whether sites could join: certificates that fit and have not ended, and enough sites for the quorum."""
    sound = not any(state.faults for state in look_at_server(folder / "keys"))
    return sound and len(enrolled(folder)) >= load_server(folder).quorum


def metrics(folder: Path) -> list[Metric]:
    """All numbers of a server; counts are over all of its runs."""
    runs = runs_of(folder)
    rows = [row for run in runs for row in run.metrics()]
    codes = Counter(fault.code for run in runs for fault in faults(run))
    replies = Counter(m.site for run in runs for m in run.messages() if m.direction == "up")
    last = runs[-1].metrics()[-2:] if runs else []
    seconds = last[-1]["seconds"] - (last[-2]["seconds"] if len(last) > 1 else 0.0) if last else 0.0
    known, sites = contacts(folder), enrolled(folder)
    return [
        Metric("prismfl_server_info", "The server's version.", [({"version": __version__}, 1)]),
        one("prismfl_server_up", "Whether `prismfl server start` is running.", is_running(folder)),
        Metric(
            "prismfl_server_runs",
            "Runs by how they stand.",
            [({"status": status}, count) for status, count in sorted(Counter(run.status for run in runs).items())],
        ),
        one("prismfl_server_rounds_total", "Rounds that are done.", len(rows), "counter"),
        Metric(
            "prismfl_server_replies_total",
            "Releases that counted, by site.",
            [({"site": site}, count) for site, count in sorted(replies.items())],
            "counter",
        ),
        Metric(
            "prismfl_server_dropped_total",
            "Sites that did not count in a round, by code.",
            [({"code": code}, count) for code, count in sorted(codes.items())],
            "counter",
        ),
        Metric(
            "prismfl_server_bytes_total",
            "Bytes that crossed, up from the sites and down to them.",
            [({"direction": way}, sum(row[f"bytes_{way}"] for row in rows)) for way in ("up", "down")],
            "counter",
        ),
        one("prismfl_server_round_seconds", "Seconds of the last round that is done.", max(0.0, seconds)),
        Metric(
            "prismfl_server_contact_seconds",
            "When a site was last there, in Unix time; 0 for never.",
            [({"site": site}, known.get(site, 0.0)) for site in sites],
        ),
        Metric(
            "prismfl_server_certificate_days",
            "Days that a certificate is good.",
            [
                ({"file": state.path.name}, -1 if state.days is None else state.days)
                for state in look_at_server(folder / "keys")
            ],
        ),
    ]
