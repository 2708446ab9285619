"""A shell script that starts Python: what is imposed holds although the script sets variables itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.model import Agent
from orchestrator.parity.intervention import Intervention
from orchestrator.replay.recipe import Recipe
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.sandbox import Copy, Folders
from orchestrator.runtime.rundir import open_run

SCRIPT = f"""export FIRST=script SECOND=script
{sys.executable} -c 'import json, os
from orchestrator.runtime.replay import interventions
interventions.install(interventions.from_environment(os.environ), now=False)
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
    known = Recipe(("sh", "run.sh"), tmp_path / "project", sys.executable)
    agent = Agent(sys.executable, str(tmp_path), str(tmp_path))
    with Replayer(known, Folders(known.cwd), agent, {}, 3) as runs:
        trial = runs.run(Intervention(arguments=("--epochs", "3")), time.monotonic() + 60)
    assert not trial.recording.steps and "other arguments" in trial.why


@pytest.mark.parametrize(
    ("argv", "planned"), [(("sh", "run.sh"), {"TF_X": "1", "TF_Y": None}), (("python", "train.py"), None)]
)
def test_python_is_told_of_variables_where_a_script_may_set_them(
    tmp_path: Path, argv: tuple[str, ...], planned: dict[str, str | None] | None
) -> None:
    known = Recipe(argv, tmp_path, sys.executable)
    imposed = Intervention(env={"TF_X": "1", "TF_Y": None, "PYTHONPATH": "/x", "PATH": "/y"})
    with Replayer(
        known, Folders(tmp_path), Agent(sys.executable, str(tmp_path), str(tmp_path)), {}, 3
    ) as runs:
        plan = runs._plan(open_run(str(tmp_path), "one"), Copy(tmp_path), imposed)
    assert plan.get("env") == planned
