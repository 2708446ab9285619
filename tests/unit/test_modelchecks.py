"""After a run: every model, weight and vocabulary that came home, checked in one process on each side."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orchestrator.api.modelchecks import Side, check
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Entry, RunRecord
from orchestrator.report.run import summary
from tests.unit.far_side import agent_at

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


def side(folder: Path) -> Side:
    """This computer, by a Python without any framework."""
    base = folder.parent / f"{folder.name}-base"
    agent = Agent(sys.executable, str(base / "runtime"), str(base)) if base.exists() else agent_at(base)
    return Side(HereHost(), agent, str(folder), str(folder))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("one\ntwo\n")
        (tmp_path / name / "classes.json").write_text('{"cat": 0}')
        (tmp_path / name / "metrics.json").write_text('{"loss": 0.5}')
    return tmp_path / "there", tmp_path / "here"


def checked(folders: tuple[Path, Path]) -> dict[str, object] | None:
    there, here = folders
    entries = [Entry(path.name, "file", path.stat().st_size, 0o644, "") for path in sorted(there.iterdir())]
    return check(side(there), side(here), entries, there.parent)


def test_what_is_the_same_is_said_to_be(folders: tuple[Path, Path]) -> None:
    answer = checked(folders)
    assert answer is not None
    files = answer["files"]
    assert isinstance(files, list)
    assert [(each["path"], each["equal"]) for each in files] == [("classes.json", True), ("vocab.txt", True)]
    assert (answer["loaded"], answer["equal"], answer["reason"]) == (True, True, None)
    assert len(json.loads((folders[0].parent / "model-check.json").read_text())["results"]) == 2


def test_another_vocabulary_is_told(folders: tuple[Path, Path]) -> None:
    (folders[1] / "vocab.txt").write_text("two\none\n")
    answer = checked(folders)
    assert answer is not None and answer["path"] == "vocab.txt"
    assert (answer["loaded"], answer["equal"]) == (True, False)


def test_the_worst_is_the_answer_with_its_way_out(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "model.keras").write_bytes(POINTER)
    answer = checked(folders)
    assert answer is not None and answer["path"] == "model.keras" and answer["loaded"] is False
    assert "git-lfs pointer" in str(answer["reason"])
    record = RunRecord("r", Path("r"), {"code": 0, "reason": "completed"}, model_check=answer)
    assert "git lfs pull" in summary(record)


def test_a_run_without_any_has_no_answer(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        for name in ("vocab.txt", "classes.json"):
            (folder / name).unlink()
    assert checked(folders) is None


def test_a_check_that_dies_says_so(folders: tuple[Path, Path], tmp_path: Path) -> None:
    there = side(folders[0])
    dead = tmp_path / "dead"
    dead.write_text("#!/bin/sh\necho 'out of memory' >&2\nexit 9\n")
    dead.chmod(0o755)
    gone = Side(there.host, Agent(str(dead), there.agent.root, there.agent.base), there.outputs, there.code)
    answer = check(gone, side(folders[1]), [Entry("vocab.txt", "file", 8, 0o644, "")], tmp_path)
    assert answer is not None and answer["equal"] is None
    assert "the check itself ended with 9: out of memory" in str(answer["reason"])
