"""Data added to a profile's text: comments, order and quotes stay, and what is not sure is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from orchestrator.profile import load, starter
from orchestrator.profile.edit import NotEditable
from orchestrator.profile.edit_data import NewData, with_data
from tests import forked_orch

HEAD = "version: 1  # one\nname: demo\ncloud: local\n"
TAIL = "train: {command: python train.py}  # last\n"
NEW = [NewData("my_data"), NewData("/mnt/a b", "/mnt/a b")]
ADDED = '- source: my_data\n{0}- source: "/mnt/a b"\n{0}  target: "/mnt/a b"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", None),
        ("data: []     # none yet\n", f"data:  # none yet\n  {ADDED.format('  ')}"),
        ("data:\n", f"data:\n  {ADDED.format('  ')}"),
        (
            "data:  # of mine\n- source: old  # first\n  target: x\n\n# next\n",
            f"data:  # of mine\n- source: old  # first\n  target: x\n{ADDED.format('')}\n# next\n",
        ),
        ("data:\n    - {source: old}\n", f"data:\n    - {{source: old}}\n    {ADDED.format('    ')}"),
    ],
)
def test_entries_are_added_and_all_else_stays(before: str, after: str | None) -> None:
    text = HEAD + before + TAIL
    expected = HEAD + after + TAIL if after else f"{HEAD}{TAIL}data:\n  {ADDED.format('  ')}"
    assert with_data(text, NEW) == expected
    assert with_data(expected, NEW) == expected, "what is declared already is not added again"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("data:\n  - source: d  # mine\n", "data:\n  - source: d  # mine\n    target: /a/d\n"),
        (
            "data:\n-   stage: true\n    source: 'd'\n- source: e\n",
            "data:\n-   stage: true\n    source: 'd'\n    target: /a/d\n- source: e\n",
        ),
        ("data:\n  - source: d\n    target: x\n", "data:\n  - source: d\n    target: x\n"),
    ],
)
def test_the_target_of_a_source_that_is_declared_is_added(before: str, after: str) -> None:
    """One that it has already stays."""
    entry = [NewData("d", "/a/d")]
    assert with_data(HEAD + before + TAIL, entry) == HEAD + after + TAIL
    assert with_data(HEAD + after + TAIL, entry) == HEAD + after + TAIL


@pytest.mark.parametrize("data", ["data:\n  - {source: d}\n", "data: [{source: d}]\n"])
def test_a_target_that_has_no_line_of_its_own_is_refused(data: str) -> None:
    with pytest.raises(NotEditable, match="brackets"):
        with_data(HEAD + data + TAIL, [NewData("d", "/a/d")])


@pytest.mark.parametrize("data", ["data: [{source: old}]\n", "data: {source: old}\n", "data: [\n]\n"])
def test_what_is_not_sure_to_be_an_addition_is_refused(data: str) -> None:
    with pytest.raises(NotEditable):
        with_data(HEAD + data + TAIL, NEW)


def orch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked_orch.orch(*words, cwd=folder)


def test_init_adds_data_to_the_profile_that_is_there(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / "sub" / "my_data").mkdir(parents=True)
    elsewhere.mkdir()
    (project / "orch.yaml").write_text(starter(project))
    words = ("--add-data", "sub/my_data", "--add-data", str(elsewhere), "--add-data", "../elsewhere")
    done = orch(project, "init", "--json", *words[:4])
    assert done.returncode == 0, done.stderr
    declared = load(project / "orch.yaml").data
    assert [(d.source, d.target) for d in declared] == [
        (project / "sub/my_data", "sub/my_data"),
        (elsewhere, str(elsewhere)),
    ]
    assert json.loads(done.stdout)["profile"] == (project / "orch.yaml").read_text()
    assert "# What `orch` trains" in (project / "orch.yaml").read_text()
    missing = orch(project, "init", "--add-data", "no_such")
    assert missing.returncode == 2 and "no_such" in missing.stderr
