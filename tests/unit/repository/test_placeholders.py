"""Every next command can be pasted: a part that only the user knows is in capitals, and explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(orchestrator.__file__).parent
_PLACEHOLDER = re.compile(r"(?<![=\w])…|(?<![\w-])\[[a-z]\w*\]|<[a-z]\w*>")
"""A bare ellipsis, or a name in brackets. `--set KEY=…` marks a value that is stored nowhere."""
_CAPITALS = re.compile(r"(?<![\w-])[A-Z]{3,}(?:\.yaml)?(?![\w=])")


def shown(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be, with a § for what is filled in."""
    if isinstance(node, ast.IfExp):
        yield from (*shown(node.body), *shown(node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "§" for part in node.values)


def commands(code: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each next command that the code writes out."""
    tree = ast.parse(code)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "next_command":
            yield from ((node.value.lineno, text) for text in shown(node.value))
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
            for text in shown(node):
                _, found, rest = text.partition("Next: ")
                if found and rest:
                    yield node.lineno, rest.splitlines()[0]


def flaw(text: str) -> str:
    """Return what a user cannot paste in a next command; "" if there is nothing."""
    command, _, note = text.partition("    # ")
    found = _PLACEHOLDER.search(command)
    if found:
        return found[0]
    unknown = _CAPITALS.search(re.sub(r"'[^']*'", "", command))
    return unknown[0] if unknown and not note else ""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("x --set train.checkpoints='[ckpt]'    # their folder", "[ckpt]"),
        ("orch size --limit SECONDS …    # or a smaller --batch", "…"),
        ("orch plan <profile>", "<profile>"),
        ("orch plan PROFILE", "PROFILE"),
        ("orch plan PROFILE    # PROFILE: its file", ""),
        ("orch rerun x --set x=…", ""),
        ("kill -INT x", ""),
        ("export GOOGLE_CLOUD_PROJECT=x", ""),
    ],
)
def test_what_cannot_be_pasted_is_seen(text: str, wrong: str) -> None:
    assert flaw(text) == wrong


def test_every_next_command_can_be_pasted_or_explains_what_to_fill_in() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in ROOT.rglob("*.py")
        for line, text in commands(path.read_text())
        if flaw(text)
    }
    assert not found, "\n".join(sorted(found))
