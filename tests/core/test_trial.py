"""A door asked outside of any run answers and meters as in a run, and who looks on changes nothing."""

from __future__ import annotations

from pathlib import Path

import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.payloads import Gradient
from prismfl.core.records import Records
from prismfl.core.rounds import ask_method, initial_state
from prismfl.core.trial import Question, Vector, Watch, ask_door, ask_hub, ask_once
from prismfl.nets.classifier import build
from prismfl.privacy.cost import Cost
from prismfl.privacy.mechanisms import Params
from prismfl.rng import Key
from tests.laws.world import make_job, make_world

CLASSIFIER, PARAMS = build("logreg", (6,), 3, key=Key.seed(0))


class Notes(Watch):
    """Writes down what it is told; the doors of classes share its pages."""

    def __init__(self) -> None:
        self.samples: list[Records] = []
        self.answers: list[torch.Tensor] = []
        self.labels: list[int] = []

    def sampled(self, sample: Records) -> None:
        self.samples.append(sample)

    def summed(self, rows: object, answer: torch.Tensor, asked: Question) -> None:
        self.answers.append(answer)

    def gradient(self, loss: object, params: Params, answer: Params, asked: Question) -> None:
        self.answers.append(next(iter(answer.values())))

    def clients(self, vector: Vector, like: Params, answer: Params, asked: Question) -> None:
        self.answers.append(answer["w"])

    def of_class(self, label: int) -> Watch:
        self.labels.append(label)
        return self


def some(n: int = 30) -> Records:
    generator = torch.Generator().manual_seed(1)
    return Records(torch.randn(n, 6, generator=generator), torch.arange(n) % 3)


def questions(door: PrivateRecords) -> list[torch.Tensor]:
    """One of each mechanism, a sampled one among them, and all classes."""
    found = [door.noisy_sum(lambda x, y: x, bound=1.0, sigma=1.0, batch=10), door.noisy_histogram(sigma=2.0)]
    found.append(door.noisy_tables(lambda x, y: y[:, None], sizes=(3,), weights=(1.0,), bound=1.0, sigma=1.0))
    sums, moment = door.noisy_moments(lambda x, y: x, second=2, scale=1.0, bound=1.0, sigma=1.0)
    found += [sums, moment]
    loss = CLASSIFIER.record_loss
    found += door.noisy_gradient(loss, PARAMS, batch=10, clip=1.0, sigma=1.0).values()
    with door.by_class([10, 10, 10]) as doors:
        for one in doors:
            found += one.noisy_gradient(loss, PARAMS, batch=5, clip=1.0, sigma=1.0).values()
    return found


def test_who_looks_on_changes_neither_answer_nor_cost() -> None:
    plain = ask_door(questions, some(), Key.seed(3).noise(), declared=30, classes=3)
    notes = Notes()
    watched = ask_door(questions, some(), Key.seed(3).noise(), declared=30, classes=3, watch=notes)
    assert all(torch.equal(a, b) for a, b in zip(plain.answer, watched.answer, strict=True))
    assert plain.cost == watched.cost
    assert not plain.cost.is_zero
    assert torch.equal(notes.answers[0], watched.answer[0])
    assert len(notes.answers) == 3 + 1 + 3  # sum, histogram and tables, a gradient, a gradient of each class


def test_tables_that_the_reference_asks_as_a_sum_are_shown_once() -> None:
    def tables(door: PrivateRecords) -> torch.Tensor:
        return door.noisy_tables(lambda x, y: y[:, None], sizes=(3,), weights=(1.0,), bound=1.0, sigma=1.0)

    for reference in (False, True):
        notes = Notes()
        asked = ask_door(tables, some(), Key.seed(3).noise(), declared=30, classes=3, watch=notes, reference=reference)
        assert [answer.tolist() for answer in notes.answers] == [asked.answer.tolist()]


def test_who_looks_on_need_not_note_anything() -> None:
    plain = ask_door(questions, some(), Key.seed(3).noise(), declared=30, classes=3)
    idle = ask_door(questions, some(), Key.seed(3).noise(), declared=30, classes=3, watch=Watch())
    assert all(torch.equal(a, b) for a, b in zip(plain.answer, idle.answer, strict=True))
    assert plain.cost == idle.cost


def test_doors_of_classes_are_watched_and_paid_for_in_parallel() -> None:
    notes = Notes()

    def one_class_after_the_other(door: PrivateRecords) -> None:
        with door.by_class([10, 10, 10]) as doors:
            for one in doors:
                one.noisy_sum(lambda x, y: x, bound=1.0, sigma=1.5)

    asked = ask_door(one_class_after_the_other, some(), Key.seed(0).noise(), declared=30, classes=3, watch=notes)
    assert notes.labels == [0, 1, 2]
    assert [sorted(set(sample.y.tolist())) for sample in notes.samples] == [[0], [1], [2]]
    assert asked.cost == Cost.parallel([Cost.gaussian(1.5)] * 3)


def test_the_sample_that_is_shown_is_the_one_that_was_summed() -> None:
    notes = Notes()
    asked = ask_door(
        lambda door: door.noisy_sum(lambda x, y: x, bound=1e6, sigma=0.0, batch=10),
        some(),
        Key.seed(5).noise(),
        declared=30,
        classes=3,
        watch=notes,
    )
    [sample] = notes.samples
    assert 0 < len(sample) < 30
    torch.testing.assert_close(asked.answer, sample.x.sum(0))


def test_the_hub_is_watched_like_a_site() -> None:
    inbox = {f"site-{i}": {"update": Gradient({"w": torch.full((4,), float(i))})} for i in range(3)}
    notes, like = Notes(), {"w": torch.zeros(4)}
    plain, watched = (
        ask_hub(
            lambda hub: hub.noisy(lambda items: items["update"].tensors, like, bound=1.0, sigma=1.0)["w"],
            inbox,
            Key.seed(1).noise(),
            declared=3,
            watch=watch,
        )
        for watch in (None, notes)
    )
    assert torch.equal(plain.answer, watched.answer)
    assert torch.equal(notes.answers[0], watched.answer)
    assert plain.cost == watched.cost == Cost.gaussian(1.0, unit="client")


def test_a_method_asked_once_says_what_it_would_in_a_round(tmp_path: Path) -> None:
    world = make_world(make_job("dp-fedavg"), tmp_path)
    job, host = world.job, world.hosts[0]
    state = initial_state(job)
    door, items, memory = ask_method(job, state, host)
    asked = ask_once(
        job,
        state,
        host.records(),
        job.simulated_noise(host.name, 0).noise(),
        key=job.key.child("client", host.name, 0),
        site=host.name,
    )
    assert {name: item.digest for name, item in asked.answer[0].items()} == {n: i.digest for n, i in items.items()}
    assert set(asked.answer[1]) == set(memory)
    assert asked.cost == door.meter.cost
    assert host.ledger.charges() == [], "what is asked outside of a run is charged nowhere"
