"""A local page over run directories: list, progress, reports, comparison, the privacy-utility plane, a planner.

Served on loopback only, to whoever knows the token that was printed at the start. The page is on-site: it shows exact
figures. A report opens in the sharing edition unless the on-site one is asked for. No run is changed.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from prismfl.errors import PrismError, UserError
from prismfl.methods import METHODS
from prismfl.report.charts import colour_of
from prismfl.report.dossier import dossier
from prismfl.report.editions import ON_SITE, is_own
from prismfl.report.groups import Group, make_group
from prismfl.report.page import render, template, twin_bytes
from prismfl.report.tables import is_simulated
from prismfl.report.words import NO_PROTECTION
from prismfl.runs import planning
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import RunDirectory, runs_below
from prismfl.runs.pulse import FINISHED, RUNNING, standing
from prismfl.runs.reopen import reopen
from prismfl.runs.result import noise_of
from prismfl.transport.local import HOST, is_own_host, same_token

COOKIE = "prismfl"
MOST_COMPARED = 8
ODD = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What reading a folder ends in whose files hold other things than they should."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def row_of(path: Path, root: Path) -> dict[str, Any]:
    """What the list shows of a run, also while it is running. A folder that is not as prismfl writes it is one line."""
    row: dict[str, Any] = {"id": path.relative_to(root).as_posix(), "status": "unreadable"}
    try:
        return row | _read_row(RunDirectory.open(path))
    except PrismError as error:
        return row | {"words": str(error)}
    except ODD:
        return row | {"words": "Its files are not as prismfl writes them."}


def _read_row(run: RunDirectory) -> dict[str, Any]:
    config, metrics, how = run.read_json("config.json"), run.metrics(), standing(run)
    status = how.status
    result = run.read_json("result.json") if status == "finished" else {}
    last = metrics[-1] if metrics else {}
    method = METHODS.get(config.get("method", ""))
    epsilon = result.get("epsilon", last.get("epsilon"))
    pending = "none" if method is not None and method.guarantee is None else "pending"
    endless = bool(result) and result.get("epsilon_total", epsilon) is None
    guarantee = "none" if endless else str(result.get("guarantee", pending))
    told = {"guarantee": guarantee, "noise": noise_of(run, config, result)}
    return {
        "status": status,
        **({} if status in (FINISHED, RUNNING) else {"words": how.words(run.path)}),
        "method": config.get("method"),
        "colour": colour_of(str(config.get("method"))),
        "data": config.get("data"),
        "group": _group(config, result).words(),
        "own_data": is_own(config, result),
        "created": config.get("created"),
        "rounds": config.get("settings", {}).get("rounds", 1),
        "done": last.get("round", 0),
        "accuracy": _number(result.get("accuracy", last.get("accuracy"))),
        "epsilon": _number(result.get("epsilon_total", epsilon)),
        "epsilon_run": _number(epsilon),
        "guarantee": NO_PROTECTION if is_simulated(told) else guarantee,
        "bytes": sum(m.get("bytes_up", 0) + m.get("bytes_down", 0) for m in metrics),
        "seconds": _number(last.get("seconds")),
    }


def _group(config: dict[str, Any], result: dict[str, Any]) -> Group:
    """Which runs may share a chart with this one. A run on its way has the unit that its method will charge."""
    method = METHODS.get(str(config.get("method")))
    unit = "client" if method is not None and method.guarantee == "client" else config.get("unit")
    promise = {key: result.get(key, config.get(key)) for key in ("relation", "delta")}
    return make_group({**promise, "unit": result.get("unit", unit)}, config)


def _number(value: Any) -> float | None:
    """A number or nothing. Anything else would stop the page's script, and with it the rows of the other runs."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise TypeError(value)


def hours_like(root: Path, config: RunConfig, plan: planning.Plan) -> float | None:
    """How long the run may take here: the newest finished run of its method on its data, scaled to the asked work."""
    for path in runs_below(root):
        row = row_of(path, root)
        if (row["status"], row.get("method"), row.get("data")) != ("finished", config.method, config.data):
            continue
        try:
            before = reopen(path)
            done = int(row["rounds"]) * before.config.sites * before.job.task.records
            return float(row["seconds"] or 0.0) * (plan.rounds * config.sites * plan.records / done) / 3600
        except (PrismError, *ODD):
            continue
    return None


def planned(asked: dict[str, Any], root: Path) -> dict[str, Any]:
    """The plan at an epsilon and at half of it: what the stronger promise costs in noise."""
    config: RunConfig = validate(RunConfig, asked, "the planner")
    wanted = {"asked": config}
    if config.epsilon is not None:
        wanted["half"] = config.model_copy(update={"epsilon": config.epsilon / 2})
    answer: dict[str, Any] = {}
    for name, one in wanted.items():
        plan = planning.plan(one)
        fields = planning.find_method(one.method).settings.model_fields
        batch = one.settings.get("batch", fields["batch"].default if "batch" in fields else plan.records)
        # Noise on a mean over a batch of records that all use up their bound.
        ratio = None if plan.sigma is None else plan.sigma / min(float(batch), float(plan.records))
        answer[name] = {**plan.__dict__, "noise_to_signal": ratio, "hours": hours_like(root, one, plan)}
    return answer


def make_app(root: Path, token: str) -> FastAPI:
    """The application. Every address but the door needs the token, as a cookie or a bearer header."""
    if not root.is_dir():
        raise UserError(f"No folder '{root}' with runs.")
    app = FastAPI(title="prismfl", docs_url=None, redoc_url=None, openapi_url=None)

    def allowed(request: Request) -> None:
        port = (request.scope.get("server") or ("", 0))[1]
        if not is_own_host(request.headers.get("host"), port):  # a foreign name that resolves to loopback is an attack
            raise HTTPException(421, "This page answers to 127.0.0.1 and localhost only.")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not same_token(request.cookies.get(COOKIE) or bearer, token):
            raise HTTPException(401, "Open the address that prismfl dashboard printed: it carries the token.")

    inside = [Depends(allowed)]

    @app.middleware("http")
    async def _headers(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(PrismError)
    async def _mistake(request: Request, error: PrismError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.get("/enter")
    def enter(token_given: Annotated[str, fastapi.Query(alias="token")] = "") -> Response:
        if not same_token(token_given, token):
            raise HTTPException(401, "Wrong token.")
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return answer

    @app.get("/", dependencies=inside)
    def home() -> HTMLResponse:
        nonce = secrets.token_urlsafe(16)
        text = template("dashboard.html").replace("/*css*/", template("page.css")).replace("/*nonce*/", nonce)
        policy = (
            HEADERS["Content-Security-Policy"] + f"; script-src 'nonce-{nonce}'; connect-src 'self'; form-action 'self'"
        )
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    @app.get("/api/runs", dependencies=inside)
    def runs() -> dict[str, Any]:
        return {"edition": ON_SITE, "runs": [row_of(path, root) for path in runs_below(root)]}

    @app.get("/api/methods", dependencies=inside)
    def methods() -> list[dict[str, Any]]:
        return [{"name": m.name, "guarantee": m.guarantee, "summary": m.summary} for m in METHODS.values()]

    @app.post("/api/plan", dependencies=inside)
    def plan(asked: dict[str, Any]) -> dict[str, Any]:
        return planned(asked, root)

    @app.get("/report", dependencies=inside)
    def report(run: Annotated[list[str], fastapi.Query()], on_site: bool = False) -> HTMLResponse:
        if len(run) > MOST_COMPARED:
            raise UserError(f"Compare {MOST_COMPARED} runs at most, got {len(run)}.")
        return HTMLResponse(_page([find(root, name) for name in run], on_site=on_site))

    return app


def _page(paths: list[Path], *, on_site: bool) -> str:
    try:
        facts = [dossier(path, on_site=on_site) for path in paths]
        return render(facts, digest=hashlib.sha256(twin_bytes(facts)).hexdigest())
    except PrismError:
        raise
    except ODD:
        named = ", ".join(path.name for path in paths)
        raise UserError(f"No report of {named}: the files of a run are not as prismfl writes them.") from None


def find(root: Path, name: str) -> Path:
    """A run by its name in the list, and nothing outside of the folder."""
    for path in runs_below(root):
        if path.relative_to(root).as_posix() == name:
            return path
    raise UserError(f"No run '{name}' in this folder.")


def serve(root: Path, *, port: int, token: str | None = None, said: Any = lambda line: None) -> None:
    """Serve until interrupted. The address with the token is said once."""
    import uvicorn

    token = token or secrets.token_urlsafe(24)
    app = make_app(root, token)
    said(f"http://{HOST}:{port}/enter?token={token}")
    uvicorn.run(app, host=HOST, port=port, log_level="warning", access_log=False, ws="none")
