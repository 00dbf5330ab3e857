"""The server as a Flower app: the component that a SuperLink loads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from prismfl.errors import UserError
from prismfl.runs.config import RunConfig, read, validate
from prismfl.transport.flower import adapter as flower
from prismfl.transport.post import RoundRules


def serve(grid: flower.Grid, context: flower.Context) -> None:
    """Serve the prepared run that the run config names, or prepare one from a config file and serve that."""
    from prismfl.server import serving
    from prismfl.server.config import by_key
    from prismfl.server.contacts import note_contacts

    told = context.run_config
    if told.get("run-dir"):
        server = Path(str(told["server"])) if told.get("server") else None
        run = Path(str(told["run-dir"]))
        post = flower.GridPost(grid, {}, spool=run / "spool")
        if server is not None:
            post = flower.GridPost(grid, partial(by_key, server), seen=note_contacts(server), spool=run / "spool")
        serving.serve(run, post)
        return
    if not told.get("config"):
        raise UserError('Give the run a config: flwr run APP --run-config \'config="run.toml" out="runs/trial"\'.')
    config: RunConfig = validate(RunConfig, read(Path(str(told["config"]))), str(told["config"]))
    sites = [f"site-{i}" for i in range(config.sites)]
    rules = RoundRules(config.sites, deadline=600.0, join=600.0, poll=0.1)
    directory = serving.prepare(Path(str(told["out"])), config, sites, rules=rules, evaluate=True)
    serving.serve(directory.path, flower.GridPost(grid, {}))


server_app = flower.server_app(serve)
