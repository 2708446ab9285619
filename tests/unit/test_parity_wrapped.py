"""A shell script that starts Python: what is imposed holds although the script sets variables itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.api.confirm_copy import Copy, Folders
from orchestrator.api.confirm_runs import Runs
from orchestrator.api.rerun import Rerun
from orchestrator.model import Agent
from orchestrator.parity.imposed import Imposed
from orchestrator.runtime.rundir import open_run

SCRIPT = f"""export FIRST=script SECOND=script
{sys.executable} -c 'import json, os
from orchestrator.runtime import imposing
imposing.install(imposing.from_environment(os.environ), now=False)
print(json.dumps([os.environ.get("FIRST"), os.environ.get("SECOND")]))'
"""


def test_a_variable_that_a_shell_script_exports_is_another_in_its_python() -> None:
    plan = json.dumps({"env": {"FIRST": "imposed", "SECOND": None}})
    environ = {**os.environ, "ORCH_IMPOSE": plan}
    done = subprocess.run(["sh", "-c", SCRIPT], env=environ, capture_output=True, check=True, timeout=120)
    assert json.loads(done.stdout) == ["imposed", None]


def test_other_arguments_are_not_tried_on_a_wrapper(tmp_path: Path) -> None:
    """Nobody knows how it would pass them on; that it changes nothing must not be said."""
    (tmp_path / "project").mkdir()
    known = Rerun(("sh", "run.sh"), tmp_path / "project", sys.executable)
    agent = Agent(sys.executable, str(tmp_path), str(tmp_path))
    with Runs(known, Folders(known.cwd), agent, {}, 3) as runs:
        trial = runs.run(Imposed(arguments=("--epochs", "3")), time.monotonic() + 60)
    assert not trial.recording.steps and "other arguments" in trial.why


@pytest.mark.parametrize(
    ("argv", "planned"), [(("sh", "run.sh"), {"TF_X": "1", "TF_Y": None}), (("python", "train.py"), None)]
)
def test_python_is_told_of_variables_where_a_script_may_set_them(
    tmp_path: Path, argv: tuple[str, ...], planned: dict[str, str | None] | None
) -> None:
    known = Rerun(argv, tmp_path, sys.executable)
    imposed = Imposed(env={"TF_X": "1", "TF_Y": None, "PYTHONPATH": "/x", "PATH": "/y"})
    with Runs(known, Folders(tmp_path), Agent(sys.executable, str(tmp_path), str(tmp_path)), {}, 3) as runs:
        plan = runs._plan(open_run(str(tmp_path), "one"), Copy(tmp_path), imposed)
    assert plan.get("env") == planned
