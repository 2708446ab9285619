"""`orch rerun` from the command line, on a real machine: the code of then runs again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny

pytestmark = pytest.mark.machine

SCRIPT = (
    "import pathlib\n"
    "seen = pathlib.Path('data/x.txt').read_text()\n"
    "pathlib.Path('out').mkdir()\n"
    "pathlib.Path('out/weights').write_text('then ' + seen)\n"
    "pathlib.Path('out/metrics.json').write_text('{\"loss\": 0.5}')\n"
)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory, machines: Path) -> Project:
    """A project in git with its run `first`, whose code was not committed; its machine is gone."""
    made = tiny(tmp_path_factory.mktemp("rerun"), machines, "raise SystemExit('committed')\n")
    profile = made.folder / "orch.yaml"
    profile.write_text(profile.read_text() + "  outputs: [out]\ndata:\n  - source: data\n")
    (made.folder / "data").mkdir()
    (made.folder / "data/x.txt").write_text("data")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=made.folder, check=True)
    (made.folder / "train.py").write_text(SCRIPT)
    made.orch("run", "orch.yaml", "--run-id", "first")
    return made


def test_the_old_code_runs_again_and_is_the_same(repeated: Project) -> None:
    (repeated.folder / "train.py").write_text("raise SystemExit('later')\n")
    said = repeated.orch("rerun", "first", "--run-id", "second")
    assert "first and second: the same" in said.out
    assert "2 of 2 files bit for bit the same" in said.out
    assert (repeated.folder / "runs/second/outputs/out/weights").read_text() == "then data"
    assert (repeated.folder / "train.py").read_text() == "raise SystemExit('later')\n"
    first, second = (
        json.loads((repeated.folder / f"runs/{name}/run.json").read_text()) for name in ("first", "second")
    )
    assert first["code"] == second["code"] and first["code"]["git"]["dirty"]
    assert repeated.json("status")["leases"] == []


def test_a_run_whose_data_changed_is_refused(repeated: Project) -> None:
    (repeated.folder / "data/x.txt").write_text("other data")
    error = repeated.json("rerun", "first", "--run-id", "third", code=2)["error"]
    assert "the data: 1 file of 4 bytes then, 1 file of 10 bytes now" in error["message"]
    assert error["next_command"].startswith("orch rerun first    # once it is restored")
    assert not (repeated.folder / "runs/third").exists()
