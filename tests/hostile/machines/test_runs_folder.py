"""`runs/` here in a bad state: an error for people, before anything runs; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_orch


def orch(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    environ = {**os.environ, "HOME": str(home), "ORCH_STATE_HOME": str(home / "state"), "NO_COLOR": "1"}
    return forked_orch.orch(*argv, cwd=folder, env=environ)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orch_cache: Path) -> Path:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(orch_cache))
    found = tmp_path / "project"
    found.mkdir()
    (found / "train.py").write_text("open('ran', 'w')\n")
    return found


def spoil(folder: Path, how: str) -> None:
    runs = folder / "runs"
    if how == "runs is a file":
        runs.write_text("x")
        return
    if how == "runs leads nowhere":
        runs.symlink_to(folder / "absent")
        return
    runs.mkdir()
    if how == "the run is a loop":
        (runs / "a").symlink_to("a")
    elif how == "the run is a file":
        (runs / "a").write_text("x")
    else:
        runs.chmod(0o500)


@pytest.mark.parametrize(
    "how",
    ["runs is a file", "runs leads nowhere", "the run is a loop", "the run is a file", "runs is read-only"],
)
def test_nothing_runs_where_its_files_have_no_place(folder: Path, how: str) -> None:
    if how == "runs is read-only" and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    spoil(folder, how)
    done = orch(folder, "record", "--run-id", "a", "--", sys.executable, "train.py")
    assert done.returncode and not (folder / "ran").exists()
    assert "Traceback" not in done.stderr and str(folder / "runs") in done.stderr and "Next: " in done.stderr
    for verb in (("status",), ("logs", "a"), ("compare", "a", "a")):
        assert "Traceback" not in orch(folder, *verb).stderr
    step = next(line for line in done.stderr.splitlines() if line.startswith("Next: "))
    command = step.removeprefix("Next: ").partition("    #")[0]
    subprocess.run(["sh", "-c", command], check=True, cwd=folder)
    again = orch(folder, "record", "--run-id", "a", "--", sys.executable, "train.py")
    assert again.returncode == 0, again.stderr
    assert (folder / "ran").exists()


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"x": 1}', "[" * 200_000, "\x00", '{"run_id": '])
def test_a_damaged_record_is_named(folder: Path, text: str) -> None:
    from orchestrator.errors import UsageError
    from orchestrator.runs import record_file

    run = folder / "runs" / "a"
    run.mkdir(parents=True)
    (run / "run.json").write_text(text)
    with pytest.raises(UsageError) as error:
        record_file.read(run)
    assert error.value.exists and str(error.value.next_command).startswith("orch pull ")
