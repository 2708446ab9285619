"""Sentences are for people: outside of report/, nothing compares, searches or cuts one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "orchestrator"

PROSE = frozenset(
    (
        "words", "why", "detail", "sentence", "fix", "cause", "message", "untried", "obstacle", "located",
        "summary", "because",
    )
)  # fmt: skip
"""Attributes that hold words for people."""

CUTTING = frozenset(
    (
        "startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split",
        "rsplit", "replace", "find", "index", "count", "search", "match", "fullmatch", "sub", "findall",
        "finditer", "format",
    )
)  # fmt: skip
"""Methods of texts and of patterns that look into a text or change it."""

TRIMMING = frozenset(("strip", "lstrip", "rstrip", "lower", "upper", "casefold", "encode"))

ALLOWED = {
    "providers/gcp/refusing.py": "Google's sentence: a field that it names is not named again",
    "runtime/modelcheck/weights.py": "NumPy's exception: one type for all that a file can be",
}
"""Files with one such place each, in the words of others, and why it stays."""


def branches(tree: ast.AST) -> Iterator[ast.expr]:
    """Comparisons with prose, and calls that look into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            if not all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops) and any(
                map(prose, compared)
            ):
                yield node
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CUTTING
            and any(map(prose, [node.func.value, *node.args]))
        ):
            yield node


def prose(node: ast.expr) -> bool:
    """Whether an expression is a sentence: such an attribute, or the message of an exception."""
    if isinstance(node, ast.Attribute):
        return node.attr in PROSE
    if isinstance(node, ast.BoolOp):
        return any(map(prose, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return prose(node.args[0])
    trimmed = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return trimmed and node.func.attr in TRIMMING and prose(node.func.value)


def compared_messages(tree: ast.AST) -> Iterator[ast.expr]:
    """Comparisons with str(error), in an except clause."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or not handler.name:
            continue
        message = ast.dump(ast.parse(f"str({handler.name})", mode="eval").body)
        for node in ast.walk(handler):
            if isinstance(node, ast.Compare) and message in map(ast.dump, [node.left, *node.comparators]):
                yield node


def found_in(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    return [f"{each.lineno}: {ast.unparse(each)}" for each in (*branches(tree), *compared_messages(tree))]


def test_nothing_branches_on_prose() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {
        name: places
        for name, path in files.items()
        if not name.startswith("report/") and (places := found_in(path))
    }
    assert {name: places for name, places in found.items() if name not in ALLOWED} == {}
    assert {name: len(found.get(name, ())) for name in ALLOWED} == dict.fromkeys(ALLOWED, 1)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("tried.words.startswith('the file ')", 1),
        ("known.why != OTHERWISE", 1),
        ("each.words in cause", 1),
        ("(found.cause or '').replace('Confirmed: ', '')", 1),
        ("re.sub('in A', 'here', verdict.detail)", 1),
        ("str(error.message).strip().split(':')", 1),
        ("remedy.words.format(what=what)", 1),
        ("verdict.fix is None", 0),
        ("known.reason is Reason.CHANCE", 0),
        ("found.subjects == other.subjects", 0),
        ("', '.join(each.words for each in tried)", 0),
    ],
)
def test_what_counts_as_a_branch_on_prose(code: str, count: int) -> None:
    assert len(list(branches(ast.parse(code)))) == count


def test_a_compared_message_of_an_exception_is_noticed() -> None:
    code = "try:\n    f()\nexcept ValueError as error:\n    if 'x' in str(error):\n        raise"
    assert len(list(compared_messages(ast.parse(code)))) == 1
