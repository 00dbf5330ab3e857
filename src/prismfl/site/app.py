"""A site as a Flower app: the component that a SuperNode loads.

A site is found by the environment variable PRISMFL_SITE, and which of its servers is asking by PRISMFL_SERVER; its
operator's `site join` sets both, and no server can. Without them, in
Flower's simulation, each virtual node holds a part of the named data set, with seeded noise.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prismfl.files.atomic import make_folder
from prismfl.site.servers import place_of
from prismfl.transport.flower import adapter as flower
from prismfl.transport.parts import Spool
from prismfl.transport.post import Answer, Request

if TYPE_CHECKING:
    from prismfl.site.office import Office

SITE, SERVER = "PRISMFL_SITE", "PRISMFL_SERVER"


def answer(request: Request, context: flower.Context) -> Answer:
    """The answer of the site that the environment names, or else of a simulated one."""
    folder, server = os.environ.get(SITE), os.environ.get(SERVER, "")
    if folder is None:
        return _simulated(request, context).answer(request)
    spool = Spool(place_of(Path(folder), server) / "spool")
    return spool.answer(request, lambda: _made(Path(folder), server, request))


def _made(folder: Path, server: str, request: Request) -> Answer:
    from prismfl.site.office import Office

    office = Office.open(folder, server)
    bound(office.config.max_memory + office.mapped() / 2**30, office.config.max_seconds)
    given = office.answer(request)
    wait_for(office.config.answer_every)
    return given


def bound(gigabytes: float, seconds: float) -> None:
    """The operating system ends what takes more: a request cannot use up the site's machine."""
    import resource

    spent = resource.getrusage(resource.RUSAGE_SELF)
    used = int(spent.ru_utime + spent.ru_stime)
    for what, most in ((resource.RLIMIT_AS, int(gigabytes * 2**30)), (resource.RLIMIT_CPU, used + int(seconds) + 1)):
        _, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, hard))


def wait_for(every: float) -> None:
    """Until the next multiple of so many seconds: when an answer leaves then tells nothing of how long it took."""
    if every > 0:
        time.sleep(every - time.time() % every)


def _simulated(request: Request, context: flower.Context) -> Office:
    from prismfl.core.payloads import KINDS
    from prismfl.methods import METHODS
    from prismfl.site.config import SiteConfig
    from prismfl.site.office import Office

    part, parts = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    config = request.job["config"]
    site = SiteConfig(
        name=f"site-{part}",
        data=request.job["spec"]["name"],
        part=part,
        parts=parts,
        split=config["split"],
        seed=config["seed"],
        unit=config["unit"],
        cap="none",
        methods=list(METHODS),
        releases=list(KINDS),
        noise="seeded",
    )
    folder = Path(str(context.run_config["out"])) / "sites" / site.name
    make_folder(folder, closed=True)
    return Office(folder, site)


client_app = flower.client_app(answer)
