"""Planted bugs of a site's folder, its log, and the decoders of what others wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl import errors
from prismfl.core import payloads, wire
from prismfl.files import atomic
from prismfl.files import bounded as files
from prismfl.site import folder as site_folder
from prismfl.site.office import Office
from tests import test_files as file_tests
from tests.core import test_payloads as wire_tests
from tests.mutations.planting import Bug, Check
from tests.site import test_folder as folder_tests


def in_folder(test: object, *arguments: object) -> Check:
    """A test that takes a folder last."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True)
        test(*arguments, folder)  # type: ignore[operator]

    return check


def patched(test: object, *arguments: object) -> Check:
    """A test that takes a monkeypatch last."""
    return lambda folder, monkeypatch: test(*arguments, monkeypatch)  # type: ignore[operator]


def both(test: object) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True)
        test(folder, monkeypatch)  # type: ignore[operator]

    return check


def plain(test: object, *arguments: object) -> Check:
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


first_moment = both(folder_tests.test_a_file_is_closed_from_its_first_moment)
rotated = in_folder(folder_tests.test_rotated_logs_are_closed_too_and_lines_stay_lines)
log_words = plain(folder_tests.test_words_for_a_log_quote_no_cell)
out_of_bounds = wire_tests.test_what_is_out_of_bounds_is_refused_before_any_tensor_is_made

BUGS = [
    Bug(
        "a site's new file is open to others",
        atomic,
        "opener",
        "0o666 & _mask(Path(path).parent)",
        "0o666",
        first_moment,
    ),
    Bug(
        "a site's new folder is open to others",
        atomic,
        "make_folder",
        "0o777 & _mask(path.parent)",
        "0o777",
        first_moment,
    ),
    Bug(
        "an open site folder stays open",
        site_folder,
        "_close",
        "path.chmod(stat.S_IMODE(mode) & ~OTHERS)",
        "pass",
        in_folder(folder_tests.test_an_open_site_folder_is_closed_and_nothing_else),
    ),
    Bug(
        "closing a site follows links out of it",
        site_folder,
        "_own",
        " if not path.is_symlink()",
        "",
        in_folder(folder_tests.test_an_open_site_folder_is_closed_and_nothing_else),
    ),
    Bug(
        "any folder given to `site` is closed",
        site_folder,
        "close_site",
        "not (folder / FILE).is_file()",
        "False",
        in_folder(folder_tests.test_a_folder_that_is_no_site_is_left_alone),
    ),
    Bug("a rotated log is open to others", site_folder.SiteLog, "_open", ", opener=opener", "", rotated),
    Bug("a name breaks the log's lines", site_folder, "printable", 'c if c.isprintable() else " "', "c", rotated),
    Bug(
        "the log quotes the cell",
        errors,
        "words_for_log",
        "return error.without_values",
        "return str(error)",
        log_words,
    ),
    Bug(
        "the log quotes a library's exception",
        errors,
        "words_for_log",
        "isinstance(error, PrismError) and not reads_data",
        "True",
        log_words,
    ),
    Bug(
        "the office logs an exception's words",
        Office,
        "answer",
        "            words = words_for_log(error)",
        "            words = str(error)",
        both(folder_tests.test_of_a_foreign_exception_the_log_tells_type_and_place),
    ),
    Bug(
        "a pipe is read",
        files,
        "_check",
        "if not stat.S_ISREG(found.st_mode):",
        "if stat.S_ISDIR(found.st_mode):",
        in_folder(file_tests.test_only_regular_files_of_bounded_size_are_read),
    ),
    Bug(
        "YAML aliases are followed",
        files,
        "load_yaml",
        'isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None',
        "False",
        in_folder(file_tests.test_yaml_is_bounded, "aliases"),
    ),
    Bug(
        "YAML is as deep as it likes",
        files,
        "load_yaml",
        "depth > DEPTH",
        "depth > 2 * DEPTH",
        in_folder(file_tests.test_yaml_is_bounded, "33 deep"),
    ),
    Bug(
        "a TOML key has any number of parts",
        files,
        "load_toml",
        'part.count(".") > KEY_PARTS',
        "False",
        in_folder(file_tests.test_toml_is_bounded, "a key of 40 parts"),
    ),
    Bug(
        "a JSON key may stand twice",
        files,
        "_once",
        "len(found) != len(pairs)",
        "False",
        patched(out_of_bounds, "a key twice"),
    ),
    Bug(
        "a JSON number may be infinite",
        files,
        "_finite",
        "not math.isfinite(value)",
        "False",
        patched(out_of_bounds, "not finite"),
    ),
    Bug(
        "a spec is as deep as it likes",
        files,
        "load_json",
        "range(depth + 1)",
        "range(1000)",
        patched(out_of_bounds, "a deep spec"),
    ),
    Bug(
        "a message has any number of tensors",
        wire,
        "_check_tensors",
        "len(tensors) > TENSORS",
        "False",
        patched(out_of_bounds, "10,001 tensors"),
    ),
    Bug(
        "a message has any number of items",
        wire,
        "_check_items",
        "len(items) > ITEMS",
        "False",
        patched(out_of_bounds, "65 items"),
    ),
    Bug(
        "a spec is as large as it likes",
        wire,
        "_check_json",
        "size > limit",
        "False",
        patched(out_of_bounds, "a long spec"),
    ),
    Bug(
        "a tensor need not be as large as its shape",
        wire,
        "_check_tensors",
        "end - begin != count * SIZES[dtype]",
        "False",
        patched(out_of_bounds, "a shape larger than its bytes"),
    ),
    Bug(
        "true counts as a whole number",
        wire,
        "whole",
        "type(value) is not int",
        "not isinstance(value, int)",
        plain(wire_tests.test_a_release_with_a_bad_header_is_malformed, "round is true"),
    ),
    Bug(
        "a refusal quotes the sender's names",
        payloads,
        "_payload",
        'WireError("Message has an item with',
        'WireError(f"Message has {[*tensors]} with',
        plain(wire_tests.test_a_refusal_quotes_nothing),
    ),
]
