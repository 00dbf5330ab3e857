"""Bugs between the file and the door: positions, ranks, ids in two forms, records opened for a plan, open-ended reads."""

# ruff: noqa: E501  (a planted line is quoted as it stands)

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.data import Schema, archive, columns, ids, made, owners, prints, schema_file
from prismfl.data import files as own_files
from prismfl.files import bounded as files
from prismfl.runs import planning, setting_up
from tests.data import test_facts as facts_tests
from tests.data import test_files as file_tests
from tests.data import test_ids as id_tests
from tests.data import test_limits as limit_tests
from tests.data import test_made as made_tests
from tests.data import test_prints as print_tests
from tests.data import test_schema as schema_tests
from tests.hostile import test_facts as bad_tests
from tests.laws import test_neighbours as neighbours
from tests.mutations.planting import Bug, Check
from tests.runs import test_setting_up as setting_up_tests


def at(test: object, *arguments: object) -> Check:
    """A test that takes its arguments and a folder."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(*arguments, folder)  # type: ignore[operator]

    return check


def plain(test: object, *arguments: object) -> Check:
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


one_less = neighbours.test_one_less_in_the_file_is_that_one_less_at_its_site

BUGS = [
    Bug(
        "a set-up looks at records unasked",
        setting_up,
        "set_up",
        'unit=None if unit == "record" else unit) if allowed else',
        'unit=None if unit == "record" else unit) if True else',
        at(setting_up_tests.test_no_record_is_opened_unless_it_is_allowed),
    ),
    Bug(
        "a missing number is taken for the middle of its bounds",
        Schema,
        "values",
        "np.where(part[:, 1] > 0.5, np.nan, numbers) if column.may_miss else numbers",
        "numbers",
        plain(schema_tests.test_a_missing_value_is_a_value_of_its_own_by_hand),
    ),
    Bug(
        "a unit's rows are counted over everybody",
        Schema,
        "_rows",
        "sizes[inverse]",
        "np.full(count, sizes.max())",
        plain(made_tests.test_the_number_of_rows_is_the_units_own),
    ),
    Bug(
        "a bad record counts among its unit's rows",
        Schema,
        "_rows",
        "inverse[faults.kept(count)]",
        "inverse",
        at(bad_tests.test_a_bad_record_changes_nothing_but_itself, "csv: no date of a kind"),
    ),
    Bug(
        "every row of a unit has its own sex",
        made,
        "_in_units",
        "cells[base if name in constant else source]",
        "cells[source]",
        plain(made_tests.test_what_is_the_same_in_a_unit_stays_the_same_and_the_rest_does_not),
    ),
    Bug(
        "rules are kept before units are put together only",
        made,
        "made_table",
        "values = keeper.enforce(values, fixed=constant)",
        "pass",
        plain(made_tests.test_rules_hold_within_units_too),
    ),
    Bug(
        "hold-out by position",
        own_files,
        "_held_out",
        "names = records.prints if records.unit is None else records.unit.tolist()",
        "names = [str(i) for i in range(len(records.y))]",
        at(one_less, "csv", "iid", "record"),
    ),
    Bug(
        "sites hold records out by default",
        own_files,
        "load_path",
        "test_fraction: float = 0.0",
        "test_fraction: float = 0.2",
        at(neighbours.test_a_site_that_declares_no_test_part_puts_nothing_aside),
    ),
    Bug(
        "site by position",
        owners,
        "owners",
        'place_of(f"prismfl site {seed}", one) for one in identity',
        'place_of(f"prismfl site {seed}", str(i)) for i, one in enumerate(identity)',
        at(one_less, "npz", "dirichlet(0.3)", "record"),
    ),
    Bug(
        "site shares from the number of records",
        owners,
        "owners",
        "rng = generator(seed)",
        "rng = generator(seed + len(y))",
        at(one_less, "folder", "pathological(2)", "record"),
    ),
    Bug(
        "hospitals dealt by their sizes",
        owners,
        "_natural",
        "return np.asarray(codes % sites, dtype=np.int64)",
        "return np.argsort(np.argsort(-np.bincount(codes), kind='stable'))[codes] % sites",
        at(one_less, "csv", "natural(clinic)", "patient"),
    ),
    Bug(
        "a patient dealt by each record's own label",
        owners,
        "owners",
        "label = _common_labels(y, identity, classes)",
        "label = y",
        at(neighbours.test_a_patient_lies_at_one_site, "csv", "pathological(2)"),
    ),
    Bug(
        "a patient under two hospitals",
        own_files,
        "check_units",
        "!= home",
        "is None",
        at(file_tests.test_a_unit_under_two_natural_ids_is_refused_without_naming_it),
    ),
    Bug(
        "unit codes are ranks",
        ids,
        "codes_of",
        "return np.array([known[i] if i in known else known.setdefault(i, unit_code(i)) for i in ids], dtype=np.int64)",
        "return np.unique(list(ids), return_inverse=True)[1].astype(np.int64)",
        at(one_less, "parquet", "shards(2)", "patient"),
    ),
    Bug(
        "ids '1' and '01' are two people",
        ids,
        "canonical_id",
        "return canonical_number(text) or text",
        "return text",
        plain(id_tests.test_one_person_written_in_several_ways_is_one, ["1", "01"]),
    ),
    Bug(
        "invisible characters make another person",
        ids,
        "_character",
        'if category in ("Cf", "Cc") or character in _UNSEEN:',
        "if False:",
        plain(id_tests.test_one_person_written_in_several_ways_is_one, ["Zoe", "Zo\u200be"]),
    ),
    Bug(
        "float ids beyond 2**53",
        ids,
        "canonical_id",
        "if not (whole.is_integer() and abs(whole) < exact):",
        "if not whole.is_integer():",
        plain(id_tests.test_floats_that_may_stand_for_several_people_are_refused, 2.0**53),
    ),
    Bug(
        "a re-encoded picture is new data",
        prints,
        "picture_print",
        "if (shown == shown[:1]).all():",
        "if len(shown) == 1:",
        at(print_tests.test_a_picture_is_the_same_in_any_file),
    ),
    Bug(
        "a row's print goes by the order of its columns",
        prints,
        "row_prints",
        "_joined(sorted(zip(names, row)))",
        "_joined(list(zip(names, row)))",
        at(print_tests.test_a_row_is_the_same_in_any_file),
    ),
    Bug(
        "the plan reads the records",
        planning,
        "plan",
        "declared_spec(config)",
        "__import__('prismfl.runs.records', fromlist=['x']).read_data(config).spec",
        at(facts_tests.test_plan_opens_no_record_and_says_what_the_run_costs, "csv"),
    ),
    Bug(
        "a pipe is read as a file",
        files,
        "_check",
        "if not stat.S_ISREG(found.st_mode):",
        "if stat.S_ISDIR(found.st_mode):",
        at(limit_tests.test_what_is_no_regular_file_is_refused_without_waiting, "pipe", "t.csv"),
    ),
    Bug(
        "an array header is believed",
        archive,
        "_form",
        "> info.file_size",
        "> 2**70",
        at(limit_tests.test_a_lying_array_header_is_refused_before_room_is_made, limit_tests.header((2**40, 2))),
    ),
    Bug(
        "any number of columns",
        columns,
        "check_columns",
        "if len(names) > MOST_COLUMNS:",
        "if not names:",
        at(limit_tests.test_tables_are_bounded_in_columns_and_bytes),
    ),
    Bug(
        "YAML aliases multiply",
        schema_file,
        "read_content",
        "yaml.load(text, _Bounded)",
        "yaml.safe_load(text)",
        at(limit_tests.test_schema_files_are_bounded, "s.yaml", "a: &a [x]\nb: [*a,*a]\n", r"\(\*name\)"),
    ),
]
