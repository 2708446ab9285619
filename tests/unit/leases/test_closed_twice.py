"""A lease that is closed already, perhaps by another call meanwhile: `down` with its id succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.leases.down import down
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session import machines
from orchestrator.session.project import Project
from tests.unit.memory_cloud import leased, serve, spec_for


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.0)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    cloud = MemoryProvider()
    serve(cloud, monkeypatch)
    return cloud


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_closed_lease_is_confirmed_again_by_its_id(
    cloud: MemoryProvider, tmp_path: Path, others: int
) -> None:
    project = Project(tmp_path)
    leased(project, "one", cloud, spec_for("one"))
    first = down("one", folder=tmp_path)
    for number in range(others):
        leased(project, f"other-{number}", cloud, spec_for(f"other-{number}"))
    again = down("one", folder=tmp_path)
    assert again.leases == ("one",) and again.machines == () and again.proven_gone
    assert again.cost == first.cost
    assert len(cloud.alive()) == others


def test_a_lease_that_never_was_is_refused(cloud: MemoryProvider, tmp_path: Path) -> None:
    leased(Project(tmp_path), "one", cloud, spec_for("one"))
    with pytest.raises(UsageError, match="No machine named two"):
        down("two", folder=tmp_path)


def test_a_machine_that_appears_under_a_closed_lease_is_ended(cloud: MemoryProvider, tmp_path: Path) -> None:
    project = Project(tmp_path)
    leased(project, "one", cloud, spec_for("one"))
    down("one", folder=tmp_path)
    cloud.create(spec_for("one", attempt=1))
    assert len(down("one", folder=tmp_path).machines) == 1
    assert cloud.alive() == []
