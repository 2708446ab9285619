"""down: nothing is called gone that was not asked for by its id, whatever a list answers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.errors import CleanupUnproven, Fault, ProviderError
from orchestrator.leases.down import down
from orchestrator.leases.status import status
from orchestrator.ledger import Holding
from orchestrator.model import Ending, Machine
from orchestrator.providers.memory import MemoryProvider, Mishap, Temper
from orchestrator.session import machines
from orchestrator.session.project import Project
from tests.unit.memory_cloud import intent, leased, opened_lease, serve, spec_for


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(machines, "_LIST_SECONDS", 0.05)
    return Project.at(tmp_path)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    made = MemoryProvider()
    serve(made, monkeypatch)
    return made


@pytest.mark.parametrize("answers", [2, 3, 10_000])
def test_empty_lists_do_not_hide_a_machine(project: Project, cloud: MemoryProvider, answers: int) -> None:
    made = leased(project, "a", cloud, spec_for("a"))
    cloud.list_nothing(answers)
    report = down(folder=project.root)
    assert (report.machines, report.proven_gone) == ((made.id,), True)
    assert not cloud.alive()


def test_the_key_stays_while_the_machine_may_run(
    project: Project, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is empty from the start, the end is accepted, and the machine goes on."""
    monkeypatch.setattr(machines, "_GONE_LIMIT", 0.1)
    made = leased(project, "a", cloud, spec_for("a"))
    cloud.list_nothing(10_000)
    cloud._temper = Temper(gone_after=1e9)
    with pytest.raises(CleanupUnproven) as unproven:
        down(folder=project.root)
    assert made.id in unproven.value.message
    assert "$0.05/h" in str(unproven.value.exists)
    assert project.identity("a").exists()
    assert project.lease("a").open


def test_the_key_stays_where_nobody_answers_for_the_machine(project: Project, cloud: MemoryProvider) -> None:
    leased(project, "a", cloud, spec_for("a"))
    cloud.list_nothing(10_000)
    cloud.fail_next("find", Mishap(Fault.AUTH))
    with pytest.raises(ProviderError):
        down(folder=project.root)
    assert project.identity("a").exists()
    assert project.lease("a").open
    assert cloud.alive()


def test_what_a_create_call_made_that_nobody_answered_is_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` was killed between the call and its receipt: no id is known, and the list is late."""
    cloud = MemoryProvider(temper=Temper(visible_after=0.3))
    serve(cloud, monkeypatch)
    spec = spec_for("a")
    intent(opened_lease(project, "a"), spec)
    cloud.create(spec)
    down(folder=project.root)
    assert not cloud.alive()


def test_a_call_that_failed_without_an_answer_may_have_made_a_machine(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = MemoryProvider(temper=Temper(visible_after=0.3))
    serve(cloud, monkeypatch)
    spec = spec_for("a")
    ledger = opened_lease(project, "a")
    intent(ledger, spec)
    cloud.create(spec)
    ledger.append("create.refused", attempt=0, fault="transient", code="", message="no answer")
    down(folder=project.root)
    assert not cloud.alive()


def test_a_machine_that_another_one_replaced_is_ended_too(project: Project, cloud: MemoryProvider) -> None:
    """Listed or not: the ledger knows its id."""
    leased(project, "a", cloud, spec_for("a"))
    leased(project, "a", cloud, spec_for("a", 1))
    cloud.list_nothing(10_000)
    assert len(down(folder=project.root).machines) == 2
    assert not cloud.alive()


def test_an_end_that_was_lost_is_asked_for_again(
    project: Project, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted, and forgotten: the machine shows no sign of ending."""
    monkeypatch.setattr(machines, "_ASK_AGAIN_SECONDS", 0.05)
    leased(project, "a", cloud, spec_for("a"))
    deletes = []
    forgetful = cloud.delete
    monkeypatch.setattr(cloud, "delete", lambda m: deletes.append(m) or (len(deletes) > 1 and forgetful(m)))
    down(folder=project.root)
    assert len(deletes) == 2
    assert not cloud.alive()


def test_status_does_not_call_gone_what_a_list_misses(project: Project, cloud: MemoryProvider) -> None:
    leased(project, "a", cloud, spec_for("a"))
    cloud.list_nothing(10_000)
    (lease,) = status(folder=project.root, ask=True)
    assert lease.state == "running"


def test_up_after_an_empty_list_keeps_the_machine(project: Project, cloud: MemoryProvider) -> None:
    """`up` plans from the kept machine; a second one would cost twice."""
    from orchestrator.session.machines import machines_of

    made = leased(project, "a", cloud, spec_for("a"))
    cloud.list_nothing(10_000)
    assert [machine.id for machine in machines_of(cloud, project.lease("a"))] == [made.id]


# ---------------------------------------------------------------- what it cost


def test_cost_stops_at_the_deadline_and_counts_replaced_machines(project: Project) -> None:
    ledger = opened_lease(project, "a")
    begun = time.time() - 7200
    for number, start, deadline in ((0, begun, begun + 1800), (1, begun + 3600, begun + 3600 + 1800)):
        machine = {"id": f"vm-{number}"}
        ledger.append(
            "create.accepted",
            attempt=number,
            machine=machine,
            created_at=start,
            deadline=deadline,
            price=2.0,
        )
    lease = ledger.lease()
    assert lease.cost(time.time()) == pytest.approx(2.0)
    assert lease.seconds(time.time()) == pytest.approx(3600)
    ledger.append("machine.ended", machine="vm-0", at=begun + 900)
    assert ledger.lease().cost(time.time()) == pytest.approx(1.5)


class Telling(MemoryProvider):
    """A cloud that says of every machine that it stopped at `at`."""

    def __init__(self, at: float | None) -> None:
        super().__init__()
        self._at = at

    def ending(self, machine: Machine) -> Ending | None:  # noqa: ARG002
        return Ending("it was ended.", at=self._at)


@pytest.mark.parametrize(
    ("told", "stopped"),
    [(300.0, 300.0), (-0.7, 0.0), (-7200.0, 600.0), (90_000.0, 600.0), (None, 600.0)],
    ids=["plausible", "rounded", "before it was made", "in the future", "not told"],
)
def test_cost_stops_when_the_cloud_says_where_that_can_be(told: float | None, stopped: float) -> None:
    """Times are seconds after the creation; this computer's clock is a day ahead of the cloud's."""
    made = time.time() - 86_400 - 600
    holding = Holding("l", {"id": "vm-0"}, made, made + 86_400, None, 2.0, age=0.0)
    found = machines._stopped_at(Telling(None if told is None else made + told), holding, time.time())
    assert found - made == pytest.approx(stopped, abs=120 if stopped == 600.0 else 0.001)
