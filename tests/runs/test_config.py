"""What a run is asked to be: files, overrides, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs.config import RunConfig, check, merge, read, validate

SETTINGS = METHODS["dp-fedavg"].settings


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", 'method = "fedavg"\nsites = 3\n[settings]\nlr = 0.5\n'),
        ("c.yaml", "method: fedavg\nsites: 3\nsettings: {lr: 0.5}\n"),
        ("c.json", '{"method": "fedavg", "sites": 3, "settings": {"lr": 0.5}}'),
    ],
)
def test_toml_yaml_and_json_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name) == {"method": "fedavg", "sites": 3, "settings": {"lr": 0.5}}


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path / "none.toml")
    assert str(error.value) == f"No config file '{tmp_path / 'none.toml'}'."


def test_a_missing_preset_has_the_nearest_one(tmp_path: Path) -> None:
    folder = tmp_path / "presets" / "demo"
    folder.mkdir(parents=True)
    (folder / "quick.toml").write_text("")
    with pytest.raises(UserError) as error:
        read(folder / "quik.toml")
    assert str(error.value) == f"No config file '{folder / 'quik.toml'}'; did you mean '{folder / 'quick.toml'}'?"


def test_a_file_without_settings_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("- 1\n")
    with pytest.raises(UserError) as error:
        read(tmp_path / "c.yaml")
    assert str(error.value) == f"'{tmp_path / 'c.yaml'}' does not hold settings (key = value)."


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("sites=7", {"sites": 7, "settings": {}}),
        ("epsilon=1.5", {"epsilon": 1.5, "settings": {}}),
        ("method=prism", {"method": "prism", "settings": {}}),
        ("steps=3", {"settings": {"steps": 3}}),
        ("settings.steps=3", {"settings": {"steps": 3}}),
        (" settings.lr = 0.1", {"settings": {"lr": 0.1}}),
        ("secure.quorum=2", {"secure": {"quorum": 2}, "settings": {}}),
        ("classes=[a, b]", {"classes": ["a", "b"], "settings": {}}),
        ("public=x=y", {"public": "x=y", "settings": {}}),
    ],
)
def test_overrides(override: str, expected: dict[str, Any]) -> None:
    assert merge({}, [override], settings=SETTINGS) == expected


def test_later_overrides_win_and_the_base_is_left_alone() -> None:
    base = {"sites": 2, "settings": {"lr": 1.0}}
    merged = merge(base, ["sites=3", "lr=2.0", "lr=3.0"], settings=SETTINGS)
    assert merged == {"sites": 3, "settings": {"lr": 3.0}}
    assert base == {"sites": 2, "settings": {"lr": 1.0}}


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sites", "Expected --set key=value, got 'sites'."),
        ("sites.x=1", "'sites' in --set sites.x is not a group of settings."),
        ("lr=[", "The value of --set lr is not well-formed: "),
    ],
)
def test_overrides_that_cannot_be(override: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        merge({"sites": 2}, [override], settings=SETTINGS)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"epsylon": 1}, "Unknown key 'epsylon' in the config; did you mean 'epsilon'?"),
        ({"sites": 0}, "Bad value for 'sites' in the config: Input should be greater than or equal to 1, got 0."),
        ({"channels": 2}, "Bad value for 'channels' in the config: Input should be 1 or 3, got 2."),
        (
            {"secure": {"quorum": 1}},
            "Bad value for 'secure.quorum' in the config: Input should be greater than or equal to 2, got 1.",
        ),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as error:
        validate(RunConfig, values, "the config")
    assert str(error.value) == line


def test_a_far_key_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"^Unknown key 'zzz' in the settings; known: .*rounds"):
        validate(SETTINGS, {"zzz": 1}, "the settings")


def test_good_values_become_a_config() -> None:
    config = validate(RunConfig, {"method": "fedavg", "sites": 3}, "the config")
    assert isinstance(config, RunConfig)
    assert (config.method, config.sites, config.delta) == ("fedavg", 3, 1e-5)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"epsilon": 0.0}, "Expected epsilon > 0 (--epsilon), got 0.0."),
        ({"epsilon": float("inf")}, "Expected epsilon > 0 (--epsilon), got inf."),
        ({"epsilon": 1.0, "settings": {"sigma": 2.0}}, "Give --epsilon or sigma, not both (got 1.0 and 2.0)."),
        ({"delta": 0.0}, "Expected delta in (0, 1) (--delta), got 0.0."),
        ({"delta": 1.0}, "Expected delta in (0, 1) (--delta), got 1.0."),
        ({"cap": -1.0}, "Expected cap > 0 (--cap), got -1.0."),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as error:
        check(RunConfig(**values))
    assert str(error.value) == line


def test_what_can_be_passes() -> None:
    check(RunConfig(epsilon=1.0, delta=1e-6, cap=5.0))
