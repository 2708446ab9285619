"""Twenty projects of one computer that train at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.project import Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.nightly]

MANY = 20
SCRIPT = """\
import os, pathlib, time
for step in range(10):
    print("step", step, flush=True)
    time.sleep(0.3)
pathlib.Path("out").mkdir()
pathlib.Path("out/who").write_text(os.environ["WHO"])
"""


@pytest.fixture
def projects(tmp_path: Path, machines: Path) -> Iterator[list[Project]]:
    made = [tiny(tmp_path / f"p{n}", machines, SCRIPT, memory="256 MiB", disk="512 MiB") for n in range(MANY)]
    for number, project in enumerate(made):
        profile = project.folder / "orch.yaml"
        profile.write_text(f"{profile.read_text()}  env: {{WHO: w{number}}}\n")
    yield made
    together(made, "down", "--discard", "--yes")


def together(projects: list[Project], *argv: str) -> list[str]:
    """Run the command in all projects at once; return what each printed as an error, "" for success."""
    begun = [project.start(*argv) for project in projects]
    said = [process.communicate(timeout=600)[1].decode() for process in begun]
    return [text if process.returncode else "" for process, text in zip(begun, said, strict=True)]


def test_each_gets_its_own_machine_and_its_own_results(projects: list[Project]) -> None:
    assert together(projects, "up", "orch.yaml") == [""] * MANY
    leased = {project.json("status")["leases"][0]["machine"] for project in projects}
    assert len(leased) == MANY
    assert together(projects, "train", "--run-id", "one") == [""] * MANY
    for number, project in enumerate(projects):
        run = project.folder / "runs/one"
        assert (run / "outputs/out/who").read_text() == f"w{number}"
        assert (run / "output.log").read_text().count("step ") == 10
