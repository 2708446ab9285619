"""The cause of a difference between two runs on machines is found by repeating their first steps here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import orchestrator as orch
from orchestrator.cli.app import app
from orchestrator.model import RunRecord
from tests.unit import here_cloud

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]

FRAMEWORK = (
    "orchestrator/__init__.py",
    "tests/__init__.py",
    "tests/unit/__init__.py",
    "tests/unit/parity_framework.py",
    "tests/unit/parity_runs.py",
)

SCRIPT = """\
import os
from pathlib import Path
from tests.unit.parity_framework import set_random_seed, train
scale = float(os.environ.get("SCALE", "1"))
more = float(open("data/more/y.csv").read()) + ("machines" in os.getcwd()) * float(os.environ["MORE"])
train([more + scale * float(x) for x in open("data/x.csv").read().split(",")])
Path("out").mkdir(exist_ok=True)
Path("out/model.txt").write_text("trained")
"""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orch_cache: Path) -> Callable[..., RunRecord]:
    """A function that trains a project on a machine with `--local-parity`: (run id, data, overrides) -> its
    record.
    """
    monkeypatch.setenv("ORCH_CACHE_HOME", str(orch_cache))
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "p"
    env = "  env: {SCALE: '2', MORE: '0', OTHER: {from_env: MINE}}\n  outputs: [out]\n"
    monkeypatch.setenv("MINE", "not-to-be-stored")
    profile = here_cloud.project(
        folder, SCRIPT, more=f"{env}data: [{{source: ../far, target: data}}]\nparity: {{steps: 1}}\n"
    )
    (folder / "keras.py").touch()
    for name in FRAMEWORK:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "orchestrator/runtime", folder / "orchestrator/runtime")
    (tmp_path / "far/more").mkdir(parents=True)
    (tmp_path / "far/more/y.csv").write_text("1")
    monkeypatch.chdir(folder)

    def train(run_id: str, data: str, *overrides: str) -> RunRecord:
        (tmp_path / "far/x.csv").write_text(data)
        return orch.run(profile, run_id=run_id, folder=folder, local_parity=True, overrides=overrides)

    return train


def test_two_runs_on_machines_are_repeated_here(trained: Callable[..., RunRecord]) -> None:
    a, b = trained("a", "1,2,3,4"), trained("b", "1,2,3,5")
    assert [(each.parity or {})["verdict"] for each in (a, b)] == ["IDENTICAL", "IDENTICAL"]
    assert "not-to-be-stored" not in (a.folder / "parity/here/rerun.json").read_text()
    said = CliRunner().invoke(app, ["compare", "a", "b"]).stdout
    assert "Next: orch compare a b --confirm" in said
    found = orch.compare("a", "b", confirm=True)
    assert found.confirmed and "data/x.csv" in (found.cause or ""), found
    for run in (a, b):  # as an older orch left it
        (run.folder / "parity/here/rerun.json").unlink()
    found = orch.compare("a", "b", confirm=True)
    assert "A cannot be run again here: an older orch recorded its steps" in (found.untried or "")


def test_steps_that_differ_here_are_not_taken_for_the_machines(trained: Callable[..., RunRecord]) -> None:
    warn = ("parity.on_mismatch=warn", "parity.confirm=false")
    for run, data in (("a", "1,2,3,4"), ("b", "1,2,3,5")):
        assert (trained(run, data, "train.env.MORE=1", *warn).parity or {})["verdict"] == "DIVERGENT"
    done = CliRunner().invoke(app, ["compare", "a", "b", "--confirm"])
    why = "A cannot be run again here: its first steps on this computer were not those of its machine"
    assert why in " ".join(done.stdout.split())
    said = CliRunner().invoke(app, ["compare", "a", "b"]).stdout
    command = "orch compare runs/a/parity/here runs/b/parity/here --confirm"
    assert f"Next: {command}    # the same steps of both, on this computer" in said
    assert '"MORE": "' not in (Path("runs/a/parity/here/rerun.json")).read_text(), "it came by --set"
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.exit_code == 7 and "first differ in step 1" in done.stdout
