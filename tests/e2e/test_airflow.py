"""A run as a task of a real Airflow: alone, deferred, failed, retried after a SIGKILL, ended by a person."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.providers import open_provider
from tests.conftest import ROOT
from tests.e2e.airflow_standalone import Airflow, free_port, install
from tests.e2e.project import Project, tiny, until

pytestmark = [pytest.mark.nightly, pytest.mark.machine, pytest.mark.slow, pytest.mark.registry]

TRAIN = """
import json, pathlib, time
print("begun", flush=True)
pathlib.Path("out").mkdir()
pathlib.Path("out/half").write_text("half")
time.sleep({seconds})
pathlib.Path("out/metrics.json").write_text(json.dumps({{"accuracy": 0.9, "loss": float("nan")}}))
"""
DAG = """
from datetime import datetime, timedelta
from airflow.sdk import DAG
from orchestrator.airflow import OrchRunOperator
with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    OrchRunOperator(
        task_id="train", profile="{folder}/orch.yaml", deferrable={deferrable}, poll_s=1,
        retries=2, retry_delay=timedelta(seconds=1),
    )
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def airflow(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    made = Airflow(programs, tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("state"), free_port())
    made.dags.mkdir()
    assert "migration done" in made.airflow("db", "migrate")
    return made


@pytest.fixture(scope="module")
def running(airflow: Airflow) -> Iterator[Airflow]:
    with airflow.running():
        yield airflow


@pytest.fixture
def projects() -> Iterator[list[Project]]:
    made: list[Project] = []
    yield made
    for project in made:
        project.orch("down", "--discard")


def dag(
    airflow: Airflow, projects: list[Project], name: str, script: str, *, deferrable: bool = False
) -> Project:
    """A DAG with one task, which trains a project of its own."""
    project = tiny(airflow.home / name, airflow.state, script)
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write("  outputs: [out]\n")
    projects.append(project)
    text = DAG.format(name=name, folder=project.folder, deferrable=deferrable)
    (airflow.dags / f"{name}.py").write_text(text)
    return project


def records(project: Project) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(project.folder.glob("runs/*/run.json"))]


def trains(project: Project) -> bool:
    """Whether the job has begun on its machine."""
    leases = project.json("status")["leases"]
    return [run["state"] for lease in leases for run in lease["runs"]] == ["running"]


def machines_left(airflow: Airflow) -> int:
    return len(list(open_provider("local", state=airflow.state).list({})))


def test_the_task_returns_the_result_and_leaves_no_machine(airflow: Airflow, projects: list[Project]) -> None:
    project = dag(airflow, projects, "plain", TRAIN.format(seconds=0))
    said = airflow.airflow("dags", "test", "plain", "2026-01-31")
    assert airflow.task("plain") == ("success", 1), said
    (record,) = records(project)
    assert airflow.result("plain") == {
        "run_id": record["run_id"], "reason": "completed", "verdict": None, "accepted": None,
        "metrics": {"accuracy": 0.9, "loss": "nan"}, "cost_usd": 0.0, "attempts": 1,
        "folder": str(project.folder / "runs" / record["run_id"]),
    }  # fmt: skip
    assert record["run_id"].startswith("plain.train.manual__") and "begun" in said
    assert project.json("status")["leases"] == []


def test_a_failure_that_a_retry_cannot_solve_is_not_retried(
    airflow: Airflow, projects: list[Project]
) -> None:
    project = dag(airflow, projects, "wrong", "raise SystemExit('no data')")
    said = airflow.airflow("dags", "test", "wrong", "2026-01-31")
    assert airflow.task("wrong") == ("failed", 1)
    assert "Exit code 6. A retry would fail again: not retried." in said
    (record,) = records(project)
    assert record["exit"]["code"] == 1 and project.json("status")["leases"] == []


def test_the_example_is_a_dag(airflow: Airflow) -> None:
    example = (ROOT / "examples/schedule/airflow_dag.py").read_text()
    (airflow.dags / "example.py").write_text(example)
    assert "No data found" in airflow.airflow("dags", "list-import-errors")
    assert airflow.airflow("tasks", "list", "forecast").split()[-2:] == ["announce", "train"]


def test_a_deferred_task_leaves_its_worker_and_ends_the_machine(
    running: Airflow, projects: list[Project]
) -> None:
    project = dag(running, projects, "waiting", TRAIN.format(seconds=8), deferrable=True)
    running.start("waiting")
    until(lambda: running.task("waiting")[0] == "deferred", 90)
    assert trains(project)
    until(lambda: running.task("waiting") == ("success", 1), 90)
    (record,) = records(project)
    assert record["exit"]["reason"] == "completed" and len(record["attempts"]) == 1
    assert running.result("waiting")["metrics"]["accuracy"] == 0.9
    assert project.json("status")["leases"] == []


@pytest.mark.parametrize("deferrable", [False, True], ids=["in a worker", "deferred"])
def test_a_task_that_a_person_ends_cancels_its_run_and_its_machine(
    running: Airflow, projects: list[Project], deferrable: bool
) -> None:
    name = f"killed-{deferrable}"
    project = dag(running, projects, name, TRAIN.format(seconds=600), deferrable=deferrable)
    run = running.start(name)
    wanted = "deferred" if deferrable else "running"
    until(lambda: running.task(name)[0] == wanted and trains(project), 90)
    until(lambda: running.triggers() == deferrable, 30)
    time.sleep(3 * deferrable)  # the triggerer begins what it has taken within a second
    running.mark_failed(name, run)
    until(lambda: machines_left(running) == 0, 60)
    until(lambda: len(records(project)) == 1, 10)
    (record,) = records(project)
    assert record["exit"]["reason"] == "cancelled"
    assert (project.folder / "runs" / record["run_id"] / "outputs/out/half").read_text() == "half"
    assert running.task(name)[0] == "failed"


def test_a_retry_after_sigkill_continues_the_same_run(running: Airflow, projects: list[Project]) -> None:
    project = dag(running, projects, "retried", TRAIN.format(seconds=20))
    running.start("retried")
    until(lambda: running.task("retried")[0] == "running" and trains(project), 90)
    os.kill(caller(project), signal.SIGKILL)
    until(lambda: running.task("retried") == ("success", 2), 120)
    (record,) = records(project)
    assert len(record["attempts"]) == 1 and machines_left(running) == 0


def caller(project: Project) -> int:
    """The process that follows the project's run: it has the lock of its machine's use open."""
    wanted = project.folder / ".orch/turns/use-tiny.lock"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if link.readlink() == wanted:
                    return int(link.parts[2])
            except OSError:
                continue
    raise AssertionError("nobody follows the run")
