"""The clock of this computer is wrong, or is set while a machine is leased: costs and deadlines stay true."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.leases.lease_status import lease_status
from orchestrator.leases.machine import receipt
from orchestrator.ledger import clock, lines
from orchestrator.ledger.clock import Tick
from orchestrator.model import MachineSpec, machines
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.lease import status_text
from orchestrator.session.project import Project
from tests.unit.memory_cloud import intent, opened_lease, serve, spec_for

DAY = 86_400.0
PRICE = 2.0


class Times:
    """The true time, what the clock here is off, and since when this computer runs."""

    def __init__(self, patch: pytest.MonkeyPatch, off: float) -> None:
        self.true, self.off, self.up, self.boot = 1_800_000_000.0, off, 500.0, "one"
        patch.setattr(time, "time", self.here)
        patch.setattr(lines, "_now", self.here)
        patch.setattr(clock, "tick", lambda: Tick(self.boot, self.up))
        patch.setattr(machines, "since_start", lambda: self.up)

    def here(self) -> float:
        return self.true + self.off

    def there(self) -> float:
        return self.true

    def go_on(self, seconds: float) -> None:
        self.true += seconds
        self.up += seconds

    def restart(self) -> None:
        self.boot, self.up = self.boot + "+", 1.0


def leased(project: Project, times: Times, cloud: MemoryProvider) -> None:
    """A lease of an hour, made as `up` makes it. A cloud counts the hour by its own clock."""
    ledger = opened_lease(project, "a")
    spec: MachineSpec = replace(spec_for("a"), deadline=datetime.fromtimestamp(times.there() + 3600, UTC))
    intent(ledger, spec)
    deadline = datetime.fromtimestamp(times.here() + 3600, UTC)
    machine = replace(cloud.create(spec), price=PRICE, age=0.0, deadline=deadline)
    ledger.record(receipt(0, machine))


@pytest.fixture(params=[0.0, DAY, -DAY, 7200.0, -7200.0], ids=["right", "+1 d", "-1 d", "+2 h", "-2 h"])
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch, request.param)


@pytest.fixture
def cloud(times: Times, monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    made = MemoryProvider(clock=times.there)
    serve(made, monkeypatch)
    return made


@pytest.fixture
def project(tmp_path: Path, times: Times, cloud: MemoryProvider) -> Project:
    found = Project(tmp_path)
    leased(found, times, cloud)
    return found


@pytest.mark.parametrize("step", [0.0, DAY, -DAY])
@pytest.mark.parametrize("minutes", [10, 600])
def test_the_cost_is_of_the_time_that_went_by(
    project: Project, times: Times, step: float, minutes: int
) -> None:
    """Nobody asks the cloud; the clock is set by `step` while the machine is leased."""
    times.go_on(60 * minutes)
    times.off += step
    lease = project.lease("a")
    hours = min(minutes / 60, 1.0)
    assert lease.cost(lease.now()) == pytest.approx(hours * PRICE)
    told = lease_status(lease, None, asked=False)
    assert told.cost == pytest.approx(hours * PRICE)
    assert told.deadline is not None
    assert told.deadline - times.here() == pytest.approx(3600 - 60 * minutes)


@pytest.mark.parametrize("step", [0.0, DAY, -DAY])
def test_where_this_computer_was_restarted_the_cloud_tells(
    project: Project, times: Times, cloud: MemoryProvider, step: float
) -> None:
    times.go_on(1200)
    times.off += step
    times.restart()
    (machine,) = cloud.list({})
    told = lease_status(project.lease("a"), machine)
    assert told.cost == pytest.approx(PRICE / 3)
    assert "in 40 min" in status_text([told], times.here())


def test_a_deadline_is_not_later_for_what_was_done_since_the_cloud_was_asked(
    project: Project, times: Times, cloud: MemoryProvider
) -> None:
    """`up` asks, installs the stack, and then says how long the machine will last."""
    (machine,) = cloud.list({})
    times.go_on(600)
    told = lease_status(project.lease("a"), machine)
    assert "in 50 min" in status_text([told], times.here())
    assert told.cost == pytest.approx(PRICE / 6)


@pytest.mark.parametrize("step", [0.0, DAY, -DAY])
@pytest.mark.parametrize("restarted", [False, True])
def test_down_says_what_the_machine_cost(
    project: Project, times: Times, step: float, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times.go_on(1200)
    times.off += step
    if restarted:
        times.restart()
    monkeypatch.setattr(time, "sleep", times.go_on)
    report = orch.down("a", folder=project.root)
    assert report.proven_gone
    assert report.seconds == pytest.approx(1200, abs=60)
    assert report.cost == pytest.approx(PRICE / 3, abs=0.05)
    assert project.leases()[0].cost(times.here()) == report.cost
