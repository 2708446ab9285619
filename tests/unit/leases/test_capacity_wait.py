"""`wait`: `up` goes on to ask where no offer has capacity, then leaves with exit code 4 and nothing made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import EXIT_CAPACITY, Fault, ProviderError
from orchestrator.leases import machine as making
from orchestrator.leases import waiting
from orchestrator.leases.consent import Consent
from orchestrator.leases.offered import planned_of
from orchestrator.ledger import Lease, Ledger
from orchestrator.model import Endpoint, Progress, Provider, Silent
from orchestrator.profile import Profile, load
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session.project import Project
from orchestrator.session.reach import Reached
from tests.said import Said
from tests.unit.memory_cloud import opened_lease

PROFILE = """
version: 1
name: digits
cloud: memory
resources: {memory: 1 GiB+}
max_duration: 1h
train: {command: python train.py}
"""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    made = MemoryProvider()
    monkeypatch.setattr(making, "wait_until_reachable", _reached)
    for offer in made._catalog:
        made.sell_out(offer.instance_type, offer.zone)
    return made


def _reached(provider: Provider, lease: Lease, tell: Progress) -> Reached:
    del tell
    machine = next(one for one in provider.list({"orch-lease": lease.id}))
    return Reached(provider, machine, Endpoint("here", 22, "me", ()), 600.0, 0.0)


def wanted(folder: Path, wait: str) -> Profile:
    path = folder / "p.yaml"
    path.write_text(PROFILE + f"wait: {wait}\n")
    return load(path)


def made(place: Project, cloud: MemoryProvider, profile: Profile, tell: Progress) -> tuple[Ledger, Reached]:
    ledger = opened_lease(place, "digits")
    place.identity("digits").unlink()
    planned = planned_of(profile, cloud, ())
    return ledger, making.machine_of(ledger, cloud, planned, profile, place, tell, Consent(None, profile))


def pauses(monkeypatch: pytest.MonkeyPatch, during: Callable[[int], None]) -> list[float]:
    """Let time pass by the pauses alone; `during` is told the number of each."""
    slept: list[float] = []

    class Watched(waiting.CapacityWait):
        def __init__(self, seconds: float | None, tell: Progress) -> None:
            super().__init__(seconds, tell, clock=lambda: sum(slept), sleep=self.nap, random=lambda: 1.0)

        @staticmethod
        def nap(seconds: float) -> None:
            slept.append(seconds)
            during(len(slept))

    monkeypatch.setattr(making, "CapacityWait", Watched)
    return slept


def test_up_waits_until_there_is_capacity(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = pauses(monkeypatch, lambda number: cloud.restock() if number == 3 else None)
    told = Said()
    ledger, reached = made(Project.at(tmp_path), cloud, wanted(tmp_path, "2h"), told)
    assert slept == [15.0, 30.0, 60.0]
    assert [one.id for one in cloud.alive()] == [reached.machine.id]
    numbers = [attempt.number for attempt in ledger.lease().attempts]
    assert numbers == sorted(set(numbers)), "each try is an attempt of its own"
    assert sum("Waiting costs nothing" in line for line in told.lines) == 3


def test_the_time_over_it_leaves_with_nothing_made(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = pauses(monkeypatch, lambda _: None)
    with pytest.raises(ProviderError) as refused:
        made(Project.at(tmp_path), cloud, wanted(tmp_path, "30m"), Silent())
    assert refused.value.fault is Fault.CAPACITY
    assert refused.value.exit_code == EXIT_CAPACITY
    assert (sum(slept), max(slept)) == (1800.0, waiting.LONGEST_S)
    assert not cloud.alive()


def test_an_interrupt_while_it_waits_leaves_nothing(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    pauses(monkeypatch, interrupt)
    place = Project.at(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made(place, cloud, wanted(tmp_path, "2h"), Silent())
    assert not cloud.alive()
    assert all(attempt.settled for attempt in place.lease("digits").attempts)


def test_without_the_field_it_asks_once(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = pauses(monkeypatch, lambda _: None)
    with pytest.raises(ProviderError):
        made(Project.at(tmp_path), cloud, wanted(tmp_path, "~"), Silent())
    assert slept == []
