"""Long answers in parts: whole or nothing, and whatever a site or a server does with a part, it costs only that one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from flwr.app import Message

from prismfl.core.payloads import encode
from prismfl.core.rounds import initial_state
from prismfl.errors import UserError, WireError
from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.server import serving
from prismfl.site.office import Office
from prismfl.transport import conductor, parts
from prismfl.transport.faults import faults
from prismfl.transport.flower import adapter as flower
from prismfl.transport.parts import Coming, Spool, Whole
from prismfl.transport.post import Answer, Request, RoundRules
from tests.secure.test_protocol import offices as secure_offices
from tests.secure.test_protocol import secure_config
from tests.site.folders import NAMES, make_run, make_site, run_config
from tests.transport.grid import OneProcessGrid

RULES = RoundRules(2, deadline=600.0, join=600.0, poll=0.01, ask_again=0.05)
SMALL = 700  # bytes: a release of these runs has five parts


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", SMALL)
    monkeypatch.setattr(conductor, "PART", SMALL)


def app_of(office: Office) -> flower.ClientApp:
    """What `site.app` does with a request, without the limits of its process."""
    spool = Spool(office.folder / "spool")
    return flower.client_app(lambda request, context: spool.answer(request, lambda: office.answer(request)))


def federation(folder: Path, rules: RoundRules = RULES, rounds: int = 2) -> tuple[RunDirectory, OneProcessGrid]:
    offices = [make_site(folder / "sites", name) for name in NAMES]
    grid = OneProcessGrid(
        {i + 10: app_of(office) for i, office in enumerate(offices)},
        keys={i + 10: f"key of {name}".encode() for i, name in enumerate(NAMES)},
    )
    return make_run(folder / "run", rules, run_config(settings={"rounds": rounds})), grid


def serve(directory: RunDirectory, grid: OneProcessGrid) -> None:
    names = {f"key of {name}".encode(): name for name in NAMES}
    post = flower.GridPost(grid, names, refresh=0.0, spool=directory.path / "spool")
    serving.serve(directory.path, post, say=lambda line: None)


def digest_of(directory: RunDirectory) -> str:
    return str(directory.read_json("result.json")["digest"])


def senders(directory: RunDirectory, round: int) -> set[str]:
    return {m.site for m in directory.messages() if m.round == round and m.direction == "up"}


def test_an_answer_in_parts_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, grid = federation(tmp_path / "parts")
    kinds: list[str] = []

    def listen(place: int, request: Message, reply: Message) -> list[Message]:
        kinds.append(flower.read_answer(reply).kind)
        return [reply]

    grid.tamper = listen
    serve(directory, grid)
    assert kinds.count("parts") == 6
    assert kinds.count("part") == 6 * 5
    assert kinds.count("release") == 0
    assert faults(directory) == []
    assert list((directory.path / "spool").iterdir()) == []  # nothing with a name was left on the server
    assert list((tmp_path / "parts" / "sites" / "north" / "spool").iterdir()) == []  # nor on a site, once it is over
    monkeypatch.setattr(parts, "PART", 10**6)
    whole, other = federation(tmp_path / "whole")
    serve(whole, other)
    assert digest_of(directory) == digest_of(whole)


def test_the_numbers_of_a_secure_sum_come_in_parts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[str] = []
    asked: list[int] = []
    for name, size in (("parts", SMALL), ("whole", 10**7)):
        monkeypatch.setattr(parts, "PART", size)
        offices = secure_offices(tmp_path / name / "sites", "prism-head")
        directory = make_run(tmp_path / name / "run", RULES, secure_config("prism-head"))
        keys = {i + 10: f"key of {site}".encode() for i, site in enumerate(NAMES)}
        grid = OneProcessGrid({i + 10: app_of(office) for i, office in enumerate(offices)}, keys=keys)
        serve(directory, grid)
        assert faults(directory) == []
        digests.append(digest_of(directory))
        asked.append(len(grid.asked))
    assert digests[0] == digests[1]
    assert asked[0] > asked[1] + 6


Forge = Callable[[Request, Answer], list[Answer]]


def _other_part(request: Request, answer: Answer) -> list[Answer]:
    return [replace(answer, body=bytes(len(answer.body)))] if request.turn == "1" else [answer]


def _announced(change: Callable[[int, str], str]) -> Forge:
    def forge(request: Request, answer: Answer) -> list[Answer]:
        if answer.kind != "parts":
            return [answer]
        size, digest = answer.body.decode().split()
        return [replace(answer, body=change(int(size), digest).encode())]

    return forge


def _first(change: Callable[[Answer], list[Answer]]) -> Forge:
    return lambda request, answer: change(answer) if request.kind == "part" and request.turn == "0" else [answer]


MALFORMED: dict[str, Forge] = {
    "too long": _first(lambda answer: [replace(answer, body=answer.body + b"x")]),
    "too short": _first(lambda answer: [replace(answer, body=answer.body[:-1])]),
    "empty": _first(lambda answer: [replace(answer, body=b"")]),
    "huge": _first(lambda answer: [replace(answer, body=bytes(20_000_000))]),
    "other bytes": _other_part,
    "another announcement in its place": _first(lambda answer: [Answer("parts", body=b"9" * 9 + b" " + b"0" * 64)]),
    "a release in its place": _first(lambda answer: [Answer("release", body=answer.body)]),
    "a word in its place": _first(lambda answer: [Answer("ready")]),
    "other digest": _announced(lambda size, digest: f"{size} {digest[::-1]}"),
    "longer than it is": _announced(lambda size, digest: f"{size + SMALL} {digest}"),
    "shorter than it is": _announced(lambda size, digest: f"{size - SMALL} {digest}"),
    "endless": _announced(lambda size, digest: f"{10**14} {digest}"),
    "more digits than there are": _announced(lambda size, digest: f"{'9' * 5000} {digest}"),
    "of no length": _announced(lambda size, digest: f"0 {digest}"),
    "of negative length": _announced(lambda size, digest: f"-5 {digest}"),
    "a path for a digest": _announced(lambda size, digest: f"{size} ../../../etc/passwd"),
    "in capitals": _announced(lambda size, digest: f"{size} {digest.upper()}"),
    "no words": _announced(lambda size, digest: ""),
    "a megabyte of words": _announced(lambda size, digest: "9" * 10**6),
}


def tampered(grid: OneProcessGrid, forge: Forge) -> None:
    def tamper(place: int, request: Message, reply: Message) -> list[Message]:
        asked, answer = flower.read_request(request), flower.read_answer(reply)
        if place != 10 or asked.round != 0 or asked.kind not in ("round", "part"):
            return [reply]
        words = [({"kind": a.kind, "code": a.code, "site": "north"}, a.body) for a in forge(asked, answer)]
        return [Message(flower.pack(told, body), reply_to=request) for told, body in words]

    grid.tamper = tamper


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_part_costs_its_sender_the_round_and_no_more(name: str, tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)
    tampered(grid, MALFORMED[name])
    serve(directory, grid)
    found = [(f.round, f.site, f.code) for f in faults(directory)]
    assert len(found) == 1
    assert found[0][:2] == (0, "north")
    assert found[0][2] in ("malformed", "refused")  # what was never announced, a site does not hand out
    assert senders(directory, 0) == {"south", "west"}
    assert senders(directory, 1) == set(NAMES)
    assert list((directory.path / "spool").iterdir()) == []


def test_a_doubled_part_counts_once(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path)
    tampered(grid, lambda request, answer: [answer, answer])
    serve(directory, grid)
    assert faults(directory) == []
    assert senders(directory, 0) == set(NAMES)


def test_a_part_that_never_comes_costs_its_sender_the_round(tmp_path: Path) -> None:
    directory, grid = federation(tmp_path, replace(RULES, close_after=0.5), rounds=1)
    tampered(grid, lambda request, answer: [] if request.turn == "3" else [answer])
    serve(directory, grid)
    assert (0, "north", "late") in {(f.round, f.site, f.code) for f in faults(directory)}
    assert senders(directory, 0) == {"south", "west"}


def test_the_parts_of_one_site_do_not_fill_the_grid(tmp_path: Path) -> None:
    """No more than two are under way, whatever is announced."""
    coming = Coming(Request("round", {}, most=10**6), "north", Whole(SMALL * 9, "0" * 64), tmp_path)
    asked = []
    while (request := coming.next()) is not None:
        coming.sent()
        asked.append(request.turn)
    assert asked == ["0", "1"]
    assert coming.take(0, Answer("part", body=bytes(SMALL))) is None
    following = coming.next()
    assert following is not None
    assert following.turn == "2"
    coming.close()


def test_a_part_that_was_lost_is_asked_again_a_few_times(tmp_path: Path) -> None:
    coming = Coming(Request("round", {}, most=10**6), "north", Whole(SMALL + 1, "0" * 64), tmp_path)
    answers: list[Answer | None] = []
    while (request := coming.next()) is not None and len(answers) < 20:
        coming.sent()
        answers.append(coming.take(int(request.turn), Answer("lost")))
    assert [answer and answer.kind for answer in answers[: parts.TRIES]] == [None] * (parts.TRIES - 1) + ["lost"]
    coming.close()


def test_a_transfer_that_moves_is_not_begun_again(tmp_path: Path) -> None:
    """The bug: half-way through the deadline every site is asked again, and what has come is thrown away."""
    directory, grid = federation(tmp_path, rounds=1)
    description = directory.read_json("federation.json")["description"]
    post = flower.GridPost(grid, {f"key of {n}".encode(): n for n in NAMES}, refresh=0.0, spool=tmp_path / "spool")
    coming = Coming(Request("round", description, most=10**6), "north", Whole(SMALL * 3, "0" * 64), tmp_path)
    post._coming[10] = coming
    coming.take(0, Answer("part", body=bytes(SMALL)))
    assert post.send(10, coming.request)
    assert grid.asked == []
    assert post.send(10, coming.request)  # nothing has moved since
    assert grid.asked == [10]
    assert post._coming == {}


def test_what_was_under_way_to_a_site_that_was_restarted_is_asked_for_again(tmp_path: Path) -> None:
    """The bug: half of an answer had come, so the request was taken as under way for ever, and the site was late."""
    directory, grid = federation(tmp_path, rounds=1)
    description = directory.read_json("federation.json")["description"]
    post = flower.GridPost(grid, {f"key of {n}".encode(): n for n in NAMES}, refresh=0.0, spool=tmp_path / "spool")
    state = encode(initial_state(job_of(description)).items, {"round": 0})
    request = Request("round", description, 0, 600.0, state, most=10**6)
    lost: list[str] = []

    def restarted(place: int, asked: Message, reply: Message) -> list[Message]:
        turn = flower.read_request(asked).turn
        if flower.read_request(asked).kind == "part" and turn in ("2", "3") and turn not in lost:
            lost.append(turn)
            return []
        return [reply]

    grid.tamper = restarted
    assert post.send(10, request)
    assert [answer for _ in range(20) for answer in post.collect()] == []
    assert lost == ["2", "3"]
    before = len(grid.asked)
    assert post.send(10, request)
    ((place, asked, answer),) = [found for _ in range(20) for found in post.collect()]
    assert (place, asked, answer.kind) == (10, request, "release")
    assert len(grid.asked) - before == 3, "the two that were lost and the last, not all of it"


def test_a_part_that_comes_twice_after_it_was_asked_for_twice_counts_once(tmp_path: Path) -> None:
    body = bytes(range(256)) * 6
    coming = Coming(
        Request("round", {}, most=10**6), "north", Whole(len(body), hashlib.sha256(body).hexdigest()), tmp_path
    )
    cut = [body[i : i + SMALL] for i in range(0, len(body), SMALL)]

    def fly() -> None:
        while coming.next() is not None:
            coming.sent()

    fly()
    assert coming.take(0, Answer("part", body=cut[0])) is None
    assert coming.again()
    fly()
    for index in (1, 2):  # of the first time
        done = coming.take(index, Answer("part", body=cut[index]))
    assert done is not None
    assert done.body == body
    assert coming.take(1, Answer("part", body=b"")) is None, "of the second time, and nobody waits for it"
    coming.close()


# What a server may ask of a site


def spooled(folder: Path) -> tuple[Spool, bytes, str]:
    spool, body = Spool(folder / "spool"), bytes(range(256)) * 10
    announced = spool.cut(Answer("release", site="north", body=body))
    assert (announced.kind, announced.site) == ("parts", "north")
    whole = Whole.read(announced.body, most=len(body))
    assert whole == Whole(len(body), hashlib.sha256(body).hexdigest())
    return spool, body, whole.digest


def test_a_site_hands_out_the_parts_of_what_it_announced(tmp_path: Path) -> None:
    spool, body, digest = spooled(tmp_path)
    found = [spool.part(Request("part", {}, told=f"{digest} {i}")).body for i in range(4)]
    assert b"".join(found) == body
    assert [len(part) for part in found] == [SMALL, SMALL, SMALL, len(body) - 3 * SMALL]
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "told",
    [
        *("", "{digest}", "{digest} 4", "{digest} -1", "{digest} 1e3", "{digest} 999999999", "{digest} 0 0"),
        *("{other} 0", "../site.toml 0", "/etc/passwd 0", "{digest}/../../site.toml 0", "{digest}\0 0", "{digest} ٣"),
    ],
)
def test_a_site_hands_out_nothing_else(told: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("name = 'north'")
    spool, _, digest = spooled(tmp_path)
    with pytest.raises(UserError, match="that was announced"):
        spool.part(Request("part", {}, told=told.format(digest=digest, other=digest[::-1])))


def test_a_site_keeps_few_long_answers(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for i in range(5):
        spool.cut(Answer("release", body=bytes([i]) * 1000))
    assert len(list(spool.folder.iterdir())) == parts.KEPT


def test_two_processes_of_a_site_may_spool_at_once(tmp_path: Path) -> None:
    """The bug: a file that another process had just renamed made the answer a refusal, charged and lost."""
    spool, body, digest = spooled(tmp_path)
    (spool.folder / f"{'0' * 64}.aaaa.part").symlink_to(tmp_path / "renamed meanwhile")
    (spool.folder / ("f" * 64)).symlink_to(tmp_path / "removed meanwhile")
    for _ in range(3):
        assert spool.cut(Answer("release", body=body)).kind == "parts"
    assert (spool.folder / f"{'0' * 64}.aaaa.part").is_symlink(), "another's half is its own business"
    spool.forget()
    assert not (spool.folder / digest).exists()


def test_an_answer_for_which_there_is_no_room_goes_whole(tmp_path: Path) -> None:
    """It is charged: it must not be lost because a copy of it cannot be kept."""
    (tmp_path / "spool").write_text("no folder can be made here")
    answer = Answer("release", body=bytes(2 * SMALL))
    assert Spool(tmp_path / "spool").cut(answer) is answer


def test_a_short_answer_goes_as_it_is(tmp_path: Path) -> None:
    spool, answer = Spool(tmp_path / "spool"), Answer("release", body=bytes(SMALL))
    assert spool.cut(answer) is answer
    assert not spool.folder.exists()


def test_a_server_that_knows_no_parts_gets_the_whole(tmp_path: Path) -> None:
    """A request of an earlier version says nothing of parts."""
    request = Request("round", {"run": "r"}, most=5)
    message = Message(flower.request_record(request), 1, "train.prismfl")
    del message.content[flower.RECORD]["most"]
    assert flower.read_request(message) == replace(request, most=0)


def test_no_announcement_of_more_than_may_be() -> None:
    with pytest.raises(WireError):
        Whole.read(f"{SMALL + 1} {'0' * 64}".encode(), most=SMALL)
    assert Whole.read(f"{SMALL + 1} {'0' * 64}".encode(), most=SMALL + 1).count == 2
