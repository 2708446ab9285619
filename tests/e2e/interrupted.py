"""A training whose machine is taken away while it waits, and what it must come to all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from subprocess import Popen
from typing import Any

from tests.e2e.project import Project, until

STEPS = 9
WAITS = (3, 6)
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
    if (int(os.environ["ORCH_ATTEMPT"]), state["step"]) in LOST:
        time.sleep(600)
json.dump(state["weights"], open("weights.json", "w"))
"""
MORE = "  checkpoints: [saved]\nretry: {interruption: 2}\n"
"""What is added to a profile that ends with `train`."""


def write(project: Project, times: int) -> None:
    """Attempts 1 to `times` wait, each at a later step, until their machine is taken."""
    lost = [(attempt, WAITS[attempt - 1]) for attempt in range(1, times + 1)]
    (project.folder / "train.py").write_text(SCRIPT.replace("LOST", repr(lost)))
    profile = project.folder / "orch.yaml"
    profile.write_text(profile.read_text().replace("  outputs: [out]\n", "") + MORE)


def expected() -> list[float]:
    """The weights of a training that nobody interrupts."""
    weights = [0.1, 0.2]
    for step in range(1, STEPS + 1):
        weights = [w * 1.7 + step / 3 for w in weights]
    return weights


def begin(project: Project) -> Popen[bytes]:
    return project.start("run", "orch.yaml", "--run-id", "one")


def take_at(project: Project, caller: Popen[bytes], step: int, take: Callable[[], None]) -> None:
    """Take the machine away once the checkpoint of that step is here."""
    until(lambda: _saved(project) >= step or caller.poll() is not None, 120)
    if caller.poll() is not None:
        raise AssertionError(caller.communicate())
    take()


def vanish(caller: Popen[bytes]) -> None:
    """The caller dies."""
    os.killpg(caller.pid, signal.SIGKILL)
    caller.communicate()


def require_one_run(project: Project, caller: Popen[bytes], reason: str, times: int) -> dict[str, Any]:
    """The same weights to the last bit, nothing done twice, and one record with all attempts."""
    _, err = caller.communicate(timeout=300)
    assert caller.returncode == 0, err.decode()
    home = project.folder / "runs/one"
    record: dict[str, Any] = json.loads((home / "run.json").read_text())
    assert [each["reason"] for each in record["attempts"]] == [reason] * times + ["completed"]
    assert json.loads((home / "outputs/weights.json").read_text()) == expected()
    lines = (home / "output.log").read_text().splitlines()
    assert [line for line in lines if line.startswith("from")] == [f"from {at}" for at in (0, *WAITS[:times])]
    assert [line for line in lines if line.startswith("saved")] == [f"saved {n + 1}" for n in range(STEPS)]
    machines = [each["machine"] for each in record["attempts"]]
    assert all(machines), "an attempt was on a machine, whatever became of it"
    assert len(set(machines)) == times + 1
    assert project.json("status")["leases"] == []
    return record


def _saved(project: Project) -> int:
    found = (project.folder / "runs/one/checkpoints").glob("*/manifest.json")
    states = [manifest.parent / "files/saved/state.json" for manifest in found]
    return max((json.loads(state.read_text())["step"] for state in states if state.exists()), default=0)
