"""dp-marginals: one release of many tables, whose sum a model is fitted to; public numbers decide what is asked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import prismfl
from prismfl.core.job import Job
from prismfl.core.method import State, Wanted
from prismfl.core.payloads import Statistics
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.core.trial import ask_once
from prismfl.errors import UserError
from prismfl.methods.generators import graphical, marginals
from prismfl.methods.generators.marginals import METHOD, Config
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.laws.world import some_records as of_law
from tests.methods.tiny import answer

WORDS = ("n", "c3", "b", "n")


def some_task(sites: int = 1, records: int = 2000, **more: Any) -> Task:
    names = tuple(f"site-{i}" for i in range(sites))
    return Task("own", (6,), ("no", "yes"), names, records, "mlp:8", **more)


def some_records(n: int, seed: int = 0) -> Records:
    """Two numbers that rise together, a choice that follows the first, and a label that follows both."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, generator=g)
    first, last = (0.3 * z).clamp(-1, 1), (0.25 * z + 0.1 * torch.randn(n, generator=g)).clamp(-1, 1)
    choice = torch.eye(3)[(z > -0.5).long() + (z > 1).long()]
    binary = (torch.rand(n, generator=g) < 0.3).float() * 2 - 1
    y = (first + last + 0.2 * torch.randn(n, generator=g) > 0.4).long()
    return Records(torch.cat([first[:, None], choice, binary[:, None], last[:, None]], 1), y)


def released(cfg: Config, task: Task, records: Records, seed: int) -> dict[str, Statistics]:
    job = Job("t", METHOD, cfg, task, 0)
    found = ask_once(job, State(0, {}), records, Key.seed(seed).noise(), key=Key.seed(seed))
    assert found.cost == marginals.plan(cfg, task)
    return dict(found.answer[0])  # type: ignore[arg-type]


def run(cfg: Config, task: Task, n: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    inbox = {site: released(cfg, task, some_records(n, i), i) for i, site in enumerate(task.sites)}
    items = METHOD.server(cfg, task, State(0, {}), inbox, Key.seed(5))
    made = items["synthetic"].tensors
    return made["x"], made["y"]


@pytest.mark.parametrize("fitter", ["copula", "auto"])
@pytest.mark.parametrize("sites", [1, 3])
def test_synthetic_records_are_like_the_real_ones(fitter: Any, sites: int) -> None:
    if fitter == "auto" and not graphical.installed():
        pytest.skip("needs mbi")
    cfg = Config(columns=WORDS, bins=8, sigma=1.0, fitter=fitter, samples=6000)
    x, y = run(cfg, some_task(sites))
    real = some_records(6000, 9)
    assert abs(float(y.double().mean()) - float(real.y.double().mean())) < 0.05
    mine, theirs = (torch.corrcoef(torch.cat([r[0], r[1][:, None].float()], 1).T) for r in ((x, y), (real.x, real.y)))
    # Eight bins over a range that the numbers fill to a third blur a correlation of 0.93 to 0.78.
    assert float((mine - theirs).abs().max()) < 0.2
    assert bool((x[:, 1:4].sum(1) == 1).all())
    assert bool(x.abs().le(1).all())


def test_the_sum_of_the_sites_is_what_is_fitted_and_a_huge_site_counts_twice_at_most() -> None:
    task, cfg = some_task(3), Config(columns=WORDS, bins=4, sigma=1.0)
    asked = marginals.questions_of(cfg, task)
    inbox = {site: released(cfg, task, some_records(2000, i), i) for i, site in enumerate(task.sites)}
    flat, noise = marginals.together(cfg, task, inbox, "counts", asked.sizes, asked.weights, round=0)
    assert noise == pytest.approx(math.sqrt(3))
    assert abs(graphical.total_of(asked.tables(flat, noise)[1].values()) - 6000) < 100
    counts = inbox["site-0"]["tables"].tensors["counts"]
    inbox["site-0"] = {"tables": Statistics({"counts": 1000 * counts})}
    flat, noise = marginals.together(cfg, task, inbox, "counts", asked.sizes, asked.weights, round=0)
    assert abs(graphical.total_of(asked.tables(flat, noise)[1].values()) - 8000) < 200


@pytest.mark.parametrize(
    "spoil",
    [lambda c: -c, lambda c: 100 * c, lambda c: c + 1e30, lambda c: torch.cat([c[:-1], c[-1:] - 1e6])],
    ids=["negative", "hundredfold", "1e30", "one cell"],
)
def test_tables_that_no_records_can_have_are_named(spoil: Any) -> None:
    task, cfg = some_task(5), Config(columns=WORDS, bins=4, sigma=1.0)
    job = Job("t", METHOD, cfg, task, 0)
    honest = released(cfg, task, some_records(2000), 0)
    assert METHOD.possible is not None
    assert METHOD.possible(cfg, task, State(0, {}), "site-0", honest) is None
    wrong = {"tables": Statistics({"counts": spoil(honest["tables"].tensors["counts"])})}
    assert METHOD.possible(cfg, task, State(0, {}), "site-0", wrong) is not None
    assert job.plan() == Cost.gaussian(1.0)


@pytest.mark.parametrize("round", [0, 1])
@pytest.mark.parametrize("table", [0, 3])
def test_one_table_that_outweighs_all_others_is_named(round: int, table: int) -> None:
    """Every table counts the same records. A site that hides one for many among honest ones would own that table."""
    task = some_task(5)
    cfg = Config(columns=WORDS, bins=4, sigma=1.0, rounds=2, further=4, further_cells=40)
    asked, state = marginals.questions_of(cfg, task), State(round, METHOD.init(cfg, task, Key.seed(0)))
    found = ask_once(Job("t", METHOD, cfg, task, 0), state, some_records(2000), Key.seed(1).noise(), key=Key.seed(1))
    name, sizes = ("counts", asked.sizes) if round == 0 else ("further", (40,) * 4)
    assert marginals.possible(cfg, task, state, "site-0", found.answer[0]) is None
    tensors = {key: value.clone() for key, value in found.answer[0]["tables"].tensors.items()}
    start = sum(sizes[:table])
    tensors[name][start : start + sizes[table]] *= 3
    why = marginals.possible(cfg, task, state, "site-0", {"tables": Statistics(tensors)})
    assert why is not None
    assert "one of its tables counts" in why


@pytest.mark.parametrize("records", [0, 1, 200, 4000])
@pytest.mark.parametrize("sigma", [0.01, 1.0, 300.0])
def test_honest_tables_are_never_named(records: int, sigma: float) -> None:
    cfg, task = Config(columns=WORDS, bins=16, sigma=sigma), some_task(5)
    for seed in range(3):
        honest = released(cfg, task, some_records(records, seed), seed)
        assert METHOD.possible is not None
        assert METHOD.possible(cfg, task, State(0, {}), "site-0", honest) is None


@pytest.mark.parametrize(
    ("cliques", "words"),
    [
        ((("age", "nothing"),), "Unknown column 'nothing'"),
        ((("99", "0"),), "Unknown column '99'"),
        ((("age", "age"),), "2 or 3 different columns"),
        ((("age",),), "2 or 3 different columns"),
        ((("age", "job", "sick", "pay"),), "2 or 3 different columns"),
    ],
)
def test_cliques_that_cannot_be_are_refused_before_anything_is_spent(cliques: Any, words: str) -> None:
    cfg = Config(columns=WORDS, names=("age", "job", "sick", "pay"), cliques=cliques)
    with pytest.raises(UserError, match=words):
        METHOD.init(cfg, some_task(), Key.seed(0))


def test_declared_cliques_go_by_names_and_duplicates_count_once() -> None:
    given = (("job", "age"), ("age", "job"), ("0", "label"), ("age", "pay", "label"))
    asked = marginals.questions_of(
        Config(columns=WORDS, names=("age", "job", "sick", "pay"), cliques=given), some_task()
    )
    assert asked.cliques[4:] == ((0, 1), (0, 3, 4))


def test_a_domain_that_is_too_large_is_one_line_with_names_and_sizes() -> None:
    cfg = Config(columns=("c900", "c900", "c900"), names=("zip", "job", "code"), cliques=(("zip", "job", "code"),))
    task = Task("own", (2700,), ("no", "yes"), ("a",), 1000)
    with pytest.raises(UserError, match=r"zip \(900\) x job \(900\) x code \(900\)") as error:
        METHOD.init(cfg, task, Key.seed(0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"got 60,\d+ for single columns by 2 classes alone; the largest: zip \(30,000 places\)"),
        ({"bins": 256, "model_cells": 1000}, "use fewer bins"),
        ({"cliques": (("age", "zip"),), "model_cells": 100_000}, "for the clique age x zip by 2 classes alone"),
    ],
)
def test_a_model_that_is_too_large_is_named_before_anything_is_spent(
    settings: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs with the label are in every model, so they count, whatever else is asked."""
    monkeypatch.setattr(graphical, "installed", lambda: True)
    task = Task("own", (30_001,), ("no", "yes"), ("a",), 1000)
    cfg = Config(**{"columns": ("n", "c30000"), "names": ("age", "zip"), "cliques": (), **settings})
    with pytest.raises(UserError, match=words) as error:
        METHOD.init(cfg, task, Key.seed(0))
    assert "\n" not in str(error.value)
    assert METHOD.init(cfg.model_copy(update={"model_cells": 5_000_000}), task, Key.seed(0)) == {}
    assert METHOD.init(cfg.model_copy(update={"fitter": "copula"}), task, Key.seed(0)) == {}


def test_bins_and_tables_follow_from_public_numbers() -> None:
    small, large = (
        marginals.auto(Wanted({"columns": WORDS}, some_task(2, records), 1.0)).settings for records in (200, 200_000)
    )
    assert small["bins"] < large["bins"]
    assert small["pair_cells"] < large["pair_cells"]
    assert marginals.auto(Wanted({"columns": WORDS, "bins": 5}, some_task(2), 1.0)).settings.keys() == {"pair_cells"}
    alone, secure = (
        marginals.auto(Wanted({"columns": WORDS}, some_task(50, 100), 1.0, secure)).settings["pair_cells"]
        for secure in (False, True)
    )
    assert alone < secure


def test_without_the_fitter_it_says_that_there_will_be_a_copula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphical, "installed", lambda: False)
    assert METHOD.advice is not None
    assert "prismfl[tables]" in METHOD.advice(Config(sigma=1.0), some_task())[0]
    assert METHOD.advice(Config(sigma=1.0, fitter="copula"), some_task()) == []


def test_one_record_and_none_have_the_same_face() -> None:
    shapes = [
        answer("dp-marginals", records=of_law(24, seed=0, table=True).take(torch.arange(n))).shapes()
        for n in (0, 1, 24)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_tables_go_through_a_secure_sum(tmp_path: Path) -> None:
    """The server reads the sum alone, with one site's noise in it."""
    out = str(tmp_path / "run")
    found = prismfl.run(
        "dp-marginals", data="breast-cancer", sites=3, epsilon=20.0, secure={"quorum": 3}, out=out, fitter="copula"
    )
    assert found.epsilon == pytest.approx(20.0, rel=0.03)
    assert found.tables["useful"]["logistic regression"]["auc"] > 80
