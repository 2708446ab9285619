"""Results that went with their machine before anybody had them: `down` and `status` say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.model import Machine, RunRecord
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.run import summary
from orchestrator.session.project import Project
from tests.unit.memory_cloud import leased, serve, spec_for

DRAFT = {"stack": {}, "data": {}, "parity": None, "timings": {}}
DATA = {"digest": "ab" * 32, "files": 2, "bytes": 9}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    made = MemoryProvider()
    serve(made, monkeypatch)
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    return Project(tmp_path)


def lease_with_a_run(project: Project, cloud: MemoryProvider, ended: str | None = "completed") -> Machine:
    machine = leased(project, "one", cloud, spec_for("one"))
    ledger = project.ledger("one")
    ledger.append("run.started", run_id="left", draft={**DRAFT, "data": DATA})
    if ended:
        ledger.append("run.ended", run_id="left", reason=ended)
    return machine


def said(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout


def test_down_says_what_was_lost_with_a_machine_that_was_gone(
    project: Project, cloud: MemoryProvider
) -> None:
    cloud.delete(lease_with_a_run(project, cloud))
    code, text = said("down")
    assert code == 14
    assert "left: It had ended (completed), and its results were not pulled." in text
    assert "nothing is left" not in text
    record = json.loads((project.run("left") / "run.json").read_text())
    assert record["exit"]["reason"] == "results_lost"
    assert record["data"]["checked"] is False, "what it read went with its machine"
    shown = summary(RunRecord.from_json(record, project.run("left")))
    told = "2 files, 9 B sent; whether the run read exactly these bytes is not known"
    assert told in " ".join(shown.split())
    assert said("down")[0] == 0, "there is nothing to say any more"


def test_down_says_it_also_where_status_settled_it_before(project: Project, cloud: MemoryProvider) -> None:
    cloud.delete(lease_with_a_run(project, cloud))
    for words in (("status", "--live"), ("status", "--live"), ("down",)):
        code, text = said(*words)
        assert code == 14, words
        assert "It had ended (completed), and its results were not pulled." in text
        assert "nothing is left" not in text
    assert said("down")[0] == 0


def test_down_tells_it_in_json_too(project: Project, cloud: MemoryProvider) -> None:
    cloud.delete(lease_with_a_run(project, cloud, ended=None))
    code, text = said("down", "--json")
    value = json.loads(text)
    assert (code, value["proven_gone"]) == (14, True)
    assert [(run["run_id"], run["reason"]) for run in value["lost"]] == [("left", "lost")]


def test_what_was_to_be_discarded_is_not_lost(project: Project, cloud: MemoryProvider) -> None:
    cloud.delete(lease_with_a_run(project, cloud))
    assert said("down", "--discard")[0] == 0


def test_results_that_are_here_are_not_lost(project: Project, cloud: MemoryProvider) -> None:
    machine = lease_with_a_run(project, cloud)
    project.ledger("one").append("run.collected", run_id="left", left=[])
    cloud.delete(machine)
    assert said("status", "--live")[0] == 0
    assert said("down")[0] == 0


def test_status_says_it_until_the_lease_is_ended(project: Project, cloud: MemoryProvider) -> None:
    machine = lease_with_a_run(project, cloud)
    assert said("status", "--live")[0] == 0
    cloud.delete(machine)
    for _ in range(2):
        code, text = said("status", "--live")
        assert code == 14
        assert "Lost: left. It had ended (completed)" in text
    assert said("down")[0] == 14, "a status may have been read by nobody"
    assert said("down")[0] == 0


def test_down_ends_the_lease_where_the_loss_cannot_be_written_down(
    project: Project, cloud: MemoryProvider
) -> None:
    cloud.delete(lease_with_a_run(project, cloud))
    (project.root / "runs").write_text("a file, where a folder would have to be")
    code, text = said("down", "--json")
    value = json.loads(text)
    assert (code, [run["run_id"] for run in value["lost"]]) == (14, ["left"])
    assert value["unnoted"]
