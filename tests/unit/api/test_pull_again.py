"""`pull` of what was fetched before, and onto a disk without room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.api import logs
from orchestrator.errors import LocalError
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes


class Project:
    """A project with a machine, and its run `a`, which has ended and was not fetched."""

    def __init__(self, folder: Path, cloud: HereCloud) -> None:
        self.folder, self.cloud = folder, cloud
        self.profile = here_cloud.project(folder, "")

    def ended(self, script: str) -> Path:
        """Run the script to its end. Returns the folder in which it ran."""
        (self.folder / "train.py").write_text(script)
        orch.up(self.profile, folder=self.folder)
        orch.train(run_id="a", detach=True, folder=self.folder)
        logs.logs("a", follow=True, folder=self.folder, output=lambda _data: None)
        (machine,) = self.cloud.alive()
        return self.cloud.base(machine.id) / "runs" / "a" / "work"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path / "p", here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True))
    yield made
    for machine in made.cloud.alive():
        made.cloud.kill(machine)


def test_a_pull_that_is_to_list_anew_says_what_it_did(project: Project) -> None:
    there = project.ended("open('x', 'w').write('1'); open('y', 'w').write('1')\n")
    orch.pull(folder=project.folder)
    (there / "x").write_text("later")
    told = Said()
    orch.pull(folder=project.folder, again=True, progress=told)
    said = "\n".join(told.lines)
    assert "No run waits to be fetched. a was fetched before, and is fetched anew" in said
    assert "a was listed again on the machine: 1 of 2 output files were downloaded now" in said
    assert (project.folder / "runs/a/outputs/x").read_text() == "later"


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (
            20 << 20,
            (
                "and 64.0 MiB must stay free",
                "In all, 3.0 MiB of results are still on the machine, so 67.0 MiB must be",
            ),
        ),
        (
            (64 << 20) + 9999,
            ("output.log", "In all, 3.0 MiB of results are still on the machine, so 67.0 MiB must be free."),
        ),
    ],
)
def test_a_pull_without_room_says_how_much_is_to_come(
    project: Project, free: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.ended("open('x', 'wb').write(bytes(3 << 20))\nprint('y' * 10_000)\n")
    nearly_full = shutil._ntuple_diskusage(1 << 40, (1 << 40) - free, free)  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _path: nearly_full)
        with pytest.raises(LocalError) as refused:
            orch.pull(folder=project.folder)
    for each in words:
        assert each in refused.value.message
    assert (refused.value.next_command or "").startswith("orch pull a    # once there is room in ")
    assert orch.pull(folder=project.folder).run_id == "a"
