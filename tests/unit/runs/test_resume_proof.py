"""`train --resume-proof`: the run begins only where its own command goes on exactly after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.report.run import summary
from tests.unit import here_cloud

JOB = """
import os, pickle, random
rng = random.Random(3)
state = {"epoch": 0, "w": 0.0, "rng": rng.getstate()}
if os.path.exists("ckpt/model.pkl"):
    with open("ckpt/model.pkl", "rb") as file:
        state.update(pickle.load(file))
    if not os.environ.get("FORGET"):
        rng.setstate(state["rng"])
os.makedirs("ckpt", exist_ok=True)
for epoch in range(state["epoch"], 6):
    state["w"] += rng.random() * float(open("data/scale").read())
    state.update(epoch=epoch + 1, rng=rng.getstate())
    with open("ckpt/model.tmp", "wb") as file:
        pickle.dump(state, file)
    os.replace("ckpt/model.tmp", "ckpt/model.pkl")
with open("weights.txt", "w") as file:
    file.write(repr(state["w"]))
"""
MORE = "  checkpoints: [ckpt]\n  outputs: [weights.txt]\ndata:\n  - {source: ../far, target: data}\n"

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    (tmp_path / "far").mkdir()
    (tmp_path / "far/scale").write_text("2.5")
    profile = here_cloud.project(tmp_path / "p", JOB, more=MORE)
    orch.up(profile, folder=profile.parent)
    return profile.parent


Train = Callable[..., orch.RunRecord]


@pytest.fixture
def train(folder: Path) -> Train:
    def run(*overrides: str, run_id: str = "one") -> orch.RunRecord:
        return orch.train(resume_proof=True, run_id=run_id, folder=folder, overrides=overrides)

    return run


def test_a_run_that_goes_on_exactly_begins_and_one_that_does_not_is_refused(
    folder: Path, train: Train
) -> None:
    done = train()
    assert done.resume_proof and done.resume_proof["verdict"] == "EXACT"
    assert 0 < done.resume_proof["killed_step"] < done.resume_proof["steps"] == 6
    assert "resume" in summary(done) and "EXACT: killed after step" in summary(done)
    assert json.loads((folder / "runs/one/run.json").read_text())["resume_proof"] == done.resume_proof
    assert not (folder / "ckpt").exists() and not (folder / "weights.txt").exists(), "in copies alone"

    with pytest.raises(orch.ResumeRefused, match="Python random state") as refused:
        train("train.env.FORGET=1", run_id="two")
    assert refused.value.exit_code == 7
    assert "is still running, at $0.05/h" in str(refused.value.exists)
    command = str(refused.value.next_command)
    assert command.startswith("orch resume-check --checkpoints ckpt -- /")
    assert "/bin/python train.py    #" in command, "of the environment that has the packages"
    record = refused.value.record
    assert isinstance(record, orch.RunRecord)
    assert record.exit["reason"] == "not_started"
    (lost,) = (record.resume_proof or {})["omissions"]
    assert lost["lost"] == "Python random state" and lost["confirmed"]
    (lease,) = orch.status(folder=folder)
    assert [run["run_id"] for run in lease.runs] == ["one"], "nothing was started there"


def test_without_checkpoints_there_is_nothing_to_prove(folder: Path, train: Train) -> None:
    with pytest.raises(orch.UsageError, match=r"names no train\.checkpoints"):
        train("train.checkpoints=[]")
    assert not (folder / "runs/one").exists()
