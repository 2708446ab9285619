"""Files of orch in a project are ignored by version control; files of the user are not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.session.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def seen_by_git(project: Path) -> str:
    argv = ["git", "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, check=True).stdout


def test_state_and_runs_are_ignored(project: Path) -> None:
    Project(project).ignore_runs()
    (project / "runs/one").mkdir()
    (project / "runs/one/run.json").write_text("{}")
    (project / "runs/one/model.keras").write_text("m")
    assert seen_by_git(project) == ""


def test_runs_of_before_are_ignored_from_now_on(project: Path) -> None:
    (project / "runs/one").mkdir(parents=True)
    (project / "runs/one/run.json").write_text("{}")
    Project(project).ignore_runs()
    assert seen_by_git(project) == ""


def test_a_folder_of_the_users_that_is_called_runs_stays_visible(project: Path) -> None:
    (project / "runs").mkdir()
    (project / "runs/events.out.tfevents").write_text("e")
    Project(project).ignore_runs()
    assert "runs/events.out.tfevents" in seen_by_git(project)
