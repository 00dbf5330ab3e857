"""A server that wants the records: whatever it asks, it gets the planned release or one constant refusal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from prismfl.cli.main import app
from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.payloads import JsonDict, Weights, encode
from prismfl.core.release import Release
from prismfl.core.rounds import initial_state
from prismfl.data import load
from prismfl.data.decoding import open_picture
from prismfl.data.pictures import save_sheet
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import declared, describe, digest_of, job_of
from prismfl.site import data as site_data
from prismfl.site import policy
from prismfl.site.approvals import Approvals
from prismfl.site.config import ledger_of
from prismfl.site.office import Office
from prismfl.transport.post import Answer, Request
from tests.nets.encoders.graphs import maps
from tests.site.folders import NAMES, make_site, run_config

REFUSED = Answer("code", code="refused", site="north")
EMPTY = encode({}, {"round": 0})


def description(**changes: Any) -> JsonDict:
    config = run_config(**changes)
    return describe(config, declared(config)[0], NAMES)


def forged(told: JsonDict, **changes: Any) -> JsonDict:
    """The same request with other words in its config, sealed anew: whoever runs the server can do that."""
    made = {**told, "config": {**told["config"], **changes}}
    return {**made, "digest": digest_of(made)}


def sealed(told: JsonDict, **changes: Any) -> JsonDict:
    made = {**told, **changes}
    return {**made, "digest": digest_of(made)}


def down(told: JsonDict, round: int = 0, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> bytes:
    items = dict(initial_state(job_of(told)).items)
    if change is not None:
        items = {k: Weights({n: change(t) for n, t in p.tensors.items()}) for k, p in items.items()}
    return encode(items, {"round": round})


def ask(office: Office, told: JsonDict, round: int = 0, *, state: bytes | None = None, kind: Any = "round") -> Answer:
    return office.answer(Request(kind, told, round, 0.0, state if state is not None else down(told, round)))


def spent(office: Office) -> int:
    path = ledger_of(office.folder, office.config)
    if not path.exists():
        return 0
    with Ledger.open(path) as ledger:
        return len(ledger.charges())


# The site owns its facts


@pytest.fixture
def folder_of_pictures(tmp_path: Path) -> Path:
    """Private pictures of this machine, of a shape that a run could use as public images."""
    data = load("digits")
    for i in range(40):
        save_sheet(data.x_train[i], tmp_path / "private" / f"{i}.png", scale=1)
    return tmp_path / "private"


def prism_local(**changes: Any) -> JsonDict:
    settings = {**METHODS["prism-local"].tiny, "sigma": 4.0, "steps": 0, "images": 2, "centre": False}
    known = {name: value for name, value in settings.items() if name in METHODS["prism-local"].settings.model_fields}
    config = run_config(method="prism-local", public_count=40).model_copy(update={"settings": known})
    return forged(describe(config, declared(config)[0], NAMES), **changes)


def test_no_folder_of_the_site_becomes_public_images(
    tmp_path: Path, folder_of_pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `public` a path, the old site sent 60 of 60 private pictures back byte for byte."""
    office = make_site(tmp_path, "north", methods=["prism-local"], releases=["synthetic-set"])
    opened: list[Path] = []

    def noted(path: Path) -> Any:
        opened.append(path)
        return open_picture(path)

    monkeypatch.setattr("prismfl.data.decoding.open_picture", noted)
    for place in (str(folder_of_pictures), f"{folder_of_pictures}/", "../private", "x=/etc", "/", "~", ".", ""):
        told = prism_local(public=place)
        for kind in ("hello", "round"):
            assert ask(office, told, kind=kind, state=EMPTY) == REFUSED
    for count in (1, 39, 40, 41):  # bisecting this once counted the files of a folder
        told = prism_local(public=str(folder_of_pictures), public_count=count)
        assert ask(office, told, kind="hello", state=EMPTY) == REFUSED
    assert opened == []
    assert spent(office) == 0
    assert ask(office, prism_local(), state=EMPTY).kind == "release", "drawn images are fine"


def test_public_images_on_the_sites_list_are_compared_by_content(tmp_path: Path, folder_of_pictures: Path) -> None:
    office = make_site(tmp_path, "north", methods=["prism-local"], releases=["synthetic-set"])
    config = replace(office, config=office.config.model_copy(update={"public": {"leaflets": str(folder_of_pictures)}}))
    settings = {**METHODS["prism-local"].tiny, "sigma": 4.0}
    run = run_config(method="prism-local", public_count=40, public=f"leaflets={folder_of_pictures}")
    told = describe(run.model_copy(update={"settings": settings}), declared(run)[0], NAMES)
    assert str(folder_of_pictures) not in json.dumps(told), "a path never travels"
    assert ask(config, told, state=EMPTY).kind == "release"
    (folder_of_pictures / "0.png").unlink()
    save_sheet(torch.zeros(1, 8, 8), folder_of_pictures / "0.png", scale=1)
    assert ask(config, {**told, "run": "again"}, state=EMPTY) == REFUSED


def prism_head(encoder: str | None = None) -> JsonDict:
    tiny = {name: value for name, value in METHODS["prism-head"].tiny.items() if name != "layers"}
    config = run_config(method="prism-head", public_count=40, encoder=encoder)
    layers = {"layers": ["order0"]} if encoder == "scattering" else {}  # few numbers are quickly turned
    config = config.model_copy(update={"settings": {**tiny, "sigma": 4.0, **layers}})
    return describe(config, declared(config)[0], NAMES)


def head_site(tmp_path: Path, **changes: Any) -> Office:
    return make_site(tmp_path, "north", methods=["prism-head"], releases=["statistics"], **changes)


@pytest.mark.parametrize(
    "words",
    [
        *("{place}", "{place}={digest}", "mine={place}={digest}", "../net.onnx", "/etc/passwd", "net.pt", "file:///x"),
        *("tests.nets.encoders.tiny:build", "os:system", "scattering+tests.nets.encoders.tiny:build", "tiny"),
        *("scattering@7", "scattering@9999", "scattering@", "scattering=" + "0" * 64, "scattering+scattering", "+"),
        *("scattering+efficientnet-lite0+a+b+c", "auto", "none", "", "scattering " * 30, 3, ["scattering"], {}),
    ],
    ids=str,
)
def test_no_encoder_but_those_on_the_sites_list(tmp_path: Path, words: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, a module, an unknown name: the same refusal for all, and no file or module is looked for."""
    net = tmp_path / "net.onnx"
    net.write_bytes(b"private")
    digest = hashlib.sha256(b"private").hexdigest()
    office, told = head_site(tmp_path), prism_head()
    for place in (
        "prismfl.nets.encoders.files.read_file",
        "prismfl.runs.encoders.load_onnx",
        "importlib.import_module",
    ):
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("something was opened"))
    if isinstance(words, str):
        words = words.format(place=net, digest=digest)
    for claimed in (digest, None, "0" * 64):
        asked = sealed(forged(told, encoder=words), encoder=claimed)
        for kind in ("hello", "round"):
            assert ask(office, asked, kind=kind, state=EMPTY) == REFUSED
    assert spent(office) == 0


def test_a_named_encoder_must_be_the_one_that_the_run_means(tmp_path: Path) -> None:
    office, told = head_site(tmp_path), prism_head("scattering")
    assert ask(office, sealed(told, encoder="0" * 64), state=EMPTY) == REFUSED
    assert ask(office, sealed(told, encoder=None), state=EMPTY) == REFUSED
    assert ask(office, sealed(forged(told, encoder=None), encoder=told["encoder"]), state=EMPTY) == REFUSED
    assert spent(office) == 0, "nothing was released"
    answer = ask(office, {**told, "run": "honest"}, state=EMPTY)
    assert answer.kind == "release"
    assert Release.decode(answer.body).items["statistics"].shapes() == job_of(told).shapes["statistics"]
    closed = head_site(tmp_path / "closed", encoders=["efficientnet-lite0"])
    assert ask(closed, told, state=EMPTY) == REFUSED


def test_nothing_is_reserved_for_a_light_encoder_of_another_digest(tmp_path: Path) -> None:
    """A hello was answered "ready", and the plan of a run that could never be was reserved."""
    office, told = head_site(tmp_path), prism_head("scattering")
    assert ask(office, sealed(told, encoder="0" * 64), kind="hello", state=b"") == REFUSED
    assert ask(office, told, kind="hello", state=b"").kind == "ready"


def test_an_encoder_of_ones_own_is_a_file_on_each_sides_list(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    theirs = maps(tmp_path / "server.onnx")
    (tmp_path / "site.onnx").write_bytes(theirs.read_bytes())
    digest = hashlib.sha256(theirs.read_bytes()).hexdigest()
    told = prism_head(f"scan-net={theirs}")
    assert (told["config"]["encoder"], told["encoder"]) == ("scan-net", digest)
    assert str(tmp_path) not in json.dumps(told), "a path never travels"
    assert ask(head_site(tmp_path / "none"), told, state=EMPTY) == REFUSED
    office = head_site(tmp_path / "listed", encoders=[f"scan-net={tmp_path / 'site.onnx'}={digest}"])
    assert ask(office, told, state=EMPTY).kind == "release"
    assert ask(office, sealed(told, encoder="0" * 64), state=EMPTY) == REFUSED
    (tmp_path / "site.onnx").write_bytes(b"another")
    assert ask(office, {**told, "run": "again"}, state=EMPTY) == REFUSED


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"name": "x", "kind": "image", "shape": [1, 8, 8], "classes": [str(i) for i in range(9)]}},
        {"spec": {"name": "x", "kind": "image", "shape": [1, 9, 9], "classes": [str(i) for i in range(10)]}},
        {"spec": {"name": "x", "kind": "table", "shape": [64], "classes": [str(i) for i in range(10)]}},
        {"spec": None},
        {"schema": "0" * 64},
        {"schema": {"columns": []}},
        {"surprise": "/etc/passwd"},
        {"sites": ["north", "north"]},
        {"sites": ["north", "../south"]},
    ],
    ids=str,
)
def test_the_servers_facts_decide_nothing(tmp_path: Path, change: JsonDict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old site read its data by the server's class list, and told by its code whether a label was missing in it."""
    office = make_site(tmp_path, "north")
    monkeypatch.setattr(site_data, "load", lambda *_: pytest.fail("the data were opened"))
    told = sealed(description(), **change)
    for kind in ("hello", "round"):
        assert ask(office, told, kind=kind, state=b"") == REFUSED
    assert spent(office) == 0


@pytest.mark.parametrize("relation", ["replace-one", "none", 3])
def test_the_relation_is_the_sites(tmp_path: Path, relation: Any) -> None:
    """A hello under replace-one once locked every other run out."""
    office = make_site(tmp_path, "north")
    assert ask(office, forged(description(), relation=relation), kind="hello", state=b"") == REFUSED
    assert ask(office, description()).kind == "release"


def test_device_paths_and_threads_of_a_request_are_nobodys(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north")
    for key in ("device", "data", "data_dir", "schema_file", "label", "classes", "ledger", "start", "out", "noise"):
        assert ask(office, forged(description(), **{key: "/etc/passwd"}), kind="hello", state=b"") == REFUSED
    assert not ledger_of(office.folder, office.config).exists()


# One answer for a round, ever


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    gradient = PrivateRecords.noisy_gradient

    def noted(self: PrivateRecords, *args: Any, **kwargs: Any) -> Any:
        asked.append(1)
        return gradient(self, *args, **kwargs)

    monkeypatch.setattr(PrivateRecords, "noisy_gradient", noted)
    return asked


def test_a_round_has_one_answer_whatever_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office, told = make_site(tmp_path, "north", noise="operating-system"), description()
    asked = counted(monkeypatch)
    first = ask(office, told)
    assert first.kind == "release"
    questions = len(asked)
    largest = torch.finfo(torch.float32).max
    for change in (lambda t: t * 0, lambda t: t + largest, lambda t: -largest + 0 * t, lambda t: t + 1e30):
        assert ask(office, told, state=down(told, change=change)) == first
    assert len(asked) == questions, "nothing fresh is computed"
    assert spent(office) == 1


@pytest.mark.parametrize("round", [2, 3, 1000, -1, 10**9])
def test_a_round_outside_the_plan_is_never_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round: int
) -> None:
    """After its plan was spent the old site still computed, and its code told the sign of a fresh noisy number."""
    office, told = make_site(tmp_path, "north"), description()
    for r in range(2):
        assert ask(office, told, r).kind == "release"
    asked = counted(monkeypatch)
    for change in (None, lambda t: t * 0 + torch.finfo(torch.float32).max):
        assert ask(office, told, round, state=down(told, round, change)) == REFUSED
    assert asked == []
    assert spent(office) == 2


def test_what_fails_is_refused_once_and_for_ever_and_costs_the_round(tmp_path: Path) -> None:
    office, told = make_site(tmp_path, "north", noise="operating-system"), description()

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a record did this")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateRecords, "noisy_gradient", broken)
        assert ask(office, told) == REFUSED
    assert [ask(office, told) for _ in range(2)] == [REFUSED] * 2, "it would succeed now, and is not tried again"
    assert spent(office) == 1
    assert ask(office, told, 1).kind == "release", "the next round is open"


def test_every_refusal_after_the_data_is_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prismfl import errors

    told = description()
    found = []
    for i, error in enumerate(
        [errors.BudgetError("x"), errors.BoundaryError("y" * 500), RuntimeError("record"), errors.LedgerError("z"),
         errors.UserError("cell"), errors.WireError("w"), MemoryError(), ZeroDivisionError("1/0")]
    ):  # fmt: skip
        office = make_site(tmp_path / str(i), "north")

        def broken(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateRecords, "noisy_gradient", broken)
            found.append(ask(office, told))
    assert set(found) == {REFUSED}


@pytest.mark.parametrize("rate", [0.1, 3.9e37])
def test_finish_says_the_same_whatever_comes_of_it(tmp_path: Path, rate: float) -> None:
    """`adopt` runs on raw records: whether it failed was once an exact bit about them."""
    office = make_site(tmp_path, "north", methods=["local-only"], releases=[])
    config = run_config(method="local-only").model_copy(update={"settings": {"rounds": 1, "lr": min(rate, 1e5)}})
    told = describe(config, declared(config)[0], NAMES)
    final = down(told, 1, change=(lambda t: t * 0 + 3e38) if rate > 1 else None)
    for _ in range(2):
        assert ask(office, told, 1, kind="finish", state=final) == Answer("done", site="north")
    assert ask(office, told, 1, kind="finish", state=b"rubbish") == Answer("done", site="north")


# A person's word


def test_an_approval_is_for_one_release_one_payload_and_one_config(tmp_path: Path) -> None:
    """Approvals once went by the first 12 letters of a run's name."""
    office = make_site(tmp_path, "north", approval=True)
    told = description()
    first = {**told, "run": "0123456789ab-monday"}
    assert ask(office, first) == REFUSED
    approvals = Approvals(office.folder)
    (held,) = approvals.all()
    approvals.decide(held.id, "approved", by="Ann", reason="looked")
    assert ask(office, first).kind == "release"
    later = {**told, "run": "0123456789ab-tuesday"}
    other = {**description(settings={"steps": 3}), "run": "0123456789ab-wednesday"}
    assert [ask(office, one) for one in (later, other)] == [REFUSED] * 2
    assert sum(one.decision == "waiting" for one in approvals.all()) == 2
    words = next(Path(name) for name in held.files if name.endswith("preview.txt")).read_text()
    assert "method  dp-fedavg" in words
    assert told["digest"] in words


# Limits


HUGE = [
    ("dp-fedavg", {"rounds": 10**9}),
    ("dp-fedavg", {"steps": 10**9}),
    ("dp-fedavg", {"batch": 1e300}),
    ("dp-fedavg", {"lr": 1e300}),
    ("dp-fedavg", {"clip": 1e300}),
    ("prism-head", {"networks": 10**8}),
    ("prism-head", {"rank": 10**7}),
    ("prism-head", {"network_width": 10**7}),
    ("prism-head", {"rounds": 10**8}),
    ("dp-merf", {"features": 10**9}),
    ("dp-feta", {"width": 10**7}),
    ("dp-gan", {"width": 10**7}),
    ("3dgl", {"hidden": (10**7, 10**7)}),
    ("3dgl", {"queries": 10**9}),
    ("fedlap-dp", {"images": 10**9}),
]


@pytest.mark.parametrize(("method", "settings"), HUGE, ids=str)
def test_what_is_too_large_is_refused_before_anything_is_reserved(
    tmp_path: Path, method: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {kind.kind for kind in METHODS[method].leaves.values()}
    office = make_site(tmp_path, "north", methods=[method], releases=sorted(kinds))
    config = run_config(method=method).model_copy(update={"settings": {**METHODS[method].tiny, "sigma": 1.0}})
    told = describe(config, declared(config)[0], NAMES)
    told = forged(told, settings={**told["config"]["settings"], **settings})
    monkeypatch.setattr(Job, "shapes", property(lambda self: pytest.fail("sizes were computed first")))
    assert ask(office, told, kind="hello", state=b"").code in ("limit", "refused")
    assert not ledger_of(office.folder, office.config).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"public_count": 10**9},
        {"public_count": "9"},
        {"model": "convnet:99999999"},
        {"model": "mlp:100000"},
        {"model": "/etc/passwd"},
        {"model": None},
    ],
    ids=str,
)
def test_sizes_beside_the_settings_have_limits_too(tmp_path: Path, change: dict[str, Any]) -> None:
    office = make_site(tmp_path, "north")
    answer = ask(office, forged(description(), **change), kind="hello", state=b"")
    assert answer.code in ("limit", "refused")
    assert not ledger_of(office.folder, office.config).exists()


def test_the_defaults_of_every_method_are_within_its_ranges() -> None:
    for method in METHODS.values():
        policy.check_ranges(method, method.settings())


@pytest.mark.parametrize("run", ["..", ".", "../../x", "a/b", "", "x" * 81, "-rf", "a\nb", "a b"])
def test_a_run_has_a_usable_name(tmp_path: Path, run: str) -> None:
    office = make_site(tmp_path, "north")
    before = sorted(path for path in tmp_path.rglob("*"))
    assert ask(office, {**description(), "run": run}, kind="hello", state=b"").kind == "code"
    made = {path.name for path in tmp_path.rglob("*")} - {path.name for path in before}
    assert made <= {"site.log", "egress.jsonl"}


# Budget held hostage


def test_a_reservation_expires_and_can_be_closed(tmp_path: Path) -> None:
    told = description()
    cap = 1.05 * account.epsilon(job_of(told).plan(), 1e-5)
    office = make_site(tmp_path, "north", cap=cap, reserved_hours=1e-7)
    big = {**description(settings={"steps": 3, "rounds": 1}), "run": "hostage"}
    assert ask(office, big, kind="hello", state=b"").kind == "ready"
    assert ask(office, {**told, "run": "honest"}, kind="hello", state=b"").kind == "ready"
    with Ledger.open(ledger_of(office.folder, office.config)) as ledger:
        (status,) = ledger.status()
        assert status.open_runs == ("honest",)
    patient = replace(office, config=office.config.model_copy(update={"reserved_hours": 100.0}))
    assert ask(patient, {**big, "run": "second"}, kind="hello", state=b"") == REFUSED
    with Ledger.open(ledger_of(office.folder, office.config)) as ledger:
        ledger.close("honest")
    assert ask(patient, {**big, "run": "second"}, kind="hello", state=b"").kind == "ready"


def test_no_release_of_a_hostile_state_is_larger_than_its_bound(tmp_path: Path) -> None:
    """Weights of 1e30: what leaves is finite and of the declared shapes, or the one refusal."""
    office, told = make_site(tmp_path, "north", noise="operating-system"), description()
    answer = ask(office, told, state=down(told, change=lambda t: t * 1e30))
    if answer != REFUSED:
        tensors = Release.decode(answer.body).items["model"].tensors
        assert all(np.isfinite(t.numpy()).all() for t in tensors.values())


def test_the_operator_sees_what_was_asked_before_anything_is_reserved(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", cap=0.05)
    told = description()
    assert ask(office, told, kind="hello", state=b"") == REFUSED, "over the cap"
    done = CliRunner().invoke(app, ["site", "runs", str(office.folder), "--format", "json"])
    (row,) = json.loads(done.stdout)
    assert (row["run"], row["state"]) == (told["run"], "reserved nothing")
    assert "method  dp-fedavg, 2 rounds" in row["what"]


# What the second review found


def with_bias(told: JsonDict, rows: int, dtype: torch.dtype = torch.float32) -> bytes:
    """The state with a bias of so many rows, or of another type: broadcast, it would count a record in each."""
    model = initial_state(job_of(told)).items["model"]
    tensors = {n: t.to(dtype) for n, t in model.tensors.items()}
    bias = next(n for n in tensors if n.endswith("bias"))
    tensors[bias] = tensors[bias].expand(rows, *tensors[bias].shape).clone() if rows else tensors[bias]
    return encode({"model": Weights(tensors)}, {"round": 0})


@pytest.mark.parametrize("rows", [1, 16, 32, 48, 112, 479])
def test_a_state_has_the_declared_shapes(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias of as many rows as a block once made one record count for 15 clips."""
    office, told = make_site(tmp_path, "north"), description()
    asked = counted(monkeypatch)
    assert ask(office, told, state=with_bias(told, rows)) == REFUSED
    assert asked == []
    assert spent(office) == 0


def test_types_of_the_state_are_no_oracle_for_an_empty_batch(tmp_path: Path) -> None:
    """Weights in double precision once failed only where a record was drawn."""
    office, told = make_site(tmp_path, "north"), description()
    assert ask(office, told, state=with_bias(told, 0, torch.float64)) == REFUSED
    assert spent(office) == 0


def test_what_fails_for_a_record_fails_without_one() -> None:
    from prismfl.core.records import Records
    from prismfl.kernels.loss import Loss
    from prismfl.rng import Key

    def picky(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    params = {k: p.detach() for k, p in module.named_parameters()}
    for count in (0, 1):
        records = Records(torch.zeros(count, 3), torch.zeros(count, dtype=torch.int64))
        door = PrivateRecords(records, declared=4, classes=2, noise=Key.seed(0).noise())
        with pytest.raises(ZeroDivisionError):
            door.noisy_gradient(Loss(module, picky), params, batch=4.0, clip=1.0, sigma=1.0)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, -1.0])
def test_nobody_waits_for_ever_because_a_server_says_so(tmp_path: Path, seconds: float) -> None:
    office, told = make_site(tmp_path, "north", approval=True, max_seconds=0.5), description()
    assert office.answer(Request("round", told, 0, seconds, down(told))) == REFUSED


def test_a_request_does_not_fill_the_disk(tmp_path: Path) -> None:
    office, told = make_site(tmp_path, "north", max_runs=3), description()
    for change in ({"spec": {**told["spec"], "more": "x" * 2_000_000}}, {"spec": {**told["spec"], "name": "y" * 300}}):
        assert ask(office, sealed(told, **change), kind="hello", state=b"").kind == "code"
    assert not (office.folder / "runs").exists()
    kinds = [ask(office, {**told, "run": f"r{i}"}, kind="hello", state=b"").kind for i in range(6)]
    assert kinds[0] == "ready"
    assert kinds[-1] == "code"


@pytest.mark.parametrize("job", [None, [], "x", 3, {}])
def test_a_job_of_any_type_is_an_answer(tmp_path: Path, job: Any) -> None:
    office = make_site(tmp_path, "north")
    assert office.answer(Request("hello", job)).kind == "code"


def test_a_person_sees_what_the_site_counts_not_what_the_server_says(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True)
    told = forged(description(), epsilon=0.001, delta=1e-9)
    ask(office, told)
    (held,) = Approvals(office.folder).all()
    words = next(Path(name) for name in held.files if name.endswith("preview.txt")).read_text()
    price = account.epsilon(job_of(told).plan(), office.config.delta)
    assert f"plan    epsilon {price:.4g} at delta {office.config.delta:g}" in words
    assert "(the server's words)" in words
