"""A task that Airflow killed: its run is cancelled, its files are brought home, its machine is deleted."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.airflow.ending import Ending, end
from orchestrator.airflow.waiting import is_active
from orchestrator.model import RunRecord
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

SCRIPT = """
import pathlib, time
pathlib.Path("half").write_text("half")
print("begun", flush=True)
time.sleep(600)
"""


class Told:
    """What was reported."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        pass


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return here_cloud.project(tmp_path / "p", SCRIPT, more="  outputs: [half]\n")


def test_a_run_that_trains_is_cancelled_and_brought_home(path: Path, cloud: HereCloud) -> None:
    told = Told()
    record = orch.run(path, run_id="one", folder=path.parent, detach=True)
    while not list(cloud.root.rglob("half")):  # until the job has written
        time.sleep(0.05)
    assert record.exit["reason"] == "running" and is_active(str(path.parent), "one")
    assert end(path.parent, "one", told), told.said
    assert not cloud.alive() and not orch.status(folder=path.parent)
    here = json.loads((path.parent / "runs/one/run.json").read_text())
    assert here["exit"]["reason"] == "cancelled"
    assert (path.parent / "runs/one/outputs/half").read_text() == "half"
    assert not is_active(str(path.parent), "one")
    assert end(path.parent, "one", Told())


def test_a_machine_that_was_made_for_a_run_without_a_job_is_ended(
    path: Path, cloud: HereCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> RunRecord:
        raise SystemExit

    monkeypatch.setattr("orchestrator.training.one_run.one_run", killed)
    monkeypatch.setattr("orchestrator.training.managed_run._end_after", lambda *_: None)
    with pytest.raises(SystemExit):
        orch.run(path, run_id="one", folder=path.parent)
    assert len(cloud.alive()) == 1
    told = Told()
    assert end(path.parent, "one", told), told.said
    assert not cloud.alive()


def test_a_machine_that_was_there_before_is_kept(path: Path, cloud: HereCloud) -> None:
    orch.up(path, folder=path.parent)
    orch.run(path, run_id="one", folder=path.parent, detach=True)
    assert end(path.parent, "one", Told())
    (lease,) = orch.status(folder=path.parent)
    assert len(cloud.alive()) == 1
    assert [(run["state"], run["collected"]) for run in lease.runs] == [("cancelled", True)]


def test_the_process_waits_until_the_task_lets_go(tmp_path: Path) -> None:
    ending = Ending(tmp_path, "one")
    with pytest.raises(subprocess.TimeoutExpired):
        ending._process.wait(0.5)
    ending.go()
    assert ending.wait()
    assert ending.log.read_text().endswith("one has ended.\n")
