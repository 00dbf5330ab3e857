"""Every message about what a user gave says what to mend: an option, a key, a command, or a place in a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import prismfl

ROOT = Path(prismfl.__file__).parent
FILES = sorted([*(ROOT / "data").glob("*.py"), ROOT / "runs" / "config.py", ROOT / "runs" / "planning.py"])
KINDS = ("UserError", "UndeclaredError", "CellError")
# What names a place: the blank that a path, a file's line, a column or the user's own words fill.
PLACES = re.compile(
    r"\{(path|where|place|root|folder|file|text|data|roots?|first_path|config\.data|column\.name|self\.name|key|name|"
    r"missing_column\(.*)\}"
)
OPTION = re.compile(r"--[a-z]|\(key: ")
COMMAND = re.compile(r"prismfl [a-z]+|pip install|iconv|in Python|in all frames")
# Keys that are no words of plain English.
KEY = re.compile(
    r"epsilon|delta|sigma|\bcap\b|seed|alpha|\bkeys?\b|in the schema|the constraint '|\bsplit\b|\bsites\b|\w+_\w+",
    re.IGNORECASE,
)


def words_of(node: ast.expr, known: Mapping[str, str]) -> str:
    """The text of a message with its blanks by what fills them; what a name holds that was set in the same function."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(part, known) for part in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name) and node.value.id in known:
        return known[node.value.id]
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    if isinstance(node, ast.BinOp):
        return words_of(node.left, known) + words_of(node.right, known)
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    return "{" + ast.unparse(node) + "}"


def said_in(function: ast.AST) -> dict[str, str]:
    """The texts that a function keeps in names before it raises them."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        texts = (ast.JoinedStr, ast.Constant, ast.BinOp)
        if isinstance(target, ast.Name) and isinstance(value, texts) and target.id in ("words", "rest", "where"):
            found[target.id] = found.get(target.id, "") + words_of(value, found)
    return found


# Not about what a user gives: an invariant between our own parts, or an error of a file that its own message names.
OURS = (
    "{str(error)}",
    "Expected the declared number of classes and an identity",
    "Expected a picture as (h, w)",
    "Expected features of shape",
    "Expected SHA-256",
)


def messages() -> Iterator[tuple[str, int, str]]:
    for path in FILES:
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            known = said_in(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in KINDS and node.args:
                    words = words_of(node.args[0], known)
                    if not words.startswith(OURS):
                        yield str(path.relative_to(ROOT)), node.lineno, words


def mends(words: str) -> bool:
    return any(found.search(words) for found in (OPTION, COMMAND, KEY, PLACES))


def test_there_are_many() -> None:
    assert len(list(messages())) > 150


@pytest.mark.parametrize(("file", "line", "words"), [pytest.param(*m, id=f"{m[0]}:{m[1]}") for m in messages()])
def test_a_message_says_what_to_mend(file: str, line: int, words: str) -> None:
    assert mends(words), f"{file}:{line}: {words}"


@pytest.mark.parametrize(
    ("words", "good"),
    [
        ("Expected a label column.", False),
        ("Expected a label column: give --label.", True),
        ("Bad value in {path}.", True),
        ("Something is wrong with {value}.", False),
        ("Expected epsilon > 0, got {config.epsilon}.", True),
        ("Draft one with: prismfl schema.", True),
    ],
)
def test_the_check_can_fail(words: str, good: bool) -> None:
    assert mends(words) is good
