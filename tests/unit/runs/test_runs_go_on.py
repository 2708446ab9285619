"""A run whose machine is taken goes on from its newest checkpoint, and ends as one that was not."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.report.run import summary
from orchestrator.runs import background_download, checkpoints
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

STEPS = 9
SCRIPT = """
import json, os, time
state = {"step": 0, "weights": [0.1, 0.2]}
if os.path.exists("saved/state.json"):
    state = json.load(open("saved/state.json"))
print("from", state["step"], flush=True)
while state["step"] < 9:
    state["step"] += 1
    state["weights"] = [w * 1.7 + state["step"] / 3 for w in state["weights"]]
    os.makedirs("saved", exist_ok=True)
    with open("saved/state.part", "w") as file:
        json.dump(state, file)
    os.replace("saved/state.part", "saved/state.json")
    print("saved", state["step"], flush=True)
    if state["step"] in WAITS:
        time.sleep(60 if os.environ["ORCH_ATTEMPT"] in LOST else 0)
json.dump(state["weights"], open("weights.json", "w"))
"""
PROFILE = "retry: {interruption: 2}\n"


@dataclass
class Job:
    """A project whose machine is taken back when a checkpoint of a step that it waits at is here."""

    folder: Path
    cloud: HereCloud
    shown: bytearray = field(default_factory=bytearray)
    said: list[str] = field(default_factory=list)
    taken_at: tuple[int, ...] = (3, 6)

    def write(self, lost: str, waits: str) -> None:
        script = SCRIPT.replace("WAITS", waits).replace("LOST", lost)
        here_cloud.project(self.folder, script, more=PROFILE)
        path = self.folder / "orch.yaml"
        path.write_text(path.read_text().replace("train:\n", "train:\n  checkpoints: [saved]\n"))

    def saved(self) -> int:
        found = checkpoints.newest(self.folder / "runs/one")
        return json.loads((found.folder / "saved/state.json").read_text())["step"] if found else 0

    def output(self, data: bytes) -> None:
        begun = self.shown.rfind(b"\n") + 1  # a piece may end within a line
        self.shown += data
        for line in self.shown[begun : self.shown.rfind(b"\n") + 1].decode().splitlines():
            word, step = line.split() if line.startswith("saved") else ("", "0")
            if word and int(step) in self.taken_at:
                threading.Thread(target=self._take_back_after, args=(int(step),), daemon=True).start()

    def _take_back_after(self, step: int) -> None:
        until = time.monotonic() + 30
        while self.saved() < step and time.monotonic() < until:
            time.sleep(0.05)
        for machine in self.cloud.alive():
            self.cloud.take_back(machine)

    def say(self, text: str) -> None:
        self.said.append(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        pass

    def run(self, run_id: str = "one") -> orch.RunRecord:
        told: dict[str, Any] = {"folder": self.folder, "output": self.output, "progress": self}
        return orch.run(self.folder / "orch.yaml", run_id=run_id, **told)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(background_download, "_EVERY_S", 0.1)
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    yield Job(tmp_path / "p", cloud)
    for machine in cloud.alive():
        cloud.kill(machine)


def expected() -> list[float]:
    weights = [0.1, 0.2]
    for step in range(1, STEPS + 1):
        weights = [w * 1.7 + step / 3 for w in weights]
    return weights


def test_a_run_that_is_taken_twice_ends_with_the_weights_of_one_that_was_not(job: Job) -> None:
    job.write(lost='("1", "2")', waits="(3, 6)")
    record = job.run()
    assert [each["reason"] for each in record.attempts] == ["preempted", "preempted", "completed"]
    begun = [line for line in job.shown.decode().splitlines() if line.startswith("from")]
    assert begun == ["from 0", "from 3", "from 6"], "nothing was done twice"
    home = job.folder / "runs/one/outputs"
    assert json.loads((home / "weights.json").read_text()) == expected()
    assert json.loads((home / "saved/state.json").read_text())["step"] == STEPS
    assert any("continues from the checkpoint that attempt 1 saved" in text for text in job.said)
    resumed = [each["resumed_from"] for each in record.attempts]
    assert [each and each["attempt"] for each in resumed] == [None, 1, 2]
    assert "3  completed: small in r1-a, from a checkpoint of attempt 2" in summary(record)


def test_a_copy_that_is_here_no_more_comes_from_the_store(job: Job, tmp_path: Path) -> None:
    """And at the end the store holds what the run left, with its record."""
    job.write(lost='("1",)', waits="(3,)")
    path = job.folder / "orch.yaml"
    path.write_text(f"{path.read_text()}store: {(tmp_path / 'store').as_uri()}\n")
    said, job.taken_at = job.said, (3,)

    class Losing(list[str]):
        def append(self, text: str) -> None:
            if "Retrying (retry" in text:
                shutil.rmtree(job.folder / "runs/one/checkpoints")
            said.append(text)

    job.said = Losing()
    record = job.run()
    assert [each["reason"] for each in record.attempts] == ["preempted", "completed"]
    begun = [line for line in job.shown.decode().splitlines() if line.startswith("from")]
    assert begun == ["from 0", "from 3"], "nothing was done twice"
    stored = tmp_path / "store/runs/one"
    assert json.loads((stored / "attempts/2/outputs/weights.json").read_text()) == expected()
    assert "saved 9" in (stored / "attempts/2/output.log").read_text()
    assert json.loads((stored / "run.json").read_text())["exit"]["reason"] == "completed"
    back = orch.pull("one", store=(tmp_path / "store").as_uri(), folder=tmp_path / "elsewhere")
    assert back.succeeded and back.folder == tmp_path / "elsewhere/runs/one"
    assert json.loads((back.folder / "outputs/weights.json").read_text()) == expected()
