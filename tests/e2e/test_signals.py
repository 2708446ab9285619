"""Commands that a user, a scheduler or a closing terminal ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from orchestrator.providers import open_provider
from tests.e2e.project import Project
from tests.e2e.test_adverse import COUNT, wait_for_line, write

pytestmark = pytest.mark.machine


def machines_of(project: Project) -> set[str]:
    return {machine.id for machine in open_provider("local", state=project.state).list({})}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_scheduler_that_stops_up_leaves_no_machine(project: Project, number: signal.Signals) -> None:
    others = machines_of(project)  # of the tests that share this worker's state
    up = project.start("up", "orch.yaml")
    assert up.stderr
    while b"Creating" not in (line := up.stderr.readline()):
        assert line
    up.send_signal(number)
    _, err = up.communicate(timeout=100)
    assert up.returncode == 130 and b"nothing costs money" in err and b"orch up" in err
    assert project.json("status")["leases"] == []
    assert machines_of(project) == others


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_detaches_and_logs_go_on_at_the_right_byte(project: Project, number: signal.Signals) -> None:
    write(project, COUNT % 60)
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "long")
    seen = wait_for_line(train, b"line 5\n")
    train.send_signal(number)
    out, err = train.communicate(timeout=30)
    seen += out
    assert train.returncode == 130
    assert b"Next: orch logs -f" in err and b"continues on its machine, at $0.00/h." in err
    rest = project.orch("logs", "-f").out
    lines = (seen.decode() + rest).splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(60)]
    assert project.json("pull")["exit"]["reason"] == "completed"


def test_interrupted_before_the_run_says_so(project: Project, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with open(big, "wb") as file:
        file.truncate(3 << 30)
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write(f"data: [{{source: '{big}'}}]\n")
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "early")
    assert train.stderr
    while b"code:" not in (line := train.stderr.readline()):  # sent; the big file comes next
        assert line
    train.send_signal(signal.SIGINT)
    _, err = train.communicate(timeout=60)
    assert train.returncode == 130
    assert b"before the run was started" in err and b"Next: orch train --run-id early  " in err
    assert project.json("status")["leases"][0]["runs"] == []
