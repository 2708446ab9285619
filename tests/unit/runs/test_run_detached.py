"""`run` with `detach`: it returns while the job trains; the same call later finishes it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

SCRIPT = """
import os, pathlib, time
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.05)
pathlib.Path("result.txt").write_text(os.environ["ORCH_ATTEMPT"])
"""


class Told:
    """What a call reported."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        pass


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def profile(tmp_path: Path, more: str = "") -> Path:
    env = f"  env: {{GO: {tmp_path / 'go'}}}\n  outputs: [result.txt]\n"
    return here_cloud.project(tmp_path / "p", SCRIPT, more=env + more)


def run(path: Path, told: Told | None = None) -> orch.RunRecord:
    return orch.run(path, run_id="one", folder=path.parent, detach=True, progress=told or Told())


def wait_until_ended(folder: Path) -> None:
    for _ in range(400):
        (lease,) = orch.status(folder=folder, ask=True)
        if lease.runs[0]["state"] not in ("started", "running"):
            return
        time.sleep(0.05)
    raise AssertionError("the run does not end")


def test_it_returns_while_the_job_trains_and_the_same_call_finishes_it(
    tmp_path: Path, cloud: HereCloud
) -> None:
    path, told = profile(tmp_path), Told()
    for _ in range(2):
        assert run(path, told).exit["reason"] == "running"
    (machine,) = cloud.alive()
    assert any("one is running; its machine stays" in text for text in told.said)
    assert not (path.parent / "runs/one/run.json").exists()
    (tmp_path / "go").touch()
    wait_until_ended(path.parent)
    record = run(path)
    assert record.succeeded and not cloud.alive() and len(record.attempts) == 1
    assert (record.folder / "outputs/result.txt").read_text() == "1"
    assert run(path).succeeded and not Project.at(path.parent).open_leases()
    assert machine.id == (record.machine or {})["id"]


def test_a_machine_that_was_taken_back_is_replaced_and_the_call_returns_again(
    tmp_path: Path, cloud: HereCloud
) -> None:
    path = profile(tmp_path, more="retry: {interruption: 1}\n")
    run(path)
    cloud.take_back(cloud.alive()[0])
    assert run(path).exit["reason"] == "running"
    (tmp_path / "go").touch()
    wait_until_ended(path.parent)
    record = run(path)
    assert record.succeeded and len(record.attempts) == 2 and not cloud.alive()


def test_a_cancelled_run_is_brought_home_and_its_machine_ended(tmp_path: Path, cloud: HereCloud) -> None:
    path = profile(tmp_path)
    run(path)
    threading.Thread(target=lambda: orch.cancel("one", folder=path.parent)).start()
    wait_until_ended(path.parent)
    with pytest.raises(orch.RunCancelled):
        run(path)
    assert not cloud.alive()
