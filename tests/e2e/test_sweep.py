"""A sweep on isolated local machines: killed at any time, and finished by the same command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny, until

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="what runs on the machine is looked at from outside"),
]

SCRIPT = """import os, pathlib, sys, time
lr, seed = sys.argv[1], os.environ["ORCH_PARAM_SEED"]
while "GATE" in os.environ and not pathlib.Path(os.environ["GATE"]).exists():
    time.sleep(0.1)
for epoch in range(4):
    loss = float(lr) + int(seed) / (epoch + 1)
    print(f"Epoch {epoch + 1}/4\\n1/1 - loss: {loss:.4f}", flush=True)
    time.sleep(1)
pathlib.Path("out").mkdir()
pathlib.Path("out/chosen").write_text(f"{lr} {seed}")
"""
SWEEP = ("sweep", "orch.yaml", "--matrix", "lr=0.1,0.01", "--matrix", "seed=1..2", "--machines", "2")


@pytest.fixture
def project(tmp_path: Path, machines: Path) -> Iterator[Project]:
    made = tiny(tmp_path / "swept", machines, SCRIPT, disk="4 GiB")
    profile = made.folder / "orch.yaml"
    profile.write_text(profile.read_text().replace("train.py", "train.py {lr}"))
    yield made
    for lease in made.json("status")["leases"]:
        made.orch("down", lease["lease"], "--discard")


def running(project: Project) -> int:
    """How many runs of the sweep have a machine, as another process sees it."""
    if not list(project.folder.glob("runs/*/sweep.json")):
        return 0
    status = project.json("sweep", "status")
    return sum(point["state"] == "running" for point in status["points"])


@pytest.mark.parametrize("killed_by", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_is_finished_by_the_same_command(project: Project, killed_by: signal.Signals) -> None:
    """No run is started twice, and every machine is deleted."""
    first = project.start(*SWEEP)
    until(lambda: running(project) == 2, 120)
    first.send_signal(killed_by)
    _, err = first.communicate(timeout=60)
    assert first.returncode == (-killed_by if killed_by == signal.SIGKILL else 130), err.decode()
    if killed_by == signal.SIGINT:
        assert b"2 of 4 runs and 2 machines continue, at $0.00/h" in err
        assert b"Next: orch sweep orch.yaml --matrix lr=0.1,0.01 --matrix seed=1,2 --machines 2 " in err
    assert "interrupted, the same command continues" in project.orch("sweep", "status").out
    done = json.loads(project.orch(*SWEEP, "--json").out)
    assert [point["reason"] for point in done["points"]] == ["completed"] * 4
    assert [point["attempts"] for point in done["points"]] == [1] * 4
    assert done["left"] == [] and project.json("status")["leases"] == []
    for point in done["points"]:
        folder = project.folder / "runs" / point["run_id"]
        chosen = (folder / "outputs/out/chosen").read_text()
        assert chosen == f"{point['params']['lr']} {point['params']['seed']}"
        assert (folder / "output.log").read_text().count("Epoch 1/4") == 1
    best = next(point for point in done["points"] if point["run_id"] == done["best"])
    assert (done["metric"], best["params"]) == ("loss", {"lr": "0.01", "seed": "1"})


DETACHED = ("sweep", "orch.yaml", "--matrix", "lr=0.1", "--matrix", "seed=1..5", "--machines", "2")


def on_machines(project: Project) -> set[str]:
    """The states of the points that no record here tells, as the machines tell them."""
    status = project.json("sweep", "status")
    records = {path.parent.name for path in project.folder.glob("runs/*/run.json")}
    return {point["reason"] or point["state"] for point in status["points"] if point["run_id"] not in records}


def test_a_detached_sweep_needs_no_client_until_its_results_are_collected(project: Project) -> None:
    """The client is killed while it queues, queues the rest, and is gone; nothing is trained twice."""
    profile = project.folder / "orch.yaml"
    profile.write_text(profile.read_text() + "  env: {GATE: /tmp/go}\n")
    killed = project.start(*DETACHED, "--detach")
    until(lambda: running(project) >= 1, 300)
    killed.kill()
    killed.communicate(timeout=60)
    left = json.loads(project.orch(*DETACHED, "--detach", "--json").out)
    assert left["detached"] and left["next_command"] and len(left["points"]) == 5
    machines = {point["lease"] for point in left["points"]}
    assert len(machines) == 2 and None not in machines
    assert on_machines(project) == {"running", "queued"}
    assert sum(run["queued"] for run in project.json("runs")["runs"]) == 3
    assert "2 running, 3 queued; detached, the same command collects" in project.orch("sweep", "status").out
    for lease in sorted(machines):
        project.orch("ssh", "--lease", lease, "--", "touch", "/tmp/go")
    until(lambda: on_machines(project) <= {"completed"}, 240)
    assert not list(project.folder.glob("runs/*/run.json")), "nobody collected"
    done = json.loads(project.orch(*DETACHED, "--json").out)
    assert [point["reason"] for point in done["points"]] == ["completed"] * 5
    assert [point["attempts"] for point in done["points"]] == [1] * 5
    assert done["left"] == [] and project.json("status")["leases"] == []
    spans = []
    for point in done["points"]:
        folder = project.folder / "runs" / point["run_id"]
        assert (folder / "outputs/out/chosen").read_text() == f"0.1 {point['params']['seed']}"
        assert (folder / "output.log").read_text().count("Epoch 1/4") == 1
        (attempt,) = json.loads((folder / "run.json").read_text())["attempts"]
        spans.append((attempt["machine"], attempt["started_at"], attempt["ended_at"]))
    for (one, _, ended), (other, began, _) in pairwise(sorted(spans)):
        assert one != other or began >= ended - 0.5, "two runs shared a machine"
