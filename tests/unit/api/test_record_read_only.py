"""`orch record` in a project that is on a read-only file system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'


def test_a_read_only_project_is_named_before_anything_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    mounts = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    there = [*mounts, "sh", "-c", READ_ONLY, "sh", str(project)]
    if subprocess.run([*there, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mounts of its own")
    mark = tmp_path / "ran"
    orch = [str(Path(sys.executable).with_name("orch")), "record", "--", "touch", str(mark)]
    done = subprocess.run([*there, *orch], capture_output=True, text=True, check=False, timeout=120)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1 and not mark.exists()
    assert f"The run's files cannot be written to {project}: Read-only file system" in said
    assert "Nothing was run." in said and f"Next: cp -r {project} ~/project-copy" in said
