"""Which methods a name from elsewhere can mean: ours, and nothing is imported for it."""

from __future__ import annotations

import pytest

from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs import planning
from prismfl.runs.config import RunConfig
from tests.runs import foreign_method


def test_our_names_are_found() -> None:
    assert {name for name in METHODS if planning.find_method(name) is not METHODS[name]} == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedavgg", "Unknown method 'fedavgg' (--method); did you mean 'fedavg'?"),
        ("quite else", "Unknown method 'quite else' (--method); known: prism"),
        ("tests.runs.foreign_method:METHOD", "only run, plan and resume import code"),
        (":their-average", "only run, plan and resume import code"),
        ("x:" + "y" * 1000, "only run, plan and resume import code"),
    ],
)
def test_everything_else_is_one_clear_line(name: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        planning.find_method(name)
    assert words in str(error.value)
    assert len(str(error.value)) < 1000


def test_a_plan_of_a_method_that_is_handed_over() -> None:
    """A config's words alone do not bring it: whoever plans hands the method over."""
    config = RunConfig(method="tests.runs.foreign_method:METHOD", data="digits")
    with pytest.raises(UserError, match="import code"):
        planning.plan(config)
    assert planning.plan(config, foreign_method.METHOD).method == "their-average"


def test_settings_are_checked_against_the_method_that_is_meant() -> None:
    with pytest.raises(UserError, match="Unknown key 'epochz' in the settings of their-average; did you mean 'epochs'"):
        planning.configure({"method": "a:B", "epochz": 3}, foreign_method.METHOD)
