"""The line of examples/schedule/crontab, carried out as cron does, on a project of its own."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.project import HELLO, Project

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
