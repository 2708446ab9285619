"""resume-check: whether a job that is killed after a checkpoint resumes exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.model import Progress, ResumeCheck
from orchestrator.model.progress import as_progress
from orchestrator.replay.command_line import command_python
from orchestrator.resume.check import RESUME_BUDGET, check_in_copies
from orchestrator.resume.scratch import Command, WorkingFolder
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent


def resume_check(
    command: Sequence[str],
    *,
    checkpoints: Sequence[str] = (),
    folder: Path | str | None = None,
    budget: float = RESUME_BUDGET,
    progress: Progress | Callable[[str], None] | None = None,
) -> ResumeCheck:
    """Run `command` in copies of the current folder: uninterrupted, killed after a checkpoint, and resumed.

    `checkpoints`: folders or files below the current folder in which it writes checkpoints; default: paths
    whose names look like one. The user's files are not changed, and the runs are removed afterwards.
    """
    tell = as_progress(progress)
    project = Project.at(folder)
    cwd = Path.cwd()
    wanted = Command(tuple(command), cwd, command_python(command))
    names = [_below(name, cwd) for name in checkpoints]
    return check_in_copies(wanted, WorkingFolder(wanted), local_agent(project), names, budget, tell.say)


def _below(name: str, cwd: Path) -> str:
    """A checkpoint folder relative to the working folder. Raises UsageError."""
    place = (cwd / name).resolve()
    if place == cwd.resolve() or not place.is_relative_to(cwd.resolve()):
        raise UsageError(
            f"{name} is not a folder below {cwd}. A job's checkpoints are looked for in a copy of the folder "
            "in which it is started, so that yours stay as they are.",
            next_command="orch resume-check --checkpoints ckpt -- python train.py --checkpoints ckpt",
        )
    return str(place.relative_to(cwd.resolve()))
