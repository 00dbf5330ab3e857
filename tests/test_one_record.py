"""One record's way from disk to wire is the one that the documentation shows: few files, all in one direction."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import prismfl
from prismfl.core.payloads import encode
from prismfl.core.rounds import initial_state
from prismfl.runs.config import RunConfig
from prismfl.runs.description import declared, describe, job_of
from prismfl.site.config import SiteConfig
from prismfl.site.office import Office
from prismfl.transport.post import Answer, Request

ROOT = Path(prismfl.__file__).parent
PAGE = Path(__file__).parents[1] / "docs/explanation/the-door.md"
SCHEMA = """
label = "ill"
classes = ["no", "yes"]
train_size = 40
[[columns]]
name = "age"
min = 0
max = 120
[[columns]]
name = "pulse"
min = 0
max = 250
"""


def way() -> list[str]:
    """The files of the documented way, in order."""
    section = PAGE.read_text().partition("## One record's way")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \|", section, flags=re.MULTILINE)


def a_site(folder: Path) -> Office:
    (folder / "schema.toml").write_text(SCHEMA)
    rows = "".join(f"{20 + i},{60 + i},{'yes' if i % 3 else 'no'}\n" for i in range(40))
    (folder / "table.csv").write_text(f"age,pulse,ill\n{rows}")
    config = SiteConfig(
        name="north",
        data=str(folder / "table.csv"),
        label="ill",
        schema_file=str(folder / "schema.toml"),
        cap="none",
        methods=["dp-fedavg"],
        releases=["weights"],
    )
    return Office(folder, config)


def visited(call: Callable[[], object]) -> list[str]:
    """The files of prismfl whose functions were entered, in the order of their first time."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(ROOT)):
            found.setdefault(Path(name).relative_to(ROOT).as_posix())

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def test_the_way_is_short() -> None:
    files = way()
    assert 8 <= len(files) <= 12
    assert all((ROOT / file).is_file() for file in files)


def test_a_record_takes_the_documented_way(tmp_path: Path) -> None:
    """Read and asked once: every file of the way is entered, the readers before the door, the release last."""
    office = a_site(tmp_path)
    config = RunConfig(
        method="dp-fedavg", data="table", schema_file=str(tmp_path / "schema.toml"), sites=1, records=40, epsilon=5.0,
        model="logreg", settings={"rounds": 1, "steps": 1, "batch": 10.0},
    )  # fmt: skip
    spec, schema = declared(config)
    description = describe(config, spec, ["north"], schema=schema)
    state = encode(initial_state(job_of(description)).items, {"round": 0})
    answers: list[Answer] = []
    read = visited(office.preload)
    asked = visited(lambda: answers.append(office.answer(Request("round", description, 0, 60.0, state))))
    assert answers[0].kind == "release"
    files = way()
    assert [file for file in files if file not in (*read, *asked)] == []
    assert all(file in read for file in files if file.startswith("data/"))
    late = ("site/office.py", "core/rounds.py", "core/door.py", "kernels/clipped_gradients.py", "core/release.py")
    assert [file for file in files if file in late] == list(late) == sorted(late, key=asked.index)
