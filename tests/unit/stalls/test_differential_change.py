"""A fix as a change of the script: the text that a person would write."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from orchestrator.stalls.patch import change_call, diff

AUTO = "num_parallel_calls=tf.data.AUTOTUNE"


def edit(line: int, call: str, **what: str) -> dict[str, Any]:
    return {"file": "train.py", "line": line, "call": call, **what}


@pytest.mark.parametrize(
    ("source", "line", "call", "wanted"),
    [
        ("ds = ds.map(f)\n", 1, "map", f"ds = ds.map(f, {AUTO})\n"),
        ("ds = ds.map(f,)\n", 1, "map", f"ds = ds.map(f, {AUTO})\n"),
        ("ds = ds.map(f, None)\n", 1, "map", "ds = ds.map(f, tf.data.AUTOTUNE)\n"),
        ("ds = ds.map(f, num_parallel_calls=1)\n", 1, "map", f"ds = ds.map(f, {AUTO})\n"),
        (
            "ds = (\n    ds.map(f)\n    .map(g)\n)\n",
            3,
            "map",
            f"ds = (\n    ds.map(f)\n    .map(g, {AUTO})\n)\n",
        ),
        ("ds = ds.map(\n    f\n)\n", 1, "map", f"ds = ds.map(\n    f, {AUTO}\n)\n"),
        ("é = 'é'; ds = ds.map(f)\n", 1, "map", f"é = 'é'; ds = ds.map(f, {AUTO})\n"),
        (
            "ds = ds.interleave(f, 4, 1, 2)\n",
            1,
            "interleave",
            "ds = ds.interleave(f, 4, 1, tf.data.AUTOTUNE)\n",
        ),
    ],
)
def test_an_argument_is_added_or_replaced(source: str, line: int, call: str, wanted: str) -> None:
    found = change_call(source, [edit(line, call, keyword=AUTO)])
    assert found is not None
    ast.parse(found)
    assert found.replace("\n    f, num", "\n    f, num") == wanted


def test_several_edits_of_one_chain() -> None:
    source = "ds = ds.map(f).batch(8)\n"
    edits = [edit(1, "map", keyword=AUTO), edit(1, "batch", after=".prefetch(tf.data.AUTOTUNE)")]
    assert change_call(source, edits) == f"ds = ds.map(f, {AUTO}).batch(8).prefetch(tf.data.AUTOTUNE)\n"


def test_a_line_before_the_statement_keeps_its_indent() -> None:
    source = "def data():\n    return ds.with_options(\n        options)\n"
    found = change_call(
        source, [edit(2, "with_options", before="options.threading.private_threadpool_size = 2")]
    )
    assert found is not None
    assert found.splitlines()[1] == "    options.threading.private_threadpool_size = 2"


@pytest.mark.parametrize("source", ["ds = ds.batch(8)\n", "x = 1\nds = ds.map(f)\n", "def (:\n"])
def test_what_is_not_found_is_not_guessed(source: str) -> None:
    assert change_call(source, [edit(1, "map", keyword=AUTO)]) is None


def test_the_diff_names_the_file() -> None:
    text = diff("src/train.py", "a = 1\nds = ds.map(f)\nb = 2", [edit(2, "map", keyword=AUTO)])
    assert text is not None
    assert text.splitlines()[:2] == ["--- src/train.py", "+++ src/train.py"]
    assert f"+ds = ds.map(f, {AUTO})" in text.splitlines() and text.endswith("\n")
