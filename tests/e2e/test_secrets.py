"""Values of variables reach the job, and no file, argument list or log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.project import Project

pytestmark = pytest.mark.machine


def files_with(project: Project, text: str) -> list[Path]:
    """Files of the project and of its machines that contain `text`."""
    return [
        path
        for folder in (project.folder, project.state / "machines")
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_size < 10 << 20 and text.encode() in path.read_bytes()
    ]


def test_a_secret_reaches_the_job_and_nothing_else(project: Project) -> None:
    """It is in the job's environment; in no file of ours here, no argument list, no label, no log."""
    canary = "canary-7f3a9c51"
    script = (
        "import os, subprocess\n"
        "assert os.environ['TOKEN_OF_MINE'].startswith('canary')\n"
        "open('ps.txt', 'w').write(subprocess.run(['ps', 'axww'], capture_output=True, text=True).stdout)\n"
    )
    (project.folder / "train.py").write_text(script)
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write("  env: {TOKEN_OF_MINE: {from_env: TOKEN_OF_MINE}}\n")
    project.environ["TOKEN_OF_MINE"] = canary
    project.orch("up", "orch.yaml")
    said = project.orch("train", "--run-id", "secretive")
    assert canary not in said.out + said.err + project.orch("status", "--json").out
    assert files_with(project, canary) == []
    assert project.orch("ssh", "--", "stat", "-c", "%a", "/opt/orch/runs/secretive/spec.json").out == "600\n"


def test_a_variable_that_was_set_on_the_command_line_is_kept_nowhere(project: Project) -> None:
    """Nor is it forgotten silently: who needs it again is asked for it."""
    canary = "canary-51b0d2e7"
    (project.folder / "train.py").write_text("import os; print(len(os.environ['WORD']))")
    project.orch("up", "orch.yaml", "--set", f"train.env.WORD={canary}")
    refused = project.json("train", "--run-id", "one", code=2)["error"]
    assert "train.env.WORD" in refused["message"] and "--set train.env.WORD=" in refused["next_command"]
    said = project.orch("train", "--run-id", "one", "--set", f"train.env.WORD={canary}")
    assert said.out.startswith("15\n") and canary not in said.out + said.err
    assert files_with(project, canary) == []
