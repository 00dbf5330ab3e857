"""Bugs under a server that wants the records: facts, limits, names, rounds, codes, reservations, approvals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismfl.adversary.audits.hostile import PROBES
from prismfl.adversary.audits.hostile_site import Bench
from prismfl.core import rounds
from prismfl.methods import METHODS
from prismfl.methods.averaging import dp_fedavg_client
from prismfl.privacy import mechanisms
from prismfl.runs import description, planning
from prismfl.site import approvals, policy
from prismfl.site.office import Office
from tests.hostile import test_foreign_methods as foreign
from tests.hostile import test_server as server
from tests.mutations.planting import Bug, Check
from tests.runs import test_description as described


def at(test: Callable[..., None], *arguments: object, patched: bool = False) -> Check:
    """A test that takes a folder, its arguments, and where it says so what it patches with."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(folder, *arguments, **({"monkeypatch": monkeypatch} if patched else {}))

    return check


def audit(method: str, attack: str, **given: Any) -> Check:
    """An attack of the auditor's, which must find nothing."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(PROBES[attack](Bench(METHODS[method], folder), **given)) == []

    return check


def no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = folder / "pictures"
    pictures.mkdir()
    server.test_no_folder_of_the_site_becomes_public_images(folder, pictures, monkeypatch)


def no_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trapped = foreign.trap(folder / "path", monkeypatch)
    foreign.test_a_server_cannot_name_code("evil:METHOD", folder, trapped)


NINE = {"spec": {"name": "x", "kind": "image", "shape": [1, 8, 8], "classes": [str(i) for i in range(9)]}}

BUGS = [
    Bug(
        "a server names the module that a site imports",
        planning,
        "find_method",
        'if ":" in name:',
        'if ":" in name:\n        from prismfl.runs.choosing import _imported\n\n'
        "        return _imported(name)\n    if False:",
        no_code,
    ),
    Bug(
        "a path in a request names public images",
        policy,
        "_check_public",
        "if name is not None and not is_named(str(name)) and name not in config.public:",
        "if False:",
        no_folder,
    ),
    Bug(
        "any name of an encoder is looked for",
        policy,
        "_check_encoder",
        "if part.digest is not None or name not in known or not OWN_NAME.fullmatch(name):",
        "if False:",
        at(server.test_no_encoder_but_those_on_the_sites_list, "{place}", patched=True),
    ),
    Bug(
        "an encoder of another digest is taken",
        description,
        "job_of",
        'if encoder is None or encoder.digest != description["encoder"]:',
        "if False:",
        lambda folder, monkeypatch: described.test_an_encoder_travels_by_name_and_digest(),
    ),
    Bug(
        "a plan is reserved for an encoder of another digest",
        policy,
        "_check_encoder",
        "if looked is None or looked.digest != digest:",
        "if False:",
        at(server.test_nothing_is_reserved_for_a_light_encoder_of_another_digest),
    ),
    Bug(
        "the server's class list counts",
        policy,
        "_check_facts",
        '(spec.get("kind"), spec.get("shape"), spec.get("classes"))\n'
        "        == (facts.kind, list(facts.shape), list(facts.classes))",
        '(spec.get("kind"), spec.get("shape")) == (facts.kind, list(facts.shape))',
        at(server.test_the_servers_facts_decide_nothing, NINE, patched=True),
    ),
    Bug(
        "the relation is the request's",
        policy,
        "_check_facts",
        'and told.get("relation") == config.relation',
        "",
        audit("dp-fedavg", "facts"),
    ),
    Bug(
        "a request may hold more than any request of this version",
        policy,
        "check_request",
        "not set(description) <= _TOP or ",
        "",
        at(server.test_the_servers_facts_decide_nothing, {"surprise": "/etc/passwd"}, patched=True),
    ),
    Bug(
        "device, paths and labels may stand in a request's config",
        policy,
        "check_request",
        " or not set(told) <= set(TRAVELS)",
        "",
        at(server.test_device_paths_and_threads_of_a_request_are_nobodys),
    ),
    Bug(
        "settings have no limits",
        policy,
        "check_job",
        "    check_ranges(job.method, job.settings)\n",
        "",
        audit("dp-fedavg", "limits"),
    ),
    Bug(
        "any number of public images is fine",
        policy,
        "_check_public",
        " or not 1 <= count <= config.max_public",
        "",
        at(server.test_sizes_beside_the_settings_have_limits_too, {"public_count": 10**9}),
    ),
    Bug(
        "a secure sum of clients may protect another unit than the site's",
        policy,
        "check_job",
        '(secured or job.method.guarantee == "site")',
        'job.method.guarantee == "site"',
        audit("dp-fedavg-client", "facts"),
    ),
    Bug(
        "whether an update is finite is told",
        dp_fedavg_client,
        "client",
        "if not all(bool(torch.isfinite(part).all()) for part in update.values()):",
        "if False:",
        audit("dp-fedavg-client", "codes", worlds=("all", "without")),
    ),
    Bug(
        "a run goes on under its name with another config",
        Office,
        "_pin",
        "elif place.read_text() != told:",
        "elif False:",
        audit("dp-fedavg", "settings"),
    ),
    Bug(
        "the state says which round it is",
        Office,
        "_answer",
        "if state.round != request.round:",
        "if False:",
        audit("dp-fedavg", "rounds"),
    ),
    Bug(
        "the code after the data tells the kind of error",
        Office,
        "answer",
        "stays inside\n            words = words_for_log(error)",
        'stays inside\n            told, words = getattr(error, "code", "internal"), words_for_log(error)',
        at(server.test_every_refusal_after_the_data_is_the_same_bytes, patched=True),
    ),
    Bug(
        "finish tells whether the site could make its model",
        Office,
        "answer",
        'if request.kind == "finish" and told == REFUSED:',
        "if False:",
        at(server.test_finish_says_the_same_whatever_comes_of_it, 3.9e37),
    ),
    Bug(
        "a round that was asked before is computed again",
        rounds,
        "site_step",
        "if kept is not None:",
        "if False:",
        at(server.test_a_round_has_one_answer_whatever_is_asked_again, patched=True),
    ),
    Bug(
        "reservations never expire",
        Office,
        "_host",
        "ledger.expire(hours=self.config.reserved_hours, keep=job.run)",
        "[]",
        at(server.test_a_reservation_expires_and_can_be_closed),
    ),
    Bug(
        "the sites of a sum are checked when it begins, not before the plan is reserved",
        Office,
        "_allowed",
        "self._roster(request.job).admit(job.sum_rules(0))",
        "pass",
        audit("prism-head", "rosters"),
    ),
    Bug(
        "a record under huge weights counts twice",
        mechanisms,
        "clip_factors",
        "bound / (norms * SLACK)",
        "2 * bound / (norms * SLACK)",
        audit("dp-fedavg", "influence"),
    ),
    Bug(
        "an approval is for the beginning of a run's name",
        approvals,
        "approval_id",
        '"\\0".join((release.id, hashlib.sha256(raw).hexdigest(), config))',
        "release.run[:12]",
        at(server.test_an_approval_is_for_one_release_one_payload_and_one_config),
    ),
]
