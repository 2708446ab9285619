"""Attempts at one run id: setting an earlier one aside survives a kill at any move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import RunRecord
from orchestrator.runs import attempts, logs, record_file
from orchestrator.session.project import Project


@pytest.mark.parametrize("moves", range(5))
def test_set_aside_killed_at_any_move_and_repeated(tmp_path: Path, moves: int) -> None:
    folder = tmp_path / "runs/one"
    (folder / "outputs").mkdir(parents=True)
    for name in ("outputs/a", "output.log", "code.json"):
        (folder / name).write_text(name)
    record_file.write(RunRecord("one", str(folder), {"code": 1, "signal": None, "reason": "failed"}))
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


@pytest.mark.parametrize("moves", range(5))
def test_the_log_of_all_attempts_survives_a_kill_at_any_move(tmp_path: Path, moves: int) -> None:
    """The first attempt printed no end of its line; the second one printed more after its record was made."""
    project, folder = Project(tmp_path), tmp_path / "runs/one"
    folder.mkdir(parents=True)
    printed = [b"one", b"two\n", b"three\n"]
    for number, text in enumerate(printed, 1):
        logs.lay_earlier(folder)
        with open(folder / "output.log", "ab") as log:
            log.write(text)
        if number == len(printed):
            break
        facts = {"number": number, "reason": "lost"}
        exit_ = {"code": None, "signal": None, "reason": "lost", "detail": "It\nwent."}
        record_file.write(RunRecord("one", str(folder), exit_, attempts=(facts,)))
        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            _killed_after(patch, moves)
            attempts.archive_attempt(project, "one")
        attempts.archive_attempt(project, "one")
        assert (folder / f"attempts/{number}/output.log").read_bytes() == text
    marks = [
        f"[orch] attempt {number} ended: lost. It went. Another attempt follows.\n".encode()
        for number in (1, 2)
    ]
    assert (folder / "output.log").read_bytes() == b"one\n" + marks[0] + b"two\n" + marks[1] + b"three\n"
    fetched = tmp_path / "fetched"
    fetched.write_bytes(b"three\nfour\n")
    logs.put_own(folder, fetched)
    assert (folder / "output.log").read_bytes().endswith(marks[1] + b"three\nfour\n")
    assert logs.own_size(folder) == len(b"three\nfour\n") and not fetched.exists()


def _killed_after(patch: pytest.MonkeyPatch, moves: int) -> None:
    """From now on a process that is killed after so many renames and replacements of files."""
    left = [moves]
    for name in ("rename", "replace", "unlink"):
        really = getattr(Path, name)

        def moved(path: Path, *target: Path, really: Callable[..., Any] = really, **tidying: bool) -> Any:
            if not left[0] and not tidying:
                raise KeyboardInterrupt
            left[0] -= not tidying
            return really(path, *target, **tidying)

        patch.setattr(Path, name, moved)
