"""The last lines of `up` and `train` for a project without TensorFlow, read as its user reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny

pytestmark = pytest.mark.machine

SCRIPT = """
import os, pickle, random
os.makedirs("out", exist_ok=True)
with open("out/weights", "wb") as file:
    pickle.dump({"w": [0.5, 0.25]}, file, protocol=4)
with open("out/net.onnx", "wb") as file:
    file.write(b"anything")
print("loss", 0.5)
"""


@pytest.fixture
def project(tmp_path: Path, machines: Path) -> Iterator[Project]:
    made = tiny(tmp_path / "project", machines, SCRIPT)
    yield made
    made.orch("down", "--discard")


def test_the_limits_of_a_local_machine_are_said_once(project: Project) -> None:
    first = project.orch("up", "orch.yaml").err
    limits = [line for line in first.splitlines() if "Limits of this local machine (tier " in line]
    assert len(limits) == 1 and limits[0].endswith(".")
    assert "Limits of this local machine" not in project.orch("up", "orch.yaml").err
    doctor = project.orch("doctor").out
    assert "\n  limit: it" in doctor and "lost" not in doctor


def test_the_screens_of_a_script_without_a_framework(project: Project) -> None:
    assert project.orch("up", "orch.yaml").out.endswith("\nNext: orch train\n")
    error = project.json("train", "--local-parity", code=2)["error"]
    assert error["next_command"] == "orch train" and not list(project.folder.glob("runs/[!.]*"))
    screen = " ".join(project.orch("train", "--run-id", "one").out.split())
    assert "out/weights: not checked: no reader for its format (the package numpy is not installed)" in screen
    assert "out/net.onnx: not checked: no reader for its format (a file of ONNX)" in screen
    assert (
        "too short to tell" in screen
        and "one change" not in screen
        and "would have been enough" not in screen
    )
