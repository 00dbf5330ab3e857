"""Bugs in what a site reads: a bad record that raises, that drags others along, or that a request could see."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.data import arrays, cells, columns, files, ids, patient_files, schema
from prismfl.site import config as site_config
from prismfl.site import data as site_data
from prismfl.site import policy
from tests.data import test_faults as fault_tests
from tests.data import test_patient_files as patient_tests
from tests.hostile import test_facts as facts_tests
from tests.mutations.planting import Bug, Check
from tests.site import test_data as site_tests
from tests.site import test_patients as patients_tests


def at(test: object, *arguments: object) -> Check:
    """A test that takes its arguments and a folder."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        site_data._snapshot.cache_clear()
        test(*arguments, folder)  # type: ignore[operator]

    return check


def named_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that names other parts than the site's own."""
    patients_tests.test_parts_that_a_server_names_are_not_taken(folder, "language")


alone = facts_tests.test_a_bad_record_changes_nothing_but_itself

BUGS = [
    Bug(
        "a site reads like a person: the bad record raises",
        files,
        "load_path",
        "faults = Faults(lenient=lenient)",
        "faults = Faults()",
        at(alone, "csv: text"),
    ),
    Bug(
        "an open quote swallows the records below it",
        columns,
        "read_csv",
        "_line_by_line(lines, form) if noted.lenient else csv.reader(lines, **form)",
        "csv.reader(lines, **form)",
        at(alone, "csv: open quote"),
    ),
    Bug(
        "one byte that is no text spoils the file",
        columns,
        "_text",
        "if lenient else _decoded",
        "if False else _decoded",
        at(alone, "csv: not UTF-8"),
    ),
    Bug(
        "one cell of text renames the others' categories",
        cells,
        "value_of",
        "return value if math.isfinite(value) else None",
        "return None",
        at(alone, "parquet: category as text of floats"),
    ),
    Bug(
        "one text makes all labels names",
        arrays,
        "labels",
        "faults.lenient or flat",
        "flat",
        at(alone, "npz table: label as text"),
    ),
    Bug(
        "one NaN is read as a value",
        arrays,
        "features",
        'if x.dtype.kind == "f" else np.empty((0, x.ndim), dtype=np.int64)',
        "if False else np.empty((0, x.ndim), dtype=np.int64)",
        at(alone, "npz table: nan"),
    ),
    Bug(
        "an unsafe id raises",
        ids,
        "_id_or_error",
        "return error",
        "raise",
        at(alone, "parquet: patient between two"),
    ),
    Bug(
        "a request opens the site's data",
        site_data,
        "load",
        'if note is not None and note["shaped_by"] == _shaped_by(config, spec):',
        'if stale(folder, config) is None and note is not None and open(config.data, "rb").close() is None:',
        at(facts_tests.test_a_request_opens_no_file_of_the_data, "csv: text"),
    ),
    Bug(
        "a snapshot is believed as it lies",
        site_data,
        "_intact",
        'if whole and hashlib.file_digest(file, "sha256").hexdigest() == digest:',
        "if whole:",
        at(site_tests.test_a_damaged_snapshot_is_made_anew, "records.safetensors", "flipped"),
    ),
    Bug(
        "a mapped snapshot is believed for ever",
        site_data,
        "load",
        "_look(path))",
        "())",
        at(site_tests.test_a_snapshot_that_changes_in_mid_run_is_not_believed, "changed"),
    ),
    Bug(
        "other bounds, the same snapshot",
        site_data,
        "_shaped_by",
        '{"schema": schema, "facts": asdict(spec)}',
        '{"facts": asdict(spec)}',
        at(site_tests.test_other_words_of_the_site_are_another_reading),
    ),
    Bug(
        "the number of records is a fact",
        site_data,
        "read",
        "records, prints = Records(x, found.y_train, unit), [",
        "spec, records, prints = found.spec, Records(x, found.y_train, unit), [",
        at(facts_tests.test_no_record_is_as_good_as_any_number, "folder"),
    ),
    Bug(
        "private pictures under a public name",
        site_config,
        "_check_public",
        "if own.exists() and (place.is_relative_to(own) or own.is_relative_to(place)):",
        "if own == place:",
        at(site_tests.test_private_pictures_are_not_public_under_another_name),
    ),
    Bug(
        "a log quotes the label",
        schema,
        "class_codes",
        'without_values=f"The label {rest}"',
        "without_values=f\"Label '{plain(value)}' {rest}\"",
        at(fault_tests.test_logs_do_not_quote_the_cell_that_people_see, "ill"),
    ),
    Bug(
        "the table itself is somebody's report",
        patient_files,
        "_file",
        """or path.suffix.lower() != ".txt":""",
        "or not path.is_file():",
        at(patient_tests.test_a_text_cell_names_no_file_that_holds_other_records),
    ),
    Bug(
        "a server names the parts of a record",
        policy,
        "_same_parts",
        "return json.dumps(spec[",
        "return True or json.dumps(spec[",
        named_parts,
    ),
]
