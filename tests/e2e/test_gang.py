"""Several machines that train one model: made together, failing together, and one record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.providers.local.provider import LocalProvider
from tests.e2e.project import Project, tiny, until

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="machines with a network of their own"),
]

SCRIPT = (Path(__file__).parent / "gang_job.py").read_text()
TRAIN = """\
train:
  command: python train.py {pace}
  params: {pace: 0.1}
  outputs: [out]
  checkpoints: [ckpt]
"""


@pytest.fixture
def project(tmp_path: Path, machines: Path) -> Iterator[Project]:
    made = tiny(tmp_path / "gang", machines, SCRIPT, disk="4 GiB")
    profile = made.folder / "orch.yaml"
    text = profile.read_text().partition("train:")[0].replace("{cpus: 1", "{nodes: 2, cpus: 1")
    profile.write_text(f"{text}{TRAIN}retry: {{interruption: 1}}\n")
    yield made
    made.orch("down", "--all", "--discard", "--yes")


def uninterrupted(folder: Path) -> str:
    """The result of one process."""
    folder.mkdir()
    environ = {**os.environ, "ORCH_PARAM_PACE": "0"}
    environ.pop("TF_CONFIG", None)
    subprocess.run(["python3", "-c", SCRIPT], cwd=folder, env=environ, check=True, capture_output=True)
    return (folder / "out/weight").read_text()


def machines_of(project: Project) -> list[str]:
    return [lease["machine"] for lease in project.json("status")["leases"]]


def bridges(project: Project) -> list[str]:
    """The bridges of this project's machines: others may run tests on this computer."""
    mine = {path.parent.name for path in project.folder.glob(".orch/*/ledger.jsonl")}
    aliases = [path.read_text() for path in Path("/sys/class/net").glob("orch*/ifalias")]
    return [alias for alias in aliases if alias.split("/")[0].strip() in mine and "/10.78." in alias]


def machine(project: Project, rank: int) -> Any:
    found = machines_of(project)[rank]
    return next(one for one in LocalProvider(project.state).list({}) if one.id == found)


def steps_of(project: Project, run: str) -> int:
    log = project.folder / "runs" / run / "output.log"
    return log.read_text().count("step ") if log.exists() else 0


def is_kept(project: Project, run: str) -> bool:
    """Whether a checkpoint of the run is here."""
    return any((project.folder / "runs" / run / "checkpoints").glob("*/manifest.json"))


def test_two_machines_train_what_one_process_does(project: Project, tmp_path: Path) -> None:
    said = project.orch("up", "orch.yaml")
    assert "2 machines of tiny" in said.err
    assert len(machines_of(project)) == 2 and len(bridges(project)) == 1
    done = project.orch("train", "--run-id", "together", "--json")
    record = json.loads(done.out)
    assert "[1] rank 1 of 2 begins at step 0" in done.err
    nodes = record["nodes"]
    assert [(node["rank"], node["run"], node["exit"]) for node in nodes] == [
        (0, "together", "completed"),
        (1, "together.n1", "completed"),
    ]
    assert [node["machine"] for node in nodes] == machines_of(project)
    result = project.folder / "runs/together/outputs/out/weight"
    assert result.read_text() == uninterrupted(tmp_path / "alone")
    assert [run["run_id"] for run in project.json("runs")["runs"]] == ["together"]
    again = json.loads(project.orch("train", "--run-id", "together", "--json").out)
    assert again["nodes"] == nodes
    project.orch("down")
    assert machines_of(project) == []
    assert bridges(project) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_is_lost_is_replaced_and_the_weights_are_those_of_one_process(
    project: Project, tmp_path: Path, rank: int
) -> None:
    project.orch("up", "orch.yaml")
    training = project.start("train", "--run-id", "lost", "--json", "--set", "train.params.pace=1.5")
    until(lambda: is_kept(project, "lost"), 120)
    LocalProvider(project.state).kill(machine(project, rank))
    out, err = training.communicate(timeout=300)
    assert training.returncode == 0, err.decode()
    record = json.loads(out)
    assert [attempt["reason"] for attempt in record["attempts"]] == ["lost", "completed"]
    assert record["attempts"][1]["resumed_from"]["attempt"] == 1
    weight = project.folder / "runs/lost/outputs/out/weight"
    assert weight.read_text() == uninterrupted(tmp_path / "alone")
    assert len(machines_of(project)) == 2


def test_a_partition_between_the_machines_is_an_interruption(project: Project, tmp_path: Path) -> None:
    project.orch("up", "orch.yaml")
    training = project.start("train", "--run-id", "apart", "--json", "--set", "train.params.pace=1.5")
    until(lambda: is_kept(project, "apart"), 120)
    LocalProvider(project.state).isolate(machine(project, 1))
    out, err = training.communicate(timeout=300)
    assert training.returncode == 0, err.decode()
    record = json.loads(out)
    assert [attempt["reason"] for attempt in record["attempts"]] == ["lost", "completed"]
    assert "does not reach" in record["attempts"][0]["detail"]
    weight = project.folder / "runs/apart/outputs/out/weight"
    assert weight.read_text() == uninterrupted(tmp_path / "alone")


def test_a_client_that_is_killed_finds_its_run_again_on_all_machines(
    project: Project, tmp_path: Path
) -> None:
    project.orch("up", "orch.yaml")
    slow = ("--set", "train.params.pace=0.5")
    first = project.start("train", "--run-id", "left", *slow)
    until(lambda: steps_of(project, "left") >= 2, 120)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    record = json.loads(project.orch("train", "--run-id", "left", *slow, "--json").out)
    assert [attempt["reason"] for attempt in record["attempts"]] == ["completed"]
    assert [node["exit"] for node in record["nodes"]] == ["completed"] * 2
    log = (project.folder / "runs/left/output.log").read_text()
    assert log.count("step 1 ") == 1
    weight = project.folder / "runs/left/outputs/out/weight"
    assert weight.read_text() == uninterrupted(tmp_path / "alone")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_is_that_of_the_machine_where_it_began(project: Project, rank: int) -> None:
    """The other one fails, too, because it loses its peer; its machine is deleted as well."""
    missing = f'if rank == {rank}: raise SystemExit("its shard is missing")\npace = float'
    (project.folder / "train.py").write_text(SCRIPT.replace("pace = float", missing))
    failed = project.json("run", "orch.yaml", "--run-id", "bad", code=6)
    message = failed["error"]["message"]
    assert ("node 1" in message) == ("(orch logs bad.n1)" in message) == (rank == 1)
    log = project.folder / "runs" / ("bad.n1" if rank else "bad") / "output.log"
    assert "its shard is missing" in log.read_text()
    assert machines_of(project) == [] and bridges(project) == []


def test_fewer_machines_than_there_are_need_a_word(project: Project) -> None:
    project.orch("up", "orch.yaml")
    refused = project.orch("up", "orch.yaml", "--set", "resources.nodes=1", code=2)
    assert "has 2 machines, and resources.nodes is now 1" in refused.err
    assert len(machines_of(project)) == 2
