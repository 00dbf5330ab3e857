"""The second exchange: cliques from a server are numbers from a stranger; shape and cost hang on none of them."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.job import Job
from prismfl.core.method import Items, State
from prismfl.core.payloads import Statistics
from prismfl.core.rounds import check_state, initial_state
from prismfl.core.trial import ask_once
from prismfl.errors import UserError, WireError
from prismfl.methods.generators import graphical, marginals, second
from prismfl.methods.generators.marginals import METHOD, Config
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.methods.test_marginals import WORDS, some_records, some_task

FOUND = Variables.of(Columns.parse(list(WORDS)), bins=4, labels=2)
CFG = Config(columns=WORDS, bins=4, sigma=1.0, rounds=2, further=3, further_cells=40, fitter="copula")
HOSTILE = {
    "no such column": [[0, 99, -1], [-5, 1, -1], [2**62, 1, 0]],
    "a column twice": [[0, 0, -1], [1, 1, 1], [2, 2, 3]],
    "too few": [[0, -1, -1], [-1, -1, -1], [-1, 4, -1]],
    "too many cells": [[0, 1, 3], [0, 3, 1], [0, 1, 3]],
    "the same again": [[0, 1, -1], [1, 0, -1], [-1, 1, 0]],
}


def test_cliques_are_sent_and_read() -> None:
    sent = second.written([(0, 1), (0, 2, 4)], 3)
    assert sent.tolist() == [[0, 1, -1], [0, 2, 4], [-1, -1, -1]]
    assert second.read(sent, FOUND, most=40) == [(0, 1), (0, 2, 4), ()]


@pytest.mark.parametrize("what", HOSTILE)
def test_what_cannot_be_asked_counts_as_nothing(what: str) -> None:
    found = second.read(torch.tensor(HOSTILE[what]), FOUND, most=40)
    assert found in ([(), (), ()], [(0, 1), (), ()])


def asked_for(rows: list[list[int]]) -> tuple[Items, Cost]:
    job = Job("t", METHOD, CFG, some_task(), 0)
    state = State(1, {**initial_state(job).items, "wanted": Statistics({"cliques": torch.tensor(rows)})})
    check_state(job, state)
    found = ask_once(job, state, some_records(200), Key.seed(1).noise(), key=Key.seed(1))
    return found.answer[0], found.cost


@pytest.mark.parametrize("what", HOSTILE)
def test_the_answer_has_one_shape_and_one_cost_whatever_is_asked(what: str) -> None:
    usual, paid = asked_for([[0, 1, -1], [0, 2, 4], [1, 2, 4]])
    found, cost = asked_for(HOSTILE[what])
    assert found["tables"].shapes() == usual["tables"].shapes() == METHOD.shapes(CFG, some_task())["tables"]
    assert cost == paid == marginals.round_cost(CFG, some_task(), 1, False)
    assert not bool(found["tables"].tensors["counts"].any()), "the first exchange's tables are not asked again"


def test_cliques_of_another_shape_are_refused_at_the_site_before_anything_is_spent() -> None:
    job = Job("t", METHOD, CFG, some_task(), 0)
    for rows in (torch.zeros(4, 3), torch.zeros(3, 2, dtype=torch.int64), torch.zeros(1000, 3, dtype=torch.int64)):
        state = State(1, {**initial_state(job).items, "wanted": Statistics({"cliques": rows})})
        with pytest.raises(WireError):
            check_state(job, state)


def test_both_exchanges_are_planned_and_together_cost_what_one_would() -> None:
    plan = marginals.plan(CFG, some_task())
    assert plan == Cost.gaussian(CFG.noise_of(0), times=2)
    uneven = CFG.model_copy(update={"first": 0.2})
    assert uneven.noise_of(0) ** -2 + uneven.noise_of(1) ** -2 == pytest.approx(1.0)
    with pytest.raises(UserError, match="one exchange"):
        marginals.summed(CFG, some_task())
    large = CFG.model_copy(update={"further": 500, "further_cells": 100_000})
    with pytest.raises(UserError, match="further 500 x further_cells 100000"):
        METHOD.init(large, some_task(), Key.seed(0))


def test_the_server_asks_for_what_the_first_release_says_most_of_and_uses_it() -> None:
    if not graphical.installed():
        pytest.skip("needs mbi")
    cfg, task = CFG.model_copy(update={"fitter": "auto", "sigma": 0.5}), some_task(2)
    job = Job("t", METHOD, cfg, task, 0)
    state = initial_state(job)
    for round in range(2):
        inbox: dict[str, Items] = {}
        for i, site in enumerate(task.sites):
            noise = Key.seed(10 * i + round).noise()
            asked = ask_once(job, state, some_records(2000, i), noise, key=Key.seed(i), site=site)
            inbox[site] = asked.answer[0]
            assert METHOD.possible is not None
            assert METHOD.possible(cfg, task, state, site, inbox[site]) is None
            assert METHOD.possible(cfg, task, State(1 - round, state.items), site, inbox[site]) is not None
        state = State(round + 1, METHOD.server(cfg, task, state, inbox, Key.seed(2)))
        if not round:
            check_state(job, state)
            wanted = second.read(state.items["wanted"].tensors["cliques"], FOUND, most=40)
            assert (0, 1, 4) in wanted or (0, 3, 4) in wanted
    assert {"generator", "synthetic", "model"} == set(state.items)
    x, y = state.items["synthetic"].tensors["x"], state.items["synthetic"].tensors["y"]
    assert float(x[y == 1, 0].mean()) > float(x[y == 0, 0].mean()) + 0.3


def test_tables_that_were_asked_twice_are_averaged_by_their_noise() -> None:
    one, two = Counts(torch.tensor([10.0, 0]), 3.0), Counts(torch.tensor([20.0, 10]), 1.0)
    both = second.joined({(0, 1): one}, {(0, 1): two, (0, 2): one})
    assert both[(0, 1)].counts.tolist() == pytest.approx([19.0, 9.0])
    assert both[(0, 1)].noise == pytest.approx(0.9**0.5)
    assert both[(0, 2)] is one
