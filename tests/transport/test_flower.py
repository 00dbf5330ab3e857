"""The Flower engine in one process: the same digests as the local engine, and replies that only cost their sender."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismfl.runs import result

pytest.importorskip("flwr")
import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from prismfl.core.payloads import Weights, encode
from prismfl.core.release import Release
from prismfl.data.columns import read_columns
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.runs.opened import open_run
from prismfl.server import serving
from prismfl.site.office import Office
from prismfl.transport import in_process as local
from prismfl.transport.conductor import QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.flower import adapter as flower
from prismfl.transport.flower import guard as flower_guard
from prismfl.transport.post import Answer, Request, RoundRules
from tests.nets.encoders.graphs import maps
from tests.site.folders import NAMES, make_run, make_site, run_config, table_sites
from tests.transport.grid import OneProcessGrid

RULES = RoundRules(2, deadline=2.0, join=2.0, poll=0.01, ask_again=0.05)
PATIENT = RoundRules(3, deadline=300.0, join=300.0, poll=0.01, ask_again=0.05)
"""Where every site will answer: a busy machine takes longer, and nobody is left out."""


def app_of(office: Office) -> flower.ClientApp:
    return flower.client_app(lambda request, context: office.answer(request))


def grid_of(offices: list[Office]) -> OneProcessGrid:
    keys = {i + 10: f"key of {office.config.name}".encode() for i, office in enumerate(offices)}
    return OneProcessGrid({i + 10: app_of(office) for i, office in enumerate(offices)}, keys=keys)


def serve(directory: RunDirectory, grid: OneProcessGrid) -> list[str]:
    lines: list[str] = []
    names = {f"key of {name}".encode(): name for name in NAMES}
    serving.serve(directory.path, flower.GridPost(grid, names, refresh=0.0), say=lines.append)
    return lines


def federation(tmp_path: Path, rules: RoundRules = RULES, *, rounds: int = 2) -> tuple[RunDirectory, OneProcessGrid]:
    offices = [make_site(tmp_path / "sites", name) for name in NAMES]
    return make_run(tmp_path / "run", rules, run_config(settings={"rounds": rounds})), grid_of(offices)


def test_same_digests_as_the_local_engine(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, PATIENT)
    serve(directory, grid)
    description = directory.read_json("federation.json")["description"]
    job = job_of(description)
    hosts = [make_site(tmp_path / "local", name)._host(job, description) for name in NAMES]
    there = RunDirectory.create(tmp_path / "there", {}, {})
    outcome = local.run(job, hosts, directory=there)
    assert directory.read_json("result.json")["digest"] == result.state_digest(outcome.state)
    crossed = {(m.round, m.site, m.direction, m.digest) for m in directory.messages() if m.direction == "up"}
    assert crossed == {(m.round, m.site, m.direction, m.digest) for m in there.messages() if m.direction == "up"}
    assert faults(directory) == []


def test_a_federations_table_is_a_table(tmp_path: Path) -> None:
    """Units and columns come from the schema that server and sites declare; what comes out can be read by it."""
    offices, config = table_sites(tmp_path / "sites")
    directory = make_run(tmp_path / "run", replace(RULES, deadline=60.0, join=60.0), config)
    serve(directory, grid_of(offices))
    assert faults(directory) == []
    assert directory.read_json("result.json")["unit"] == "patient"
    made = read_columns(directory.path / "gen" / "synthetic.csv")
    schema = read_schema(directory.path / "gen" / "schema.toml")
    assert schema == read_schema(config.schema_file or "")
    assert list(made) == ["patient", "height", "seen", "ill"]
    assert schema.encode(made).shape == (len(made["ill"]), schema.width)
    assert not [cell for cell in made["patient"] if "north" in cell]
    columns = open_run(directory.path).columns
    assert columns is not None
    assert list(columns) == list(made)


@pytest.mark.parametrize("own", [False, True])
def test_a_federation_looks_through_a_public_encoder(tmp_path: Path, own: bool) -> None:
    """Each side takes its own copy; the result says which one it was, and what it was trained on."""
    words, listed, layer = "scattering", ["scattering"], "order0"
    if own:
        pytest.importorskip("onnxruntime")
        place = maps(tmp_path / "net.onnx", metadata={"trained_on": "leaflets"})
        digest = hashlib.sha256(place.read_bytes()).hexdigest()
        words, listed, layer = f"scan-net={place}", [f"scan-net={place}={digest}"], "rows"
    allowed = {"methods": ["prism-head"], "releases": ["statistics"], "encoders": listed}
    offices = [make_site(tmp_path / "sites", name, **allowed) for name in NAMES]
    asked = run_config(method="prism-head", public_count=60, encoder=words)
    asked = asked.model_copy(update={"settings": {**METHODS["prism-head"].tiny, "sigma": 2.0, "layers": [layer]}})
    directory = make_run(tmp_path / "run", replace(RULES, deadline=60.0, join=60.0), asked)
    serve(directory, grid_of(offices))
    found = directory.read_json("result.json")
    expected = ("scan-net", "leaflets") if own else ("scattering", None)
    assert (found["encoder"], found["pretrained_on"]) == expected
    assert found["status"] == "finished"
    assert faults(directory) == []


class HangingGrid(OneProcessGrid):
    """Flower waits on its own: for ever when a request fails, two hours for a reply whose sender died half-way."""

    def __init__(self, honest: OneProcessGrid, *, pull: bool) -> None:
        super().__init__(honest.apps, keys=honest.keys)
        self.pull, self.lost = pull, ""
        self.stuck, self.released = threading.Event(), threading.Event()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        one = list(messages)
        second = one[0].metadata.dst_node_id == 11 and flower.read_request(one[0]).round == 1
        if second and not self.pull:
            self._wait()
        ids = list(super().push_messages(one))
        self.lost = ids[0] if second else self.lost
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        if self.pull and self.lost in ids:
            self._wait()
        return super().pull_messages(ids)

    def _wait(self) -> None:
        self.stuck.set()
        assert self.released.wait(600)


def test_a_request_that_nobody_answered_in_time_is_lost_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a hello that expired at a slow site is forgotten, and the site is never greeted again."""
    monkeypatch.setattr(flower, "TTL_MARGIN", -1.0)
    grid = OneProcessGrid({1: flower.client_app(lambda request, context: Answer("ready", site="north"))})
    grid.tamper = lambda place, request, reply: []
    post = flower.GridPost(grid, {}, refresh=0.0)
    assert post.send(1, Request("hello", {"run": "r"}))
    ((place, request, answer),) = list(post.collect())
    assert (place, request.kind, answer.kind) == (1, "hello", "lost")
    assert list(post.collect()) == []


@pytest.mark.parametrize("pull", [False, True])
def test_a_grid_that_hangs_does_not_hold_up_the_round(tmp_path: Path, pull: bool) -> None:
    directory, honest = federation(tmp_path, replace(RULES, join=60.0, deadline=5.0), rounds=3)
    grid = HangingGrid(honest, pull=pull)
    names = {f"key of {name}".encode(): name for name in NAMES}
    try:
        serving.serve(directory.path, flower.GridPost(grid, names, refresh=0.0, patience=1.0), say=lambda line: None)
    finally:
        grid.released.set()
    assert grid.stuck.is_set()  # the run has ended all the same, before the call was let go
    # On a busy machine the news of the end may take a site longer than the patience; that is no fault of the rounds.
    found = {(fault.round, fault.site, fault.code) for fault in faults(directory) if fault.code != "missed-the-end"}
    assert found == {(1, NAMES[1], "late")}
    assert {m.site for m in directory.messages() if m.round == 2 and m.direction == "up"} == set(NAMES)


Forge = Callable[[Release, bytes], bytes]


def _with(release: Release, tensors: dict[str, torch.Tensor]) -> bytes:
    return Release(
        release.run, release.site, release.round, {"model": Weights(tensors)}, release.cost, release.noise
    ).encode()


def _nan(release: Release, raw: bytes) -> bytes:
    # Patched in the bytes, since a payload with NaN cannot be built.
    start = 8 + int.from_bytes(raw[:8], "little")
    return raw[:start] + b"\x00\x00\xc0\x7f" + raw[start + 4 :]


def _header(release: Release, **changes: object) -> bytes:
    header = {"run": release.run, "site": release.site, "round": release.round}
    header |= {"cost": release.cost.to_json(), "noise": release.noise}
    return encode(release.items, {**header, **changes})


def _first(release: Release) -> tuple[str, torch.Tensor]:
    return next(iter(release.items["model"].tensors.items()))


def _changed(release: Release, change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    name, tensor = _first(release)
    return _with(release, {**release.items["model"].tensors, name: change(tensor)})


def _lying_length(release: Release, raw: bytes) -> bytes:
    return (2**62).to_bytes(8, "little") + raw[8:]


def _endless_round(release: Release, raw: bytes) -> bytes:
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    meta = header["__metadata__"]
    meta["prismfl"] = meta["prismfl"].replace(f'"round": {release.round}', '"round": Infinity')
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + size :]


def _lying_offsets(release: Release, raw: bytes) -> bytes:
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    name = next(key for key in header if key != "__metadata__")
    header[name]["shape"] = [2**40]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + size :]


MALFORMED: dict[str, Forge] = {
    "nan": _nan,
    "shape of one": lambda r, raw: _changed(r, lambda t: t.flatten()[:1]),
    "transposed": lambda r, raw: _changed(r, lambda t: t.unsqueeze(0)),
    "dtype": lambda r, raw: _changed(r, lambda t: t.double()),
    "missing tensor": lambda r, raw: _with(r, dict(list(r.items["model"].tensors.items())[1:])),
    "extra tensor": lambda r, raw: _with(r, {**r.items["model"].tensors, "weight_of_site": torch.tensor([1e30])}),
    "extra item": lambda r, raw: _header(
        Release(r.run, r.site, r.round, {**r.items, "loss": Weights({"l": torch.zeros(1)})}, r.cost, r.noise)
    ),
    "other kind": lambda r, raw: raw.replace(b"weights", b"gradien"),
    "other round": lambda r, raw: _header(r, round=r.round + 1),
    "other site": lambda r, raw: _header(r, site="south"),
    "other run": lambda r, raw: _header(r, run="yesterday"),
    "endless round": _endless_round,
    "negative cost": lambda r, raw: _header(r, cost={**r.cost.to_json(), "branches": [[{"noise": -1}]]}),
    "no header": lambda r, raw: encode(r.items),
    "pickle": lambda r, raw: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "zip bomb's head": lambda r, raw: b"PK\x03\x04" + b"\0" * 2000,
    "lying length": _lying_length,
    "lying offsets": _lying_offsets,
    "truncated": lambda r, raw: raw[: len(raw) // 2],
    "empty": lambda r, raw: b"",
    "huge": lambda r, raw: raw + b"\0" * 40_000_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_costs_only_its_sender(name: str, tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, rounds=1)

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        answer = flower.read_answer(reply)
        if place != 10 or answer.kind != "release":
            return [reply]
        body = MALFORMED[name](Release.decode(answer.body), answer.body)
        return [Message(flower.pack({"kind": "release", "code": "", "site": "north"}, body), reply_to=request)]

    grid.tamper = tamper
    lines = serve(directory, grid)
    assert [(f.site, f.code) for f in faults(directory)] == [("north", "malformed")], lines
    assert directory.status == "finished"
    assert {m.site for m in directory.messages()} == {"south", "west"}


def _records(message: Message) -> list[RecordDict]:
    """Flower records that are not ours, in the ways a program can get them wrong."""
    good = flower.pack({"kind": "release", "code": "", "site": "north"}, b"x")
    numbers = flower.pack({"kind": "release"}, b"x")
    numbers["prismfl"] = ConfigRecord({"kind": 7})
    return [
        RecordDict(),
        RecordDict({"prismfl": good["prismfl"]}),
        RecordDict({"prismfl": good["prismfl"], "body": ArrayRecord({"other": Array("uint8", (1,), "x", b"x")})}),
        RecordDict(
            {"prismfl": good["prismfl"], "body": ArrayRecord({"body": Array("f4", (1,), "numpy.ndarray", b"x")})}
        ),
        numbers,
    ]


@pytest.mark.parametrize("index", range(5))
def test_records_that_are_not_ours_are_malformed(index: int, tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, rounds=1)

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        if place != 10 or flower.read_answer(reply).kind != "release":
            return [reply]
        return [Message(_records(request)[index], reply_to=request)]

    grid.tamper = tamper
    serve(directory, grid)
    assert {(f.site, f.code) for f in faults(directory)} == {("north", "malformed")}


def test_an_error_reply_is_a_code_and_its_text_is_not_read(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        if place != 10 or flower.read_answer(reply).kind != "release":
            return [reply]
        return [Message(Error(2, "record 17: Jane Doe"), reply_to=request)]

    grid.tamper = tamper
    lines = serve(directory, grid)
    assert {(f.site, f.code) for f in faults(directory)} == {("north", "internal")}
    assert "Jane" not in "".join(lines)
    assert all(b"Jane" not in path.read_bytes() for path in directory.path.rglob("*") if path.is_file())


def test_duplicates_count_once_and_replays_not_at_all(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)
    first: dict[int, Message] = {}

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        if flower.read_answer(reply).kind != "release":
            return [reply]
        if place == 10:
            return [reply, reply]
        old = first.setdefault(place, reply)
        body = flower.read_answer(old).body
        replay = Message(flower.pack({"kind": "release", "code": "", "site": "south"}, body), reply_to=request)
        return [replay] if place == 11 else [reply]

    grid.tamper = tamper
    serve(directory, grid)
    assert [(f.round, f.site, f.code) for f in faults(directory)] == [(1, "south", "malformed")]


def test_a_forged_sender_is_named_and_dropped(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        if place == 10 and flower.read_answer(reply).kind == "release":
            reply.metadata.__dict__["_src_node_id"] = 11
        return [reply]

    grid.tamper = tamper
    serve(directory, grid)
    assert {(f.site, f.code) for f in faults(directory)} == {("north", "forged-sender")}


def test_a_silent_site_costs_the_deadline_and_no_more(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, RoundRules(2, deadline=0.6, join=2.0, poll=0.01))

    def silent(place: int, request: Message, reply: Message) -> list[Message]:
        return [] if place == 12 and flower.read_request(request).kind != "hello" else [reply]

    grid.tamper = silent
    serve(directory, grid)
    assert [(f.round, f.site, f.code) for f in faults(directory)][:2] == [(0, "west", "late"), (1, "west", "late")]
    assert [row["seconds"] for row in directory.metrics()][-1] < 60  # two deadlines and the work
    assert grid.asked.count(12) >= 4  # hello, and each round twice: a restarted site has lost the first request


def test_below_the_quorum_the_run_fails_clearly_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, RoundRules(3, deadline=0.3, join=2.0, poll=0.01))
    grid.tamper = lambda place, request, reply: (
        [] if place == 12 and flower.read_request(request).round == 1 else [reply]
    )
    with pytest.raises(QuorumError, match="2 of 3 releases"):
        serve(directory, grid)
    assert directory.status == "failed"
    state = directory.load_state()
    assert state is not None
    assert state.round == 1
    grid.tamper = lambda place, request, reply: [reply]
    before = len(grid.asked)
    serve(directory, grid)
    assert directory.status == "finished"
    # Round 2 asks only the site whose release is not on disk: 3 hellos, 1 round, 3 ends.
    assert len(grid.asked) - before == 7
    whole, other = federation(tmp_path / "whole")
    serve(whole, other)
    assert directory.load_state() is not None
    assert result.state_digest(directory.load_state() or state) == whole.read_json("result.json")["digest"]


def test_two_sites_with_one_name_and_a_name_that_its_key_does_not_prove(tmp_path: Path) -> None:
    offices = [make_site(tmp_path / "sites", name) for name in NAMES]
    twin = make_site(tmp_path / "twin", "north")
    grid = OneProcessGrid({i: app_of(office) for i, office in enumerate([*offices, twin])})
    directory = make_run(tmp_path / "run", RULES)
    serving.serve(directory.path, flower.GridPost(grid, {}, refresh=0.0), say=lambda line: None)
    assert ("north", "duplicate-name") in {(f.site, f.code) for f in faults(directory)}

    grid = grid_of([twin, *offices[1:]])
    grid.keys[10], grid.keys[13] = b"key of south", b"key of north"
    grid.apps[13] = app_of(offices[0])
    directory = make_run(tmp_path / "forged", RULES)
    serve(directory, grid)
    assert ("south", "unknown-site") in {(f.site, f.code) for f in faults(directory)}


def test_only_codes_cross_when_a_client_app_breaks(tmp_path: Path) -> None:
    def broken(request: Request, context: flower.Context) -> Answer:
        raise RuntimeError("record 17: Jane Doe")

    grid = OneProcessGrid({1: flower.client_app(broken)})
    post = flower.GridPost(grid, {}, refresh=0.0)
    assert post.send(1, Request("hello", {"run": "r"}))
    ((_, _, answer),) = list(post.collect())
    assert (answer.kind, answer.code, answer.body) == ("code", "refused", b"")


def bundle(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


def _project(server: str, client: str) -> str:
    return f'[tool.flwr.app.components]\nserverapp = "{server}"\nclientapp = "{client}"\n'


def test_a_site_runs_no_app_but_ours() -> None:
    ours = _project(*flower_guard.COMPONENTS.values())
    flower_guard.check_app(bundle({"pyproject.toml": ours, ".info/CONTENT": ""}))
    for files in (
        {"pyproject.toml": ours, "prismfl/__init__.py": "steal()"},
        {"pyproject.toml": ours, "sitecustomize.py": "steal()"},
        {"pyproject.toml": _project(flower_guard.COMPONENTS["serverapp"], "os:system")},
        {"pyproject.toml": ours + " " * 200_000},
        {"pyproject.toml": "not toml ="},
        {".info/CONTENT": ""},
    ):
        with pytest.raises(UserError, match="no other code"):
            flower_guard.check_app(bundle(files))
    with pytest.raises(UserError, match="no other code"):
        flower_guard.check_app(b"not a zip")


class Killed(BaseException):
    """Stands for kill -9 between two lines of the server's log; what is on disk is what a kill would leave."""


def test_killed_at_any_point_it_resumes_to_the_same_bytes_and_no_site_pays_twice(tmp_path: Path) -> None:
    whole, grid = federation(tmp_path / "whole")
    lines = serve(whole, grid)
    expected = whole.read_json("result.json")["digest"]
    for point in (0, 3, 4, 6, 7, len(lines) - 1):
        offices = [make_site(tmp_path / str(point), name, noise="seeded") for name in NAMES]
        directory, grid = make_run(tmp_path / str(point) / "run", RULES), grid_of(offices)
        _serve_until(directory, grid, point)
        serve(directory, grid)
        assert directory.read_json("result.json")["digest"] == expected, f"killed at line {point}"
        description = directory.read_json("federation.json")["description"]
        for office in offices:
            ledger = office._host(job_of(description), description).ledger
            assert len(ledger.charges(run=description["run"])) == 2


def _serve_until(directory: RunDirectory, grid: OneProcessGrid, point: int) -> None:
    seen = 0

    def say(line: str) -> None:
        nonlocal seen
        if seen == point:
            raise Killed
        seen += 1

    names = {f"key of {name}".encode(): name for name in NAMES}
    with pytest.raises(Killed):
        serving.serve(directory.path, flower.GridPost(grid, names, refresh=0.0), say=say)


def test_a_damaged_checkpoint_falls_back_and_two_are_refused(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)
    _serve_until(directory, grid, 8)  # after the first round's checkpoint, before the second's
    newest = directory.path / "checkpoint" / "state.safetensors"
    raw = newest.read_bytes()
    newest.write_bytes(raw[: len(raw) // 2])
    serve(directory, grid)
    whole, other = federation(tmp_path / "whole")
    serve(whole, other)
    assert directory.read_json("result.json")["digest"] == whole.read_json("result.json")["digest"]

    directory, grid = federation(tmp_path / "both")
    _serve_until(directory, grid, 8)
    for path in (directory.path / "checkpoint").glob("*.safetensors"):
        path.write_bytes(b"\0" + path.read_bytes()[1:])
    with pytest.raises(UserError, match="Both checkpoints"):
        serve(directory, grid)


@pytest.mark.parametrize(
    ("client", "path", "headers", "status"),
    [
        ("127.0.0.1", "/v1/control/start-run", [], 200),
        ("10.1.2.3", "/v1/fleet/pull-messages", [(b"content-length", b"10")], 200),
        ("10.1.2.3", "/v1/control/start-run", [], 403),
        ("10.1.2.3", "/v1/runtime/acquire-task", [], 403),
        ("10.1.2.3", "/docs", [], 403),
        ("not an address", "/v1/control/start-run", [], 403),
        ("10.1.2.3", "/v1/fleet/push-object", [(b"content-length", b"99999999999")], 413),
        ("10.1.2.3", "/v1/fleet/push-object", [(b"content-length", b"-1")], 413),
        ("10.1.2.3", "/v1/fleet/push-object", [(b"transfer-encoding", b"chunked")], 413),
    ],
)
def test_from_elsewhere_only_the_sites_interface_answers(
    client: str, path: str, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    sent: list[int] = []

    async def inner(scope: object, receive: object, send: object) -> None:
        sent.append(200)

    async def send(message: MutableMapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            sent.append(int(str(message["status"])))

    async def receive() -> MutableMapping[str, object]:
        return {}

    scope = {"type": "http", "client": (client, 1), "path": path, "headers": headers}
    asyncio.run(flower_guard.LocalOnly(inner)(scope, receive, send))
    assert sent == [status]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/v1/fleet/send-node-heartbeat", 500, 503),
        ("/v1/runtime/push-object", 500, 503),
        ("/v1/fleet/pull-messages", 200, 200),
        ("/v1/fleet/pull-messages", 401, 401),
        ("/v1/control/start-run", 500, 500),
    ],
)
def test_a_failure_inside_the_superlink_is_to_be_tried_again(path: str, status: int, told: int) -> None:
    """The bug: a locked database answers 500, and a SuperNode's heartbeat ends for good."""
    sent: list[MutableMapping[str, object]] = []

    async def inner(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, object]:
        return {}

    asyncio.run(flower_guard.TryAgain(inner)({"type": "http", "path": path, "headers": []}, receive, send))
    assert [message.get("status") for message in sent] == [told, None]
    assert sent[1]["body"] == b"x"


def test_flower_still_does_what_makes_that_needed() -> None:
    """A heartbeat that is answered 500 raises, and what it raises is not repeated; 503 is."""
    from flwr.supercore.heartbeat import HeartbeatFailure, HeartbeatSender
    from flwr.supercore.retry import http_retry

    codes = vars(http_retry)["_RETRYABLE_STATUS_CODES"]
    assert 503 in codes
    assert 500 not in codes
    repeated = HeartbeatSender(lambda: True)._retry_invoker.recoverable_exceptions
    assert repeated is HeartbeatFailure


@pytest.mark.parametrize("before_it_answers", [True, False])
def test_a_revoked_site_is_nobody_at_once(tmp_path: Path, before_it_answers: bool) -> None:
    """The bug: names that are read once. Its answer is not read, and the round does not wait for it."""
    directory, grid = federation(tmp_path, replace(RULES, deadline=60.0), rounds=3)
    names = {f"key of {name}".encode(): name for name in NAMES}
    honest = grid.tamper

    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        words = dict(request.content[flower.RECORD])
        if place == 11 and (words["kind"], words["round"]) == ("round", "1"):
            names.pop(b"key of south", None)  # while its answer is on the way
            return [] if before_it_answers else honest(place, request, reply)
        return honest(place, request, reply)

    grid.tamper = tamper
    serving.serve(directory.path, flower.GridPost(grid, lambda: names, refresh=0.0), say=lambda line: None)
    up = {(m.round, m.site) for m in directory.messages() if m.direction == "up"}
    assert {site for round, site in up if round == 0} == set(NAMES)
    assert {site for round, site in up if round > 0} == {"north", "west"}
    assert ("south", "revoked") in {(fault.site, fault.code) for fault in faults(directory)}


def test_a_superlink_that_could_not_answer_is_asked_again() -> None:
    """The bugs: "database is locked" on a busy disk, or a handshake that took too long on a busy machine, and the run's
    process ended. Who may not ask is told at once."""

    def call(status: int) -> Callable[[], Iterable[str]]:
        def ask() -> Iterable[str]:
            asked = httpx.Request("POST", "https://127.0.0.1/v1/runtime/pull-messages")
            httpx.Response(status, request=asked).raise_for_status()
            return ["there"]

        return ask

    def unreached() -> Iterable[str]:
        raise httpx.ConnectTimeout("_ssl.c:989: The handshake operation timed out")

    calls = flower.BoundedCalls(20.0)
    assert calls("x", call(500)) is None
    assert calls("x", call(200)) == ["there"]
    assert calls("x", unreached) is None
    with pytest.raises(httpx.HTTPStatusError):
        calls("x", call(403))
    assert calls("x", call(200)) == ["there"]


ENDED = """
import sys, threading, time
import flwr.supernode.cli.flower_supernode
from prismfl.transport.flower.guard import supernode

def heartbeat():
    raise RuntimeError("The SuperLink does not recognize this SuperNode.")

def work():
    threading.Thread(target=time.sleep, args=(600,)).start()  # what serves the ClientApps
    {how}

sys.modules["flwr.supernode.cli.flower_supernode"].flower_supernode = work
supernode()
"""
CONNECTION = {
    "given up": ("return", 1),
    "heartbeat failed": ("threading.Thread(target=heartbeat).start(); time.sleep(600)", 1),
    "stopped": ("sys.exit(0)", 0),
}


@pytest.mark.parametrize("what", CONNECTION)
def test_a_supernode_without_a_connection_ends(what: str) -> None:
    """The bug: one of Flower's threads kept it, with nothing at work, and nobody started another: a handshake that
    took too long, once, and the site stayed absent."""
    how, code = CONNECTION[what]
    done = subprocess.run([sys.executable, "-c", ENDED.format(how=how)], timeout=120, check=False, capture_output=True)
    assert done.returncode == code, done.stderr.decode()


def test_a_superexec_that_could_not_reach_its_supernode_tries_again() -> None:
    code = """
import sys
import flwr.supercore.cli.flower_superexec
import httpx
from prismfl.transport.flower.guard import superexec
asked = []
def work():
    asked.append(1)
    if len(asked) < 3:
        raise httpx.ConnectTimeout("timed out")
sys.modules["flwr.supercore.cli.flower_superexec"].flower_superexec = work
superexec()
assert len(asked) == 3
"""
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True, capture_output=True)
