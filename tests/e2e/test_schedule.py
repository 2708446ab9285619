"""The commands of examples/schedule, carried out as their schedulers do, on a project of its own."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.project import HELLO, Project
from tests.unit.repository.test_schedule_examples import container, document, steps, unit

pytestmark = [pytest.mark.machine, pytest.mark.slow]

SCHEDULE = ROOT / "examples/schedule"


def as_cron(project: Project) -> subprocess.CompletedProcess[str]:
    """Run the command of the crontab's last line by sh, with cron's few variables and the crontab's PATH."""
    lines = [line for line in (SCHEDULE / "crontab").read_text().splitlines() if line and line[0] != "#"]
    settings = dict(line.split("=", 1) for line in lines[:-1])
    command = lines[-1].split(maxsplit=5)[5].replace("/srv/forecast", str(project.folder))
    path = settings["PATH"].replace("/opt/orch/.venv/bin", str(Path(sys.executable).parent))
    given = {name: os.environ[name] for name in ("HOME", "XDG_STATE_HOME") if name in os.environ}
    environ = {**given, "PATH": path, "ORCH_STATE_HOME": str(project.state), "NIGHTLY_PAUSES": "0"}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_cron_mails_a_failure_once_and_success_is_silent(project: Project) -> None:
    shutil.copy(SCHEDULE / "nightly.sh", project.folder)
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write("  outputs: [out]\n")
    (project.folder / "train.py").write_text("raise SystemExit('no data today')")
    failed = as_cron(project)
    assert failed.returncode == 6, failed
    assert failed.stdout.startswith("nightly-20") and "failed with exit code 6" in failed.stdout
    assert failed.stdout.count("no data today") == 1  # a command that failed is not retried

    (project.folder / "train.py").write_text(HELLO)
    for _ in range(2):
        done = as_cron(project)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (record,) = (json.loads(file.read_text()) for file in project.folder.glob("runs/nightly-*/run.json"))
    assert record["exit"]["reason"] == "completed" and len(record["attempts"]) == 2
    assert project.json("status")["leases"] == []

    lock = os.open(project.folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = as_cron(project)
        assert (second.stdout, second.stderr) == ("", "")
    finally:
        os.close(lock)


def test_the_same_command_finishes_a_run_that_was_left_running(project: Project) -> None:
    command = ("run", "orch.yaml", "--run-id", "one", "--detach")
    assert project.json(*command)["exit"]["reason"] == "running"
    done = project.json(*command[:-1])
    assert done["exit"]["reason"] == "completed" and len(done["attempts"]) == 1
    assert project.json("status")["leases"] == []


# ---------------------------------------------------------------- where each call gets a fresh disk


def carried_out(
    project: Project, folder: Path, command: list[str], environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, with its leases noted in a store as the examples advise."""
    given = {name: os.environ[name] for name in ("HOME", "XDG_STATE_HOME") if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ledger = {"ORCH_LEDGER": (project.folder.parent / "store").as_uri()}
    own = {**given, "PATH": path, "ORCH_STATE_HOME": str(project.state), **ledger, **environ}
    return subprocess.run(
        command, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=300
    )


def checkout(project: Project, name: str, script: str) -> Path:
    """A fresh copy of the project, as a runner or a pod has it."""
    folder = project.folder.parent / name
    folder.mkdir()
    for file in project.folder.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    (folder / "train.py").write_text(script)
    return folder


def as_github(project: Project, folder: Path, number: str) -> tuple[list[int], str]:
    """The steps of the workflow that are shell, as a runner does them: their exit codes, and the summary."""
    summary = folder / "summary.md"
    run = document("github-actions.yml")["env"]["RUN"].replace("${{ github.run_id }}", number)
    codes: list[int] = []
    for step in steps():
        if "run" not in step or step["run"].startswith("pip install"):
            continue
        if any(codes) and step.get("if") != "always()":
            continue
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        environ = {"RUN": run, "GITHUB_STEP_SUMMARY": str(summary)}
        codes.append(carried_out(project, folder, shell, environ).returncode)
    return codes, summary.read_text()


def test_the_steps_of_the_workflow_train_tear_down_and_summarise(project: Project) -> None:
    codes, summary = as_github(project, checkout(project, "good", HELLO), "7")
    assert codes == [0, 0, 0] and summary.startswith("## ✅ nightly-7: Trained")
    codes, summary = as_github(project, checkout(project, "bad", "raise SystemExit('no data today')"), "8")
    assert codes == [6, 0, 0] and summary.startswith("## ❌ nightly-8")
    assert "no data today" in summary
    assert project.json("status")["leases"] == []


def test_the_container_of_the_cron_job_runs_its_command(project: Project) -> None:
    found = container()
    command = [word.replace("$(JOB_NAME)", "forecast-nightly-29") for word in found["command"]]
    folder = checkout(project, "pod", HELLO)
    assert carried_out(project, folder, command, {}).returncode == 0
    record = json.loads((folder / "runs/forecast-nightly-29/run.json").read_text())
    assert record["exit"]["reason"] == "completed"


def test_the_service_of_systemd_runs_its_command(project: Project) -> None:
    line = unit("orch-nightly.service")["Service"]["ExecStart"]
    line = line.replace("/opt/orch/.venv/bin", str(Path(sys.executable).parent))
    command = shlex.split(line.replace("$$", "$").replace("%%", "%"))
    folder = checkout(project, "service", HELLO)
    assert carried_out(project, folder, command, {}).returncode == 0
    (record,) = (json.loads(file.read_text()) for file in folder.glob("runs/nightly-20*/run.json"))
    assert record["exit"]["reason"] == "completed"
