"""The digits example on an instance of an emulated AWS: TensorFlow there, and proof that it is as here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clouds.ground_aws import grounded
from tests.conftest import DIGITS, ROOT
from tests.e2e.project import Project

pytestmark = [pytest.mark.machine, pytest.mark.tensorflow, pytest.mark.slow]


@pytest.mark.timeout(1800)
def test_three_commands(machines: Path, digits_data: Path, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("data", "out", ".venv", "__pycache__")
    shutil.copytree(DIGITS, tmp_path / "examples/digits", ignore=ignored)
    shutil.copytree(digits_data, tmp_path / "examples/digits/data")
    (tmp_path / "profiles").mkdir()
    local = (ROOT / "profiles/digits.yaml").read_text()
    assert local.count("cloud: local ") == 1
    profile = local.replace("cloud: local ", "cloud: aws ").replace("--epochs 12", "--epochs 2")
    (tmp_path / "profiles/digits.yaml").write_text(profile)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with grounded() as cloud:
        project = Project(tmp_path, machines, dict(cloud.env))
        held = project.json("up", "profiles/digits.yaml", "--yes")
        run = project.json("train", "--local-parity", "--run-id", "main")
        report = project.json("down")
    assert run["exit"]["reason"] == "completed"
    assert run["parity"]["verdict"] == "IDENTICAL"
    assert run["model_check"]["equal"] is True
    assert run["machine"]["provider"] == "aws"
    assert run["machine"]["instance_type"] == held["instance_type"]
    assert run["cost"]
    assert report["machines"] == [held["machine"]]
    assert report["proven_gone"] is True
