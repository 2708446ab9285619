"""That a machine ends at its deadline is said where that is proven, and nowhere else."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import HostError
from orchestrator.leases.lease_status import lease_status
from orchestrator.leases.remains import describe_remains
from orchestrator.ledger import Ledger
from orchestrator.model import Completed, MachineState
from orchestrator.providers.memory import CATALOG, MemoryProvider
from orchestrator.report.lease import status_text
from orchestrator.session.machines import machine_from_holding
from orchestrator.session.project import Project
from orchestrator.session.session import Session
from tests.unit.memory_cloud import leased, spec_for


def held(tmp_path: Path, cloud: str, detail: dict[str, Any] | None = None, *, armed: bool = False) -> Ledger:
    """A lease of a machine on `cloud`, whose create call was answered."""
    project = Project.at(tmp_path)
    made = MemoryProvider()
    made.name = cloud
    leased(project, "tiny", made, spec_for("tiny", offer=CATALOG[0]))
    ledger = project.ledger("tiny")
    facts = {**(ledger.lease().machine or {}), "detail": detail or {}}
    known = {"created_at": time.time(), "deadline": time.time() + 3600, "price": 0.05}
    ledger.append("create.accepted", attempt=0, machine=facts, **known)
    if armed:
        ledger.append("machine.armed", machine=facts["id"])
    return ledger


CASES = [
    # cloud, what is known of the machine, a timer was seen, an end is proven
    ("aws", {}, False, False),
    ("aws", {"alarms": ["dead"]}, False, False),
    ("aws", {"alarms": ["dead", "late"]}, False, True),
    ("aws", {}, True, True),
    ("gcp", {}, False, True),
    ("local", {}, False, True),
]


@pytest.mark.parametrize(("cloud", "detail", "armed", "proven"), CASES)
def test_until_is_said_where_an_end_is_proven(
    tmp_path: Path, cloud: str, detail: dict[str, Any], armed: bool, proven: bool
) -> None:
    ledger = held(tmp_path, cloud, detail, armed=armed)
    with pytest.raises(HostError) as refused, describe_remains(ledger):
        raise HostError("The connection broke.")
    assert (" until " in str(refused.value.exists)) is proven
    assert ("no timer is known to end it" in str(refused.value.exists)) is not proven
    status = lease_status(ledger.lease(), None, asked=False)
    assert status.deadline_proven is proven
    assert ("powers itself off at" in status_text([status])) is proven


@pytest.mark.parametrize(("cloud", "proven"), [("aws", False), ("gcp", True)])
def test_a_machine_that_may_have_been_made(tmp_path: Path, cloud: str, proven: bool) -> None:
    ledger = Project.at(tmp_path).ledger("tiny")
    facts = {"name": "tiny", "cloud": cloud, "path": "p.yaml", "overrides": [], "digest": "d"}
    ledger.append("lease.opened", lease="tiny", profile=facts)
    offer = {"instance_type": "t", "zone": "z", "price": 0.05, "deadline": time.time() + 60}
    ledger.append("create.intent", attempt=0, spec_id="orch-tiny", **offer)
    with pytest.raises(HostError) as refused, describe_remains(ledger):
        raise HostError("The connection broke.")
    assert "may have been created, at $0.05/h" in str(refused.value.exists)
    assert (" until " in str(refused.value.exists)) is proven


@pytest.mark.parametrize(
    ("answer", "sound"),
    [
        (b'{"pid": 7, "left": 3599.2, "idle": 0}', True),
        (b'{"pid": 7, "left": null}', False),
        (b'{"pid": 7, "left": 1e999}', False),
        (b'{"pid"', False),
        (b"", False),
    ],
)
def test_the_timer_is_looked_at_when_the_watcher_starts(tmp_path: Path, answer: bytes, sound: bool) -> None:
    ledger = held(tmp_path, "aws")
    (machine,) = _machines(ledger)
    host: Any = SimpleNamespace(run=lambda *_, **__: Completed((), 0, answer, b""))
    agent: Any = SimpleNamespace(base="/base", argv=lambda *words: words)
    profile: Any = SimpleNamespace(idle_duration=None, max_duration=3600, path=Path("p.yaml"))
    unused: Any = None
    session = Session(unused, ledger, profile, unused, machine, host, agent, unused)
    if sound:
        session.watch_idleness()
    else:
        with pytest.raises(HostError, match=r"shows no timer|never sends"):
            session.watch_idleness()
    (known,) = ledger.lease().holdings
    assert known.armed is sound


def _machines(ledger: Ledger) -> list[Any]:
    """The lease's machine, as its provider shows it."""
    until = datetime.now(UTC) + timedelta(hours=1)
    found = ledger.lease().holding
    assert found
    return [replace(machine_from_holding(found), state=MachineState.RUNNING, deadline=until)]
