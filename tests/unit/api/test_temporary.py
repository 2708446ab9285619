"""A run's own temporary folder: removed at its end, and after a SIGKILL by the next run there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from orchestrator.runtime.temporary import own_temporary
from tests.conftest import ROOT

HOLDS = """
import sys
from orchestrator.runtime.temporary import own_temporary
with own_temporary({}) as environ:
    print(environ["TMPDIR"], flush=True)
    sys.stdin.read()
"""


def holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has such a folder below `place` until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(place)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def abandoned(place: Path) -> Path:
    process, folder = holder(place)
    (folder / "left.bin").write_bytes(b"1")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return folder


def test_what_a_killed_supervisor_left_goes_with_the_next_run(tmp_path: Path) -> None:
    left = abandoned(tmp_path)
    assert left.is_dir()
    with own_temporary({"TMPDIR": str(tmp_path)}) as environ:
        assert [str(each) for each in tmp_path.iterdir()] == [environ["TMPDIR"]]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_stays(tmp_path: Path) -> None:
    """That of a supervisor that lives, and that of a job that outlived its own."""
    process, held = holder(tmp_path)
    used = abandoned(tmp_path)
    job = subprocess.Popen(
        ["cat"], env={**os.environ, "TMPDIR": str(used)}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        with own_temporary({"TMPDIR": str(tmp_path)}):
            assert held.is_dir()
            assert (used / "left.bin").exists()
    finally:
        process.communicate()
        job.communicate()
    with own_temporary({"TMPDIR": str(tmp_path)}):
        assert not used.exists()


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    """Folders of other names, files, and a link of such a name with what it leads to."""
    place = tmp_path / "place"
    kept = (place / "orch-check-1", tmp_path / "elsewhere")
    for folder in kept:
        folder.mkdir(parents=True)
    (place / "orch-run-file").write_text("")
    (place / "orch-run-link").symlink_to(tmp_path / "elsewhere")
    with own_temporary({"TMPDIR": str(place)}):
        pass
    assert all(folder.is_dir() for folder in kept)
    assert sorted(each.name for each in place.iterdir()) == ["orch-check-1", "orch-run-file", "orch-run-link"]
