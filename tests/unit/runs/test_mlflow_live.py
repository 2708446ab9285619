"""Metrics reach MLflow while the run trains, and its end completes the same MLflow run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.runs import background_download
from orchestrator.runs.mlflow_notes import Notes
from orchestrator.session.project import Project
from tests.unit.runs.mlflow_double import MlflowDouble
from tests.unit.runs.test_mlflow import profile, run, server

__all__ = ["profile", "server"]

pytestmark = pytest.mark.processes

WAITS = """import json, os, sys, time
def tell(epoch):
    print(f"Epoch {epoch}/5")
    print(f"loss: {1 / epoch:.4f}", flush=True)
for epoch in (1, 2, 3):
    tell(epoch)
for _ in range(1200):
    if os.path.exists(os.environ["GATE"]):
        break
    time.sleep(0.05)
else:
    sys.exit("no metric was logged while it trained")
for epoch in (4, 5):
    tell(epoch)
json.dump({"accuracy": 0.95}, open("metrics.json", "w"))
"""


def test_the_server_has_metrics_before_the_run_ends_and_each_once(
    server: MlflowDouble, profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_download, "_SELDOM_S", 0.05)
    gate = tmp_path / "gate"
    (profile.parent / "train.py").write_text(WAITS)

    def opens(_method: str, path: str) -> None:
        if "log-batch" in path:
            gate.touch()

    server.before = opens
    assert run(profile, "one", None, f"train.env.GATE={gate}").succeeded
    (logged,) = server.runs.values()
    assert logged["info"]["status"] == "FINISHED"
    losses = sorted((each["step"], each["value"]) for each in logged["metrics"] if each["key"] == "loss")
    assert losses == [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.25), (5, 0.2)]
    assert server.latest(logged["info"]["run_id"], "accuracy") == 0.95
    assert logged["tags"]["orch.exit"] == "completed" and logged["params"]["orch.command"]


def test_a_server_that_fails_meanwhile_changes_nothing(
    server: MlflowDouble, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_download, "_SELDOM_S", 0.0)
    server.before = lambda _method, _path: 503
    assert run(profile).succeeded
    server.before = lambda _method, _path: None
    run(profile)
    (logged,) = server.runs.values()
    assert [each["step"] for each in logged["metrics"] if each["key"] == "loss"] == [1, 2, 3]


def test_an_attempt_that_continues_one_without_an_end_continues_its_mlflow_run(tmp_path: Path) -> None:
    notes = Notes(Project(tmp_path), "one")
    first = replace(notes.of(1), live=True, sent={"epoch:loss": 3.0})
    notes.keep(first)
    second = notes.of(2)
    assert (second.id, second.sent) == (first.id, first.sent)
    notes.keep(replace(second, live=False, logged=True))
    assert notes.of(3).id != first.id and notes.of(2).logged
    assert notes.of(1) != first  # it has become the second attempt's
