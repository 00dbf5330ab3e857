"""Planted bugs of the records' own randomness: by place, public, shared by equal records, or beside the answers."""

# ruff: noqa: E501  (a planted line is quoted as it stands)

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl import rng
from prismfl.adversary.audits.steps import audit_steps
from prismfl.core import records
from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.methods.averaging import dp_fedavg
from prismfl.rng import NoiseStream, RecordDraws
from tests.core import test_door as door_tests
from tests.core import test_records as record_tests
from tests.laws import test_record_play as play_tests
from tests.mutations.planting import Bug, Check
from tests.privacy import test_draws as draw_tests
from tests.privacy import test_mechanisms as mechanism_tests

PLACES = "_encipher(self._who, np.arange(2 * len(identities), dtype='<u8').reshape(-1, 2))"


def plain(test: object, *arguments: object) -> Check:
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


def played(name: str) -> Check:
    return lambda folder, monkeypatch: play_tests.test_a_record_moves_no_question_by_more_than_its_bound(name, folder)


def first_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, one, other in door_tests.neighbours():
        if what.startswith("first"):
            door_tests.test_record_play(monkeypatch, what, one, other)


def drawn_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [step] = audit_steps(repeats=300, only="noisy_gradient with draws")
    assert step.passed, step


BUGS = [
    Bug(
        "a record's numbers go by its place",
        RecordDraws,
        "_blocks",
        "_encipher(self._who, identities)",
        PLACES,
        played("fedem-dp"),
    ),
    Bug(
        "a record's numbers go by its place, seen from outside",
        RecordDraws,
        "_blocks",
        "_encipher(self._who, identities)",
        PLACES,
        drawn_step,
    ),
    Bug(
        "a record's name holds its place",
        rng,
        "identities",
        "content.update(row)",
        "content.update(row)\n                content.update(len(found).to_bytes(8))",
        first_record,
    ),
    Bug(
        "a patient's coin goes by the patient's place",
        PrivateRecords,
        "_sample",
        "identities(ids.cpu().numpy())",
        "identities(torch.arange(len(ids)).numpy())",
        lambda folder, monkeypatch: play_tests.test_a_patient_moves_no_question_by_more_than_its_bound(
            "ldp-fedsgd", folder
        ),
    ),
    Bug(
        "a record's numbers come from the public seed",
        NoiseStream,
        "by_record",
        'self._stream.update(b"\\0" * 64)',
        'Key.seed(0).child("a").entropy + Key.seed(0).child("b").entropy',
        plain(door_tests.test_a_records_numbers_are_the_sites_secret_and_its_own),
    ),
    Bug(
        "one coin for equal records",
        rng,
        "identities",
        " if number else name",
        " if number < 0 else name",
        plain(mechanism_tests.test_sampling_is_poisson_and_shuffled_batches_fail_the_same_test, True),
    ),
    Bug(
        "a record's name follows from how all of them are kept",
        records,
        "_value",
        "rows.dtype == np.uint8",
        "rows.dtype == np.uint16",
        plain(record_tests.test_a_records_name_does_not_follow_from_how_it_is_kept),
    ),
    Bug(
        "a sample of bytes is computed on as it is kept",
        PrivateRecords,
        "noisy_gradient",
        "as_floats(sample.x.to(self.device))",
        "sample.x.to(self.device).float()",
        plain(door_tests.test_bytes_get_the_same_answers_as_the_floats_they_stand_for),
    ),
    Bug(
        "a record of a sample is named anew",
        Records,
        "take",
        "named = [names[rows.cpu().numpy()] for names in self.named]",
        "named = []",
        plain(draw_tests.test_a_name_follows_from_the_content_and_equal_records_have_their_own),
    ),
    Bug(
        "a trace of the records beside the answers",
        dp_fedavg,
        "client",
        'start = state.items["model"].to(task.device)',
        'start = {k: v + 1e-5 * site.records._records.x.mean() for k, v in state.items["model"].to(task.device).items()}',
        played("dp-fedavg"),
    ),
]
