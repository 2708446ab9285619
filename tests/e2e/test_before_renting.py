"""Stack errors of `train` are refused by `up` before a machine is made, and shown by `plan`."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.project import Project
from tests.unit.stack_locks import uv

pytestmark = pytest.mark.machine

SHOWS_ITS_VARIABLES = """
import os
names = ("TF_ENABLE_ONEDNN_OPTS", "OPENBLAS_CORETYPE", "OMP_NUM_THREADS")
print([os.environ.get(name) for name in names])
"""


def test_a_variable_of_this_shell_that_changes_numbers_is_given_to_the_run(project: Project) -> None:
    (project.folder / "train.py").write_text(SHOWS_ITS_VARIABLES)
    environ = {"TF_ENABLE_ONEDNN_OPTS": "0", "OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1"}
    allowed = ("--set", "stack.allow=['environment:OMP_*']")
    made = project.orch("up", "orch.yaml", *allowed, **environ)
    first = project.orch("train", "--run-id", "first", **environ)
    again = project.orch("train", "--run-id", "shell", **environ)
    assert "TF_ENABLE_ONEDNN_OPTS=0" in first.err and "OMP_NUM_THREADS" not in first.err
    assert "TF_ENABLE_ONEDNN_OPTS" not in made.err + again.err, "it is told to the first run that gets it"
    record = project.json("train", "--run-id", "shell", **environ)
    assert record["stack"]["inherited"] == {"OPENBLAS_CORETYPE": "Haswell", "TF_ENABLE_ONEDNN_OPTS": "0"}
    printed = (project.folder / "runs/shell/output.log").read_text()
    assert "['0', 'Haswell', None]" in printed


def test_a_variable_that_is_right_for_one_machine_only_is_refused(project: Project) -> None:
    environ = {"TF_XLA_FLAGS": "--tf_xla_dump_to=/home/me/dump"}
    error = project.json("up", "orch.yaml", code=7, **environ)["error"]
    assert (error["kind"], error["exists"]) == ("StackMismatch", "Nothing was created; nothing costs money.")
    assert "TF_XLA_FLAGS" in error["message"]
    assert project.json("status")["leases"] == []
    (warning,) = [w for w in project.json("plan", "orch.yaml", **environ)["warnings"] if "TF_XLA" in w]
    assert "train.env" in warning
    allowed = "stack.allow=['environment:TF_*']"
    assert project.json("plan", "orch.yaml", "--set", allowed, **environ)["warnings"] == []


def test_an_environment_here_that_is_not_the_lock(project: Project) -> None:
    own = project.folder / ".venv"
    uv("venv", "-q", "-p", sys.executable, own, cwd=project.folder)
    uv("pip", "install", "-q", "-p", own / "bin/python", "six==1.16.0", cwd=project.folder)
    warnings = project.json("plan", "orch.yaml")["warnings"]
    assert any("six" in each and "1.16.0" in each and "1.17.0" in each for each in warnings)
    error = project.json("up", "orch.yaml", code=7)["error"]
    assert "six" in error["message"]
    assert project.json("status")["leases"] == []
