"""`train --local-parity` of several machines: one process here, one there, and all machines together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DIGITS, ROOT
from tests.e2e.project import Project

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="machines with a network of their own"),
]

PROFILE = """\
version: 1
name: several
cloud: local
resources: {nodes: 2, cpus: 1, memory: 2 GiB, disk: 6 GiB}
max_duration: 30m
train:
  command: python train.py --steps 2 --every 2 --output out
  env: {TF_NUM_INTRAOP_THREADS: "1", TF_NUM_INTEROP_THREADS: "1", TF_CPP_MIN_LOG_LEVEL: "2"}
  outputs: [out]
parity: {steps: 2}
"""


@pytest.fixture
def project(tmp_path: Path, machines: Path, tf_python: Path) -> Iterator[Project]:  # noqa: ARG001 (the stack)
    folder = tmp_path / "several"
    folder.mkdir()
    shutil.copy(ROOT / "examples/several/train.py", folder)
    shutil.copy(DIGITS / "requirements.lock", folder)
    (folder / "orch.yaml").write_text(PROFILE)
    made = Project(folder, machines)
    yield made
    made.orch("down", "--all", "--discard", "--yes")


def test_two_machines_are_equal_to_one_process_and_a_wrong_share_is_named(project: Project) -> None:
    script = project.folder / "train.py"
    sound = script.read_text()
    script.write_text(sound.replace("AutoShardPolicy.DATA", "AutoShardPolicy.OFF"))
    project.orch("up", "orch.yaml")
    refused = project.json("train", "--run-id", "wrong", "--local-parity", code=7)
    assert "rank 1: same examples" in refused["error"]["message"]
    script.write_text(sound)
    done = json.loads(project.orch("train", "--run-id", "sound", "--local-parity", "--json").out)
    workers = done["parity"]["workers"]
    assert (workers["verdict"], workers["world"], workers["steps"]) == ("EQUAL", 2, 2)
    assert done["parity"]["verdict"] == "IDENTICAL"
    assert [node["exit"] for node in done["nodes"]] == ["completed"] * 2
