"""A full disk here: nothing is rented or sent, no result is lost, and all completes once there is room."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny, until

pytestmark = pytest.mark.machine

SCRIPT = "import time; print('x' * 200_000); open('model.bin', 'wb').write(bytes(700_000))\n"

TALKATIVE = """
import time
for line in range(60):
    print("x" * 100_000, flush=True)
    time.sleep(0.2)
"""


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
    (made.folder.parent / "big").unlink(missing_ok=True)
    made.orch("down", "--discard")
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(project: Project, leave: int = 0) -> Path:
    """Use up all room but `leave` bytes."""
    big = project.folder.parent / "big"
    with open(big, "wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
        file.truncate(max(0, file.tell() - leave))
    return big


def fill_while_it_prints(project: Project, *argv: str) -> tuple[dict[str, str], Path]:
    """The LocalError of a command whose run `one` prints on while the disk fills; and what fills it."""
    (project.folder / "train.py").write_text(TALKATIVE)
    process = project.start(*argv, "--run-id", "one")
    until((project.folder / "runs/one/output.log").exists, 300)
    big = fill(project)
    out, err = process.communicate(timeout=300)
    error: dict[str, str] = json.loads(out)["error"]
    assert process.returncode == 1 and error["kind"] == "LocalError", err
    assert f"the file system {project.folder.parent} has" in error["message"]
    return error, big


def refused(project: Project, *argv: str) -> dict[str, str]:
    """The LocalError with which it ends; it names the file system."""
    error: dict[str, str] = project.json(*argv, code=1)["error"]
    assert error["kind"] == "LocalError", error
    assert f"the file system {project.folder.parent} has" in error["message"], error
    assert f"once there is room in {project.folder.parent}" in error["next_command"], error
    return error


def test_nothing_is_rented_without_room(small: Project) -> None:
    (small.folder / ".orch").mkdir()
    fill(small)
    assert "created nothing" in refused(small, "up", "orch.yaml")["exists"]
    assert "Nothing was rented" in refused(small, "run", "orch.yaml", "--run-id", "one")["exists"]
    assert small.json("status")["leases"] == []


def test_train_and_pull_refuse_and_complete_once_there_is_room(small: Project) -> None:
    small.orch("up", "orch.yaml")
    big = fill(small)
    error = refused(small, "train", "--run-id", "one")
    assert "Nothing was sent" in error["exists"] and "still running" in error["exists"]
    assert error["next_command"].startswith("orch train --run-id one ")
    big.unlink()

    small.json("train", "--detach", "--run-id", "one")
    small.orch("logs", "-f", "one")
    big = fill(small)
    assert refused(small, "pull")["next_command"].startswith("orch pull one ")
    big.unlink()
    record = small.json("pull")
    assert record["run_id"] == "one"
    assert (small.folder / "runs/one/outputs/model.bin").stat().st_size == 700_000
    assert record["not_fetched"] == []

    big = fill(small, leave=(65 << 20) + 400_000)  # what the run before left is known
    error = refused(small, "train", "--run-id", "two")
    assert "as one had" in error["message"] and error["next_command"].startswith("orch train --run-id two ")
    big.unlink()


def test_a_disk_that_fills_while_the_run_is_followed_loses_nothing(small: Project) -> None:
    small.orch("up", "orch.yaml")
    error, big = fill_while_it_prints(small, "train", "--json")
    assert "one is on its machine, with its results" in error["exists"]
    assert error["next_command"].startswith("orch pull one ")
    big.unlink()
    small.orch("logs", "-f", "one")
    assert small.json("pull", "one")["exit"]["reason"] == "completed"


def test_a_disk_that_fills_during_run_leaves_the_command_that_ends_it(small: Project) -> None:
    error, big = fill_while_it_prints(small, "run", "--json", "orch.yaml")
    assert "was left running" in error["exists"]
    assert error["next_command"].startswith("orch run orch.yaml --run-id one ")
    big.unlink()
    assert small.json("run", "orch.yaml", "--run-id", "one")["exit"]["reason"] == "completed"
    assert small.json("status")["leases"] == []
