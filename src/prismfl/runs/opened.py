"""A run directory, read and left as it is: what was asked, what crossed, what was measured, what came of it.

It may come from anybody: no code that it names is imported, and what it does not hold is one clear line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from prismfl.core.method import Method, State
from prismfl.core.payloads import SyntheticSet
from prismfl.core.release import Release
from prismfl.errors import PrismError, UserError
from prismfl.files import inside as run_files
from prismfl.runs import html
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import MOST_PAYLOAD_BYTES, Message, RunDirectory, digest
from prismfl.runs.fitted import FittedModel, Shelf, open_shelf
from prismfl.runs.planning import find_method
from prismfl.runs.public_facts import read_facts
from prismfl.runs.result import Result
from prismfl.runs.synthetic_table import table_of


@dataclass(frozen=True)
class Run:
    """A run, finished or not. Each attribute is read from the directory when it is asked for."""

    directory: RunDirectory

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.directory.path

    @property
    def status(self) -> str:
        """running, finished or failed."""
        return self.directory.status

    @property
    def config(self) -> RunConfig:
        """What was asked for, with everything that was decided at the start."""
        return read_config(self.directory)[1]

    @property
    def method(self) -> Method:
        """The method, if it is one of prismfl's own; code that a folder names is not imported."""
        return find_method(self.config.method)

    @property
    def result(self) -> Result | None:
        """The result, once the run has finished."""
        return read_result(self.directory) if self.status == "finished" else None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was measured after each round, a row a round."""
        return self.directory.metrics()

    @property
    def messages(self) -> list[Message]:
        """Everything that crossed, in order: round (the first is 0), site, direction, bytes, digest."""
        return self.directory.messages()

    @property
    def state(self) -> State | None:
        """What the server holds: after the last round its final items, the model say. None before the first."""
        return self.directory.load_state()

    @property
    def synthetic(self) -> SyntheticSet | None:
        """The synthetic records that the server holds, where the method makes any."""
        state = self.state
        made = None if state is None else state.items.get("synthetic")
        return made if isinstance(made, SyntheticSet) else None

    @property
    def model(self) -> FittedModel:
        """The recommended model, to be used: `model.predict(X)`, `model.predict_proba(X)`, `model.classes_`."""
        return self._shelf.take()

    @property
    def models(self) -> dict[str, FittedModel]:
        """Every model of the finished run, by name."""
        return self._shelf.every()

    def model_named(self, name: str) -> FittedModel:
        """One of its models: PRISM has a network, a head and a linear one."""
        return self._shelf.take(name)

    @cached_property
    def _shelf(self) -> Shelf:
        return open_shelf(self.directory, *read_config(self.directory))

    @property
    def accuracy(self) -> float | None:
        """The test accuracy of the recommended model in percent, once the run has finished."""
        return None if self.result is None else self.result.accuracy

    @property
    def epsilon(self) -> float | None:
        """What the finished run cost; None is no guarantee, or no result yet."""
        return None if self.result is None else self.result.epsilon

    @property
    def table(self) -> list[dict[str, Any]]:
        """What was measured after each round, as rows of the same columns: `pandas.DataFrame(run.table)`."""
        names = ("round", "accuracy", "epsilon", "seconds")
        return [{name: row.get(name) for name in names} for row in self.metrics]

    @property
    def columns(self) -> dict[str, list[Any]] | None:
        """The synthetic records of a table in its own columns and units: `pandas.DataFrame(run.columns)`."""
        made, facts = self.synthetic, read_facts(self.directory, self.config)
        if made is None or facts.schema is None or tuple(made.x.shape[1:]) != facts.shape:
            return None
        return {name: list(cells) for name, cells in table_of(made, facts.schema).items()}

    def __repr__(self) -> str:
        said = repr(self.result).removeprefix("<Result ").removesuffix(">") if self.status == "finished" else self.path
        return f"<Run {self.status}; {said}>"

    def _repr_html_(self) -> str:
        result = self.result
        if result is None:
            title = html.facts_table(f"Run ({self.status})", [("directory", self.path)])
        else:
            told = {**result.as_dict(), "run_dir": str(self.path)}
            title = html.facts_table("Run", html.result_facts(told))
        rounds = [{k: _short(v) for k, v in row.items()} for row in self.table]
        return title + html.grid_table(rounds) + self._records_html() + html.sample_picture(self.path)

    def _records_html(self) -> str:
        """A few synthetic records of a table; a folder that does not hold what it says has none."""
        try:
            return html.columns_table(self.columns or {})
        except PrismError:
            return ""

    def release(self, site: str, round: int) -> Release:
        """What a site sent in a round (the first is 0): its items, their cost, and where the noise came from."""
        sent = [m for m in self.messages if m.direction == "up"]
        if not sent and self.directory.metrics():
            raise UserError(f"'{self.path}' kept no message (transcript = none); run again with --set transcript=full.")
        found = next((m for m in sent if (m.site, m.round) == (site, round)), None)
        if found is None:
            known = ", ".join(sorted({m.site for m in sent if m.round == round})) or "nobody"
            raise UserError(f"No release of '{site}' in round {round} of '{self.path}'; in that round sent: {known}.")
        if found.file is None:
            raise UserError(f"The run kept only the digest of round {round}; run again with --set transcript=full.")
        try:
            raw = run_files.read_bytes(self.path, found.file, most=MOST_PAYLOAD_BYTES)
        except FileNotFoundError:
            raise UserError(f"'{self.path / found.file}' is gone: the release was kept there.") from None
        if digest(raw) != found.digest:
            raise UserError(f"'{self.path / found.file}' is not what crossed: it has another digest.")
        return Release.decode(raw)


def _short(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def open_run(path: str | Path) -> Run:
    """The run in a directory, to be read."""
    return Run(RunDirectory.open(Path(path)))


def read_config(directory: RunDirectory) -> tuple[str, RunConfig]:
    """A run's name, and what was asked of it."""
    stored = directory.read_json("config.json")
    if not isinstance(stored.get("run"), str):
        raise UserError(f"'{directory.path / 'config.json'}' does not name its run.")
    asked = {key: value for key, value in stored.items() if key not in ("run", "created")}
    config: RunConfig = validate(RunConfig, asked, str(directory.path / "config.json"))
    return stored["run"], config


def read_result(directory: RunDirectory) -> Result:
    """The result of a finished run."""
    stored, known = directory.read_json("result.json"), {field.name for field in fields(Result)}
    try:
        return TypeAdapter(Result).validate_python({key: value for key, value in stored.items() if key in known})
    except ValidationError as error:
        first = error.errors()[0]
        key, place = ".".join(str(part) for part in first["loc"]), directory.path / "result.json"
        raise UserError(f"Bad value for '{key}' in {place}: {first['msg']}.") from None
