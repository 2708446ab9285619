"""Many leases of one project: what is asked does not grow with their number."""

from __future__ import annotations

from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.model import Labels, Machine, Partial
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session.project import Project
from tests.unit.memory_cloud import leased, opened, serve, spec_for


class Counted(MemoryProvider):
    """Counts its lists. `refused`: a region that no list contains."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    def list(self, labels: Labels) -> tuple[Machine, ...] | Partial:
        self.lists += 1
        return tuple(super().list(labels))


@pytest.mark.parametrize("count", [1, 2, 30])
def test_status_lists_the_machines_of_a_cloud_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    cloud = Counted()
    serve(cloud, monkeypatch)
    project = Project(tmp_path)
    for number in range(count):
        name = f"many-{number:06x}"
        (project.state / name).mkdir(parents=True)
        machine = leased(project, name, opened(), spec_for(name))
        if number == 1:
            cloud.kill(machine)
    cloud.lists = 0
    found = orch.status(folder=tmp_path, ask=True)
    assert cloud.lists == 1
    assert {each.state for each in found if each.lease != "many-000001"} == {"running"}
    assert [each.state for each in found if each.lease == "many-000001"] == ["gone"] * (count > 1)
    assert len({each.machine for each in found}) == count
