"""What `train` would refuse of the stack is refused by `up` before a machine is made, and told by `plan`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.stack.uv import uv_binary
from tests.e2e.project import Project

pytestmark = pytest.mark.machine


def test_a_variable_of_this_shell_that_changes_numbers(project: Project) -> None:
    environ = {"TF_ENABLE_ONEDNN_OPTS": "0"}
    error = project.json("up", "orch.yaml", code=7, **environ)["error"]
    assert (error["kind"], error["exists"]) == ("StackMismatch", "Nothing was made; nothing costs.")
    assert "TF_ENABLE_ONEDNN_OPTS" in error["message"]
    assert project.json("status")["leases"] == []
    (warning,) = [w for w in project.json("plan", "orch.yaml", **environ)["warnings"] if "TF_ENABLE" in w]
    assert "train.env" in warning
    allowed = "stack.allow=['environment:TF_*']"
    assert project.json("plan", "orch.yaml", "--set", allowed, **environ)["warnings"] == []


def test_an_environment_here_that_is_not_the_lock(project: Project) -> None:
    uv, own = str(uv_binary()), project.folder / ".venv"
    subprocess.run([uv, "venv", "-q", "-p", sys.executable, own], check=True)
    subprocess.run([uv, "pip", "install", "-q", "-p", own / "bin/python", "six==1.16.0"], check=True)
    warnings = project.json("plan", "orch.yaml")["warnings"]
    assert any("six" in each and "1.16.0" in each and "1.17.0" in each for each in warnings)
    error = project.json("up", "orch.yaml", code=7)["error"]
    assert "six" in error["message"]
    assert project.json("status")["leases"] == []
