"""`train --local-parity` of several machines: one process here, one there, and all machines together.

The machines are folders of this computer that share one environment with TensorFlow: to install it twice
takes longer than all runs together, and other tests install it.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from tests.conftest import DIGITS, ROOT
from tests.said import Said
from tests.unit import here_cloud

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.processes]

PROFILE = """\
version: 1
name: several
cloud: memory
resources: {nodes: 2, cpus: 2}
max_duration: 30m
train:
  command: python train.py --steps 2 --every 2 --output out
  env: {TF_NUM_INTRAOP_THREADS: "1", TF_NUM_INTEROP_THREADS: "1", TF_CPP_MIN_LOG_LEVEL: "2"}
  outputs: [out]
parity: {steps: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, tf_python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of two machines that are up."""

    def linked(place: Any, *_: object) -> None:
        stacks = Path(place.agent.base) / "stacks"
        stacks.mkdir(exist_ok=True)
        (stacks / place.digest).symlink_to(tf_python.parents[1])

    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(importlib.import_module("orchestrator.stack.install"), "_deliver", linked)
    here_cloud.cloud(tmp_path / "machines", monkeypatch)
    made = tmp_path / "several"
    made.mkdir()
    shutil.copy(ROOT / "examples/several/train.py", made)
    shutil.copy(DIGITS / "requirements.lock", made)
    (made / "orch.yaml").write_text(PROFILE)
    orch.up(made / "orch.yaml", folder=made, progress=Said())
    yield made
    orch.down(folder=made, discard=True)


def test_two_machines_are_equal_to_one_process(folder: Path) -> None:
    done = orch.train(run_id="sound", folder=folder, local_parity=True, progress=Said())
    parity = json.loads((folder / "runs/sound/run.json").read_text())["parity"]
    found = parity["workers"]
    assert (found["verdict"], found["world"], found["steps"]) == ("EQUAL", 2, 2)
    assert parity["verdict"] == "IDENTICAL"
    assert [node["exit"] for node in done.nodes] == ["completed"] * 2


def test_a_machine_that_reads_the_wrong_share_is_named_before_the_run(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(script.read_text().replace("AutoShardPolicy.DATA", "AutoShardPolicy.OFF"))
    with pytest.raises(orch.ParityMismatch, match="rank 1: same examples"):
        orch.train(run_id="wrong", folder=folder, local_parity=True, progress=Said())
    assert not (folder / "runs/wrong/outputs").exists()
