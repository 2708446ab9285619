"""A number with its noun: one helper writes both, and no sentence puts a plural behind a number by itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import orchestrator
from orchestrator.model.counted import counted, rounded

SOURCE = Path(orchestrator.__file__).parent
NOUNS = "CPUs|days|GPUs|hazards|machines|packages|permissions|pins|prices|regions|steps|tensors|wheels"
NEVER_ONE = {
    "session/gpu_check.py": "GPUs of",
    "leases/down_all.py": "machines run",
    "leases/gc.py": "days",
    "parity/verdict.py": "tensors of the first",
    "profiling/limits.py": "steps or",
    "providers/gcp/request.py": "days. Change max_duration",
    "runtime/modelcheck/compare.py": "tensors differ",
    "runtime/observe/recorder.py": "tensors in one step",
}
"""Sentences with a constant, with more than one always, or that write the one by themselves."""


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 wheels"), (1, "1 wheel"), (1.0, "1 wheel"), (1.5, "1.5 wheels"), (4096, "4,096 wheels")],
)
def test_a_number_with_its_noun(count: float, said: str) -> None:
    assert counted(count, "wheel") == said


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (0.254, 2, "0.25"), (20_500, 3, "20,500"), (999.6, 3, "1,000"), (999.4, 3, "999"), (16, 3, "16"),
        (37252.9, 4, "37,253"), (0, 3, "0"),
    ],
)  # fmt: skip
def test_a_size_has_no_exponent(value: float, digits: int, said: str) -> None:
    assert rounded(value, digits) == said


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_size_is_written_with_an_exponent(file: Path) -> None:
    """`runtime` stands alone and has no such helper."""
    if not file.is_relative_to(SOURCE / "runtime"):
        assert re.findall(r":\.\dg\} (?:[KMGT]i?B)", file.read_text("utf-8")) == []


def test_an_odd_plural() -> None:
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def _plurals(file: Path) -> list[str]:
    """Texts that follow a value in an f-string and begin with a plural."""
    pattern = re.compile(rf" (?:[a-z]+ )?({NOUNS})\b")
    tree = ast.parse(file.read_text("utf-8"))
    return [
        text.value.strip()
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for value, text in zip(node.values, node.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue)
        and not (value.format_spec and re.search(r"\.[1-9]f", ast.unparse(value.format_spec)))
        and isinstance(text, ast.Constant)
        and pattern.match(str(text.value))
    ]


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_sentence_writes_a_plural_behind_a_number(file: Path) -> None:
    known = NEVER_ONE.get(file.relative_to(SOURCE).as_posix(), "\n")
    assert [text for text in _plurals(file) if not text.startswith(known)] == []
