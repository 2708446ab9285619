"""Contact that breaks where it hurts most: each time it is said what became of the machine and of the run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import LABEL_LEASE, Machine
from orchestrator.providers import open_provider
from tests.e2e.project import Project, tiny, until

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="what runs on the machine is looked at from outside"),
]

WAITS = "import time\nopen('half.txt', 'w').write('half')\nprint('training', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, machines: Path) -> Iterator[Project]:
    made = tiny(tmp_path_factory.mktemp("contact"), machines, WAITS, disk="4 GiB")
    yield made
    made.orch("down", "--discard")


def machine(project: Project) -> Machine:
    lease = project.json("status")["leases"][0]["lease"]
    (found,) = open_provider("local", state=project.state).list({LABEL_LEASE: lease})
    return found


def is_sent_to(machine: Machine) -> bool:
    """Whether the verb that takes a tree in runs there, as this computer sees its machines' processes."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"apply" in words and machine.name in (process / "root/etc/hostname").read_text():
                return True
        except OSError:
            continue
    return False


def test_a_run_whose_supervisor_was_killed_comes_home_as_lost(project: Project) -> None:
    """Its end was never written down: that is said, with what to do, and not that a file is missing."""
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "orphan", "--json")
    assert train.stderr
    while b"training" not in (line := train.stderr.readline()):
        assert line, train.communicate()
    started = "json.load(open('/opt/orch/runs/orphan/started.json'))"
    kill = f"import json, os; os.kill({started}['supervisor']['pid'], 9)"
    project.orch("ssh", "--", "python3", "-c", kill)
    out, err = train.communicate(timeout=120)
    assert train.returncode == 12, err.decode()
    answer = json.loads(out)
    assert "supervisor was killed; the job still runs, unwatched" in answer["error"]["message"]
    assert answer["error"]["next_command"].startswith("orch cancel orphan && orch pull orphan")
    assert answer["run"]["exit"]["reason"] == "lost"
    assert (project.folder / "runs/orphan/outputs/half.txt").read_text() == "half"
    project.orch("cancel", "orphan")
    assert "how the job ended is not known" in project.json("pull", "orphan", code=12)["exit"]["detail"]
    assert "proven_gone" in project.json("down")


def test_a_machine_that_ends_while_it_is_sent_to_is_called_gone(project: Project, tmp_path: Path) -> None:
    """Before the run began: no run is lost, and nobody is left with "contact was lost"."""
    big = tmp_path / "big"
    with open(big, "wb") as file:
        file.truncate(1 << 30)
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write(f"data: [{{source: '{big}'}}]\n")
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "early", "--json")
    found = machine(project)
    until(lambda: is_sent_to(found), 300)
    open_provider("local", state=project.state).kill(found)  # type: ignore[attr-defined]
    out, err = train.communicate(timeout=120)
    assert train.returncode == 8, err.decode()
    error = json.loads(out)["error"]
    assert f"The machine of {project.json('status')['leases'][0]['lease']} is gone" in error["message"]
    assert error["next_command"].startswith("orch down && orch up ")
    assert project.json("status")["leases"][0]["runs"] == []
