"""prismfl as a Flower app: the components that `flwr run`, the SuperLink and the SuperNodes load.

A site is found by the environment variable PRISMFL_SITE, which its operator sets and no server can. Without it, in
Flower's simulation, each virtual node holds a part of the named data set, with seeded noise.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prismfl.atomic import make_folder
from prismfl.config import read, validate
from prismfl.engines import flower
from prismfl.engines.remote import Answer, Request, Rules
from prismfl.errors import UserError

if TYPE_CHECKING:
    from prismfl.federation.office import Office

SITE = "PRISMFL_SITE"


def answer(request: Request, context: flower.Context) -> Answer:
    from prismfl.federation.office import Office

    folder = os.environ.get(SITE)
    if folder is not None:
        office = Office.open(Path(folder))
        bound(office.config.max_memory, office.config.max_seconds)
        given = office.answer(request)
        wait_for(office.config.answer_every)
        return given
    return _simulated(request, context).answer(request)


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


def serve(grid: flower.Grid, context: flower.Context) -> None:
    from prismfl.federation import serving
    from prismfl.federation.server_config import enrolled

    told = context.run_config
    if told.get("run-dir"):
        server = Path(str(told["server"])) if told.get("server") else None
        names = {key: name for name, key in enrolled(server).items()} if server else {}
        serving.serve(Path(str(told["run-dir"])), flower.GridPost(grid, names))
        return
    if not told.get("config"):
        raise UserError('Give the run a config: flwr run APP --run-config \'config="run.toml" out="runs/trial"\'.')
    from prismfl.config import RunConfig

    config: RunConfig = validate(RunConfig, read(Path(str(told["config"]))), str(told["config"]))
    sites = [f"site-{i}" for i in range(config.sites)]
    rules = Rules(config.sites, deadline=600.0, join=600.0, poll=0.1)
    directory = serving.prepare(Path(str(told["out"])), config, sites, rules=rules, evaluate=True)
    serving.serve(directory.path, flower.GridPost(grid, {}))


def _simulated(request: Request, context: flower.Context) -> Office:
    from prismfl.federation.office import Office
    from prismfl.federation.site_config import SiteConfig
    from prismfl.methods import METHODS
    from prismfl.payloads import KINDS

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
server_app = flower.server_app(serve)
