"""Attempts at one run id: setting an earlier one aside survives a kill at any move."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.model import RunRecord
from orchestrator.runs import attempts, collect
from orchestrator.session.project import Project


@pytest.mark.parametrize("moves", range(5))
def test_set_aside_killed_at_any_move_and_repeated(tmp_path: Path, moves: int) -> None:
    folder = tmp_path / "runs/one"
    (folder / "outputs").mkdir(parents=True)
    for name in ("outputs/a", "output.log", "code.json"):
        (folder / name).write_text(name)
    collect.write(RunRecord("one", str(folder), {"code": 1, "signal": None, "reason": "failed"}))
    project = Project(tmp_path)
    left = moves

    def rename(path: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return really(path, target)

    really = Path.rename
    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "rename", rename)
        attempts.archive_attempt(project, "one")
    attempts.archive_attempt(project, "one")
    kept = folder / "attempts/1"
    assert {path.name for path in folder.iterdir()} == {"attempts"}
    assert {path.name for path in kept.iterdir()} == {"outputs", "output.log", "code.json", "run.json"}
    assert (kept / "outputs/a").read_text() == "outputs/a"
    latest = attempts.latest_attempt(folder)
    assert latest is not None and latest.exit["reason"] == "failed"
    assert attempts.number_of_next(project, "one", None) == 2
