"""A full disk here: `train` and `pull` end with 1, say what exists, and complete once there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny

pytestmark = pytest.mark.machine

SCRIPT = "import time; print('x' * 200_000); open('model.bin', 'wb').write(bytes(700_000))\n"


@pytest.fixture
def small(tmp_path: Path, machines: Path) -> Iterator[Project]:
    """A project on a file system of 96 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    made = tiny(place / "project", machines, SCRIPT)
    yield made
    made.orch("down", "--discard")
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(project: Project) -> Path:
    """Use up all room."""
    big = project.folder.parent / "big"
    with open(big, "wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return big


def test_train_and_pull_refuse_and_complete_once_there_is_room(small: Project) -> None:
    small.orch("up", "orch.yaml")
    big = fill(small)
    error = small.json("train", "--run-id", "one", code=1)["error"]
    assert error["kind"] == "LocalError", error
    assert "No space left" in error["message"]
    assert "runs on" in error["exists"] and error["next_command"].startswith("orch train")
    big.unlink()

    small.json("train", "--detach", "--run-id", "one")
    small.orch("logs", "-f", "one")
    big = fill(small)
    error = small.json("pull", code=1)["error"]
    assert error["kind"] == "LocalError", error
    big.unlink()
    record = small.json("pull")
    assert record["run_id"] == "one"
    assert (small.folder / "runs/one/outputs/model.bin").stat().st_size == 700_000
    assert record["not_fetched"] == []
