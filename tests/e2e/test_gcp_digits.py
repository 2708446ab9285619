"""The shipped profile gcp-l4: plan, up, a real training with TensorFlow, down.

An emulated machine has no GPU, so the lock is that without CUDA, by its name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds import gcp
from tests.conftest import DIGITS, ROOT
from tests.e2e.project import Project

pytestmark = [
    pytest.mark.machine,
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]


@pytest.fixture
def digits(tmp_path: Path, digits_data: Path) -> Iterator[tuple[Project, gcp.Cloud]]:
    ignored = shutil.ignore_patterns("data", "out", ".venv", "__pycache__")
    shutil.copytree(DIGITS, tmp_path / "examples" / "digits", ignore=ignored)
    shutil.copytree(digits_data, tmp_path / "examples" / "digits" / "data")
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with gcp.running() as cloud:
        project = Project(tmp_path, tmp_path / "state", dict(cloud.env))
        yield project, cloud
        project.orch("down", "--discard")


def test_the_digits_on_an_l4(digits: tuple[Project, gcp.Cloud]) -> None:
    project, cloud = digits
    profile = project.folder / "profiles/gcp-l4.yaml"
    shipped = profile.read_text()
    assert shipped.count("requirements-gpu.lock") == 1
    profile.write_text(shipped.replace("requirements-gpu.lock", "requirements.lock"))
    project.orch("plan", "profiles/gcp-l4.yaml", code=2)
    allowed = ("--set", "stack.allow=[lock-without-gpu]")
    held = project.json("up", "profiles/gcp-l4.yaml", "--yes", *allowed)
    assert held["instance_type"] == "g2-standard-4"
    assert held["detail"]["image"].startswith(
        "projects/deeplearning-platform-release/global/images/common-cu129"
    )
    (insert,) = cloud.calls("compute.instances.insert")
    assert insert["body"]["scheduling"]["provisioningModel"] == "SPOT"
    assert insert["body"]["disks"][0]["initializeParams"]["diskSizeGb"] == "100"

    record = project.json("train", "--run-id", "main")
    assert record["exit"]["reason"] == "completed"
    assert record["metrics"]["accuracy"] >= 0.96
    assert record["model_check"]["equal"] is True
    assert "outputs/out/model.keras" in [artifact["path"] for artifact in record["artifacts"]]

    assert project.json("down")["proven_gone"] is True
    assert cloud.state()["instances"] == []
